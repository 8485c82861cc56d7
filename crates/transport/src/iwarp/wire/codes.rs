// SPDX-License-Identifier: BSD-3-Clause
//! The numbers of the protocols: opcodes of RDMAP, queues of DDP, codes of Terminate messages.

use std::fmt;

/// Queue of Send and Immediate Data messages.
pub const QN_SEND: u32 = 0;
/// Queue of Read Request and Atomic Request messages.
pub const QN_REQUEST: u32 = 1;
/// Queue of the Terminate message.
pub const QN_TERMINATE: u32 = 2;
/// Queue of Atomic Response messages.
pub const QN_ATOMIC_RESPONSE: u32 = 3;

/// The RDMAP opcode of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInv = 4,
    /// Send with Solicited Event.
    SendSe = 5,
    /// Send with Solicited Event and Invalidate.
    SendSeInv = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate Data.
    Immediate = 8,
    /// Immediate Data with Solicited Event.
    ImmediateSe = 9,
    /// Atomic Request.
    AtomicRequest = 10,
    /// Atomic Response.
    AtomicResponse = 11,
}

impl Opcode {
    /// The opcode with this number, if it is defined.
    #[inline]
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInv,
            5 => Self::SendSe,
            6 => Self::SendSeInv,
            7 => Self::Terminate,
            8 => Self::Immediate,
            9 => Self::ImmediateSe,
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            _ => return None,
        })
    }

    /// The queue number of the message; `None` for the two tagged ones.
    #[inline]
    pub fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send | Self::SendInv | Self::SendSe | Self::SendSeInv => Some(QN_SEND),
            Self::Immediate | Self::ImmediateSe => Some(QN_SEND),
            Self::ReadRequest | Self::AtomicRequest => Some(QN_REQUEST),
            Self::Terminate => Some(QN_TERMINATE),
            Self::AtomicResponse => Some(QN_ATOMIC_RESPONSE),
        }
    }

    /// Whether the segments of the message are tagged.
    #[inline]
    pub fn is_tagged(self) -> bool {
        self.queue().is_none()
    }

    /// Whether the message is one of the four kinds of Send.
    #[inline]
    pub fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendInv | Self::SendSe | Self::SendSeInv)
    }

    /// Whether the message generates an event at a completion queue that is armed for solicited events only.
    #[inline]
    pub fn solicited(self) -> bool {
        matches!(self, Self::SendSe | Self::SendSeInv | Self::ImmediateSe)
    }

    /// Whether the message invalidates an STag.
    #[inline]
    pub fn invalidates(self) -> bool {
        matches!(self, Self::SendInv | Self::SendSeInv)
    }
}

pub(super) const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
pub(super) const LAYER_MPA: u8 = 2;

/// Layer, error type and error code of a Terminate message. The constants are those that the standards
/// define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TermCode {
    /// 0 RDMAP, 1 DDP, 2 MPA; 4 bits.
    pub layer: u8,
    /// The error type within the layer; 4 bits.
    pub etype: u8,
    /// The error code.
    pub code: u8,
}

