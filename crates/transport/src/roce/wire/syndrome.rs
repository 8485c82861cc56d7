// SPDX-License-Identifier: BSD-3-Clause
//! The syndrome of an acknowledgement: ACK, RNR NAK or NAK (IBTA 9.7.5).

use std::fmt;

const TYPE_MASK: u8 = 0xe0;
const VALUE_MASK: u8 = 0x1f;
const ACK: u8 = 0x00;
const RNR: u8 = 0x20;
const NAK: u8 = 0x60;

/// The kind of acknowledgement, with its 5 bits of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledges everything up to the PSN.
    Ack {
        /// The code of the end-to-end flow control credits, or [`Syndrome::NO_CREDITS`].
        credits: u8,
    },
    /// No receive is posted: send the packet with this PSN again after a delay.
    Rnr {
        /// The code of the delay; see [`rnr_delay_us`].
        timer: u8,
    },
    /// The request with this PSN failed or is out of sequence.
    Nak(Nak),
    /// A reserved syndrome, as received.
    Reserved(u8),
}

impl Syndrome {
    /// The credit code "no end-to-end flow control".
    pub const NO_CREDITS: u8 = 0x1f;
    /// An ACK without end-to-end flow control.
    pub const ACK: Self = Self::Ack { credits: Self::NO_CREDITS };

    /// The byte in the AETH. Only the low 5 bits of a credit code and of a timer code are used.
    #[inline]
    pub fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credits } => ACK | (credits & VALUE_MASK),
            Self::Rnr { timer } => RNR | (timer & VALUE_MASK),
            Self::Nak(nak) => NAK | (nak.code() & VALUE_MASK),
            Self::Reserved(byte) => byte,
        }
    }

    /// The syndrome that a byte of the AETH means.
    #[inline]
    pub fn from_u8(byte: u8) -> Self {
        let value = byte & VALUE_MASK;
        match byte & TYPE_MASK {
            ACK => Self::Ack { credits: value },
            RNR => Self::Rnr { timer: value },
            NAK => Self::Nak(Nak::from_code(value)),
            _ => Self::Reserved(byte),
        }
    }
}

/// The reason of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nak {
    /// Packets are missing before this one; the PSN is the expected one.
    PsnSequence,
    /// The request is invalid: opcode sequence, length, alignment, or not permitted on the queue pair.
    InvalidRequest,
    /// The key, the range or the right is invalid.
    RemoteAccess,
    /// The responder cannot complete the request.
    RemoteOperational,
    /// Reliable datagram only.
    InvalidRdRequest,
    /// A reserved code, 5..=31.
    Other(u8),
}

impl Nak {
    /// The code in the syndrome.
    pub fn code(self) -> u8 {
        match self {
            Self::PsnSequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRdRequest => 4,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            _ => Self::Other(code),
        }
    }
}

impl fmt::Display for Nak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PsnSequence => f.write_str("PSN sequence error"),
            Self::InvalidRequest => f.write_str("invalid request"),
            Self::RemoteAccess => f.write_str("remote access error"),
            Self::RemoteOperational => f.write_str("remote operational error"),
            Self::InvalidRdRequest => f.write_str("invalid RD request"),
            Self::Other(code) => write!(f, "NAK code {code}"),
        }
    }
}

/// Microseconds of each RNR timer code (IBTA 9.7.5.2.8).
const RNR_DELAYS_US: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120,
    7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680,
    491_520,
];

/// Microseconds for which a requester waits after an RNR NAK with this timer code (5 bits). Code 0 is the
/// longest delay.
#[inline]
pub fn rnr_delay_us(code: u8) -> u64 {
    RNR_DELAYS_US[usize::from(code & VALUE_MASK)]
}
