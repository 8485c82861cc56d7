// SPDX-License-Identifier: BSD-3-Clause
//! The packet that is being built.

use arrayvec::ArrayVec;

use super::link::{PacketLink, Payload};
use super::wire::{Bth, Extension, MAX_HEADERS, Packet, PathMtu, pad_len};
use crate::access::{Access, Unreachable};
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

    /// Sends it with `len` bytes of payload, from byte `offset` of a request on. `following`: so many bytes
    /// behind them are the payload of the next packets. `Err`: the status of a request that may not read its
    /// memory.
    pub(super) fn send_local(
        &mut self,
        host: &mut impl PacketLink,
        local: &Local,
        offset: usize,
        len: usize,
        following: usize,
    ) -> Result<bool, u32> {
        let sent = match local {
            Local::Inline(bytes) => self.send(host, Payload::Bytes(&bytes[offset..][..len])),
            Local::LongInline(bytes) => self.send(host, Payload::Bytes(&bytes[offset..][..len])),
            _ => self.send_memory(host, local.parts(offset as u32, len + following, 0), len),
        };
        sent.map_err(|why| match why {
            Unreachable::Denied(_) | Unreachable::Fault => status::LOC_PROT_ERR,
        })
    }

    /// Sends it with a payload of `len` bytes, the first ones of these parts of registered memory. The others
    /// are the payload of the next packets.
    fn send_memory(
        &mut self,
        host: &mut impl PacketLink,
        parts: impl Iterator<Item = Access>,
        len: usize,
    ) -> Result<bool, Unreachable> {
        // A message without payload needs no memory, and may name none.
        let mut parts = parts.filter(|part| part.len > 0);
        let first = match parts.next() {
            Some(first) if len > 0 => first,
            _ => return self.send(host, Payload::Bytes(&[])),
        };
        if first.len >= len {
            let following = first.len - len;
            return self.send(host, Payload::Memory { from: Access { len, ..first }, following });
        }
        self.gathered.clear();
        for part in std::iter::once(first).chain(parts) {
            let at = self.gathered.len();
            let part = Access { len: part.len.min(len - at), ..part };
            if part.len == 0 {
                break;
            }
            self.gathered.resize(at + part.len, 0);
            host.fetch(part, &mut self.gathered[at..])?;
        }
        self.send(host, Payload::Bytes(&self.gathered))
    }
}
