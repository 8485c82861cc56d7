// SPDX-License-Identifier: BSD-3-Clause
//! When the receiver returns each event, direct placement, and the state after an error.

use super::super::WireError;
use super::super::ddp::Header;
use super::super::rdmap::{Opcode, TermCode};
use super::super::stream::{
    CRC_LEN, Event, LENGTH_LEN, MAX_FPDU, MAX_ULPDU, Receiver, encode_fpdu, encode_fpdu_header, fpdu_len,
    max_tagged_payload,
};
use super::super::terminate::Terminate;
use super::{feed, receive, untagged, write_header};

fn fpdu(header: &Header, body: &[u8], crc: bool) -> Vec<u8> {
    let mut out = vec![0; fpdu_len(header.len() + body.len())];
    assert_eq!(encode_fpdu(header, body, crc, &mut out), out.len());
    out
}

#[test]
fn without_crc_each_event_is_returned_as_soon_as_possible() {
    let header = write_header(5, 6);
    let bytes = fpdu(&header, b"abcde", false);
    let mut receiver = Receiver::new(false);
    for len in 0..16 {
        assert_eq!(receiver.next(&bytes[..len]), Ok((0, Event::Need(16))));
    }
    assert_eq!(receiver.next(&bytes[..16]), Ok((16, Event::Segment { header, payload_len: 5 })));
    assert_eq!(receiver.payload_remaining(), 5);
    assert_eq!(receiver.next(&[]), Ok((0, Event::Need(1))));
    assert_eq!(receiver.next(&bytes[16..18]), Ok((2, Event::Payload(b"ab"))));
    assert_eq!(receiver.next(&bytes[18..21]), Ok((3, Event::Payload(b"cde"))));
    assert!(!receiver.at_boundary(0));
    assert_eq!(receiver.next(&[]), Ok((0, Event::SegmentEnd)), "it does not wait for the trailer");
    assert!(receiver.at_boundary(0) && !receiver.at_boundary(1));
    assert_eq!(receiver.next(&bytes[21..24]), Ok((3, Event::Need(4 + 16))));
    assert_eq!(receiver.next(&bytes[24..]), Ok((4, Event::Need(16))), "the trailer has 7 bytes");
}

#[test]
fn an_untagged_header_is_longer() {
    let header = untagged(Opcode::Send, 1);
    let bytes = fpdu(&header, b"", false);
    let mut receiver = Receiver::new(false);
    assert_eq!(receiver.next(&bytes[..15]), Ok((0, Event::Need(16))));
    assert_eq!(receiver.next(&bytes[..16]), Ok((0, Event::Need(20))));
    assert_eq!(receiver.next(&bytes[..20]), Ok((20, Event::Segment { header, payload_len: 0 })));
    assert_eq!(receiver.next(&bytes[20..]), Ok((4, Event::SegmentEnd)), "an empty message has no payload");
}

#[test]
fn with_crc_no_event_is_returned_before_the_whole_fpdu() {
    let header = write_header(5, 6);
    let bytes = fpdu(&header, b"abcde", true);
    let mut receiver = Receiver::new(true);
    for len in 16..bytes.len() {
        assert_eq!(receiver.next(&bytes[..len]), Ok((0, Event::Need(bytes.len()))));
    }
    assert_eq!(receiver.next(&bytes), Ok((16, Event::Segment { header, payload_len: 5 })));
    assert_eq!(receiver.next(&bytes[16..]), Ok((5, Event::Payload(b"abcde"))));
    assert_eq!(receiver.next(&bytes[21..]), Ok((7, Event::SegmentEnd)));
}

#[test]
fn payload_may_bypass_the_input() {
    let first = write_header(5, 6);
    let second = untagged(Opcode::Send, 1);
    let bytes = [fpdu(&first, &[7; 1000], false), fpdu(&second, b"next", false)].concat();
    let mut receiver = Receiver::new(false);
    assert_eq!(receiver.next(&bytes[..20]).unwrap().0, 16);
    assert_eq!(receiver.next(&bytes[16..20]), Ok((4, Event::Payload(&[7; 4]))));
    receiver.payload_placed(0);
    receiver.payload_placed(900);
    assert_eq!(receiver.payload_remaining(), 96);
    receiver.payload_placed(96);
    assert_eq!(receiver.next(&[]), Ok((0, Event::SegmentEnd)));
    assert_eq!(receive(&mut receiver, &bytes[1016..], 5), Ok(vec![(second, b"next".to_vec())]));
}

#[test]
#[should_panic(expected = "4 bytes placed of 3")]
fn more_cannot_be_placed_than_remains() {
    let bytes = fpdu(&write_header(1, 0), b"abc", false);
    let mut receiver = Receiver::new(false);
    receiver.next(&bytes).unwrap();
    receiver.payload_placed(4);
}

#[test]
#[should_panic(expected = "bytes placed")]
fn nothing_can_be_placed_past_the_crc() {
    let bytes = fpdu(&write_header(1, 0), b"abc", true);
    let mut receiver = Receiver::new(true);
    receiver.next(&bytes).unwrap();
    receiver.payload_placed(1);
}

