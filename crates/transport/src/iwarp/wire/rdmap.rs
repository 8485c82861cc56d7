// SPDX-License-Identifier: BSD-3-Clause
//! RDMAP messages: opcodes, and the bodies of messages with a fixed format.

use super::bytes::{be32, be64, put32, put64};

pub use super::codes::{Opcode, TermCode};

/// Bytes of the body of an Immediate Data message.
pub const IMMEDIATE_LEN: usize = 8;

/// The body of a Read Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The STag of the requester's memory region that receives the data.
    pub sink_stag: u32,
    /// The tagged offset in that region.
    pub sink_to: u64,
    /// Bytes to read.
    pub size: u32,
    /// The STag of the responder's memory region that contains the data.
    pub src_stag: u32,
    /// The tagged offset in that region.
    pub src_to: u64,
}

impl ReadRequest {
    /// Bytes of the body.
    pub const LEN: usize = 28;

    /// Encodes the body.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put32(&mut out, 0, self.sink_stag);
        put64(&mut out, 4, self.sink_to);
        put32(&mut out, 12, self.size);
        put32(&mut out, 16, self.src_stag);
        put64(&mut out, 20, self.src_to);
        out
    }

    /// Decodes a body. Any 28 bytes are valid.
    pub fn decode(body: &[u8; Self::LEN]) -> Self {
        Self {
            sink_stag: be32(body, 0),
            sink_to: be64(body, 4),
            size: be32(body, 12),
            src_stag: be32(body, 16),
            src_to: be64(body, 20),
        }
    }
}

/// The body of an Atomic Request (RFC 7306).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The operation, 4 bits: [`AtomicRequest::FETCH_ADD`] or [`AtomicRequest::CMP_SWAP`].
    pub operation: u8,
    /// Returned in the response.
    pub request_id: u32,
    /// The STag of the responder's memory region.
    pub stag: u32,
    /// The tagged offset in that region, which must be aligned to 8 bytes.
    pub to: u64,
    /// The value to add or to store.
    pub data: u64,
    /// The bits of `data` that are stored; for an addition, the bits at which the carry stops (0: a plain
    /// addition).
    pub data_mask: u64,
    /// The value to compare with.
    pub compare: u64,
    /// The bits that are compared.
    pub compare_mask: u64,
}

impl AtomicRequest {
    /// Bytes of the body.
    pub const LEN: usize = 52;
    /// Add, and return the previous value.
    pub const FETCH_ADD: u8 = 0;
    /// Store if equal, and return the previous value.
    pub const CMP_SWAP: u8 = 2;

    /// The request to add `value` to the eight bytes at `to`, without bits at which the carry stops.
    pub fn fetch_add(request_id: u32, stag: u32, to: u64, value: u64) -> Self {
        Self {
            operation: Self::FETCH_ADD,
            request_id,
            stag,
            to,
            data: value,
            data_mask: 0,
            compare: 0,
            compare_mask: u64::MAX,
        }
    }

    /// The request to store `swap` in the eight bytes at `to` if they equal `compare`, all bits of both.
    pub fn cmp_swap(request_id: u32, stag: u32, to: u64, compare: u64, swap: u64) -> Self {
        Self {
            operation: Self::CMP_SWAP,
            request_id,
            stag,
            to,
            data: swap,
            data_mask: u64::MAX,
            compare,
            compare_mask: u64::MAX,
        }
    }

    /// Whether RFC 7306 defines the operation.
    pub fn is_defined(&self) -> bool {
        matches!(self.operation, Self::FETCH_ADD | Self::CMP_SWAP)
    }

    /// The result of the operation on the value `original` (RFC 7306 section 5.1). An undefined operation
    /// changes nothing.
    pub fn apply(&self, original: u64) -> u64 {
        let mask = self.data_mask;
        match self.operation {
            // Add without the topmost bit of each field, so that no carry leaves a field; then add that bit
            // without carry.
            Self::FETCH_ADD => {
                (original & !mask).wrapping_add(self.data & !mask) ^ ((original ^ self.data) & mask)
            }
            Self::CMP_SWAP if (original ^ self.compare) & self.compare_mask == 0 => {
                (original & !mask) | (self.data & mask)
            }
            _ => original,
        }
    }

    /// Encodes the body. Bits of `operation` beyond the lower four are not sent.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[3] = self.operation & 0x0f;
        put32(&mut out, 4, self.request_id);
        put32(&mut out, 8, self.stag);
        put64(&mut out, 12, self.to);
        put64(&mut out, 20, self.data);
        put64(&mut out, 28, self.data_mask);
        put64(&mut out, 36, self.compare);
        put64(&mut out, 44, self.compare_mask);
        out
    }

    /// Decodes a body. Reserved bits are ignored; the operation is not checked.
    pub fn decode(body: &[u8; Self::LEN]) -> Self {
        Self {
            operation: body[3] & 0x0f,
            request_id: be32(body, 4),
            stag: be32(body, 8),
            to: be64(body, 12),
            data: be64(body, 20),
            data_mask: be64(body, 28),
            compare: be64(body, 36),
            compare_mask: be64(body, 44),
        }
    }
}

/// The body of an Atomic Response (RFC 7306).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The `request_id` of the request.
    pub request_id: u32,
    /// The previous value.
    pub original: u64,
}

impl AtomicResponse {
    /// Bytes of the body.
    pub const LEN: usize = 12;

    /// Encodes the body.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put32(&mut out, 0, self.request_id);
        put64(&mut out, 4, self.original);
        out
    }

    /// Decodes a body. Any 12 bytes are valid.
    pub fn decode(body: &[u8; Self::LEN]) -> Self {
        Self { request_id: be32(body, 0), original: be64(body, 4) }
    }
}

/// The body of an Immediate Data message with the 4 bytes of a verbs work request: first these in the order
/// in which they are in memory, then 4 zero bytes, as adapters send it.
pub fn encode_immediate(value: [u8; 4]) -> [u8; IMMEDIATE_LEN] {
    let mut out = [0; IMMEDIATE_LEN];
    out[..4].copy_from_slice(&value);
    out
}

/// The 4 bytes of a verbs work completion in the body of an Immediate Data message.
pub fn decode_immediate(body: &[u8; IMMEDIATE_LEN]) -> [u8; 4] {
    [body[0], body[1], body[2], body[3]]
}
