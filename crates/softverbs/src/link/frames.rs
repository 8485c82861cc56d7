// SPDX-License-Identifier: BSD-3-Clause
//! Packets in the rings of shared memory. Each is a frame: its length, then the packet, padded to a multiple
//! of [`ALIGN`]. A frame is contiguous: if it does not fit before the end of the ring, a frame without a
//! packet fills that.
//!
//! The payload of several packets is written together, at the places that it will have behind their headers
//! ([`super::ahead`]). The connection predicts what follows in this step; if it sends something else, that
//! overwrites the payload.
#![forbid(unsafe_code)]

use arrayvec::ArrayVec;

use super::local::Local;
use super::shared::{SIZE, Shared};
use super::tcp::{gather, link_error};
use crate::port::{Bytes, Delivered, MAX_PACKET_LEN};
use crate::sys;
use transport::access::{Access, Unreachable};
use transport::direct::Part;
use transport::iwarp::link::LinkError;
use transport::roce::link::{Following, Payload};
use transport::roce::wire::{ICRC_LEN, MAX_HEADERS};

const ALIGN: usize = 8;
/// The most padding of a packet and its frame.
const PAD: usize = 16;
/// The length of a frame without a packet.
const SKIP: u32 = u32::MAX;
/// Its frame, the headers and the payload.
const MAX_PARTS_OF_FRAME: usize = 3;
/// Bytes of packets that are delivered together.
const TOGETHER: usize = 64 << 10;
/// The most packets whose payload is written together.
const MOST_AHEAD: usize = 16;

fn frame_len(packet: usize) -> usize {
    (ALIGN + packet).next_multiple_of(ALIGN)
}

const fn header(len: u32) -> [u8; ALIGN] {
    (len as u64).to_le_bytes()
}

/// The peer has put something into the ring that is not a frame.
const NONSENSE: LinkError = LinkError::Broken(libc::EPROTO);

impl Local {
    /// Puts a packet into the ring. False: there is no room.
    pub(super) fn send_packet(&mut self, headers: &[u8], payload: Payload<'_>) -> Result<bool, LinkError> {
        if self.rings.is_left_behind() {
            return Err(LinkError::Broken(libc::ENOTCONN));
        }
        let len = (headers.len() + payload.len()).next_multiple_of(4);
        let frame = frame_len(len);
        // Also for what is skipped.
        let mut room = self.rings.room(2 * frame, || self.notify_requested()).map_err(LinkError::Broken)?;
        if room == 0 {
            return Ok(false);
        }
        let at = self.rings.target().1;
        let left = Shared::contiguous(at, SIZE);
        if left < frame {
            self.write_frame(&[Part::Bytes(&header(SKIP))], ALIGN)?;
            self.rings.put(left).map_err(LinkError::Broken)?;
            room -= left;
        }
        let head = header(len as u32);
        let payload = match payload {
            Payload::Bytes(bytes) => Part::Bytes(bytes),
            Payload::Memory { from, following } => {
                let (ring, at) = self.rings.target();
                if self.ahead.take(from, headers.len(), at, frame)
                    || self.write_ahead(headers.len(), from, following, room)
                {
                    self.rings.shared.copy_in(ring, at, &head);
                    self.rings.shared.copy_in(ring, at + ALIGN as u64, headers);
                    self.rings.put(frame).map_err(LinkError::Broken)?;
                    return Ok(true);
                }
                Part::Memory(from)
            }
        };
        self.ahead.clear();
        self.write_frame(&[Part::Bytes(&head), Part::Bytes(headers), payload], frame)?;
        self.put(frame)?;
        Ok(true)
    }

    /// Discards payload written ahead: the memory that it was read from may change from now on.
    pub(super) fn forget_ahead(&mut self) {
        self.ahead.clear();
    }

    /// Writes the payload of the next packet and of those behind it. False: it must be written alone.
    fn write_ahead(&mut self, headers: usize, from: Access, following: Following<'_>, room: usize) -> bool {
        let (_, at) = self.rings.target();
        let space = ALIGN + headers;
        let frame = frame_len((headers + from.len).next_multiple_of(4));
        let fits = (Shared::contiguous(at, room.min(SIZE)) / frame).min(MOST_AHEAD);
        let zeros = [0; MAX_HEADERS + ALIGN];
        if fits < 2 || space > zeros.len() {
            return false;
        }
        let more = (0..fits - 1).map_while(following).take_while(|piece| piece.len == from.len);
        self.ahead.begin(std::iter::once(from).chain(more), headers, at + frame as u64);
        let pieces = self.ahead.pieces();
        if pieces.len() < 2 {
            return false;
        }
        let (before, behind) =
            (Part::Bytes(&zeros[..space]), Part::Bytes(&zeros[..frame - space - from.len]));
        let mut ranges = ArrayVec::<_, { 3 * MOST_AHEAD }>::new();
        for piece in pieces {
            let parts = [before, Part::Memory(*piece), behind];
            if gather(&mut ranges, &parts, self.accessor, &mut self.grants).is_err() {
                return false;
            }
        }
        let len = pieces.len() * frame;
        self.write(&ranges) == Ok(len)
    }

