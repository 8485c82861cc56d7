// SPDX-License-Identifier: BSD-3-Clause
//! The packet that is being built: its headers and parts of payload, and the payload of packets that probably
//! follow it.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::link::{Following, PacketLink, Payload};
use super::wire::{Bth, Extension, MAX_HEADERS, Packet, PathMtu, pad_len};
use crate::access::{Access, Unreachable};
use crate::sq::SendQueue;
use crate::units::Errno;
use crate::wr::{Local, status};

/// The largest payload: a path MTU of 4096.
const MAX_PAYLOAD: usize = PathMtu::Mtu4096.bytes();

/// A buffer for one packet: its headers, and the payload if that lies in several places.
pub(super) struct PacketBuf {
    headers: ArrayVec<u8, MAX_HEADERS>,
    gathered: Vec<u8>,
    len: usize,
}

impl PacketBuf {
    /// ENOMEM.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut gathered = Vec::new();
        gathered.try_reserve_exact(MAX_PAYLOAD).map_err(|_| libc::ENOMEM)?;
        Ok(Self { headers: ArrayVec::new(), gathered, len: 0 })
    }

    /// Begins a packet with `len` bytes of payload.
    pub(super) fn begin(&mut self, bth: Bth, extension: &Extension, len: usize) {
        self.headers = Packet::encode_headers(&Bth { pad: pad_len(len), ..bth }, extension);
        self.len = self.headers.len() + len + usize::from(pad_len(len));
    }

    /// Its length in bytes, from the BTH to the pad.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sends it with this payload; see [`PacketLink::send_packet`].
    pub(super) fn send(&self, host: &mut impl PacketLink, payload: Payload<'_>) -> Result<bool, Unreachable> {
        host.send_packet(&self.headers, payload)
    }

    /// Sends it with `len` bytes of payload, from byte `offset` of a request on. `Err`: the status of a
    /// request that may not read its memory.
    pub(super) fn send_local(
        &mut self,
        host: &mut impl PacketLink,
        local: &Local,
        offset: usize,
        len: usize,
        following: Following<'_>,
    ) -> Result<bool, u32> {
        let sent = match local {
            Local::Inline(bytes) => self.send(host, Payload::Bytes(&bytes[offset..][..len])),
            Local::LongInline(bytes) => self.send(host, Payload::Bytes(&bytes[offset..][..len])),
            _ => self.send_memory(host, local.parts(offset as u32, len, 0), len, following),
        };
        sent.map_err(|why| match why {
            Unreachable::Denied(_) | Unreachable::Fault => status::LOC_PROT_ERR,
        })
    }

    /// Sends it with a payload of `len` bytes, which are in these parts of registered memory.
    fn send_memory(
        &mut self,
        host: &mut impl PacketLink,
        parts: impl Iterator<Item = Access>,
        len: usize,
        following: Following<'_>,
    ) -> Result<bool, Unreachable> {
        // A message without payload needs no memory, and may name none.
        let mut parts = parts.filter(|part| part.len > 0);
        let first = match parts.next() {
            Some(first) if len > 0 => first,
            _ => return self.send(host, Payload::Bytes(&[])),
        };
        if first.len == len {
            return self.send(host, Payload::Memory { from: first, following });
        }
        self.gathered.clear();
        for part in std::iter::once(first).chain(parts) {
            let at = self.gathered.len();
            self.gathered.resize(at + part.len, 0);
            host.fetch(part, &mut self.gathered[at..])?;
        }
        self.send(host, Payload::Bytes(&self.gathered))
    }
}

/// The payload of a packet if it lies in one part of registered memory: `len` bytes from byte `offset` of a
/// request on.
fn only_part(local: &Local, offset: usize, len: usize) -> Option<Access> {
    let mut parts = local.parts(offset as u32, len, 0);
    parts.next().filter(|part| part.len == len && len > 0)
}

/// The payload of the n-th request behind the one at this position, if both have packets of the same length
/// and go to the same peer. That of a fenced one may be the result of a request before it.
fn payload_of_next(sq: &SendQueue, position: u64, n: usize) -> Option<Access> {
    let (this, next) = (&sq.entry(position)?.wr, &sq.entry(position + 1 + n as u64)?.wr);
    let is_alike = next.op == this.op && next.len == this.len && !next.fence && next.route() == this.route();
    only_part(&next.local, 0, next.len as usize).filter(|_| is_alike)
}

/// The payload of the n-th packet behind one with these bytes of the request at this position, if it probably
/// has headers of the same length. `is_only`: the request has one packet, so that is one of a later request;
/// otherwise it is one of the same request, and has no extension header, except a last one with immediate
/// data.
pub(super) fn payload_behind(
    sq: &SendQueue,
    position: u64,
    bytes: &Range<usize>,
    is_only: bool,
    extension: &Extension,
    n: usize,
) -> Option<Access> {
    if is_only {
        return payload_of_next(sq, position, n);
    }
    let wr = &sq.entry(position)?.wr;
    let offset = bytes.end + n * bytes.len();
    let len = (wr.len as usize).saturating_sub(offset).min(bytes.len());
    only_part(&wr.local, offset, len).filter(|_| matches!(extension, Extension::None))
}
