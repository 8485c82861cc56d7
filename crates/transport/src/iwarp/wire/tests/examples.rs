// SPDX-License-Identifier: BSD-3-Clause
//! Frames encoded by hand, compared byte by byte in both directions.

use super::super::WireError;
use super::super::ddp::Header;
use super::super::mpa::{self, Decoded, Enhanced, Frame, Kind, MpaError};
use super::super::rdmap::{
    AtomicRequest, AtomicResponse, Opcode, ReadRequest, TermCode, decode_immediate, encode_immediate,
};
use super::super::stream::{
    self, MAX_CONTROL_BODY, MAX_CONTROL_FPDU, MAX_FPDU, MAX_HEADER_LEN, MAX_TRAILER_LEN, Receiver,
    encode_fpdu, encode_fpdu_header, fpdu_crc, trailer, trailer_len,
};
use super::super::terminate::Terminate;
use super::{Segment, hex, receive, untagged, write_header};

const REQUEST: &str = "4d504120494420526571204672616d65 50020008 0008 0008 70696e67";
const WRITE: &str = "001bc1401234560100000000100020006
    8656c6c6f2c20697761727021 000000 f534f21c";
const READ_REQUEST: &str = "002e4141 00000000 00000001 00000001 00000000 0000a100 0000000000001000
    00001000 12345601 0000000010002000 907d882f";
const TERMINATE: &str = "00264147 00000000 00000002 00000001 00000000 1100c000 001b c140 12345601
    0000000010002000 32fc33be";
const EMPTY_WRITE: &str = "000ec140 00000001 0000000000000000 ebd34c5f";
const CRC_TERMINATE: &str = "00164147 00000000 00000002 00000001 00000000 20020000 7fe42585";
const CRC_TERMINATE_SIW: &str = "00164147 00000000 00000002 00000001 00000000 02020000 75d367ed";

fn fpdu(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut out = [0xee; 256];
    let len = encode_fpdu(header, body, true, &mut out);
    assert!(out[len..].iter().all(|byte| *byte == 0xee), "written beyond the end");
    out[..len].to_vec()
}

/// The only segment of a stream with CRCs.
fn only(bytes: &[u8]) -> Segment {
    let mut segments = receive(&mut Receiver::new(true), bytes, bytes.len()).expect("a valid FPDU");
    assert_eq!(segments.len(), 1);
    segments.remove(0)
}

fn terminate_body(terminate: &Terminate) -> Vec<u8> {
    let mut out = [0xee; Terminate::MAX_LEN];
    let len = terminate.encode(&mut out);
    out[..len].to_vec()
}

#[test]
fn crc_values() {
    assert_eq!(fpdu_crc([&b"123456789\0\0\0"[..]]), crc32c::crc32c(b"123456789\0\0\0"));
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    let mut out = [0xee; 8];
    assert_eq!(trailer(Some(0xe306_9283), 2, &mut out), 4);
    assert_eq!(out[..4], [0x83, 0x92, 0x06, 0xe3]);
    assert_eq!(trailer(Some(0xe306_9283), 27, &mut out), 7);
    assert_eq!(out, [0, 0, 0, 0x83, 0x92, 0x06, 0xe3, 0]);
    assert_eq!(trailer(None, 27, &mut out), trailer_len(27));
    assert_eq!(out, [0; 8]);
}

/// The example FPDU of RFC 5044: a marker, then a ULPDU of 42 bytes, all zero after the header.
#[test]
fn crc_of_the_rfc_figure() {
    let mut covered = vec![0; 4];
    covered.extend(hex("002a 4143 00000000 00000000 00000001 00000000"));
    covered.extend([0; 24]);
    assert_eq!(crc32c::crc32c(&covered).to_le_bytes(), [0x52, 0x23, 0x99, 0x83]);
}

#[test]
fn crc_of_parts_is_the_crc_of_the_whole() {
    for payload_len in 0..9 {
        let payload: Vec<u8> = (1..=payload_len).collect();
        let mut header = [0; MAX_HEADER_LEN];
        let len = encode_fpdu_header(&write_header(7, 9), payload.len(), &mut header);
        let mut whole = [&header[..len], &payload].concat();
        let parts = fpdu_crc([&header[..len], &payload]);
        assert_eq!(parts, fpdu_crc([&whole[..]]));
        whole.resize(whole.len().next_multiple_of(4), 0);
        assert_eq!(parts, crc32c::crc32c(&whole));
    }
}

