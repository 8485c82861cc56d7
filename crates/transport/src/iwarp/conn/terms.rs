// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of a connection, negotiated or chosen at set-up.

#[cfg(doc)]
use crate::host::Host;

/// The last four bytes of an Immediate Data message that belongs to the Send after it. RFC 7306 defines
/// immediate data only as a separate message, which completes a receive; a Send with immediate data of verbs
/// completes one receive, not two. Adapters leave these bytes zero.
pub(super) const IMMEDIATE_OF_SEND: [u8; 4] = *b"Send";

/// How messages are divided into FPDUs.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    /// Whether FPDUs carry a CRC.
    pub crc: bool,
    /// The maximum length of a ULPDU.
    pub mulpdu: usize,
    /// The length of a TCP segment, if no FPDU may span two segments.
    pub segment: Option<usize>,
    /// The maximum number of outstanding reads and atomic operations: the ORD.
    pub ord: u32,
}

impl Default for Framing {
    fn default() -> Self {
        Self { crc: false, mulpdu: crate::iwarp::wire::stream::MIN_MULPDU, segment: None, ord: 0 }
    }
}

/// Buffer sizes and thresholds of the receiving half.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The initial size of the buffer for small messages: idle connections need little memory.
    pub first: usize,
    /// The maximum size of that buffer.
    pub buffer: usize,
    /// Payload of at least this length is received directly into registered memory: the extra system call
    /// costs less than a copy.
    pub direct: usize,
    /// The most bytes read into the buffer behind such a payload. It is small so that the payload after it
    /// can be received directly, too.
    pub behind_direct: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { first: 4 * 1024, buffer: 64 * 1024, direct: 8 * 1024, behind_direct: 4 * 1024 }
    }
}

/// Which side requested the connection, and whether it announced that it sends an FPDU at once (RTR, RFC
/// 6581).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub(super) initiator: bool,
    announced: bool,
}

impl Role {
    /// This side requested the connection and announced an FPDU.
    pub const INITIATOR_ANNOUNCED: Self = Self { initiator: true, announced: true };
    /// This side requested the connection.
    pub const INITIATOR: Self = Self { initiator: true, announced: false };
    /// The peer requested the connection and announced an FPDU: the connection is established when that
    /// arrives.
    pub const RESPONDER_ANNOUNCED: Self = Self { initiator: false, announced: true };
    /// The peer requested the connection.
    pub const RESPONDER: Self = Self { initiator: false, announced: false };

    pub(super) fn awaits_first(self) -> bool {
        self == Self::RESPONDER_ANNOUNCED
    }
}

/// What the two sides agree on at set-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// How messages are divided into FPDUs.
    pub framing: Framing,
    /// Which side requested the connection.
    pub role: Role,
    /// Whether a message without a receive waits for one instead of ending the connection.
    pub wait_for_receives: bool,
    /// Bytes that arrived after the peer's MPA frame.
    pub early: &'a [u8],
    /// Whether the host may carry out requests by direct copy
    /// ([`transfer`](crate::direct::DirectAccess::transfer)).
    pub transfers: bool,
}
