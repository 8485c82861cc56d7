// SPDX-License-Identifier: BSD-3-Clause
//! What can be wrong with a received FPDU, and the Terminate code that says so to the peer.
#![forbid(unsafe_code)]

use std::fmt;

use super::rdmap::Opcode;
use super::terminate::TermCode;

/// A rule of MPA, DDP or RDMAP that the peer broke. The stream ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The CRC does not match the FPDU.
    Crc {
        /// What the bytes give.
        computed: u32,
        /// What the FPDU says.
        received: u32,
    },
    /// A ULPDU of this many bytes has no room for its own header.
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
    /// An opcode that nobody defined.
    UnknownOpcode(u8),
    /// An opcode that does not go with the kind of segment, or differs from that of the message it continues.
    UnexpectedOpcode(Opcode),
    /// A queue number that the opcode does not use.
    QueueNumber(u32),
    /// A message out of sequence.
    MessageNumber {
        /// The number that comes next.
        expected: u32,
        /// The number in the segment.
        received: u32,
    },
    /// A segment out of sequence within its message.
    MessageOffset {
        /// The offset that comes next.
        expected: u32,
        /// The offset in the segment.
        received: u32,
    },
    /// More bytes than a message of this opcode can have.
    MessageTooLong(Opcode),
    /// Fewer bytes than a message of this opcode has.
    MessageTooShort(Opcode),
    /// A Terminate message that cannot be read. It is not answered: a Terminate never is.
    BadTerminate,
}

impl WireError {
    /// The code to send in a Terminate message; `None` to close the connection without one.
    pub fn terminate(&self) -> Option<TermCode> {
        Some(match *self {
            WireError::Crc { .. } => TermCode::MPA_CRC,
            WireError::UlpduTooShort(_) => TermCode::MPA_MARKER,
            WireError::DdpVersion { tagged: true, .. } => TermCode::DDP_TAGGED_VERSION,
            WireError::DdpVersion { tagged: false, .. } => TermCode::DDP_UNTAGGED_VERSION,
            WireError::RdmapVersion(_) => TermCode::RDMAP_OP_VERSION,
            WireError::UnknownOpcode(_) | WireError::UnexpectedOpcode(_) => TermCode::RDMAP_OP_OPCODE,
            WireError::QueueNumber(_) => TermCode::DDP_UNTAGGED_QN,
            WireError::MessageNumber { .. } => TermCode::DDP_UNTAGGED_MSN_RANGE,
            WireError::MessageOffset { .. } => TermCode::DDP_UNTAGGED_MO,
            WireError::MessageTooLong(_) => TermCode::DDP_UNTAGGED_TOO_LONG,
            WireError::MessageTooShort(_) => TermCode::RDMAP_OP_CATASTROPHIC_STREAM,
            WireError::BadTerminate => return None,
        })
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WireError::Crc { computed, received } => {
                write!(f, "the FPDU has CRC {received:08x}, its bytes give {computed:08x}")
            }
            WireError::UlpduTooShort(len) => write!(f, "a ULPDU of {len} bytes is shorter than its header"),
            WireError::DdpVersion { tagged, version } => {
                write!(
                    f,
                    "DDP version {version} in {} segment",
                    if tagged { "a tagged" } else { "an untagged" }
                )
            }
            WireError::RdmapVersion(version) => write!(f, "RDMAP version {version}"),
            WireError::UnknownOpcode(opcode) => write!(f, "unknown RDMAP opcode {opcode}"),
            WireError::UnexpectedOpcode(opcode) => write!(f, "unexpected RDMAP opcode {opcode:?}"),
            WireError::QueueNumber(qn) => write!(f, "wrong DDP queue number {qn}"),
            WireError::MessageNumber { expected, received } => {
                write!(f, "message sequence number {received} instead of {expected}")
            }
            WireError::MessageOffset { expected, received } => {
                write!(f, "message offset {received} instead of {expected}")
            }
            WireError::MessageTooLong(opcode) => write!(f, "{opcode:?} message too long"),
            WireError::MessageTooShort(opcode) => write!(f, "{opcode:?} message too short"),
            WireError::BadTerminate => f.write_str("unreadable Terminate message"),
        }
    }
}

impl std::error::Error for WireError {}
