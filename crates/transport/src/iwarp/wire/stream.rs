// SPDX-License-Identifier: BSD-3-Clause
//! FPDUs, the frames of a stream: `ULPDU length 2 | DDP header | payload | pad 0..3 | CRC 4`.
//!
//! Sending: [`encode_fpdu_header`] encodes what precedes the payload, the payload is sent without a copy, and
//! [`trailer`] encodes what follows; [`encode_fpdu`] encodes a whole FPDU with a short body.
//! Receiving: [`Receiver`] parses the stream, however it is divided on arrival.

use super::bytes::{be16, put16};
use super::ddp::{self, Header, HeaderCopy, TAGGED_LEN, UNTAGGED_LEN, len_of};
use super::error::WireError;
use super::rdmap::AtomicRequest;
use super::terminate::Terminate;

/// Bytes of the ULPDU length.
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC field, which is present even if CRCs are not used.
pub const CRC_LEN: usize = 4;
/// Bytes of the longest header that [`encode_fpdu_header`] writes.
pub const MAX_HEADER_LEN: usize = LENGTH_LEN + ddp::MAX_HEADER_LEN;
/// Bytes of the longest trailer: pad and CRC.
pub const MAX_TRAILER_LEN: usize = 3 + CRC_LEN;
/// Most bytes of a ULPDU, the largest value of its length field.
pub const MAX_ULPDU: usize = 65535;
/// Most bytes of an FPDU.
pub const MAX_FPDU: usize = fpdu_len(MAX_ULPDU);
/// Bytes of the longest body with a fixed format: that of a Terminate message. An Atomic Request is as long.
pub const MAX_CONTROL_BODY: usize = Terminate::MAX_LEN;
const _: () = assert!(AtomicRequest::LEN <= MAX_CONTROL_BODY);
/// Most bytes of an FPDU with such a body.
pub const MAX_CONTROL_FPDU: usize = fpdu_len(UNTAGGED_LEN + MAX_CONTROL_BODY);

/// Minimum of MULPDU, however small a TCP segment is (RFC 5044).
pub const MIN_MULPDU: usize = 128;

/// Pad bytes after a ULPDU of this length: the length of an FPDU is a multiple of 4.
#[inline]
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() & 3
}

/// Bytes of the pad and the CRC after a ULPDU of this length.
#[inline]
pub const fn trailer_len(ulpdu_len: usize) -> usize {
    pad_len(ulpdu_len) + CRC_LEN
}

/// Bytes of the FPDU with a ULPDU of this length.
#[inline]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + trailer_len(ulpdu_len)
}

/// The largest ULPDU whose FPDU fits into one TCP segment of `emss` bytes, without markers:
/// at least [`MIN_MULPDU`], at most [`MAX_ULPDU`].
pub fn mulpdu(emss: usize) -> usize {
    emss.saturating_sub(LENGTH_LEN + CRC_LEN + emss % 4).clamp(MIN_MULPDU, MAX_ULPDU)
}

/// Most bytes of payload in a tagged segment whose ULPDU is at most `mulpdu` bytes.
pub const fn max_tagged_payload(mulpdu: usize) -> usize {
    mulpdu - TAGGED_LEN
}

/// Most bytes of payload in an untagged segment whose ULPDU is at most `mulpdu` bytes.
pub const fn max_untagged_payload(mulpdu: usize) -> usize {
    mulpdu - UNTAGGED_LEN
}

/// Writes ULPDU length and segment header to the front of `out` and returns how many bytes that is. The
/// payload follows them on the stream, then the [`trailer`].
///
/// # Panics
///
/// When `out` is too short ([`MAX_HEADER_LEN`] always suffices), or the ULPDU exceeds [`MAX_ULPDU`].
#[inline]
pub fn encode_fpdu_header(header: &Header, payload_len: usize, out: &mut [u8]) -> usize {
    let ulpdu_len = header.len() + payload_len;
    assert!(ulpdu_len <= MAX_ULPDU, "a ULPDU of {ulpdu_len} bytes");
    put16(out, 0, ulpdu_len as u16);
    LENGTH_LEN + header.encode(&mut out[LENGTH_LEN..])
}

/// Writes pad and CRC field for a ULPDU of this length to the front of `out` and returns how many bytes that
/// is. The CRC field is zero if CRCs are not used.
#[inline]
pub fn trailer(crc: Option<u32>, ulpdu_len: usize, out: &mut [u8; 8]) -> usize {
    let pad = pad_len(ulpdu_len);
    *out = [0; 8];
    // The only little-endian field of the stream.
    out[pad..pad + CRC_LEN].copy_from_slice(&crc.unwrap_or(0).to_le_bytes());
    pad + CRC_LEN
}

