// SPDX-License-Identifier: BSD-3-Clause
//! Packets that are sent in one call.
//!
//! The ICRC covers the payload, so the payload must not change between its computation and the call, and a
//! program may write to registered memory, or unmap it, at any time. So each payload is copied once, by the
//! kernel, to its place behind the headers. A system call for each packet would cost more than the copy of
//! its bytes: the payload of the packets that follow is read in the same call, be they of the same message or
//! small messages of their own.
#![forbid(unsafe_code)]

use super::pool::Pool;
use crate::sys::FETCH_BATCH;
use transport::access::{Access, Unreachable};
use transport::roce::link::{Following, Payload};
use transport::roce::wire::{ICRC_LEN, pad_len};

/// Maximum bytes of packets in one call: the limit of a UDP datagram over IPv4 and IPv6.
const BATCH_LEN: usize = 65_000;
/// Maximum packets in one call: UDP_MAX_SEGMENTS of Linux before 6.9.
const BATCH_PACKETS: u16 = 64;
const _: () = assert!(BATCH_PACKETS as usize <= FETCH_BATCH);
/// Maximum free buffers kept for reuse.
const FREE_BUFFERS: usize = 8;

/// Free buffers, for senders that have something to send.
pub(super) type Buffers = Pool<BATCH_LEN, FREE_BUFFERS>;

/// Copies pieces out of registered memory, the n-th one to byte n * stride of the buffer.
pub(crate) type Fetch<'a> = &'a mut dyn FnMut(&[Access], &mut [u8], usize) -> Result<(), Unreachable>;

/// Packets with their ICRCs, of equal length, of which the last may be shorter.
pub(super) struct Batch {
    buffer: Vec<u8>,
    /// Bytes of the packets.
    len: usize,
    /// Length of the first packet in bytes.
    pub packet_len: usize,
    pub count: u16,
    /// The ICRC of each packet is that for its number as identification, otherwise for 0.
    pub is_numbered: bool,
    /// Bytes that were already sent, as single packets.
    pub sent: usize,
    /// The last packet is shorter, so none can follow in this batch.
    is_full: bool,
    ahead: Option<Ahead>,
}

/// Payload of packets that probably follow, which is in its place already.
struct Ahead {
    /// Where that of each packet was read from.
    pieces: Vec<Access>,
    /// The piece of the next packet.
    next: usize,
    /// Where it starts in the batch.
    at: usize,
    /// From there to that of the packet behind it.
    stride: usize,
}

impl Batch {
    /// Of packets of `packet_len` bytes, in a buffer of [`BATCH_LEN`]. `is_numbered`: to be sent with
    /// UDP_SEGMENT.
    pub(super) fn new(buffer: Vec<u8>, packet_len: usize, is_numbered: bool) -> Self {
        Self { buffer, len: 0, packet_len, count: 0, is_numbered, sent: 0, is_full: false, ahead: None }
    }

    /// The packets.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }

    /// The next packet behind [`Self::sent`].
    pub(super) fn unsent(&mut self) -> Option<&mut [u8]> {
        let (packet_len, sent) = (self.packet_len, self.sent);
        self.bytes()[sent..].chunks_mut(packet_len).next()
    }

    /// The buffer, to be used again.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Adds a packet, for which there is room, and returns it from the BTH to the pad, and the place of its
    /// ICRC. `Err`: its payload cannot be read; it was not added.
    pub(super) fn add(
        &mut self,
        headers: &[u8],
        payload: Payload<'_>,
        fetch: Fetch<'_>,
    ) -> Result<(&[u8], &mut [u8]), Unreachable> {
        let at = self.len + headers.len();
        let end = at + payload.len() + usize::from(pad_len(payload.len()));
        let len = end + ICRC_LEN - self.len;
        match payload {
            Payload::Bytes(bytes) => self.buffer[at..at + bytes.len()].copy_from_slice(bytes),
            Payload::Memory { from, following } => self.fetch(at, from, following, len, fetch)?,
        }
        self.buffer[self.len..at].copy_from_slice(headers);
        self.buffer[at + payload.len()..end].fill(0);
        let (packet, icrc) = self.buffer[self.len..end + ICRC_LEN].split_at_mut(end - self.len);
        self.len = end + ICRC_LEN;
        self.count += 1;
        self.is_full = len < self.packet_len;
        Ok((packet, icrc))
    }