#[test]
fn the_longest_fpdu() {
    let header = write_header(1, 0);
    let payload: Vec<u8> = (0..max_tagged_payload(MAX_ULPDU)).map(|n| (n % 251) as u8).collect();
    for crc in [false, true] {
        assert_eq!(Receiver::new(crc).crc(), crc);
        let mut bytes = fpdu(&header, &payload, crc);
        assert_eq!(bytes.len(), MAX_FPDU);
        bytes.extend(fpdu(&header, b"x", crc));
        let expected = vec![(header, payload.clone()), (header, b"x".to_vec())];
        let chunks = [1000, 4096, 65536, MAX_FPDU, bytes.len()];
        for chunk in chunks.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
            assert_eq!(receive(&mut Receiver::new(crc), &bytes, chunk).as_ref(), Ok(&expected));
        }
    }
}

#[test]
#[should_panic(expected = "a ULPDU of 65536 bytes")]
fn a_longer_one_is_not_made() {
    encode_fpdu_header(&write_header(1, 0), MAX_ULPDU - 13, &mut [0; 32]);
}

/// siw sends pad bytes other than zero; the CRC covers them as they were sent.
#[test]
fn a_pad_may_hold_anything() {
    let header = write_header(1, 0);
    let mut bytes = fpdu(&header, b"abcde", true);
    bytes[21] = 0x40;
    assert!(matches!(receive(&mut Receiver::new(true), &bytes, 99), Err(WireError::Crc { .. })));
    let covered = bytes.len() - CRC_LEN;
    let crc = crc32c::crc32c(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&crc.to_le_bytes());
    let expected = Ok(vec![(header, b"abcde".to_vec())]);
    assert_eq!(receive(&mut Receiver::new(true), &bytes, 99), expected);
    bytes[covered..].fill(0xa5);
    assert_eq!(receive(&mut Receiver::new(false), &bytes, 99), expected, "CRC off: any value");
}

#[test]
fn a_ulpdu_has_room_for_its_header() {
    for (control, header_len) in [(0xc1, 14), (0x41, 18)] {
        for len in 0..header_len {
            let mut bytes = vec![0; 100];
            bytes[1] = len as u8;
            bytes[2] = control;
            bytes[3] = if control == 0xc1 { 0x40 } else { 0x43 };
            for crc in [false, true] {
                for chunk in [1, 100] {
                    let mut receiver = Receiver::new(crc);
                    let error = receive(&mut receiver, &bytes, chunk).unwrap_err();
                    assert_eq!(error, WireError::UlpduTooShort(len));
                    assert_eq!(receiver.terminate(), Some(Terminate::new(TermCode::MPA_MARKER)));
                }
            }
        }
    }
}

#[test]
fn a_short_length_is_refused_with_its_two_bytes() {
    assert_eq!(Receiver::new(false).next(&[0]), Ok((0, Event::Need(16))));
    assert_eq!(Receiver::new(false).next(&[0, 13]), Err(WireError::UlpduTooShort(13)));
}

#[test]
fn an_error_stays() {
    let good = fpdu(&untagged(Opcode::Send, 1), b"good", true);
    let mut bad = good.clone();
    bad[LENGTH_LEN + 18] ^= 1;
    let stream = [good.clone(), bad, good.clone()].concat();
    for chunk in [1, 7, 1000] {
        let mut receiver = Receiver::new(true);
        assert_eq!(receiver.terminate(), None);
        let (segments, error) = feed(&mut receiver, &stream, chunk);
        assert_eq!(segments.len(), 1);
        let error = error.expect("the CRC is wrong");
        assert!(matches!(error, WireError::Crc { .. }));
        assert_eq!(receiver.next(&good), Err(error));
        assert_eq!(receiver.next(&[]), Err(error));
        assert_eq!(receiver.payload_remaining(), 0);
        assert!(!receiver.at_boundary(0));
        assert_eq!(receiver.terminate(), Some(Terminate::new(TermCode::MPA_CRC)));
    }
}

/// A header that cannot be decoded is included in the Terminate message as it was received.
#[test]
fn a_refused_header_is_quoted() {
    let cases = [
        (0xc2, 0x40, TermCode::DDP_TAGGED_VERSION),
        (0xc0, 0x40, TermCode::DDP_TAGGED_VERSION),
        (0x43, 0x43, TermCode::DDP_UNTAGGED_VERSION),
        (0xc1, 0x00, TermCode::RDMAP_OP_VERSION),
        (0x41, 0x83, TermCode::RDMAP_OP_VERSION),
        (0x41, 0x4c, TermCode::RDMAP_OP_OPCODE),
        (0xc1, 0x4f, TermCode::RDMAP_OP_OPCODE),
        (0x41, 0x40, TermCode::RDMAP_OP_OPCODE),
        (0xc1, 0x43, TermCode::RDMAP_OP_OPCODE),
    ];
    for (ddp, rdmap, code) in cases {
        let header_len = if ddp & 0x80 != 0 { 14 } else { 18 };
        let mut bytes: Vec<u8> = (0..60).collect();
        bytes[..4].copy_from_slice(&[0, 40, ddp, rdmap]);
        for chunk in [1, 60] {
            let mut receiver = Receiver::new(false);
            let error = receive(&mut receiver, &bytes, chunk).unwrap_err();
            assert_eq!(error.terminate(), Some(code));
            let terminate = receiver.terminate().expect("it is answered");
            assert_eq!(terminate.term_code(), code);
            assert_eq!(terminate.ddp_segment_len, Some(40));
            assert_eq!(terminate.header.unwrap().as_bytes(), &bytes[2..2 + header_len]);
            let mut body = [0; Terminate::MAX_LEN];
            let len = terminate.encode(&mut body);
            assert_eq!(len, 6 + header_len);
            assert_eq!(Terminate::decode(&body[..len]), Ok(terminate));
        }
    }
}
