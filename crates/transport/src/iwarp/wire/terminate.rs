// SPDX-License-Identifier: BSD-3-Clause
//! The Terminate message: the reason for which a side ends the stream (RFC 5040 section 4.8).
//!
//! The body consists of 4 control bytes and, according to flags in the third one, the length of the refused
//! DDP segment, its header, and the Read Request that it carried.
//!
//! The Linux siw driver on little-endian hosts exchanges the nibbles of the first byte, layer and error type,
//! and stores the flags at the other end of their byte. If there are flags, they distinguish the two formats.
//! Without flags a code may have two interpretations: see [`Terminate::alternative`].

use std::fmt;

use super::bytes::{be16, put16};
use super::ddp::{Header, HeaderCopy, MAX_HEADER_LEN, len_of};
use super::error::WireError;
use super::rdmap::ReadRequest;

const FLAG_LENGTH: u8 = 0x80;
const FLAG_HEADER: u8 = 0x40;
const FLAG_READ: u8 = 0x20;
const FLAGS: u8 = FLAG_LENGTH | FLAG_HEADER | FLAG_READ;

const SIW_FLAG_LENGTH: u8 = 0x01;
const SIW_FLAG_HEADER: u8 = 0x02;
const SIW_FLAG_READ: u8 = 0x04;
const SIW_FLAGS: u8 = SIW_FLAG_LENGTH | SIW_FLAG_HEADER | SIW_FLAG_READ;

const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
const LAYER_MPA: u8 = 2;

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

    fn from_control(bytes: [u8; 2], swapped: bool) -> Self {
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

/// A Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// As in [`TermCode`].
    pub layer: u8,
    /// As in [`TermCode`].
    pub etype: u8,
    /// As in [`TermCode`].
    pub code: u8,
    /// The length of the refused DDP segment, header and payload. siw stores the length of the payload only.
    pub ddp_segment_len: Option<u16>,
    /// The header of the refused DDP segment.
    pub header: Option<HeaderCopy>,
    /// The Read Request that was refused. Sent only together with `header`.
    pub read_request: Option<ReadRequest>,
    /// The second interpretation, set by [`Terminate::decode`] if the message has no flags, so that it may be
    /// in the standard's format or in siw's, and the code is defined in both. The first interpretation is the
    /// one whose layer includes no header according to the standard. The codes 2/0/5 to 2/0/7 belong to
    /// connection setup: after FPDUs have been received in both directions, the alternative is more likely.
    pub alternative: Option<TermCode>,
}

impl Terminate {
    /// Minimum length of a body.
    pub const MIN_LEN: usize = 4;
    /// Maximum length of a body.
    pub const MAX_LEN: usize = Self::MIN_LEN + 2 + MAX_HEADER_LEN + ReadRequest::LEN;

    /// A message with this code that includes no header.
    pub fn new(code: TermCode) -> Self {
        Self {
            layer: code.layer,
            etype: code.etype,
            code: code.code,
            ddp_segment_len: None,
            header: None,
            read_request: None,
            alternative: None,
        }
    }

    /// A message with this code that includes the header of the refused segment if the code requires it.
    pub fn about(code: TermCode, header: impl Into<HeaderCopy>, payload_len: usize) -> Self {
        let mut terminate = Self::new(code);
        if code.quotes_header() {
            let header = header.into();
            let len = u16::try_from(header.as_bytes().len() + payload_len).unwrap_or(u16::MAX);
            terminate.ddp_segment_len = Some(len);
            terminate.header = Some(header);
        }
        terminate
    }

    /// A message with this code that includes the header of the segment with the refused Read Request if the
    /// code requires it. Only a protection error (0/1) includes the request itself.
    pub fn about_read(code: TermCode, header: &Header, request: &ReadRequest) -> Self {
        let mut terminate = Self::about(code, header, ReadRequest::LEN);
        if (code.layer, code.etype) == (LAYER_RDMAP, 1) {
            terminate.read_request = Some(*request);
        }
        terminate
    }

    /// Layer, error type and code.
    pub fn term_code(&self) -> TermCode {
        TermCode { layer: self.layer, etype: self.etype, code: self.code }
    }

    /// Writes the body in the standard's format to the front of `out` and returns its length.
    pub fn encode(&self, out: &mut [u8; Self::MAX_LEN]) -> usize {
        out[0] = (self.layer << 4) | (self.etype & 0x0f);
        out[1] = self.code;
        out[2] = 0;
        out[3] = 0;
        let mut at = Self::MIN_LEN;
        let Some(header) = &self.header else {
            return at;
        };
        out[2] = FLAG_LENGTH | FLAG_HEADER;
        put16(out, at, self.ddp_segment_len.unwrap_or(0));
        at += 2;
        let header = header.as_bytes();
        out[at..at + header.len()].copy_from_slice(header);
        at += header.len();
        if let Some(request) = &self.read_request {
            out[2] |= FLAG_READ;
            out[at..at + ReadRequest::LEN].copy_from_slice(&request.encode());
            at += ReadRequest::LEN;
        }
        at
    }

    /// Decodes a body in the standard's format or in siw's. Parts whose flag is set but that are missing are
    /// left out, and bytes after the last part are ignored: the message ends the stream in any case.
    ///
    /// # Errors
    ///
    /// [`WireError::BadTerminate`] when there are fewer than [`Terminate::MIN_LEN`] bytes.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let Some((control, mut rest)) = body.split_first_chunk::<{ Self::MIN_LEN }>() else {
            return Err(WireError::BadTerminate);
        };
        let (code, alternative, flags) = read_control(*control);
        let mut terminate = Self { alternative, ..Self::new(code) };
        if flags & FLAG_LENGTH != 0 {
            let Some((len, tail)) = rest.split_first_chunk::<2>() else {
                return Ok(terminate);
            };
            terminate.ddp_segment_len = Some(be16(len, 0));
            rest = tail;
        }
        if flags & FLAG_HEADER != 0 {
            terminate.header = HeaderCopy::new(rest);
            if terminate.header.is_none() {
                return Ok(terminate);
            }
            rest = &rest[len_of(rest[0])..];
            if flags & FLAG_READ != 0 {
                terminate.read_request = rest.first_chunk().map(ReadRequest::decode);
            }
        }
        Ok(terminate)
    }
}

/// The likely code, its alternative if there is one, and the flags at the standard's positions.
fn read_control([type_byte, code, flags, _]: [u8; 4]) -> (TermCode, Option<TermCode>, u8) {
    let standard = TermCode::from_control([type_byte, code], false);
    let siw = TermCode::from_control([type_byte, code], true);
    if flags & FLAGS != 0 {
        return (standard, None, flags & FLAGS);
    }
    if flags & SIW_FLAGS != 0 {
        let mut moved = 0;
        for (theirs, ours) in
            [(SIW_FLAG_LENGTH, FLAG_LENGTH), (SIW_FLAG_HEADER, FLAG_HEADER), (SIW_FLAG_READ, FLAG_READ)]
        {
            moved |= if flags & theirs != 0 { ours } else { 0 };
        }
        return (siw, None, moved);
    }
    let siw_first = siw.text().is_some()
        && (standard.text().is_none() || (siw.layer == LAYER_MPA && standard.layer != LAYER_MPA));
    let (first, second) = if siw_first { (siw, standard) } else { (standard, siw) };
    (first, Some(second).filter(|second| *second != first && second.text().is_some()), 0)
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.term_code().fmt(f)?;
        match self.alternative {
            Some(code) => write!(f, ", or in the format of siw {code}"),
            None => Ok(()),
        }
    }
}