    /// Whether a packet of this length fits.
    pub(super) fn has_room(&self, len: usize) -> bool {
        !self.is_full && len <= self.packet_len && self.count < BATCH_PACKETS && self.len + len <= BATCH_LEN
    }

    /// Fetches the payload of a packet of `len` bytes to `at`, and that of as many packets behind it as there
    /// is room for.
    fn fetch(
        &mut self,
        at: usize,
        from: Access,
        following: Following<'_>,
        len: usize,
        fetch: Fetch<'_>,
    ) -> Result<(), Unreachable> {
        if self.take_ahead(at, from) {
            return Ok(());
        }
        let pieces = if len == self.packet_len { self.pieces(from, following) } else { Vec::new() };
        // An error may be that of a packet behind this one.
        if !pieces.is_empty() && fetch(&pieces, &mut self.buffer[at..], len).is_ok() {
            self.ahead = Some(Ahead { pieces, next: 1, at: at + len, stride: len });
            return Ok(());
        }
        fetch(&[from], &mut self.buffer[at..at + from.len], 0)
    }

    /// The payload of the next packet, which has the length of the first one, and of those behind it for
    /// which there is room. Empty: none follows.
    fn pieces(&self, from: Access, following: Following<'_>) -> Vec<Access> {
        let room = usize::from(BATCH_PACKETS - self.count).min((BATCH_LEN - self.len) / self.packet_len);
        let mut pieces = Vec::new();
        for n in 0..room.saturating_sub(1) {
            let Some(piece) = following(n).filter(|piece| piece.len <= from.len) else { break };
            if pieces.is_empty() {
                if pieces.try_reserve_exact(room).is_err() {
                    break;
                }
                pieces.push(from);
            }
            pieces.push(piece);
            if piece.len < from.len {
                break;
            }
        }
        pieces
    }

    /// Whether this payload is there already.
    fn take_ahead(&mut self, at: usize, from: Access) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        if ahead.at != at || ahead.pieces.get(ahead.next) != Some(&from) {
            self.ahead = None;
            return false;
        }
        ahead.next += 1;
        ahead.at += ahead.stride;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::access::Denied;

    const HEADERS: [u8; 12] = [9; 12];

    /// Memory whose byte at an address is a function of it, up to `end`; counts the calls that read it.
    struct Memory {
        end: u64,
        calls: usize,
    }

    fn byte(addr: u64) -> u8 {
        (addr * 31 + addr / 251) as u8
    }

    impl Memory {
        fn fetch(&mut self, pieces: &[Access], into: &mut [u8], stride: usize) -> Result<(), Unreachable> {
            self.calls += 1;
            for (n, piece) in pieces.iter().enumerate() {
                if piece.addr + piece.len as u64 > self.end {
                    return Err(Unreachable::Denied(Denied::Bounds));
                }
                let to = &mut into[n * stride..][..piece.len];
                to.iter_mut().zip(piece.addr..).for_each(|(to, addr)| *to = byte(addr));
            }
            Ok(())
        }

        /// Adds a packet, in a new batch if it has no room in this one. So many bytes follow.
        fn add(
            &mut self,
            batch: &mut Batch,
            addr: u64,
            len: usize,
            following: usize,
        ) -> Result<(), Unreachable> {
            let following = |n: usize| {
                let left = following.saturating_sub(n * len);
                let addr = addr + ((n + 1) * len) as u64;
                (left > 0).then_some(Access { stag: 1, addr, len: left.min(len), rights: 0 })
            };
            self.add_before(batch, addr, len, &following)
        }

