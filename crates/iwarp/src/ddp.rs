// SPDX-License-Identifier: BSD-3-Clause
//! The header of a DDP segment with the RDMAP opcode in it, and the order of untagged segments.
#![forbid(unsafe_code)]

use super::bytes::{be32, be64, put32, put64};
use super::error::WireError;
use super::rdmap::Opcode;

/// Bytes of the header of a tagged segment.
pub const TAGGED_LEN: usize = 14;
/// Bytes of the header of an untagged segment.
pub const UNTAGGED_LEN: usize = 18;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = UNTAGGED_LEN;

/// Queue of Send and Immediate Data messages.
pub const QN_SEND: u32 = 0;
/// Queue of Read Request and Atomic Request messages.
pub const QN_REQUEST: u32 = 1;
/// Queue of the Terminate message.
pub const QN_TERMINATE: u32 = 2;
/// Queue of Atomic Response messages.
pub const QN_ATOMIC_RESPONSE: u32 = 3;

/// The number of the first message in every queue.
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
    /// The payload goes to a place that the header names.
    Tagged {
        /// Write or Read Response.
        opcode: Opcode,
        /// The last segment of its message.
        last: bool,
        /// The memory region. Means nothing, and must not be looked up, when the message is empty.
        stag: u32,
        /// Where the payload goes in the region. Means nothing when the message is empty.
        to: u64,
    },
    /// The payload goes to a buffer of a queue.
    Untagged {
        /// Every opcode but Write and Read Response.
        opcode: Opcode,
        /// The last segment of its message.
        last: bool,
        /// The STag to invalidate for the opcodes that do; otherwise reserved, sent 0 and ignored.
        inv_stag: u32,
        /// The queue.
        qn: u32,
        /// The number of the message in the queue.
        msn: u32,
        /// The offset of the payload in the message.
        mo: u32,
    },
}

impl Header {
    /// Bytes of the encoded header: [`TAGGED_LEN`] or [`UNTAGGED_LEN`].
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Header::Tagged { .. } => TAGGED_LEN,
            Header::Untagged { .. } => UNTAGGED_LEN,
        }
    }

    /// The RDMAP opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        match *self {
            Header::Tagged { opcode, .. } | Header::Untagged { opcode, .. } => opcode,
        }
    }

    /// Whether this is the last segment of its message.
    #[inline]
    pub fn last(&self) -> bool {
        match *self {
            Header::Tagged { last, .. } | Header::Untagged { last, .. } => last,
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
            Header::Tagged { stag, to, .. } => {
                control |= TAGGED;
                put32(out, 2, stag);
                put64(out, 6, to);
            }
            Header::Untagged { inv_stag, qn, msn, mo, .. } => {
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

    /// Reads the header that `ulpdu` starts with; what follows it is not looked at.
    ///
    /// # Errors
    ///
    /// [`WireError::UlpduTooShort`] when the header is not all there, [`WireError::DdpVersion`],
    /// [`WireError::RdmapVersion`], [`WireError::UnknownOpcode`], and [`WireError::UnexpectedOpcode`] for a
    /// tagged opcode in an untagged segment or the other way round.
    #[inline]
    pub fn decode(ulpdu: &[u8]) -> Result<Header, WireError> {
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
            Header::Tagged { opcode, last, stag: be32(ulpdu, 2), to: be64(ulpdu, 6) }
        } else {
            Header::Untagged {
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

/// The bytes of a header as they were received, so that a Terminate message can quote one that has no
/// meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderCopy {
    bytes: [u8; MAX_HEADER_LEN],
}

impl HeaderCopy {
    /// Copies the header that `ulpdu` starts with; `None` when it is not all there.
    pub fn new(ulpdu: &[u8]) -> Option<HeaderCopy> {
        let len = len_of(*ulpdu.first()?);
        let mut bytes = [0; MAX_HEADER_LEN];
        bytes[..len].copy_from_slice(ulpdu.get(..len)?);
        Some(HeaderCopy { bytes })
    }

    /// The bytes: [`TAGGED_LEN`] or [`UNTAGGED_LEN`] of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..len_of(self.bytes[0])]
    }

    /// What they mean.
    ///
    /// # Errors
    ///
    /// As [`Header::decode`].
    pub fn decode(&self) -> Result<Header, WireError> {
        Header::decode(self.as_bytes())
    }
}

impl From<&Header> for HeaderCopy {
    fn from(header: &Header) -> HeaderCopy {
        let mut bytes = [0; MAX_HEADER_LEN];
        header.encode(&mut bytes);
        HeaderCopy { bytes }
    }
}

/// Where a segment belongs in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePos {
    /// The number of the message.
    pub msn: u32,
    /// The segment starts the message.
    pub first: bool,
    /// The segment ends the message.
    pub last: bool,
    /// Bytes of the message before this segment.
    pub offset: u32,
}

/// The order of one untagged queue in one direction: messages are numbered without a gap, and the segments of
/// a message follow each other without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntaggedOrder {
    next_msn: u32,
    mo: u32,
    current: Option<Opcode>,
}

impl Default for UntaggedOrder {
    fn default() -> UntaggedOrder {
        UntaggedOrder::new()
    }
}

impl UntaggedOrder {
    /// The state before the first message, which has number [`FIRST_MSN`].
    pub const fn new() -> UntaggedOrder {
        UntaggedOrder::starting_at(FIRST_MSN)
    }

    /// The state before the message with this number.
    pub const fn starting_at(msn: u32) -> UntaggedOrder {
        UntaggedOrder { next_msn: msn, mo: 0, current: None }
    }

    /// The number of the message that is under way, or of the next one.
    pub fn next_msn(&self) -> u32 {
        self.next_msn
    }

    /// Whether a message has started and its last segment has not been seen.
    pub fn in_message(&self) -> bool {
        self.current.is_some()
    }

    /// Checks that the segment is the next one of the queue and moves on behind it.
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
            *self = UntaggedOrder::starting_at(msn.wrapping_add(1));
        } else {
            self.mo = end;
            self.current = Some(opcode);
        }
        Ok(pos)
    }
}
