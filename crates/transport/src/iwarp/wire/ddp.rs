// SPDX-License-Identifier: BSD-3-Clause
//! The header of a DDP segment, including the RDMAP control field, and the order of untagged segments.

use super::bytes::{be32, be64, put32, put64};
use super::codes::Opcode;
use super::error::WireError;

/// Bytes of the header of a tagged segment.
pub const TAGGED_LEN: usize = 14;
/// Bytes of the header of an untagged segment.
pub const UNTAGGED_LEN: usize = 18;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = UNTAGGED_LEN;

/// The message sequence number (MSN) of the first message of every queue.
pub const FIRST_MSN: u32 = 1;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION_MASK: u8 = 0x03;
const DDP_VERSION: u8 = 1;
const RDMAP_VERSION_SHIFT: u32 = 6;
const RDMAP_VERSION: u8 = 1;
const OPCODE_MASK: u8 = 0x0f;

/// The header of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The payload is placed at an STag and tagged offset that the header contains.
    Tagged {
        /// RDMA Write or RDMA Read Response.
        opcode: Opcode,
        /// The last segment of its message.
        last: bool,
        /// The STag of the memory region. Without meaning, and not to be checked, if the message has no
        /// payload.
        stag: u32,
        /// The tagged offset of the payload. Without meaning if the message has no payload.
        to: u64,
    },
    /// The payload is placed in the next buffer of a queue.
    Untagged {
        /// Any opcode other than RDMA Write and RDMA Read Response.
        opcode: Opcode,
        /// The last segment of its message.
        last: bool,
        /// The STag to invalidate, for opcodes with Invalidate; otherwise reserved, sent as 0 and ignored.
        inv_stag: u32,
        /// The queue number.
        qn: u32,
        /// The message sequence number.
        msn: u32,
        /// The message offset of the payload.
        mo: u32,
    },
}

impl Header {
    /// Bytes of the encoded header: [`TAGGED_LEN`] or [`UNTAGGED_LEN`].
    #[expect(clippy::len_without_is_empty, reason = "no header is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Tagged { .. } => TAGGED_LEN,
            Self::Untagged { .. } => UNTAGGED_LEN,
        }
    }

    /// The RDMAP opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        match *self {
            Self::Tagged { opcode, .. } | Self::Untagged { opcode, .. } => opcode,
        }
    }

    /// Whether this is the last segment of its message.
    #[inline]
    pub fn last(&self) -> bool {
        match *self {
            Self::Tagged { last, .. } | Self::Untagged { last, .. } => last,
        }
    }

    /// Writes the header to the front of `out` and returns its length.
    ///
    /// # Panics
    ///
    /// When `out` is shorter than [`Header::len`].
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let mut control = DDP_VERSION | if self.last() { LAST } else { 0 };
        match *self {
            Self::Tagged { stag, to, .. } => {
                control |= TAGGED;
                put32(out, 2, stag);
                put64(out, 6, to);
            }
            Self::Untagged { inv_stag, qn, msn, mo, .. } => {
                put32(out, 2, inv_stag);
                put32(out, 6, qn);
                put32(out, 10, msn);
                put32(out, 14, mo);
            }
        }
        out[0] = control;
        out[1] = (RDMAP_VERSION << RDMAP_VERSION_SHIFT) | self.opcode() as u8;
        self.len()
    }

    /// Decodes the header at the start of `ulpdu`; the bytes after it are ignored.
    ///
    /// # Errors
    ///
    /// [`WireError::UlpduTooShort`] when the header is not complete, [`WireError::DdpVersion`],
    /// [`WireError::RdmapVersion`], [`WireError::UnknownOpcode`], and [`WireError::UnexpectedOpcode`] for a
    /// tagged opcode in an untagged segment or vice versa.
    #[inline]
    pub fn decode(ulpdu: &[u8]) -> Result<Self, WireError> {
        let Some(&[control, rdmap]) = ulpdu.first_chunk::<2>() else {
            return Err(WireError::UlpduTooShort(ulpdu.len()));
        };
        let tagged = control & TAGGED != 0;
        let version = control & DDP_VERSION_MASK;
        if version != DDP_VERSION {
            return Err(WireError::DdpVersion { tagged, version });
        }
        if ulpdu.len() < len_of(control) {
            return Err(WireError::UlpduTooShort(ulpdu.len()));
        }
        let version = rdmap >> RDMAP_VERSION_SHIFT;
        if version != RDMAP_VERSION {
            return Err(WireError::RdmapVersion(version));
        }
        let code = rdmap & OPCODE_MASK;
        let opcode = Opcode::from_u8(code).ok_or(WireError::UnknownOpcode(code))?;
        if opcode.is_tagged() != tagged {
            return Err(WireError::UnexpectedOpcode(opcode));
        }
        let last = control & LAST != 0;
        Ok(if tagged {
            Self::Tagged { opcode, last, stag: be32(ulpdu, 2), to: be64(ulpdu, 6) }
        } else {
            Self::Untagged {
                opcode,
                last,
                inv_stag: be32(ulpdu, 2),
                qn: be32(ulpdu, 6),
                msn: be32(ulpdu, 10),
                mo: be32(ulpdu, 14),
            }
        })
    }
}

