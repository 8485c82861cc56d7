// SPDX-License-Identifier: BSD-3-Clause
//! The MPA request and reply that open a stream (RFC 5044 section 7.1, RFC 6581).
//!
//! The initiator sends a request, the responder a reply; each is 20 bytes and up to 512 bytes of private data.
//! With the enhanced set-up of RFC 6581 the first 4 bytes of the private data negotiate read depths and the
//! first message. They are split off here, so that callers see only the private data of the application.
#![forbid(unsafe_code)]

use std::fmt;

use super::bytes::{be16, put16};

/// The first bytes of a request.
pub const KEY_REQ: [u8; 16] = *b"MPA ID Req Frame";
/// The first bytes of a reply.
pub const KEY_REP: [u8; 16] = *b"MPA ID Rep Frame";
/// Bytes before the private data.
pub const HEADER_LEN: usize = 20;
/// Most bytes of private data that a frame may carry, the enhanced block included.
pub const MAX_PRIVATE_DATA: usize = 512;
/// Bytes of the enhanced block.
pub const ENHANCED_LEN: usize = 4;
/// Most bytes of a whole frame.
pub const MAX_FRAME_LEN: usize = HEADER_LEN + MAX_PRIVATE_DATA;
/// The revision that we speak, the first with the enhanced block.
pub const REVISION: u8 = 2;
/// The oldest revision that we understand.
pub const OLDEST_REVISION: u8 = 1;
/// The depth that leaves the negotiation to the upper layer, and the largest value of the 14-bit field.
pub const DEPTH_NOT_NEGOTIATED: u16 = 0x3fff;

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

const HIGH_BIT: u16 = 0x8000;
const SECOND_BIT: u16 = 0x4000;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the initiator, the side that connected.
    Request,
    /// From the responder, the side that listened.
    Reply,
}

impl Kind {
    /// The 16 bytes that such a frame starts with.
    pub fn key(self) -> &'static [u8; 16] {
        match self {
            Kind::Request => &KEY_REQ,
            Kind::Reply => &KEY_REP,
        }
    }
}

/// The enhanced block: read depths, and which message may be the first one (ready to receive, RTR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// The initiator sends an RTR message right after the reply (flag A). Without it the three flags that
    /// follow mean nothing and are ignored.
    pub peer_to_peer: bool,
    /// The RTR message may be a zero-length Send (flag B).
    pub rtr_send: bool,
    /// The RTR message may be a zero-length RDMA Write (flag C).
    pub rtr_write: bool,
    /// The RTR message may be a zero-length RDMA Read (flag D).
    pub rtr_read: bool,
    /// Reads that the sender of the frame answers at one time, 0 to [`DEPTH_NOT_NEGOTIATED`].
    pub ird: u16,
    /// Reads that the sender of the frame keeps outstanding at one time, 0 to [`DEPTH_NOT_NEGOTIATED`].
    pub ord: u16,
}

impl Enhanced {
    /// The block's 4 bytes. Depths larger than their 14-bit fields become [`DEPTH_NOT_NEGOTIATED`].
    pub fn encode(&self) -> [u8; ENHANCED_LEN] {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let mut out = [0; ENHANCED_LEN];
        let first = self.ird.min(DEPTH_NOT_NEGOTIATED)
            | flag(self.peer_to_peer, HIGH_BIT)
            | flag(self.rtr_send, SECOND_BIT);
        let second = self.ord.min(DEPTH_NOT_NEGOTIATED)
            | flag(self.rtr_write, HIGH_BIT)
            | flag(self.rtr_read, SECOND_BIT);
        put16(&mut out, 0, first);
        put16(&mut out, 2, second);
        out
    }

    /// Reads the block. Every 4 bytes are a valid one.
    pub fn decode(bytes: [u8; ENHANCED_LEN]) -> Enhanced {
        let (first, second) = (be16(&bytes, 0), be16(&bytes, 2));
        Enhanced {
            peer_to_peer: first & HIGH_BIT != 0,
            rtr_send: first & SECOND_BIT != 0,
            rtr_write: second & HIGH_BIT != 0,
            rtr_read: second & SECOND_BIT != 0,
            ird: first & DEPTH_NOT_NEGOTIATED,
            ord: second & DEPTH_NOT_NEGOTIATED,
        }
    }
}

/// A request or a reply, without the private data of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or reply.
    pub kind: Kind,
    /// The sender wants markers in what it receives.
    pub markers: bool,
    /// The sender wants CRCs; they are on in both directions when either frame says so.
    pub crc: bool,
    /// The connection is refused. Only a reply can say so; in a request the bit is ignored.
    pub reject: bool,
    /// The revision of the frame, [`OLDEST_REVISION`] to [`REVISION`].
    pub revision: u8,
    /// The enhanced block, from revision 2 on.
    pub enhanced: Option<Enhanced>,
}

/// What the bytes received so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Nothing wrong so far, but the frame is not complete: at least this many bytes in all are wanted.
    Need(usize),
    /// The whole frame is there.
    Frame {
        /// The frame's fields.
        frame: Frame,
        /// The private data behind the enhanced block.
        private_data: &'a [u8],
        /// How many of the bytes belong to the frame. What follows is the first FPDU.
        consumed: usize,
    },
}

