// SPDX-License-Identifier: BSD-3-Clause
//! Streams captured from a kernel peer (siw of Linux 6.1), divided in every way.

use super::super::WireError;
use super::super::ddp::Header;
use super::super::inbound::Inbound;
use super::super::mpa::{self, Decoded, Enhanced, Frame, Kind};
use super::super::rdmap::{Opcode, ReadRequest, TermCode};
use super::super::stream::{Receiver, encode_fpdu};
use super::super::terminate::Terminate;
use super::{Segment, hex, receive, write_header};

const PLAIN: &str = include_str!("../../../../tests/data/siw-rping-plain.hex");
const CRC: &str = include_str!("../../../../tests/data/siw-rping-crc.hex");
const TERMINATES: &str = include_str!("../../../../tests/data/siw-terminates.hex");

const INITIATOR_CRC: &str = include_str!("../../../../tests/data/siw-initiator-crc.hex");
const INITIATOR_MPA1: &str = include_str!("../../../../tests/data/siw-initiator-mpa1.hex");
const HANDSHAKES: &str = include_str!("../../../../tests/data/siw-handshakes.hex");

const CHUNKS: [usize; 7] = [1, 2, 3, 7, 64, 1000, usize::MAX / 2];

/// The frames that one side has sent.
fn frames(capture: &str, side: &str) -> Vec<Vec<u8>> {
    let lines = capture.lines().filter(|line| !line.starts_with('#'));
    let frames = lines.filter_map(|line| line.strip_prefix(side)).map(hex);
    frames.collect()
}

/// Reads the MPA frame at the front of a stream that arrives in chunks.
fn handshake(kind: Kind, stream: &[u8], chunk: usize) -> (Frame, usize) {
    let mut received = 0;
    loop {
        match mpa::decode(kind, &stream[..received]).expect("a valid frame") {
            Decoded::Need(wanted) => {
                assert!(wanted > received);
                assert!(received < stream.len());
                received = stream.len().min(received.saturating_add(chunk));
            }
            Decoded::Frame { frame, consumed, .. } => return (frame, consumed),
        }
    }
}

/// Decodes and encodes a frame.
fn mpa_again(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let Ok(Decoded::Frame { frame, private_data, .. }) = mpa::decode(kind, bytes) else {
        panic!("not a frame: {bytes:02x?}");
    };
    let mut again = Vec::new();
    mpa::encode(&frame, private_data, &mut again).unwrap();
    again
}

/// Decodes the stream of one side with every chunk size, and encodes it again.
fn replay(capture: &str, side: &str, kind: Kind, crc: bool) -> (Frame, Vec<Segment>) {
    let frames = frames(capture, side);
    let stream = frames.concat();
    let (frame, consumed) = handshake(kind, &stream, usize::MAX / 2);
    assert_eq!(consumed, frames[0].len());
    assert_eq!(mpa_again(kind, &frames[0]), frames[0]);

    let segments = receive(&mut Receiver::new(crc), &stream[consumed..], usize::MAX / 2).unwrap();
    for chunk in CHUNKS {
        assert_eq!(handshake(kind, &stream, chunk), (frame, consumed));
        let got = receive(&mut Receiver::new(crc), &stream[consumed..], chunk);
        assert_eq!(got.as_ref(), Ok(&segments), "in chunks of {chunk}");
    }

    let mut inbound = Inbound::new();
    for ((header, payload), bytes) in segments.iter().zip(&frames[1..]) {
        inbound.check(header, payload.len()).unwrap();
        let mut again = [0; 128];
        let len = encode_fpdu(header, payload, crc, &mut again);
        assert_eq!(&again[..len], bytes);
    }
    assert_eq!(segments.len(), frames.len() - 1);
    (frame, segments)
}

fn opcodes(segments: &[Segment]) -> Vec<Opcode> {
    segments.iter().map(|(header, _)| header.opcode()).collect()
}

fn msns(segments: &[Segment], queue: u32) -> Vec<u32> {
    let of_queue = segments.iter().filter_map(|(header, _)| match *header {
        Header::Untagged { qn, msn, .. } if qn == queue => Some(msn),
        _ => None,
    });
    of_queue.collect()
}

