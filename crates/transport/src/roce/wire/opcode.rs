// SPDX-License-Identifier: BSD-3-Clause
//! Opcodes: the transport service in the upper 3 bits, the operation in the lower 5 (IBTA 9.2.1, A17.9.3,
//! A19).

use std::fmt;

use super::error::Malformed;

const OPERATION_MASK: u8 = 0x1f;
const RC: u8 = 0x00;
const UC: u8 = 0x20;
const UD: u8 = 0x60;
const CNP: u8 = 0x81;

/// The opcode of a packet. Parsing yields only pairs of service and operation that the standard defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Reliable connection.
    Rc(Operation),
    /// Unreliable connection: sends and writes only.
    Uc(Operation),
    /// Unreliable datagram: `SendOnly` and `SendOnlyImm` only.
    Ud(Operation),
    /// Congestion notification packet (annex A17.9.3).
    Cnp,
}

impl Opcode {
    /// The opcode with this number.
    ///
    /// # Errors
    ///
    /// [`Malformed::Opcode`] for numbers that are not assigned, and for those of RD and XRC.
    pub fn from_u8(number: u8) -> Result<Self, Malformed> {
        let operation = Operation::from_u8(number & OPERATION_MASK);
        match (number & !OPERATION_MASK, operation) {
            (RC, Some(operation)) => Ok(Self::Rc(operation)),
            (UC, Some(operation)) if operation <= Operation::WriteOnlyImm => Ok(Self::Uc(operation)),
            (UD, Some(operation @ (Operation::SendOnly | Operation::SendOnlyImm))) => Ok(Self::Ud(operation)),
            _ if number == CNP => Ok(Self::Cnp),
            _ => Err(Malformed::Opcode(number)),
        }
    }

    /// The number in the BTH.
    #[inline]
    pub fn to_u8(self) -> u8 {
        match self {
            Self::Rc(operation) => RC | operation as u8,
            Self::Uc(operation) => UC | operation as u8,
            Self::Ud(operation) => UD | operation as u8,
            Self::Cnp => CNP,
        }
    }

