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
use super::codes::{LAYER_MPA, LAYER_RDMAP, TermCode};
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
