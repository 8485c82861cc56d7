// SPDX-License-Identifier: BSD-3-Clause
//! Why a packet or a management datagram is dropped.

use std::fmt;

/// A packet that cannot be parsed. It is dropped and counted, never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the headers of its opcode have.
    Short(usize),
    /// A number of bytes that is not a multiple of 4.
    Length(usize),
    /// A transport header version other than 0.
    Version(u8),
    /// An opcode that is not assigned, or of a service that is not supported.
    Opcode(u8),
    /// A pad count that exceeds the payload.
    Pad(u8),
    /// Payload in a packet whose opcode has none.
    Payload(usize),
    /// A management datagram of a length other than 256 bytes.
    MadLength(usize),
    /// A management datagram of another class or version than connection management.
    MadClass {
        /// Base version of the MAD.
        base: u8,
        /// Management class.
        class: u8,
        /// Version of the class.
        version: u8,
    },
    /// A management datagram with a method other than Send.
    MadMethod(u8),
    /// A message of connection management that is not assigned or not supported.
    MadAttribute(u16),
    /// Private data that do not begin with the header of rdma_cm.
    CmaHeader,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short(len) => write!(f, "a packet of {len} bytes is shorter than its headers"),
            Self::Length(len) => write!(f, "a packet of {len} bytes, not a multiple of 4"),
            Self::Version(version) => write!(f, "transport header version {version}"),
            Self::Opcode(number) => write!(f, "unknown opcode {number:#04x}"),
            Self::Pad(pad) => write!(f, "pad count {pad} exceeds the payload"),
            Self::Payload(len) => write!(f, "{len} bytes of payload in a packet that has none"),
            Self::MadLength(len) => write!(f, "a management datagram of {len} bytes"),
            Self::MadClass { base, class, version } => {
                write!(f, "management class {class:#04x} version {version}, base version {base}")
            }
            Self::MadMethod(method) => write!(f, "method {method:#04x} of connection management"),
            Self::MadAttribute(attribute) => write!(f, "message {attribute:#06x} of connection management"),
            Self::CmaHeader => f.write_str("no rdma_cm header in the private data"),
        }
    }
}

impl std::error::Error for Malformed {}