    /// The operation; `None` for a CNP.
    #[inline]
    pub fn operation(self) -> Option<Operation> {
        match self {
            Self::Rc(operation) | Self::Uc(operation) | Self::Ud(operation) => Some(operation),
            Self::Cnp => None,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rc(operation) => write!(f, "RC {operation:?}"),
            Self::Uc(operation) => write!(f, "UC {operation:?}"),
            Self::Ud(operation) => write!(f, "UD {operation:?}"),
            Self::Cnp => f.write_str("CNP"),
        }
    }
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal),+ $(,)?) => {
        /// The operation of an opcode, with its number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Operation {
            $($(#[doc = $doc])+ $name = $number),+
        }

        impl Operation {
            /// All operations, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The operation with this number; `None` if the number is not assigned.
            #[inline]
            pub fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// First packet of a SEND.
    SendFirst = 0x00,
    /// Packet of a SEND between the first and the last.
    SendMiddle = 0x01,
    /// Last packet of a SEND.
    SendLast = 0x02,
    /// Last packet of a SEND with immediate data.
    SendLastImm = 0x03,
    /// Only packet of a SEND.
    SendOnly = 0x04,
    /// Only packet of a SEND with immediate data.
    SendOnlyImm = 0x05,
    /// First packet of an RDMA WRITE.
    WriteFirst = 0x06,
    /// Packet of an RDMA WRITE between the first and the last.
    WriteMiddle = 0x07,
    /// Last packet of an RDMA WRITE.
    WriteLast = 0x08,
    /// Last packet of an RDMA WRITE with immediate data.
    WriteLastImm = 0x09,
    /// Only packet of an RDMA WRITE.
    WriteOnly = 0x0a,
    /// Only packet of an RDMA WRITE with immediate data.
    WriteOnlyImm = 0x0b,
    /// RDMA READ request.
    ReadRequest = 0x0c,
    /// First packet of an RDMA READ response.
    ReadFirst = 0x0d,
    /// Packet of an RDMA READ response between the first and the last.
    ReadMiddle = 0x0e,
    /// Last packet of an RDMA READ response.
    ReadLast = 0x0f,
    /// Only packet of an RDMA READ response; also the response to FLUSH and ATOMIC WRITE.
    ReadOnly = 0x10,
    /// ACK, RNR NAK or NAK.
    Acknowledge = 0x11,
    /// Response to CmpSwap and FetchAdd.
    AtomicAcknowledge = 0x12,
    /// Atomic compare and swap.
    CompareSwap = 0x13,
    /// Atomic fetch and add.
    FetchAdd = 0x14,
    /// Last packet of a SEND with invalidate.
    SendLastInv = 0x16,
    /// Only packet of a SEND with invalidate.
    SendOnlyInv = 0x17,
    /// FLUSH (annex A19).
    Flush = 0x1c,
    /// ATOMIC WRITE (annex A19).
    AtomicWrite = 0x1d,
}

impl Operation {
    /// Whether the requester sends it.
    #[inline]
    pub fn is_request(self) -> bool {
        !self.is_response()
    }

    /// Whether the responder sends it.
    #[inline]
    pub fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Self::Acknowledge | Self::AtomicAcknowledge)
    }

    /// Whether it is a packet of a SEND.
    #[inline]
    pub fn is_send(self) -> bool {
        self <= Self::SendOnlyImm || matches!(self, Self::SendLastInv | Self::SendOnlyInv)
    }

    /// Whether it is a packet of an RDMA WRITE.
    #[inline]
    pub fn is_write(self) -> bool {
        (Self::WriteFirst..=Self::WriteOnlyImm).contains(&self)
    }

    /// Whether it is a packet of an RDMA READ response.
    #[inline]
    pub fn is_read_response(self) -> bool {
        (Self::ReadFirst..=Self::ReadOnly).contains(&self)
    }

    /// Whether it is an atomic operation with a result: CmpSwap or FetchAdd.
    #[inline]
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it is a request that a response answers, not an acknowledgement.
    #[inline]
    pub fn has_response(self) -> bool {
        matches!(
            self,
            Self::ReadRequest | Self::CompareSwap | Self::FetchAdd | Self::Flush | Self::AtomicWrite
        )
    }

    /// Whether it is the first of several packets.
    #[inline]
    pub fn is_first(self) -> bool {
        matches!(self, Self::SendFirst | Self::WriteFirst | Self::ReadFirst)
    }

    /// Whether it is neither the first nor the last of several packets.
    #[inline]
    pub fn is_middle(self) -> bool {
        matches!(self, Self::SendMiddle | Self::WriteMiddle | Self::ReadMiddle)
    }

    /// Whether it is the last of several packets.
    #[inline]
    pub fn is_last(self) -> bool {
        matches!(
            self,
            Self::SendLast
                | Self::SendLastImm
                | Self::SendLastInv
                | Self::WriteLast
                | Self::WriteLastImm
                | Self::ReadLast
        )
    }

    /// Whether it is a message of one packet.
    #[inline]
    pub fn is_only(self) -> bool {
        !self.is_first() && !self.is_middle() && !self.is_last()
    }

    /// Whether it begins a message.
    #[inline]
    pub fn is_first_or_only(self) -> bool {
        !self.is_middle() && !self.is_last()
    }

    /// Whether it ends a message.
    #[inline]
    pub fn is_last_or_only(self) -> bool {
        !self.is_first() && !self.is_middle()
    }

    /// Whether it carries immediate data.
    #[inline]
    pub fn has_immediate(self) -> bool {
        matches!(self, Self::SendLastImm | Self::SendOnlyImm | Self::WriteLastImm | Self::WriteOnlyImm)
    }

    /// Whether it carries a key to invalidate.
    #[inline]
    pub fn has_invalidate(self) -> bool {
        matches!(self, Self::SendLastInv | Self::SendOnlyInv)
    }

    /// Whether it may carry payload.
    #[inline]
    pub fn has_payload(self) -> bool {
        !matches!(
            self,
            Self::ReadRequest
                | Self::Acknowledge
                | Self::AtomicAcknowledge
                | Self::CompareSwap
                | Self::FetchAdd
                | Self::Flush
        )
    }
}
