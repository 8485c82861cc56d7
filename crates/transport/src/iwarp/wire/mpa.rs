// SPDX-License-Identifier: BSD-3-Clause
//! The MPA request and reply that open a stream (RFC 5044 section 7.1, RFC 6581).
//!
//! The initiator sends a request, the responder a reply; each is 20 bytes and up to 512 bytes of private
//! data. With the enhanced connection setup of RFC 6581 the first 4 bytes of the private data negotiate IRD,
//! ORD and the first message. They are removed here, so that callers see only the private data of the
//! application.

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
/// The revision that is sent, the first one with the enhanced block.
pub const REVISION: u8 = 2;
/// The oldest revision that is accepted.
pub const OLDEST_REVISION: u8 = 1;
/// The IRD or ORD that leaves the negotiation to the upper layer; the maximum of the 14-bit field.
pub const DEPTH_NOT_NEGOTIATED: u16 = 0x3fff;

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

const HIGH_BIT: u16 = 0x8000;
const SECOND_BIT: u16 = 0x4000;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the initiator, the side that connected.
    Request,
    /// From the responder, the side that listened.
    Reply,
}

impl Kind {
    /// The first 16 bytes of such a frame.
    pub fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => &KEY_REQ,
            Self::Reply => &KEY_REP,
        }
    }
}

/// The enhanced block: IRD, ORD, and the permitted kinds of first message (ready to receive, RTR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// The initiator sends an RTR message immediately after the reply (flag A). If it is not set, the next
    /// three flags are ignored.
    pub peer_to_peer: bool,
    /// The RTR message may be a zero-length Send (flag B).
    pub rtr_send: bool,
    /// The RTR message may be a zero-length RDMA Write (flag C).
    pub rtr_write: bool,
    /// The RTR message may be a zero-length RDMA Read (flag D).
    pub rtr_read: bool,
    /// IRD: the number of concurrent RDMA Reads that the sender of the frame responds to, 0 to
    /// [`DEPTH_NOT_NEGOTIATED`].
    pub ird: u16,
    /// ORD: the number of outstanding RDMA Reads of the sender of the frame, 0 to [`DEPTH_NOT_NEGOTIATED`].
    pub ord: u16,
}

impl Enhanced {
    /// Encodes the block. Depths that exceed their 14-bit fields become [`DEPTH_NOT_NEGOTIATED`].
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

    /// Decodes a block. Any 4 bytes are valid.
    pub fn decode(bytes: [u8; ENHANCED_LEN]) -> Self {
        let (first, second) = (be16(&bytes, 0), be16(&bytes, 2));
        Self {
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
    /// The sender requires markers in the stream that it receives.
    pub markers: bool,
    /// The sender requests CRCs; they are used in both directions if either frame requests them.
    pub crc: bool,
    /// The connection is rejected. Valid only in a reply; ignored in a request.
    pub reject: bool,
    /// The revision of the frame, [`OLDEST_REVISION`] to [`REVISION`].
    pub revision: u8,
    /// The enhanced block, from revision 2 on.
    pub enhanced: Option<Enhanced>,
}

/// The result of [`decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The frame is valid so far but not complete: it has at least this many bytes in total.
    Need(usize),
    /// The frame is complete.
    Frame {
        /// The frame's fields.
        frame: Frame,
        /// The private data after the enhanced block.
        private_data: &'a [u8],
        /// The number of bytes of the frame. The first FPDU follows.
        consumed: usize,
    },
}

/// Why a frame was refused. An invalid request is not answered; the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaError {
    /// The bytes do not start with the key of the expected frame: the peer uses another protocol.
    WrongKey,
    /// An unsupported revision, or an enhanced block before revision 2.
    Revision(u8),
    /// The private data, including the enhanced block, have this length, which exceeds [`MAX_PRIVATE_DATA`].
    PrivateDataLength(usize),
    /// The frame has the flag of the enhanced block, but only this many bytes of private data.
    EnhancedTooShort(usize),
}

impl fmt::Display for MpaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongKey => f.write_str("the peer does not speak MPA"),
            Self::Revision(revision) => write!(f, "MPA revision {revision} is not supported"),
            Self::PrivateDataLength(len) => {
                write!(f, "{len} bytes of MPA private data, more than {MAX_PRIVATE_DATA}")
            }
            Self::EnhancedTooShort(len) => {
                write!(f, "{len} bytes of MPA private data, fewer than the enhanced block has")
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

/// Decodes the frame at the start of `bytes`, all bytes received so far.
///
/// A wrong key is refused with its first wrong byte. Reserved bits are ignored; so is the
/// enhanced flag before revision 2, where it is reserved, and the reject flag of a request.
///
/// # Errors
///
/// [`MpaError`], each variant for the reason that it names. Further bytes do not change the result.
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