#[test]
fn plain_initiator() {
    let (frame, segments) = replay(PLAIN, "C ", Kind::Request, false);
    assert_eq!(frame.enhanced, Some(Enhanced { ird: 1, ord: 1, ..Enhanced::default() }));
    assert!(!frame.crc && !frame.markers && !frame.reject && frame.revision == 2);
    assert_eq!(opcodes(&segments), [Opcode::Send, Opcode::ReadResponse, Opcode::Send].repeat(3));
    assert_eq!(msns(&segments, 0), [1, 2, 3, 4, 5, 6]);
    let (header, payload) = &segments[1];
    let expected =
        Header::Tagged { opcode: Opcode::ReadResponse, last: true, stag: 0x62ce_7d00, to: 0x564b_d8e4_f550 };
    assert_eq!(*header, expected);
    assert!(payload.starts_with(b"rdma-ping-0: ABC") && payload.len() == 64);
}

#[test]
fn plain_responder() {
    let (frame, segments) = replay(PLAIN, "S ", Kind::Reply, false);
    assert_eq!(frame.kind, Kind::Reply);
    let round = [Opcode::ReadRequest, Opcode::Send, Opcode::Write, Opcode::Send];
    assert_eq!(opcodes(&segments), round.repeat(3));
    assert_eq!(msns(&segments, 0), [1, 2, 3, 4, 5, 6]);
    assert_eq!(msns(&segments, 1), [1, 2, 3]);
    let request = ReadRequest {
        sink_stag: 0x62ce_7d00,
        sink_to: 0x564b_d8e4_f550,
        size: 64,
        src_stag: 0xf8b5_6f00,
        src_to: 0x5626_8c6a_f370,
    };
    assert_eq!(ReadRequest::decode(segments[0].1.first_chunk().unwrap()), request);
    assert_eq!(segments[2].0, write_header(0x5a43_5100, 0x5626_8c6a_f550));
}

#[test]
fn crc_initiator() {
    let (frame, segments) = replay(CRC, "C ", Kind::Request, true);
    let enhanced =
        Enhanced { peer_to_peer: true, rtr_send: false, rtr_write: true, rtr_read: true, ird: 1, ord: 1 };
    assert_eq!((frame.crc, frame.enhanced), (true, Some(enhanced)));
    assert_eq!(opcodes(&segments), [Opcode::Write, Opcode::Send, Opcode::ReadResponse, Opcode::Send]);
    assert_eq!(segments[0], (write_header(1, 0), Vec::new()));
}

#[test]
fn crc_responder() {
    let (frame, segments) = replay(CRC, "S ", Kind::Reply, true);
    let chosen = Enhanced { peer_to_peer: true, rtr_write: true, ird: 1, ord: 1, ..Enhanced::default() };
    assert_eq!((frame.crc, frame.enhanced), (true, Some(chosen)));
    assert_eq!(opcodes(&segments), [Opcode::ReadRequest, Opcode::Send, Opcode::Write, Opcode::Send]);
    assert_eq!(segments[2].1.len(), 62, "with a pad");
}

/// siw as initiator; it requests CRCs and announces its first message, an empty RDMA Write.
#[test]
fn siw_initiator_with_crc() {
    let (frame, segments) = replay(INITIATOR_CRC, "C ", Kind::Request, true);
    let enhanced =
        Enhanced { peer_to_peer: true, rtr_send: false, rtr_write: true, rtr_read: true, ird: 128, ord: 128 };
    assert_eq!((frame.crc, frame.enhanced), (true, Some(enhanced)));
    assert_eq!(segments[0], (write_header(1, 0), Vec::new()));
    assert!(opcodes(&segments[1..]).iter().all(|&opcode| opcode == Opcode::ReadRequest));
    assert_eq!(msns(&segments, 1), [1, 2, 3, 4, 5]);
}

/// The stream of softverbs on that connection, which siw has accepted.
#[test]
fn softverbs_as_its_responder() {
    let (frame, segments) = replay(INITIATOR_CRC, "S ", Kind::Reply, true);
    let chosen = frame.enhanced.unwrap();
    assert!(frame.crc && chosen.peer_to_peer && chosen.rtr_write && !chosen.rtr_read);
    assert_eq!(segments[0], (write_header(1, 0), Vec::new()));
    let lengths: Vec<usize> = segments[1..].iter().map(|(_, payload)| payload.len()).collect();
    assert_eq!(lengths, [1, 2, 3, 4, 5]);
}

