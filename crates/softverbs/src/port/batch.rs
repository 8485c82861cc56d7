// SPDX-License-Identifier: BSD-3-Clause
//! Packets that are sent in one call.
//!
//! The ICRC covers the payload, so the payload must not change between its computation and the call, and a
//! program may write to registered memory, or unmap it, at any time. So each payload is copied once, by the
//! kernel, to its place behind the headers. A system call for each packet would cost more than the copy of
//! its bytes: the payload of the packets that follow is read in the same call.
#![forbid(unsafe_code)]

use std::io::IoSliceMut;
use std::sync::Mutex;

use arrayvec::ArrayVec;

use crate::lock;
use transport::access::{Access, Unreachable};
use transport::roce::link::Payload;
use transport::roce::wire::{ICRC_LEN, pad_len};

/// Maximum bytes of packets in one call: the limit of a UDP datagram over IPv4 and IPv6.
const BATCH_LEN: usize = 65_000;
/// Maximum packets in one call: UDP_MAX_SEGMENTS of Linux before 6.9.
const BATCH_PACKETS: u16 = 64;
/// Maximum free buffers kept for reuse.
const FREE_BUFFERS: usize = 8;

/// Free buffers of [`BATCH_LEN`] bytes, for senders that have something to send.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// `None` without memory.
    pub(super) fn get(&self) -> Option<Vec<u8>> {
        let free = lock(&self.0).pop();
        free.or_else(|| {
            let mut new = Vec::new();
            new.try_reserve_exact(BATCH_LEN).ok()?;
            new.resize(BATCH_LEN, 0);
            Some(new)
        })
    }

    pub(super) fn put(&self, buffer: Vec<u8>) {
        let mut free = lock(&self.0);
        if free.len() < FREE_BUFFERS && free.try_reserve(1).is_ok() {
            free.push(buffer);
        }
    }
}

/// Copies payload out of registered memory, to several places in turn.
pub(crate) type Fetch<'a> = &'a mut dyn FnMut(Access, &mut [IoSliceMut<'_>]) -> Result<(), Unreachable>;

/// Packets with their ICRCs, of equal length, of which the last may be shorter.
pub(super) struct Batch {
    buffer: Vec<u8>,
    /// Bytes of the packets.
    len: usize,
    /// Length of the first packet in bytes.
    pub packet_len: usize,
    pub count: u16,
    /// Bytes that were already sent, as single packets.
    pub sent: usize,
    /// The last packet is shorter, so none can follow in this batch.
    is_full: bool,
    ahead: Option<Ahead>,
}

/// Payload of packets that probably follow, which is in its place already.
#[derive(Clone, Copy)]
struct Ahead {
    /// Where it was read from.
    from: Access,
    /// Where the payload of the next packet starts in the batch.
    at: usize,
    /// From there to the payload of the packet behind it.
    stride: usize,
    /// That of a packet, unless it is the last one.
    payload_len: usize,
}

impl Batch {
    /// Of packets of `packet_len` bytes, in a buffer of [`BATCH_LEN`].
    pub(super) fn new(buffer: Vec<u8>, packet_len: usize) -> Self {
        Self { buffer, len: 0, packet_len, count: 0, sent: 0, is_full: false, ahead: None }
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
            Payload::Memory { from, following } => self.fetch(at, from, following, len - from.len, fetch)?,
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

    /// Fetches the payload of a packet to `at`, and that of as many packets behind it as there is room for.
    /// `around`: how many bytes of each packet are not payload.
    fn fetch(
        &mut self,
        at: usize,
        from: Access,
        following: usize,
        around: usize,
        fetch: Fetch<'_>,
    ) -> Result<(), Unreachable> {
        if self.take_ahead(at, from) {
            return Ok(());
        }
        let stride = around + from.len;
        if following > 0 && stride == self.packet_len {
            let most = usize::from(BATCH_PACKETS - self.count).min((BATCH_LEN - self.len) / stride);
            let all = Access { len: (from.len + following).min(most * from.len), ..from };
            let mut left = all.len;
            let mut pieces = ArrayVec::<_, { BATCH_PACKETS as usize }>::new();
            for place in self.buffer[at..].chunks_mut(stride).take(most) {
                let len = left.min(from.len);
                if len == 0 {
                    break;
                }
                left -= len;
                pieces.push(IoSliceMut::new(&mut place[..len]));
            }
            // An error may be that of a packet behind this one.
            let fetched = fetch(all, &mut pieces);
            drop(pieces);
            if fetched.is_ok() {
                self.ahead = Some(Ahead { from: all, at, stride, payload_len: from.len });
                self.take_ahead(at, from);
                return Ok(());
            }
        }
        fetch(from, &mut [IoSliceMut::new(&mut self.buffer[at..at + from.len])])
    }

    /// Whether this payload is there already.
    fn take_ahead(&mut self, at: usize, from: Access) -> bool {
        let Some(ahead) = &mut self.ahead else { return false };
        let all = &mut ahead.from;
        let is_next = (ahead.at, all.stag, all.addr, all.rights) == (at, from.stag, from.addr, from.rights)
            && from.len == ahead.payload_len.min(all.len);
        if !is_next {
            self.ahead = None;
            return false;
        }
        all.addr = all.addr.wrapping_add(from.len as u64);
        all.len -= from.len;
        ahead.at += ahead.stride;
        true
    }
}