        /// As [`Memory::add`]: these pieces follow.
        fn add_before(
            &mut self,
            batch: &mut Batch,
            addr: u64,
            len: usize,
            following: Following<'_>,
        ) -> Result<(), Unreachable> {
            let packet_len = HEADERS.len() + len.next_multiple_of(4) + ICRC_LEN;
            if !batch.has_room(packet_len) {
                *batch = Batch::new(vec![0xee; BATCH_LEN], packet_len, true);
            }
            let from = Access { stag: 1, addr, len, rights: 0 };
            let payload = Payload::Memory { from, following };
            let (packet, _) =
                batch.add(&HEADERS, payload, &mut |pieces, into, stride| self.fetch(pieces, into, stride))?;
            assert_eq!(packet[..HEADERS.len()], HEADERS);
            let (payload, pad) = packet[HEADERS.len()..].split_at(len);
            assert!(payload.iter().zip(addr..).all(|(payload, addr)| *payload == byte(addr)));
            assert!(pad.len() < 4 && pad.iter().all(|pad| *pad == 0));
            Ok(())
        }
    }

    fn empty() -> Batch {
        Batch::new(Vec::new(), 0, true)
    }

    #[test]
    fn payload_of_a_batch_is_read_in_one_call() {
        let (mut memory, mut batch) = (Memory { end: u64::MAX, calls: 0 }, empty());
        let total = 30 * 4096 + 5;
        for at in (0..total).step_by(4096) {
            let len = 4096.min(total - at);
            memory.add(&mut batch, 100 + at as u64, len, total - at - len).unwrap();
        }
        assert_eq!(memory.calls, 3, "15 packets of 4112 bytes in 65,000, and the rest");
    }

    #[test]
    fn payload_of_small_messages_is_read_in_one_call() {
        let (mut memory, mut batch) = (Memory { end: u64::MAX, calls: 0 }, empty());
        let addr = |n: u64| (1 << 20) | (n * 5_000 % 70_000);
        for n in 0..200 {
            let following = |more: usize| {
                let next = n + 1 + more as u64;
                (next < 200).then_some(Access { stag: 1, addr: addr(next), len: 8, rights: 0 })
            };
            memory.add_before(&mut batch, addr(n), 8, &following).unwrap();
        }
        assert_eq!(memory.calls, 4, "64 packets each");
    }

    #[test]
    fn memory_that_ends_fails_the_packet_that_needs_it() {
        let (mut memory, mut batch) = (Memory { end: 10_000, calls: 0 }, empty());
        for at in (0..9 * 1024).step_by(1024) {
            memory.add(&mut batch, at, 1024, 100_000).unwrap();
        }
        assert!(memory.add(&mut batch, 9 * 1024, 1024, 100_000).is_err());
        let before = batch.count;
        memory.add(&mut batch, 0, 1024, 0).unwrap();
        assert_eq!(batch.count, before + 1, "the other one was not added");
    }

    #[test]
    fn packets_have_their_payload_whatever_was_predicted() {
        let mut random = fastrand::Rng::with_seed(24_701);
        let (mut memory, mut batch) = (Memory { end: 1 << 20, calls: 0 }, empty());
        let mut addr = 0;
        for _ in 0..100_000 {
            let len = if random.u8(..4) == 0 { random.usize(1..=256) } else { 256 };
            if random.u8(..8) == 0 {
                addr = random.u64(..1 << 20);
            }
            let is_there = addr + len as u64 <= memory.end;
            let following = random.usize(..8) * random.usize(..=256);
            assert_eq!(memory.add(&mut batch, addr, len, following).is_ok(), is_there);
            addr = if is_there { addr + len as u64 } else { 0 };
        }
        assert!(memory.calls < 90_000, "{}", memory.calls);
    }
}