    /// Writes `frame` bytes at the end of what is in the ring: these parts, then at most [`PAD`] zeros. There
    /// is room for them, and they are contiguous.
    fn write_frame(&mut self, parts: &[Part<'_>], frame: usize) -> Result<(), LinkError> {
        // The padding, too.
        let mut pieces = ArrayVec::<_, { MAX_PARTS_OF_FRAME + 1 }>::new();
        gather(&mut pieces, parts, self.accessor, &mut self.grants)?;
        let zeros = [0; PAD];
        let len = frame - parts.iter().map(Part::byte_len).sum::<usize>();
        let iov_base = zeros.as_ptr().cast_mut().cast();
        pieces.push(libc::iovec { iov_base, iov_len: len.min(PAD) });
        match self.write(&pieces).map_err(link_error)? == frame {
            true => Ok(()),
            false => Err(LinkError::Memory(0, Unreachable::Fault)),
        }
    }

    /// The next packets in the ring; `Ok(None)` if there are none. `Err`: the peer has closed the link, or
    /// the link has failed.
    pub(super) fn receive_packets(&mut self) -> Result<Option<Delivered>, LinkError> {
        let mut packets: Vec<u8> = Vec::new();
        let mut stride = 0;
        loop {
            let next = match self.next_frame() {
                // What was taken before the end comes first.
                Err(_) if stride > 0 => None,
                next => next?,
            };
            let Some((len, frame)) = next else { break };
            if stride > 0 && (len + ICRC_LEN > stride || packets.len() + stride > TOGETHER) {
                break;
            }
            let (ring, at) = self.rings.source();
            if len > 0 {
                let first = packets.len();
                let more = if first == 0 { len + ICRC_LEN } else { TOGETHER - first };
                if packets.capacity() - first < len + ICRC_LEN && packets.try_reserve_exact(more).is_err() {
                    match first {
                        0 => return Err(LinkError::Broken(libc::ENOMEM)),
                        _ => break,
                    }
                }
                packets.resize(first + len + ICRC_LEN, 0);
                self.rings.shared.copy_out(ring, at + ALIGN as u64, &mut packets[first..][..len]);
                sys::note_received(len);
            }
            self.rings.took(frame).map_err(LinkError::Broken)?;
            if len == 0 {
                continue;
            }
            let is_last = stride > 0 && len + ICRC_LEN < stride;
            stride = stride.max(len + ICRC_LEN);
            if is_last {
                break;
            }
        }
        Ok((stride > 0).then(|| Delivered::new(Bytes::from(packets), stride)))
    }

    /// The length of the packet in the next frame, 0 for a frame without one, and that of the frame.
    fn next_frame(&self) -> Result<Option<(usize, usize)>, LinkError> {
        match self.look(ALIGN) {
            Err(LinkError::Blocked) => return Ok(None),
            Ok(0) => return Err(LinkError::Broken(libc::ECONNRESET)),
            Ok(ALIGN) => {}
            Ok(_) => return Err(NONSENSE),
            Err(e) => return Err(e),
        }
        let (ring, at) = self.rings.source();
        let mut bytes = [0; ALIGN];
        self.rings.shared.copy_out(ring, at, &mut bytes);
        let len = u64::from_le_bytes(bytes);
        if len == u64::from(SKIP) {
            let frame = Shared::contiguous(at, SIZE);
            // Nothing has to be skipped at the first byte, so no peer can make this process skip forever.
            let is_valid = frame < SIZE && self.look(frame)? == frame;
            return if is_valid { Ok(Some((0, frame))) } else { Err(NONSENSE) };
        }
        let len = usize::try_from(len).ok().filter(|len| (1..=MAX_PACKET_LEN).contains(len));
        let frame = len.map_or(0, frame_len);
        match len {
            Some(len) if Shared::contiguous(at, frame) == frame && self.look(frame)? == frame => {
                Ok(Some((len, frame)))
            }
            _ => Err(NONSENSE),
        }
    }
}

#[cfg(test)]
mod tests;
