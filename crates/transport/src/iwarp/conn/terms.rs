// SPDX-License-Identifier: BSD-3-Clause
//! What is agreed on or chosen when a connection begins.

#[cfg(doc)]
use crate::host::Host;

/// The last four bytes of an Immediate Data message that belongs to the Send after it. The standard knows
/// immediate data only as a message of its own (it completes a receive); verbs know a Send with immediate
/// data, which completes one receive and not two. Adapters leave these bytes zero.
pub(super) const IMMEDIATE_OF_SEND: [u8; 4] = *b"Send";

/// How a connection cuts its messages.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    /// FPDUs carry a CRC.
    pub crc: bool,
    /// Most bytes of a ULPDU.
    pub mulpdu: usize,
    /// Bytes of a TCP segment, if FPDUs are to lie in segments as a whole.
    pub segment: Option<usize>,
    /// Reads that the peer takes at a time.
    pub ord: u32,
}

impl Default for Framing {
    fn default() -> Self {
        Self { crc: false, mulpdu: crate::iwarp::wire::stream::MIN_MULPDU, segment: None, ord: 0 }
    }
}

/// Sizes of the receiving half.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the buffer that small messages come through: at first, so that idle connections need little
    /// memory, and at most.
    pub first: usize,
    /// At most, in bytes.
    pub buffer: usize,
    /// What is left of a payload goes straight to its place when it is at least this long: a call of its own
    /// costs less than a copy.
    pub direct: usize,
    /// What follows such a payload is looked at in small portions, so that the next one goes to its place,
    /// too.
    pub behind_direct: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { first: 4 * 1024, buffer: 64 * 1024, direct: 8 * 1024, behind_direct: 4 * 1024 }
    }
}

/// Which side asked for the connection, and whether it announced (RFC 6581) to send an FPDU at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub(super) initiator: bool,
    announced: bool,
}

impl Role {
    /// We asked, and the peer knows that an FPDU comes at once.
    pub const INITIATOR_ANNOUNCED: Self = Self { initiator: true, announced: true };
    /// We asked.
    pub const INITIATOR: Self = Self { initiator: true, announced: false };
    /// The peer asked, and announced an FPDU: the connection is established when that is there.
    pub const RESPONDER_TOLD: Self = Self { initiator: false, announced: true };
    /// The peer asked.
    pub const RESPONDER: Self = Self { initiator: false, announced: false };

    pub(super) fn awaits_first(self) -> bool {
        self == Self::RESPONDER_TOLD
    }
}

/// What is agreed on when a connection begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// How messages are cut.
    pub framing: Framing,
    /// Which side has requested the connection.
    pub role: Role,
    /// A message without a receive waits for one, instead of ending the connection.
    pub wait_for_receives: bool,
    /// What arrived behind the peer's MPA frame.
    pub early: &'a [u8],
    /// The host may carry out requests by direct copy ([`Host::transfer`]).
    pub transfers: bool,
}
