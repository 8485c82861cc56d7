// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the wire format: worked examples, captures of a kernel peer, hostile input.

mod capture;
mod examples;
mod framing;
mod hostile;
mod rules;

use super::WireError;
use super::ddp::Header;
use super::rdmap::Opcode;
use super::stream::{Event, Receiver};

/// Decodes hexadecimal digits; white space is skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    assert_eq!(digits.len(), text.chars().filter(|c| !c.is_whitespace()).count(), "not hexadecimal: {text}");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// A segment with all its payload.
type Segment = (Header, Vec<u8>);

/// Passes `stream` to the receiver, `chunk` bytes at a time, as a caller with an input buffer does, and
/// returns the complete segments and the error that ended the stream. Checks the order of the events, and the
/// number of bytes in [`Event::Need`].
fn feed(receiver: &mut Receiver, stream: &[u8], chunk: usize) -> (Vec<Segment>, Option<WireError>) {
    let mut segments = Vec::new();
    let mut open: Option<(Segment, usize)> = None;
    let (mut consumed, mut received) = (0, 0);
    loop {
        let input = &stream[consumed..received];
        let (n, event) = match receiver.next(input) {
            Ok(found) => found,
            Err(error) => return (segments, Some(error)),
        };
        assert!(n <= input.len());
        consumed += n;
        match event {
            Event::Need(wanted) => {
                assert!(wanted > received - consumed, "{wanted} bytes wanted that are there");
                assert!(wanted <= super::stream::MAX_FPDU);
                if received == stream.len() {
                    break;
                }
                received = stream.len().min(received + chunk);
            }
            Event::Segment { header, payload_len } => {
                assert!(open.is_none(), "a segment within a segment");
                open = Some(((header, Vec::new()), payload_len));
            }
            Event::Payload(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() == n);
                open.as_mut().expect("payload within a segment").0.1.extend_from_slice(bytes);
            }
            Event::SegmentEnd => {
                let (segment, payload_len) = open.take().expect("the end of a segment");
                assert_eq!(segment.1.len(), payload_len);
                assert_eq!(receiver.payload_remaining(), 0);
                segments.push(segment);
            }
        }
    }
    (segments, None)
}

/// The segments of a valid stream.
fn receive(receiver: &mut Receiver, stream: &[u8], chunk: usize) -> Result<Vec<Segment>, WireError> {
    match feed(receiver, stream, chunk) {
        (segments, None) => Ok(segments),
        (_, Some(error)) => Err(error),
    }
}

fn write_header(stag: u32, to: u64) -> Header {
    Header::Tagged { opcode: Opcode::Write, last: true, stag, to }
}

/// The header of the only segment of an untagged message.
fn untagged(opcode: Opcode, msn: u32) -> Header {
    let qn = opcode.queue().expect("an untagged opcode");
    Header::Untagged { opcode, last: true, inv_stag: 0, qn, msn, mo: 0 }
}
