// SPDX-License-Identifier: BSD-3-Clause
//! The errors of a received FPDU, and the Terminate code that reports each to the peer.

use std::fmt;

use super::codes::{Opcode, TermCode};

/// A violation of MPA, DDP or RDMAP by the peer. It ends the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The CRC does not match the FPDU.
    Crc {
        /// The CRC of the received bytes.
        computed: u32,
        /// The CRC field of the FPDU.
        received: u32,
    },
    /// A ULPDU of this many bytes is shorter than its header.
    UlpduTooShort(usize),
    /// A DDP version other than 1.
    DdpVersion {
        /// The segment is tagged.
        tagged: bool,
        /// Its version.
        version: u8,
    },
    /// An RDMAP version other than 1.
    RdmapVersion(u8),
    /// An undefined opcode.
    UnknownOpcode(u8),
    /// An opcode that does not match the kind of segment, or differs from that of the preceding segments of
    /// the message.
    UnexpectedOpcode(Opcode),
    /// A queue number that the opcode does not use.
    QueueNumber(u32),
    /// A message out of sequence.
    MessageNumber {
        /// The next MSN.
        expected: u32,
        /// The MSN of the segment.
        received: u32,
    },
    /// A segment out of sequence within its message.
    MessageOffset {
        /// The next message offset.
        expected: u32,
        /// The message offset of the segment.
        received: u32,
    },
    /// More bytes than a message of this opcode can have.
    MessageTooLong(Opcode),
    /// Fewer bytes than a message of this opcode has.
    MessageTooShort(Opcode),
    /// A malformed Terminate message. It is not answered, as no Terminate message is.
    BadTerminate,
}

impl WireError {
    /// The code to send in a Terminate message; `None` to close the connection without one.
    pub fn terminate(&self) -> Option<TermCode> {
        Some(match *self {
            Self::Crc { .. } => TermCode::MPA_CRC,
            Self::UlpduTooShort(_) => TermCode::MPA_MARKER,
            Self::DdpVersion { tagged: true, .. } => TermCode::DDP_TAGGED_VERSION,
            Self::DdpVersion { tagged: false, .. } => TermCode::DDP_UNTAGGED_VERSION,
            Self::RdmapVersion(_) => TermCode::RDMAP_OP_VERSION,
            Self::UnknownOpcode(_) | Self::UnexpectedOpcode(_) => TermCode::RDMAP_OP_OPCODE,
            Self::QueueNumber(_) => TermCode::DDP_UNTAGGED_QN,
            Self::MessageNumber { .. } => TermCode::DDP_UNTAGGED_MSN_RANGE,
            Self::MessageOffset { .. } => TermCode::DDP_UNTAGGED_MO,
            Self::MessageTooLong(_) => TermCode::DDP_UNTAGGED_TOO_LONG,
            Self::MessageTooShort(_) => TermCode::RDMAP_OP_CATASTROPHIC_STREAM,
            Self::BadTerminate => return None,
        })
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Crc { computed, received } => {
                write!(f, "CRC mismatch: received {received:08x}, computed {computed:08x}")
            }
            Self::UlpduTooShort(len) => write!(f, "a ULPDU of {len} bytes is shorter than its header"),
            Self::DdpVersion { tagged, version } => {
                write!(
                    f,
                    "DDP version {version} in {} segment",
                    if tagged { "a tagged" } else { "an untagged" }
                )
            }
            Self::RdmapVersion(version) => write!(f, "RDMAP version {version}"),
            Self::UnknownOpcode(opcode) => write!(f, "unknown RDMAP opcode {opcode}"),
            Self::UnexpectedOpcode(opcode) => write!(f, "unexpected RDMAP opcode {opcode:?}"),
            Self::QueueNumber(qn) => write!(f, "wrong DDP queue number {qn}"),
            Self::MessageNumber { expected, received } => {
                write!(f, "message sequence number {received} instead of {expected}")
            }
            Self::MessageOffset { expected, received } => {
                write!(f, "message offset {received} instead of {expected}")
            }
            Self::MessageTooLong(opcode) => write!(f, "{opcode:?} message too long"),
            Self::MessageTooShort(opcode) => write!(f, "{opcode:?} message too short"),
            Self::BadTerminate => f.write_str("malformed Terminate message"),
        }
    }
}

impl std::error::Error for WireError {}