/// Without the enhanced block all private data belong to the program.
#[test]
fn mpa_1() {
    for (side, kind) in [("C ", Kind::Request), ("S ", Kind::Reply)] {
        let (frame, segments) = replay(INITIATOR_MPA1, side, kind, false);
        assert_eq!((frame.revision, frame.enhanced, frame.crc), (1, None, false));
        let lengths: Vec<usize> = segments.iter().map(|(_, payload)| payload.len()).collect();
        assert_eq!(lengths, [1, 3, 7, 8, 9]);
        let bytes = &frames(INITIATOR_MPA1, side)[0];
        assert!(matches!(
            mpa::decode(kind, bytes),
            Ok(Decoded::Frame { private_data, .. }) if private_data.len() == 22
        ));
    }
}

#[test]
fn private_data_and_a_rejection() {
    let sizes = |side, kind| -> Vec<(usize, bool)> {
        let sizes = frames(HANDSHAKES, side).into_iter().map(|bytes| {
            assert_eq!(mpa_again(kind, &bytes), bytes);
            match mpa::decode(kind, &bytes) {
                Ok(Decoded::Frame { frame, private_data, consumed }) if consumed == bytes.len() => {
                    (private_data.len(), frame.reject)
                }
                other => panic!("{other:?}"),
            }
        });
        sizes.collect()
    };
    assert_eq!(sizes("C ", Kind::Request), [(251, false), (1, false), (4, false)]);
    assert_eq!(sizes("S ", Kind::Reply), [(1, false), (251, false), (0, true)]);
}

/// Both captures have CRC fields, but only one has valid CRCs in them.
#[test]
fn crc_setting_decides() {
    let with = frames(CRC, "S ")[1..].concat();
    let checked = receive(&mut Receiver::new(true), &with, 7).unwrap();
    assert_eq!(receive(&mut Receiver::new(false), &with, 7), Ok(checked));
    let without = frames(PLAIN, "S ")[1..].concat();
    for chunk in CHUNKS {
        let error = receive(&mut Receiver::new(true), &without, chunk).unwrap_err();
        assert!(matches!(error, WireError::Crc { received: 0, .. }), "{error}");
    }
}

/// With CRCs every single-bit error is detected. One in the length may require more bytes than the FPDU has;
/// the second FPDU then provides them.
#[test]
fn every_flipped_bit_is_found() {
    let frames = frames(CRC, "S ");
    let first = frames[3].clone();
    let stream = [first.clone(), vec![0; 70_000]].concat();
    for bit in 0..first.len() * 8 {
        let mut bad = stream.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = receive(&mut Receiver::new(true), &bad, usize::MAX / 2).unwrap_err();
        let expected = matches!(error, WireError::Crc { .. } | WireError::UlpduTooShort(_));
        assert!(expected, "bit {bit}: {error}");
    }
}

#[test]
fn terminates() {
    let expected = [
        (TermCode::MPA_CRC, None, None, false),
        (TermCode::DDP_TAGGED_INVALID_STAG, None, Some(Opcode::Write), false),
        (TermCode::DDP_TAGGED_BOUNDS, None, Some(Opcode::Write), false),
        (TermCode::RDMAP_PROT_INVALID_STAG, None, Some(Opcode::ReadRequest), true),
        (TermCode::DDP_UNTAGGED_NO_BUFFER, None, Some(Opcode::Send), false),
        (TermCode::DDP_UNTAGGED_MSN_RANGE, None, Some(Opcode::Send), false),
        (TermCode::MPA_INSUFFICIENT_IRD, Some(TermCode::RDMAP_OP_OPCODE), None, false),
        (TermCode::RDMAP_OP_CATASTROPHIC_STREAM, None, Some(Opcode::ReadRequest), false),
    ];
    let frames = frames(TERMINATES, "S ");
    assert_eq!(frames.len(), expected.len());
    for (bytes, (code, alternative, opcode, has_request)) in frames.iter().zip(expected) {
        for chunk in CHUNKS {
            let segments = receive(&mut Receiver::new(true), bytes, chunk).unwrap();
            let [(header, body)] = &segments[..] else { panic!("{} segments", segments.len()) };
            Inbound::new().check(header, body.len()).unwrap();
            let terminate = Terminate::decode(body).unwrap();
            assert_eq!(terminate.term_code(), code);
            assert_eq!(terminate.alternative, alternative);
            let quoted = terminate.header.map(|copy| copy.decode().unwrap().opcode());
            assert_eq!(quoted, opcode);
            assert_eq!(terminate.ddp_segment_len.is_some(), opcode.is_some());
            assert_eq!(terminate.read_request.is_some(), has_request);
            if let Some(request) = terminate.read_request {
                assert_eq!((request.sink_stag, request.size, request.src_stag), (0x77, 16, 0x1234_5600));
            }
        }
    }
}