#[test]
fn mpa_request() {
    let frame = Frame {
        kind: Kind::Request,
        markers: false,
        crc: true,
        reject: false,
        revision: 2,
        enhanced: Some(Enhanced { ird: 8, ord: 8, ..Enhanced::default() }),
    };
    let mut out = Vec::new();
    mpa::encode(&frame, b"ping", &mut out).unwrap();
    assert_eq!(out, hex(REQUEST));
    out.extend(b"FPDU");
    let expected = Decoded::Frame { frame, private_data: b"ping", consumed: 28 };
    assert_eq!(mpa::decode(Kind::Request, &out), Ok(expected));
    for len in 0..28 {
        let wanted = if len < 20 { 20 } else { 28 };
        assert_eq!(mpa::decode(Kind::Request, &out[..len]), Ok(Decoded::Need(wanted)));
    }
    assert_eq!(mpa::decode(Kind::Reply, &out[..10]), Err(MpaError::WrongKey));
    assert_eq!(mpa::decode(Kind::Reply, &out[..9]), Ok(Decoded::Need(20)));
}

#[test]
fn write() {
    let header = write_header(0x1234_5601, 0x1000_2000);
    assert_eq!(fpdu(&header, b"hello, iwarp!"), hex(WRITE));
    assert_eq!(only(&hex(WRITE)), (header, b"hello, iwarp!".to_vec()));
}

/// The same RDMA Write, encoded as in the data path: header, payload and trailer separately.
#[test]
fn write_in_parts() {
    let payload = b"hello, iwarp!";
    let mut header = [0; MAX_HEADER_LEN];
    let len = encode_fpdu_header(&write_header(0x1234_5601, 0x1000_2000), payload.len(), &mut header);
    let ulpdu_len = len - stream::LENGTH_LEN + payload.len();
    let mut tail = [0; 8];
    let crc = fpdu_crc([&header[..len], payload]);
    let tail_len = trailer(Some(crc), ulpdu_len, &mut tail);
    assert_eq!([&header[..len], payload, &tail[..tail_len]].concat(), hex(WRITE));
    assert_eq!(stream::fpdu_len(ulpdu_len), hex(WRITE).len());
}

#[test]
fn empty_write() {
    let header = write_header(1, 0);
    assert_eq!(fpdu(&header, b""), hex(EMPTY_WRITE));
    assert_eq!(only(&hex(EMPTY_WRITE)), (header, Vec::new()));
}

#[test]
fn read_request() {
    let header = untagged(Opcode::ReadRequest, 1);
    let request = ReadRequest {
        sink_stag: 0xa100,
        sink_to: 0x1000,
        size: 4096,
        src_stag: 0x1234_5601,
        src_to: 0x1000_2000,
    };
    assert_eq!(fpdu(&header, &request.encode()), hex(READ_REQUEST));
    let (got, body) = only(&hex(READ_REQUEST));
    assert_eq!(got, header);
    assert_eq!(ReadRequest::decode(body.first_chunk().unwrap()), request);
}

#[test]
fn terminate_for_a_write() {
    let refused = write_header(0x1234_5601, 0x1000_2000);
    let terminate = Terminate::about(TermCode::DDP_TAGGED_INVALID_STAG, &refused, 13);
    let header = untagged(Opcode::Terminate, 1);
    assert_eq!(fpdu(&header, &terminate_body(&terminate)), hex(TERMINATE));
    let (got, body) = only(&hex(TERMINATE));
    assert_eq!(got, header);
    let got = Terminate::decode(&body).unwrap();
    assert_eq!(got, terminate);
    assert_eq!(got.ddp_segment_len, Some(27));
    assert_eq!(got.header.unwrap().decode(), Ok(refused));

    let mut theirs = body.clone();
    theirs[..6].copy_from_slice(&hex("11 00 03 00 00 0d"));
    let theirs = Terminate::decode(&theirs).unwrap();
    assert_eq!(theirs, Terminate { ddp_segment_len: Some(13), ..terminate });
}

#[test]
fn terminate_for_a_crc() {
    let header = untagged(Opcode::Terminate, 1);
    let terminate = Terminate::about(TermCode::MPA_CRC, &write_header(1, 0), 5);
    assert_eq!(terminate, Terminate::new(TermCode::MPA_CRC), "an MPA error quotes nothing");
    assert_eq!(fpdu(&header, &terminate_body(&terminate)), hex(CRC_TERMINATE));
    for bytes in [CRC_TERMINATE, CRC_TERMINATE_SIW] {
        let (got, body) = only(&hex(bytes));
        assert_eq!(got, header);
        assert_eq!(Terminate::decode(&body), Ok(terminate));
    }
}

#[test]
fn terminate_for_a_read() {
    let refused = untagged(Opcode::ReadRequest, 5);
    let request = ReadRequest { sink_stag: 1, sink_to: 2, size: 3, src_stag: 4, src_to: 5 };
    let terminate = Terminate::about_read(TermCode::RDMAP_PROT_BOUNDS, &refused, &request);
    let body = terminate_body(&terminate);
    assert_eq!(body.len(), Terminate::MAX_LEN);
    assert_eq!(body[..6], hex("01 01 e0 00 00 2e"));
    assert_eq!(Terminate::decode(&body), Ok(terminate));
    assert_eq!(terminate.read_request, Some(request));
    let other = Terminate::about_read(TermCode::DDP_UNTAGGED_NO_BUFFER, &refused, &request);
    assert_eq!(terminate_body(&other).len(), 24, "header, no request");
}

