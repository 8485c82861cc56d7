// SPDX-License-Identifier: BSD-3-Clause
//! The packet that is being built: headers, payload, padding in one buffer.

use super::wire::{Bth, Extension, MAX_HEADERS, Packet, PathMtu};
use crate::units::Errno;

/// The largest payload: a path MTU of 4096.
const MAX_PAYLOAD: usize = PathMtu::Mtu4096.bytes();
/// What payload is padded to.
const ALIGNMENT: usize = 4;

/// A buffer for one packet.
pub(super) struct PacketBuf {
    bytes: Vec<u8>,
    payload_at: usize,
}

impl PacketBuf {
    /// ENOMEM.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(MAX_HEADERS + MAX_PAYLOAD).map_err(|_| libc::ENOMEM)?;
        Ok(Self { bytes, payload_at: 0 })
    }

    /// Begins a packet with `len` bytes of payload.
    pub(super) fn begin(&mut self, bth: Bth, extension: &Extension, len: usize) {
        let padded = len.next_multiple_of(ALIGNMENT);
        let headers = Packet::encode_headers(&Bth { pad: (padded - len) as u8, ..bth }, extension);
        self.bytes.clear();
        self.bytes.extend_from_slice(&headers);
        self.payload_at = headers.len();
        self.bytes.resize(headers.len() + padded, 0);
    }

    /// The payload, to be filled.
    pub(super) fn payload(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.payload_at..][..len]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