macro_rules! term_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $layer:literal / $etype:literal / $code:literal: $text:literal;)*) => {
        impl TermCode {
            $($(#[doc = $doc])* pub const $name: TermCode =
                TermCode { layer: $layer, etype: $etype, code: $code };)*

            /// The meaning of the code; `None` if no standard defines it.
            pub fn text(&self) -> Option<&'static str> {
                match (self.layer, self.etype, self.code) {
                    $(($layer, $etype, $code) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

term_codes! {
    /// Local error of the sender.
    LOCAL_CATASTROPHIC = 0/0/0: "RDMAP: local catastrophic error";
    /// Read, atomic: no such STag.
    RDMAP_PROT_INVALID_STAG = 0/1/0: "RDMAP: invalid STag";
    /// Read, atomic: outside the region.
    RDMAP_PROT_BOUNDS = 0/1/1: "RDMAP: base or bounds violation";
    /// Read, atomic: the region lacks the access right.
    RDMAP_PROT_ACCESS = 0/1/2: "RDMAP: access rights violation";
    /// Read, atomic: the region belongs to another protection domain.
    RDMAP_PROT_NOT_OF_STREAM = 0/1/3: "RDMAP: STag not associated with the stream";
    /// Read, atomic: the range exceeds the address space.
    RDMAP_PROT_TO_WRAP = 0/1/4: "RDMAP: tagged offset wrap";
    /// Send with Invalidate: the STag cannot be invalidated.
    RDMAP_PROT_CANNOT_INVALIDATE = 0/1/9: "RDMAP: STag cannot be invalidated";
    /// Protection error of another kind.
    RDMAP_PROT_UNSPECIFIED = 0/1/0xff: "RDMAP: unspecified protection error";
    /// The RDMAP version is not 1.
    RDMAP_OP_VERSION = 0/2/5: "RDMAP: invalid version";
    /// The opcode is unknown or out of place.
    RDMAP_OP_OPCODE = 0/2/6: "RDMAP: unexpected opcode";
    /// Fatal error of this stream.
    RDMAP_OP_CATASTROPHIC_STREAM = 0/2/7: "RDMAP: catastrophic error of the stream";
    /// Fatal error of all streams of the sender.
    RDMAP_OP_CATASTROPHIC_GLOBAL = 0/2/8: "RDMAP: catastrophic error, global";
    /// The STag cannot be invalidated.
    RDMAP_OP_CANNOT_INVALIDATE = 0/2/9: "RDMAP: STag cannot be invalidated (operation)";
    /// Operation error of another kind.
    RDMAP_OP_UNSPECIFIED = 0/2/0xff: "RDMAP: unspecified operation error";
    /// Local error of the sender's DDP.
    DDP_CATASTROPHIC = 1/0/0: "DDP: local catastrophic error";
    /// Write, Read Response: no such STag.
    DDP_TAGGED_INVALID_STAG = 1/1/0: "DDP tagged: invalid STag";
    /// Write, Read Response: outside the region.
    DDP_TAGGED_BOUNDS = 1/1/1: "DDP tagged: base or bounds violation";
    /// Write, Read Response: the region belongs to another protection domain.
    DDP_TAGGED_NOT_OF_STREAM = 1/1/2: "DDP tagged: STag not associated with the stream";
    /// Write, Read Response: the range exceeds the address space.
    DDP_TAGGED_TO_WRAP = 1/1/3: "DDP tagged: tagged offset wrap";
    /// The DDP version of a tagged segment is not 1.
    DDP_TAGGED_VERSION = 1/1/4: "DDP tagged: invalid version";
    /// Unknown queue number, or not that of the opcode.
    DDP_UNTAGGED_QN = 1/2/1: "DDP untagged: invalid queue number";
    /// No buffer: no receive posted for a Send, or more RDMA Reads than the IRD.
    DDP_UNTAGGED_NO_BUFFER = 1/2/2: "DDP untagged: no buffer available";
    /// The message sequence number is not the next one.
    DDP_UNTAGGED_MSN_RANGE = 1/2/3: "DDP untagged: message sequence number out of range";
    /// The message offset is not the next one.
    DDP_UNTAGGED_MO = 1/2/4: "DDP untagged: invalid message offset";
    /// The message is longer than its buffer.
    DDP_UNTAGGED_TOO_LONG = 1/2/5: "DDP untagged: message too long for its buffer";
    /// The DDP version of an untagged segment is not 1.
    DDP_UNTAGGED_VERSION = 1/2/6: "DDP untagged: invalid version";
    /// The TCP connection was lost.
    MPA_CLOSED = 2/0/1: "MPA: connection closed, terminated or lost";
    /// The CRC does not match.
    MPA_CRC = 2/0/2: "MPA: CRC error";
    /// Marker and length of an FPDU do not match, or the length is invalid.
    MPA_MARKER = 2/0/3: "MPA: marker and length mismatch";
    /// The request or reply is invalid.
    MPA_BAD_FRAME = 2/0/4: "MPA: invalid request or reply frame";
    /// Connection setup: local error of the sender.
    MPA_CATASTROPHIC = 2/0/5: "MPA: local catastrophic error";
    /// Connection setup: the ORD of the reply exceeds the IRD of the initiator.
    MPA_INSUFFICIENT_IRD = 2/0/6: "MPA: insufficient read resources";
    /// Connection setup: the reply permits no first message that the initiator can send.
    MPA_NO_RTR = 2/0/7: "MPA: no matching first message";
}

impl TermCode {
    /// Whether a Terminate message with this code includes the header of the refused segment.
    pub fn quotes_header(&self) -> bool {
        match self.layer {
            LAYER_RDMAP => self.etype != 0,
            LAYER_DDP => true,
            _ => false,
        }
    }

    pub(super) fn from_control(bytes: [u8; 2], swapped: bool) -> Self {
        let (high, low) = (bytes[0] >> 4, bytes[0] & 0x0f);
        let (layer, etype) = if swapped { (low, high) } else { (high, low) };
        Self { layer, etype, code: bytes[1] }
    }
}

impl fmt::Display for TermCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.layer, self.etype, self.code)?;
        match self.text() {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}