/// Bytes of the header whose first byte is `control`.
#[inline]
pub(super) fn len_of(control: u8) -> usize {
    if control & TAGGED != 0 { TAGGED_LEN } else { UNTAGGED_LEN }
}

/// A header as it was received, so that a Terminate message can include one that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderCopy {
    bytes: [u8; MAX_HEADER_LEN],
}

impl HeaderCopy {
    /// Copies the header at the start of `ulpdu`; `None` if it is not complete.
    pub fn new(ulpdu: &[u8]) -> Option<Self> {
        let len = len_of(*ulpdu.first()?);
        let mut bytes = [0; MAX_HEADER_LEN];
        bytes[..len].copy_from_slice(ulpdu.get(..len)?);
        Some(Self { bytes })
    }

    /// The bytes: [`TAGGED_LEN`] or [`UNTAGGED_LEN`] of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..len_of(self.bytes[0])]
    }

    /// Decodes the header.
    ///
    /// # Errors
    ///
    /// As [`Header::decode`].
    pub fn decode(&self) -> Result<Header, WireError> {
        Header::decode(self.as_bytes())
    }
}

impl From<&Header> for HeaderCopy {
    fn from(header: &Header) -> Self {
        let mut bytes = [0; MAX_HEADER_LEN];
        header.encode(&mut bytes);
        Self { bytes }
    }
}

/// The position of a segment in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePos {
    /// The message sequence number.
    pub msn: u32,
    /// The segment is the first of the message.
    pub first: bool,
    /// The segment is the last of the message.
    pub last: bool,
    /// The message offset of the segment.
    pub offset: u32,
}

/// The order of an untagged queue in one direction: neither the message sequence numbers nor the message
/// offsets within a message have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntaggedOrder {
    next_msn: u32,
    mo: u32,
    current: Option<Opcode>,
}

impl Default for UntaggedOrder {
    fn default() -> Self {
        Self::new()
    }
}

impl UntaggedOrder {
    /// The state before the first message, whose MSN is [`FIRST_MSN`].
    pub const fn new() -> Self {
        Self::starting_at(FIRST_MSN)
    }

    /// The state before the message with this MSN.
    pub const fn starting_at(msn: u32) -> Self {
        Self { next_msn: msn, mo: 0, current: None }
    }

    /// The MSN of the current message, or of the next one if there is none.
    pub fn next_msn(&self) -> u32 {
        self.next_msn
    }

    /// Whether a message has started whose last segment has not been received.
    pub fn in_message(&self) -> bool {
        self.current.is_some()
    }

    /// Checks that the segment is the next one of the queue, and advances.
    ///
    /// # Errors
    ///
    /// [`WireError::MessageNumber`], [`WireError::MessageOffset`], [`WireError::MessageTooLong`] when the
    /// message reaches 2^32 bytes, and [`WireError::UnexpectedOpcode`] when the opcode changes within a
    /// message, or for a tagged header, which belongs to no queue. The state is unchanged then.
    pub fn check(&mut self, header: &Header, payload_len: usize) -> Result<MessagePos, WireError> {
        let Header::Untagged { opcode, last, msn, mo, .. } = *header else {
            return Err(WireError::UnexpectedOpcode(header.opcode()));
        };
        if msn != self.next_msn {
            return Err(WireError::MessageNumber { expected: self.next_msn, received: msn });
        }
        if mo != self.mo {
            return Err(WireError::MessageOffset { expected: self.mo, received: mo });
        }
        if self.current.is_some_and(|current| current != opcode) {
            return Err(WireError::UnexpectedOpcode(opcode));
        }
        let end = u32::try_from(payload_len).ok().and_then(|len| mo.checked_add(len));
        let end = end.ok_or(WireError::MessageTooLong(opcode))?;
        let pos = MessagePos { msn, first: self.current.is_none(), last, offset: mo };
        if last {
            *self = Self::starting_at(msn.wrapping_add(1));
        } else {
            self.mo = end;
            self.current = Some(opcode);
        }
        Ok(pos)
    }
}