#[test]
fn atomics() {
    let header = untagged(Opcode::AtomicRequest, 1);
    let request = AtomicRequest {
        operation: AtomicRequest::CMP_SWAP,
        request_id: 0x0102_0304,
        stag: 0x1234_5601,
        to: 0x1000_2000,
        data: 0x11,
        data_mask: u64::MAX,
        compare: 0x22,
        compare_mask: 0x00ff_00ff_00ff_00ff,
    };
    let bytes = fpdu(&header, &request.encode());
    assert_eq!(bytes.len(), MAX_CONTROL_FPDU);
    assert_eq!(
        bytes[..72],
        hex("0046414a 00000000 00000001 00000001 00000000 00000002 01020304 12345601 0000000010002000
            0000000000000011 ffffffffffffffff 0000000000000022 00ff00ff00ff00ff")
    );
    let (got, body) = only(&bytes);
    assert_eq!(got, header);
    assert_eq!(AtomicRequest::decode(body.first_chunk().unwrap()), request);

    let response = AtomicResponse { request_id: 7, original: 0x0102_0304_0506_0708 };
    let bytes = fpdu(&untagged(Opcode::AtomicResponse, 1), &response.encode());
    assert_eq!(bytes[..32], hex("001e414b 00000000 00000003 00000001 00000000 00000007 0102030405060708"));
    assert_eq!(AtomicResponse::decode(only(&bytes).1.first_chunk().unwrap()), response);
}

/// The two requests of verbs, byte by byte (RFC 7306 section 5.2.1).
#[test]
fn atomic_requests_of_verbs() {
    let add = AtomicRequest::fetch_add(3, 0x1234_5601, 0x1000_2000, 0x0102_0304_0506_0708);
    assert_eq!(
        add.encode()[..],
        hex("00000000 00000003 12345601 0000000010002000
            0102030405060708 0000000000000000 0000000000000000 ffffffffffffffff")
    );
    let swap = AtomicRequest::cmp_swap(4, 0x1234_5601, 0x1000_2008, 0x22, 0x11);
    assert_eq!(
        swap.encode()[..],
        hex("00000002 00000004 12345601 0000000010002008
            0000000000000011 ffffffffffffffff 0000000000000022 ffffffffffffffff")
    );
}

#[test]
fn results_of_atomic_operations() {
    let add = |value, mask| AtomicRequest { data_mask: mask, ..AtomicRequest::fetch_add(1, 0, 0, value) };
    assert_eq!(add(5, 0).apply(7), 12);
    assert_eq!(add(1, 0).apply(u64::MAX), 0);
    assert_eq!(add(u64::MAX, 0).apply(7), 6, "one less");
    // Two fields of 32 bits, then eight of 8: the carry out of a field is lost.
    assert_eq!(add(0x0000_0001_0000_0001, 1 << 31).apply(0x0000_0002_ffff_ffff), 0x0000_0003_0000_0000);
    assert_eq!(add(0x0102_0304_0506_0708, 0x8080_8080_8080_8080).apply(u64::MAX), 0x0001_0203_0405_0607);
    assert_eq!(add(0x80, 0x80).apply(0x80), 0, "the topmost bit of a field");
    // Each bit is a field.
    assert_eq!(add(0b1100, u64::MAX).apply(0b1010), 0b0110);
    // The sum of a field, bit by bit.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..if cfg!(miri) { 20 } else { 1_000 } {
        let (a, b, mask) = (next(), next(), next() & next());
        let (mut sum, mut carry) = (0, 0);
        for bit in 0..64 {
            let of = (a >> bit & 1) + (b >> bit & 1) + carry;
            sum |= (of & 1) << bit;
            carry = if mask >> bit & 1 == 1 { 0 } else { of >> 1 };
        }
        assert_eq!(add(b, mask).apply(a), sum, "{a:x} + {b:x}, mask {mask:x}");
    }

    let swap = AtomicRequest::cmp_swap(1, 0, 0, 0x22, 0x11);
    assert_eq!(swap.apply(0x22), 0x11);
    assert_eq!(swap.apply(0x23), 0x23);
    let masked = AtomicRequest { data_mask: 0xff00, compare_mask: 0x00ff, data: 0xaaaa, ..swap };
    assert_eq!(masked.apply(0xbb22), 0xaa22);
    assert_eq!(masked.apply(0xbb23), 0xbb23);

    for operation in 0..=u8::MAX {
        let request = AtomicRequest { operation, ..swap };
        assert_eq!(request.is_defined(), operation == 0 || operation == 2);
        assert!(request.is_defined() || request.apply(0x22) == 0x22);
    }
}

#[test]
fn immediate() {
    let header = untagged(Opcode::Immediate, 3);
    let bytes = fpdu(&header, &encode_immediate([1, 2, 3, 4]));
    assert_eq!(bytes[..28], hex("001a4148 00000000 00000000 00000003 00000000 01020304 00000000"));
    let (got, body) = only(&bytes);
    assert_eq!(got, header);
    assert_eq!(decode_immediate(body.first_chunk().unwrap()), [1, 2, 3, 4]);
}

#[test]
fn control_bytes_of_every_opcode() {
    for code in 0..12 {
        let opcode = Opcode::from_u8(code).unwrap();
        assert_eq!(opcode as u8, code);
        for last in [false, true] {
            let header = match opcode.queue() {
                None => Header::Tagged { opcode, last, stag: 0x0a0b_0c0d, to: 0x0102_0304_0506_0708 },
                Some(qn) => Header::Untagged { opcode, last, inv_stag: 0x0a0b_0c0d, qn, msn: 6, mo: 7 },
            };
            let mut out = [0; 18];
            let len = header.encode(&mut out);
            assert_eq!(len, header.len());
            let tagged = matches!(code, 0 | 2);
            assert_eq!(out[0], if tagged { 0x81 } else { 0x01 } | if last { 0x40 } else { 0 });
            assert_eq!(out[1], 0x40 | code);
            assert_eq!(Header::decode(&out[..len]), Ok(header));
            out[0] |= 0x3c;
            out[1] |= 0x30;
            assert_eq!(Header::decode(&out[..len]), Ok(header), "reserved bits are ignored");
        }
    }
    assert_eq!(Opcode::from_u8(12), None);
}

#[test]
fn a_header_is_decoded_when_it_is_complete() {
    for (header, header_len) in [(write_header(1, 2), 14), (untagged(Opcode::Send, 3), 18)] {
        let mut out = [0; 24];
        header.encode(&mut out);
        for len in 0..out.len() {
            let expected = if len < header_len { Err(WireError::UlpduTooShort(len)) } else { Ok(header) };
            assert_eq!(Header::decode(&out[..len]), expected);
        }
    }
}

/// The opcodes in the order of their numbers: whether each is a Send, raises a solicited event, invalidates
/// an STag.
#[test]
fn kinds_of_opcodes() {
    const KINDS: [(bool, bool, bool); 12] = [
        (false, false, false), // RDMA Write
        (false, false, false), // RDMA Read Request
        (false, false, false), // RDMA Read Response
        (true, false, false),  // Send
        (true, false, true),   // Send with Invalidate
        (true, true, false),   // Send with Solicited Event
        (true, true, true),    // Send with Solicited Event and Invalidate
        (false, false, false), // Terminate
        (false, false, false), // Immediate Data
        (false, true, false),  // Immediate Data with Solicited Event
        (false, false, false), // Atomic Request
        (false, false, false), // Atomic Response
    ];
    for (code, expected) in (0..).zip(KINDS) {
        let opcode = Opcode::from_u8(code).unwrap();
        assert_eq!((opcode.is_send(), opcode.solicited(), opcode.invalidates()), expected, "{opcode:?}");
    }
}

#[test]
fn sizes() {
    assert_eq!(MAX_FPDU, 65544);
    assert_eq!((MAX_CONTROL_BODY, MAX_CONTROL_FPDU), (52, 76));
    assert_eq!((MAX_HEADER_LEN, MAX_TRAILER_LEN, mpa::MAX_FRAME_LEN), (20, 7, 532));
    for ulpdu_len in [0, 1, 14, 27, 46, 1454, 65534, 65535] {
        assert_eq!(stream::fpdu_len(ulpdu_len) % 4, 0);
        assert!(trailer_len(ulpdu_len) <= MAX_TRAILER_LEN);
    }
    for (emss, ulpdu) in [(0, 128), (134, 128), (536, 530), (1448, 1442), (1460, 1454), (8948, 8942)] {
        assert_eq!(stream::mulpdu(emss), ulpdu);
    }
    assert_eq!(stream::mulpdu(65483), 65474);
    assert_eq!(stream::mulpdu(65541), 65534);
    assert_eq!(stream::mulpdu(usize::MAX), 65535);
    for emss in (136..70000).step_by(if cfg!(miri) { 101 } else { 1 }) {
        let ulpdu = stream::mulpdu(emss);
        assert!(stream::fpdu_len(ulpdu) <= emss || ulpdu == stream::MAX_ULPDU);
    }
    assert_eq!(stream::max_tagged_payload(1454), 1440);
    assert_eq!(stream::max_untagged_payload(1454), 1436);
}
