// SPDX-License-Identifier: BSD-3-Clause
//! The packet that is being built: headers, payload, padding in one buffer.

use crate::roce::wire::{Bth, Extension, MAX_HEADERS, Operation, Packet};
use crate::units::Errno;
use crate::wr::Op;

/// The largest payload: a path MTU of 4096.
const MAX_PAYLOAD: usize = 4096;
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

/// The operation of a request packet, which is the first or the last one of its message, or both.
pub(super) fn operation_of(op: Op, is_first: bool, is_last: bool) -> Operation {
    use Operation::*;
    match (op, is_first, is_last) {
        (Op::Send | Op::SendWithImm | Op::SendWithInv, true, false) => SendFirst,
        (Op::Send | Op::SendWithImm | Op::SendWithInv, false, false) => SendMiddle,
        (Op::Send, false, true) => SendLast,
        (Op::SendWithImm, false, true) => SendLastImm,
        (Op::SendWithInv, false, true) => SendLastInv,
        (Op::Send, true, true) => SendOnly,
        (Op::SendWithImm, true, true) => SendOnlyImm,
        (Op::SendWithInv, true, true) => SendOnlyInv,
        (Op::Write | Op::WriteWithImm, true, false) => WriteFirst,
        (Op::Write | Op::WriteWithImm, false, false) => WriteMiddle,
        (Op::Write, false, true) => WriteLast,
        (Op::WriteWithImm, false, true) => WriteLastImm,
        (Op::Write, true, true) => WriteOnly,
        (Op::WriteWithImm, true, true) => WriteOnlyImm,
        (Op::Read, ..) => ReadRequest,
        (Op::CompareSwap, ..) => CompareSwap,
        (Op::AtomicWrite, ..) => AtomicWrite,
        (Op::Flush, ..) => Flush,
        // Windows are bound and invalidated without a packet.
        (Op::FetchAdd | Op::BindMw | Op::LocalInv, ..) => FetchAdd,
    }
}