/// The CRC of the FPDU that consists of these parts: header as [`encode_fpdu_header`] writes it, then
/// payload. The pad, all zero, is added here. The parts must be the bytes that are sent: a payload that the
/// application may still modify must be copied first.
pub fn fpdu_crc<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut crc = 0;
    let mut len = 0;
    for part in parts {
        crc = crc32c::crc32c_append(crc, part);
        len += part.len();
    }
    crc32c::crc32c_append(crc, &[0; 3][..len.wrapping_neg() & 3])
}

/// Writes a whole FPDU to the front of `out` and returns its length.
///
/// # Panics
///
/// When `out` is shorter than the FPDU ([`MAX_CONTROL_FPDU`] suffices for a body of up to
/// [`MAX_CONTROL_BODY`] bytes), or the ULPDU exceeds [`MAX_ULPDU`].
pub fn encode_fpdu(header: &Header, body: &[u8], crc: bool, out: &mut [u8]) -> usize {
    let start = encode_fpdu_header(header, body.len(), out);
    let end = start + body.len();
    out[start..end].copy_from_slice(body);
    let crc = crc.then(|| fpdu_crc([&out[..end]]));
    let mut tail = [0; 8];
    let tail_len = trailer(crc, end - LENGTH_LEN, &mut tail);
    out[end..end + tail_len].copy_from_slice(&tail[..tail_len]);
    end + tail_len
}

/// An event of [`Receiver::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The next event requires at least this many bytes of input after those that this call has consumed.
    /// Never more than [`MAX_FPDU`], so an input buffer of that size cannot block the stream; without CRCs,
    /// never more than a trailer and a header.
    Need(usize),
    /// A segment starts.
    Segment {
        /// Its header, of which only the versions, the opcode and the kind of segment have been checked.
        header: Header,
        /// Bytes of payload that follow.
        payload_len: usize,
    },
    /// The next bytes of the payload of the segment; never empty.
    Payload(&'a [u8]),
    /// The payload of the segment is complete.
    SegmentEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between segments.
    Start,
    /// Within a segment: this many bytes of its payload are still to come.
    Payload(usize),
    /// The peer violated the protocol.
    Failed(WireError),
}

/// Parses a received stream. It stores no bytes: the caller keeps those that were not consumed and passes
/// them again together with the following ones.
///
/// Each segment results in one [`Event::Segment`], any number of [`Event::Payload`] and one
/// [`Event::SegmentEnd`].
///
/// Without CRCs, each event is returned as soon as its bytes have arrived, and [`Event::SegmentEnd`] as soon
/// as the payload is complete: the trailer, which then has no information, is skipped before the next header.
/// With CRCs, no event of an FPDU is returned before all of it is in the input and its CRC is correct.
///
/// A caller that needs payload in one piece, for example to store 8 bytes at once, can defer its call until
/// the input has [`payload_remaining`](Receiver::payload_remaining) bytes.
#[derive(Clone, Debug)]
pub struct Receiver {
    crc: bool,
    state: State,
    /// Unconsumed bytes of the trailer of the current or the last segment.
    trailer: usize,
    /// Header and payload length of the invalid segment.
    refused: Option<(HeaderCopy, usize)>,
}

impl Receiver {
    /// The state before the first FPDU.
    pub fn new(crc: bool) -> Self {
        Self { crc, state: State::Start, trailer: 0, refused: None }
    }

    /// Whether CRCs are checked.
    pub fn crc(&self) -> bool {
        self.crc
    }

    /// Bytes of payload of the current segment that have been neither returned nor placed; 0 between
    /// segments.
    #[inline]
    pub fn payload_remaining(&self) -> usize {
        match self.state {
            State::Payload(remaining) => remaining,
            _ => 0,
        }
    }

    /// Reports that the caller has received the next `n` bytes of the current segment's payload directly into
    /// their destination, so that they will not be in the input. Only without CRCs, and only if all input
    /// before them has been consumed.
    ///
    /// # Panics
    ///
    /// With CRCs, or if `n` exceeds [`Receiver::payload_remaining`]: the position in the stream would be
    /// wrong.
    #[inline]
    pub fn payload_placed(&mut self, n: usize) {
        let remaining = self.payload_remaining();
        assert!(!self.crc && n <= remaining, "{n} bytes placed of {remaining}");
        if let State::Payload(left) = &mut self.state {
            *left -= n;
        }
    }