/// Why a frame was refused. Nothing is sent in answer to a bad request: the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaError {
    /// The bytes are not the start of the expected frame: the peer speaks something else.
    WrongKey,
    /// A revision that we do not speak, or an enhanced block before revision 2.
    Revision(u8),
    /// This many bytes of private data, the enhanced block included, is more than [`MAX_PRIVATE_DATA`].
    PrivateDataLength(usize),
    /// The frame announces the enhanced block, but its private data has fewer than 4 bytes.
    EnhancedTooShort(usize),
}

impl fmt::Display for MpaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MpaError::WrongKey => f.write_str("the peer does not speak MPA"),
            MpaError::Revision(revision) => write!(f, "MPA revision {revision} is not supported here"),
            MpaError::PrivateDataLength(len) => {
                write!(f, "{len} bytes of MPA private data, more than {MAX_PRIVATE_DATA}")
            }
            MpaError::EnhancedTooShort(len) => {
                write!(f, "{len} bytes of MPA private data, too few for the enhanced block")
            }
        }
    }
}

impl std::error::Error for MpaError {}

/// Appends the frame and the application's private data to `out`.
///
/// # Errors
///
/// [`MpaError::PrivateDataLength`] when the private data and the enhanced block exceed [`MAX_PRIVATE_DATA`],
/// [`MpaError::Revision`] when the frame has a revision that [`decode`] would refuse or an enhanced block
/// before revision 2. `out` is unchanged then.
pub fn encode(frame: &Frame, private_data: &[u8], out: &mut Vec<u8>) -> Result<(), MpaError> {
    if !known_revision(frame.revision) || (frame.enhanced.is_some() && frame.revision < REVISION) {
        return Err(MpaError::Revision(frame.revision));
    }
    let len = private_data.len() + if frame.enhanced.is_some() { ENHANCED_LEN } else { 0 };
    if len > MAX_PRIVATE_DATA {
        return Err(MpaError::PrivateDataLength(len));
    }
    let mut flags = 0;
    for (set, flag) in [
        (frame.markers, FLAG_MARKERS),
        (frame.crc, FLAG_CRC),
        (frame.reject, FLAG_REJECT),
        (frame.enhanced.is_some(), FLAG_ENHANCED),
    ] {
        flags |= if set { flag } else { 0 };
    }
    let mut header = [0; HEADER_LEN];
    header[..16].copy_from_slice(frame.kind.key());
    header[16] = flags;
    header[17] = frame.revision;
    put16(&mut header, 18, len as u16);
    out.extend_from_slice(&header);
    if let Some(enhanced) = &frame.enhanced {
        out.extend_from_slice(&enhanced.encode());
    }
    out.extend_from_slice(private_data);
    Ok(())
}

/// Reads the frame that `bytes`, everything received so far, starts with.
///
/// A byte that differs from the key is refused as soon as it is there. Reserved bits are ignored; so is the
/// enhanced flag before revision 2, where it is a reserved bit, and the reject flag of a request.
///
/// # Errors
///
/// [`MpaError`], each variant for the reason that it names. More bytes cannot change the answer.
pub fn decode(expect: Kind, bytes: &[u8]) -> Result<Decoded<'_>, MpaError> {
    let key = expect.key();
    let seen = bytes.len().min(key.len());
    if bytes[..seen] != key[..seen] {
        return Err(MpaError::WrongKey);
    }
    if bytes.len() < HEADER_LEN {
        return Ok(Decoded::Need(HEADER_LEN));
    }
    let (flags, revision, len) = (bytes[16], bytes[17], usize::from(be16(bytes, 18)));
    if !known_revision(revision) {
        return Err(MpaError::Revision(revision));
    }
    if len > MAX_PRIVATE_DATA {
        return Err(MpaError::PrivateDataLength(len));
    }
    let has_block = flags & FLAG_ENHANCED != 0 && revision >= REVISION;
    if has_block && len < ENHANCED_LEN {
        return Err(MpaError::EnhancedTooShort(len));
    }
    let consumed = HEADER_LEN + len;
    if bytes.len() < consumed {
        return Ok(Decoded::Need(consumed));
    }
    let private_data = &bytes[HEADER_LEN..consumed];
    let (enhanced, private_data) = match private_data.split_first_chunk::<ENHANCED_LEN>() {
        Some((block, rest)) if has_block => (Some(Enhanced::decode(*block)), rest),
        _ => (None, private_data),
    };
    let frame = Frame {
        kind: expect,
        markers: flags & FLAG_MARKERS != 0,
        crc: flags & FLAG_CRC != 0,
        reject: flags & FLAG_REJECT != 0 && expect == Kind::Reply,
        revision,
        enhanced,
    };
    Ok(Decoded::Frame { frame, private_data, consumed })
}

fn known_revision(revision: u8) -> bool {
    (OLDEST_REVISION..=REVISION).contains(&revision)
}
