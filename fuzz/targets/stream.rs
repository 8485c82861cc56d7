// SPDX-License-Identifier: BSD-3-Clause
//! A received stream: the same segments and the same error however it is cut into pieces, and whether the
//! payload comes through the input or is placed past it.
#![no_main]

use libfuzzer_sys::fuzz_target;

use transport::iwarp::wire::ddp::{Header, MessagePos};
use transport::iwarp::wire::stream::{Event, MAX_FPDU, Receiver};
use transport::iwarp::wire::{Inbound, WireError};

/// The events of a stream: each segment, its place and its payload, and the error that ended it.
#[derive(Debug, Default, PartialEq)]
struct Parsed {
    segments: Vec<(Header, usize, Result<Option<MessagePos>, WireError>)>,
    payload: Vec<u8>,
    ends: usize,
    error: Option<WireError>,
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[setting, chunk], stream)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let stream = &with_right_crcs(stream, setting & 2 != 0);
    let crc = setting & 1 != 0;
    let whole = feed(crc, stream, stream.len().max(1), false);
    assert_eq!(feed(crc, stream, 1 + usize::from(chunk), false), whole);
    if !crc {
        assert_eq!(feed(crc, stream, 1 + usize::from(chunk), true), whole);
    }
});

/// The stream with each FPDU's CRC as it should be, so that what lies behind the check is reached.
fn with_right_crcs(stream: &[u8], wanted: bool) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let mut at = 0;
    while wanted && at + 2 <= stream.len() {
        let ulpdu_len = usize::from(u16::from_be_bytes([stream[at], stream[at + 1]]));
        let end = at + transport::iwarp::wire::stream::fpdu_len(ulpdu_len);
        if end > stream.len() {
            break;
        }
        let crc = crc32c::crc32c(&stream[at..end - 4]);
        stream[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    stream
}

fn feed(crc: bool, stream: &[u8], chunk: usize, place: bool) -> Parsed {
    let mut parsed = Parsed::default();
    let mut receiver = Receiver::new(crc);
    let mut inbound = Inbound::new();
    let (mut consumed, mut received) = (0, 0);
    loop {
        if place && consumed == received {
            let n = receiver.payload_remaining().min(stream.len() - received).min(chunk);
            receiver.payload_placed(n);
            parsed.payload.extend_from_slice(&stream[received..received + n]);
            received += n;
            consumed = received;
        }
        let input = &stream[consumed..received];
        let (n, event) = match receiver.next(input) {
            Ok(found) => found,
            Err(error) => {
                assert_eq!(receiver.next(stream), Err(error));
                let code = receiver.terminate().map(|terminate| terminate.term_code());
                assert_eq!(code, error.terminate());
                parsed.error = Some(error);
                return parsed;
            }
        };
        assert!(n <= input.len());
        consumed += n;
        match event {
            Event::Need(wanted) => {
                assert!(wanted > received - consumed && wanted <= MAX_FPDU);
                if received == stream.len() {
                    return parsed;
                }
                received = stream.len().min(received + chunk);
            }
            Event::Segment { header, payload_len } => {
                let pos = inbound.check(&header, payload_len);
                parsed.segments.push((header, payload_len, pos));
            }
            Event::Payload(bytes) => parsed.payload.extend_from_slice(bytes),
            Event::SegmentEnd => {
                assert_eq!(receiver.payload_remaining(), 0);
                parsed.ends += 1;
            }
        }
    }
}