    /// Whether the stream may end here, at the boundary of an FPDU. `unconsumed` is the number of bytes of
    /// input that are left. Without CRCs the trailer may be missing.
    pub fn at_boundary(&self, unconsumed: usize) -> bool {
        self.state == State::Start && unconsumed == 0
    }

    /// Finds the next event in `input`, all received bytes of the stream that have not been consumed. Returns
    /// the number of bytes at its front that are now consumed, and the event.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the FPDU is invalid. Every further call returns the same error.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), WireError> {
        match self.state {
            State::Payload(0) => {
                self.state = State::Start;
                Ok((self.skip_trailer(input), Event::SegmentEnd))
            }
            State::Payload(remaining) => {
                let len = remaining.min(input.len());
                if len == 0 {
                    return Ok((0, Event::Need(1)));
                }
                self.state = State::Payload(remaining - len);
                Ok((len, Event::Payload(&input[..len])))
            }
            State::Start => {
                let skipped = self.skip_trailer(input);
                if self.trailer > 0 {
                    return Ok((skipped, Event::Need(self.trailer + LENGTH_LEN + TAGGED_LEN)));
                }
                match self.start(&input[skipped..]) {
                    Ok((consumed, event)) => Ok((skipped + consumed, event)),
                    Err(error) => {
                        self.state = State::Failed(error);
                        Err(error)
                    }
                }
            }
            State::Failed(error) => Err(error),
        }
    }

    /// The Terminate message for the error that [`Receiver::next`] returned, with the header of the segment
    /// if the code requires it; `None` if there was no error, or the error is not answered.
    pub fn terminate(&self) -> Option<Terminate> {
        let State::Failed(error) = self.state else {
            return None;
        };
        let code = error.terminate()?;
        Some(match self.refused {
            Some((header, payload_len)) => Terminate::about(code, header, payload_len),
            None => Terminate::new(code),
        })
    }

    /// Skips the part of the trailer that is at the start of `input`, and returns its length.
    #[inline]
    fn skip_trailer(&mut self, input: &[u8]) -> usize {
        let skipped = self.trailer.min(input.len());
        self.trailer -= skipped;
        skipped
    }

    /// Starts the segment at the front of `input`.
    #[inline]
    fn start<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), WireError> {
        // No segment is shorter than the shorter header, so all of that can be required.
        if input.len() < LENGTH_LEN + TAGGED_LEN {
            if input.len() >= LENGTH_LEN {
                check_ulpdu_len(usize::from(be16(input, 0)), TAGGED_LEN)?;
            }
            return Ok((0, Event::Need(LENGTH_LEN + TAGGED_LEN)));
        }
        let ulpdu_len = usize::from(be16(input, 0));
        let header_len = len_of(input[LENGTH_LEN]);
        check_ulpdu_len(ulpdu_len, header_len)?;
        let wanted = if self.crc { fpdu_len(ulpdu_len) } else { LENGTH_LEN + header_len };
        if input.len() < wanted {
            return Ok((0, Event::Need(wanted)));
        }
        if self.crc {
            check_crc(&input[..wanted])?;
        }
        let ulpdu = &input[LENGTH_LEN..LENGTH_LEN + header_len];
        let payload_len = ulpdu_len - header_len;
        let header = Header::decode(ulpdu).inspect_err(|_| {
            self.refused = HeaderCopy::new(ulpdu).map(|copy| (copy, payload_len));
        })?;
        self.state = State::Payload(payload_len);
        self.trailer = trailer_len(ulpdu_len);
        Ok((LENGTH_LEN + header_len, Event::Segment { header, payload_len }))
    }
}

fn check_ulpdu_len(ulpdu_len: usize, header_len: usize) -> Result<(), WireError> {
    if ulpdu_len < header_len { Err(WireError::UlpduTooShort(ulpdu_len)) } else { Ok(()) }
}

/// Checks the CRC at the end of a whole FPDU. It includes the pad as it was sent: some senders do not clear
/// it.
fn check_crc(fpdu: &[u8]) -> Result<(), WireError> {
    let Some((covered, field)) = fpdu.split_last_chunk::<CRC_LEN>() else {
        return Err(WireError::UlpduTooShort(fpdu.len()));
    };
    let (computed, received) = (crc32c::crc32c(covered), u32::from_le_bytes(*field));
    if computed == received { Ok(()) } else { Err(WireError::Crc { computed, received }) }
}
