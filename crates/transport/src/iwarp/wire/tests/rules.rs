// SPDX-License-Identifier: BSD-3-Clause
//! The order of segments, the Terminate code of each violation, and the two formats of a Terminate message.

use super::super::WireError;
use super::super::ddp::{Header, MessagePos, UntaggedOrder};
use super::super::inbound::{Inbound, check_segment};
use super::super::mpa::{self, Decoded, Enhanced, Frame, Kind, MpaError};
use super::super::rdmap::{Opcode, ReadRequest, TermCode};
use super::super::terminate::Terminate;
use super::{hex, untagged, write_header};

fn send(last: bool, msn: u32, mo: u32) -> Header {
    Header::Untagged { opcode: Opcode::Send, last, inv_stag: 0, qn: 0, msn, mo }
}

fn on_queue(opcode: Opcode, qn: u32) -> Header {
    Header::Untagged { opcode, last: true, inv_stag: 0, qn, msn: 1, mo: 0 }
}

fn code(result: Result<Option<MessagePos>, WireError>) -> TermCode {
    result.expect_err("a broken rule").terminate().expect("an answer")
}

#[test]
fn messages_are_numbered() {
    let mut inbound = Inbound::new();
    let place = |msn, first, last, offset| Ok(Some(MessagePos { msn, first, last, offset }));
    assert_eq!(inbound.check(&send(true, 1, 0), 10), place(1, true, true, 0));
    assert_eq!(inbound.check(&send(false, 2, 0), 10), place(2, true, false, 0));
    assert!(inbound.send().in_message());
    assert_eq!(inbound.check(&write_header(9, 9), 10), Ok(None), "tagged segments do not count");
    assert_eq!(inbound.check(&untagged(Opcode::ReadRequest, 1), 28), place(1, true, true, 0));
    assert_eq!(inbound.check(&send(false, 2, 10), 5), place(2, false, false, 10));
    assert_eq!(inbound.check(&send(true, 2, 15), 0), place(2, false, true, 15));
    assert!(!inbound.send().in_message());
    assert_eq!(inbound.check(&untagged(Opcode::Immediate, 3), 8), place(3, true, true, 0));
    assert_eq!(inbound.check(&untagged(Opcode::AtomicRequest, 2), 52), place(2, true, true, 0));
    assert_eq!(inbound.check(&untagged(Opcode::AtomicResponse, 1), 12), place(1, true, true, 0));
    assert_eq!(inbound.check(&untagged(Opcode::Terminate, 1), 4), Ok(None));
    assert_eq!((inbound.send().next_msn(), inbound.request().next_msn()), (4, 3));
}

#[test]
fn a_wrong_number_is_refused_and_changes_nothing() {
    for msn in [0, 2, u32::MAX] {
        let mut inbound = Inbound::new();
        assert_eq!(code(inbound.check(&send(true, msn, 0), 1)), TermCode::DDP_UNTAGGED_MSN_RANGE);
        let read = untagged(Opcode::ReadRequest, msn);
        assert_eq!(code(inbound.check(&read, 28)), TermCode::DDP_UNTAGGED_MSN_RANGE);
        assert_eq!(inbound, Inbound::new());
    }
    let mut inbound = Inbound::new();
    inbound.check(&send(false, 1, 0), 10).unwrap();
    let before = inbound;
    assert_eq!(code(inbound.check(&send(true, 2, 0), 1)), TermCode::DDP_UNTAGGED_MSN_RANGE);
    assert_eq!(inbound, before);
}

#[test]
fn a_wrong_offset_is_refused() {
    let mut inbound = Inbound::new();
    assert_eq!(code(inbound.check(&send(true, 1, 1), 1)), TermCode::DDP_UNTAGGED_MO);
    inbound.check(&send(false, 1, 0), 10).unwrap();
    for mo in [0, 9, 11, u32::MAX] {
        assert_eq!(code(inbound.check(&send(true, 1, mo), 1)), TermCode::DDP_UNTAGGED_MO);
    }
    inbound.check(&send(true, 1, 10), 1).unwrap();
}

#[test]
fn numbers_wrap() {
    let mut order = UntaggedOrder::starting_at(u32::MAX);
    order.check(&send(true, u32::MAX, 0), 1).unwrap();
    assert_eq!(order.next_msn(), 0);
    order.check(&send(true, 0, 0), 1).unwrap();
    order.check(&send(true, 1, 0), 1).unwrap();
}

#[test]
fn a_message_has_less_than_4_gib() {
    const STEP: u32 = if cfg!(miri) { 65_000_000 } else { 65_000 };
    let mut order = UntaggedOrder::new();
    let mut mo = 0u32;
    while let Some(next) = mo.checked_add(STEP) {
        order.check(&send(false, 1, mo), STEP as usize).unwrap();
        mo = next;
    }
    let rest = (u32::MAX - mo) as usize;
    let error = order.check(&send(true, 1, mo), rest + 1).unwrap_err();
    assert_eq!(error, WireError::MessageTooLong(Opcode::Send));
    assert_eq!(error.terminate(), Some(TermCode::DDP_UNTAGGED_TOO_LONG));
    order.check(&send(true, 1, mo), rest).unwrap();
}

#[test]
fn an_opcode_holds_for_the_whole_message() {
    let mut inbound = Inbound::new();
    inbound.check(&send(false, 1, 0), 10).unwrap();
    let other = Header::Untagged { opcode: Opcode::SendSe, last: true, inv_stag: 0, qn: 0, msn: 1, mo: 10 };
    assert_eq!(code(inbound.check(&other, 1)), TermCode::RDMAP_OP_OPCODE);
    assert!(UntaggedOrder::new().check(&write_header(1, 0), 0).is_err(), "tagged: no queue");
}

#[test]
fn every_opcode_has_its_queue() {
    for opcode in (0..12).filter_map(Opcode::from_u8).filter(|opcode| !opcode.is_tagged()) {
        let payload_len = match opcode {
            Opcode::ReadRequest => 28,
            Opcode::AtomicRequest => 52,
            Opcode::AtomicResponse => 12,
            Opcode::Immediate | Opcode::ImmediateSe => 8,
            _ => 4,
        };
        for qn in [0, 1, 2, 3, 4, u32::MAX] {
            let result = check_segment(&on_queue(opcode, qn), payload_len);
            if opcode.queue() == Some(qn) {
                assert_eq!(result, Ok(()));
            } else if opcode == Opcode::Terminate {
                assert_eq!(result, Err(WireError::BadTerminate));
            } else {
                assert_eq!(result, Err(WireError::QueueNumber(qn)));
                assert_eq!(result.unwrap_err().terminate(), Some(TermCode::DDP_UNTAGGED_QN));
            }
        }
    }
}

#[test]
fn bodies_have_their_length() {
    for (opcode, len) in [
        (Opcode::ReadRequest, 28),
        (Opcode::AtomicRequest, 52),
        (Opcode::AtomicResponse, 12),
        (Opcode::Immediate, 8),
        (Opcode::ImmediateSe, 8),
    ] {
        let header = untagged(opcode, 1);
        assert_eq!(check_segment(&header, len), Ok(()));
        assert_eq!(check_segment(&header, len - 1), Err(WireError::MessageTooShort(opcode)));
        assert_eq!(check_segment(&header, 0), Err(WireError::MessageTooShort(opcode)));
        assert_eq!(check_segment(&header, len + 1), Err(WireError::MessageTooLong(opcode)));
        let Header::Untagged { qn, .. } = header else { unreachable!() };
        let split = Header::Untagged { opcode, last: false, inv_stag: 0, qn, msn: 1, mo: 0 };
        assert_eq!(check_segment(&split, len), Err(WireError::MessageTooLong(opcode)));
    }
    let terminate = untagged(Opcode::Terminate, 1);
    for (len, expected) in [(3, false), (4, true), (52, true), (53, false)] {
        let result = check_segment(&terminate, len);
        assert_eq!(result, if expected { Ok(()) } else { Err(WireError::BadTerminate) });
    }
    assert_eq!(WireError::BadTerminate.terminate(), None, "a Terminate is never answered");
    assert_eq!(WireError::MessageTooLong(Opcode::ReadRequest).terminate().unwrap().code, 5);
    assert_eq!(
        WireError::MessageTooShort(Opcode::ReadRequest).terminate(),
        Some(TermCode::RDMAP_OP_CATASTROPHIC_STREAM)
    );
}

/// One call checks a segment by itself and its position in the queue.
#[test]
fn inbound_checks_segments_too() {
    let mut inbound = Inbound::new();
    let read = untagged(Opcode::ReadRequest, 1);
    assert_eq!(code(inbound.check(&read, 27)), TermCode::RDMAP_OP_CATASTROPHIC_STREAM);
    assert_eq!(code(inbound.check(&on_queue(Opcode::Send, 1), 4)), TermCode::DDP_UNTAGGED_QN);
    assert_eq!(code(inbound.check(&on_queue(Opcode::Send, 7), 4)), TermCode::DDP_UNTAGGED_QN);
    assert_eq!(inbound.check(&untagged(Opcode::Terminate, 1), 3), Err(WireError::BadTerminate));
    assert_eq!(inbound, Inbound::new());
}

/// The control field for each error that a receiver can detect, with the numbers of the standards.
#[test]
fn codes_have_their_numbers() {
    for (code, control) in [
        (TermCode::DDP_TAGGED_INVALID_STAG, "1100"),
        (TermCode::DDP_TAGGED_BOUNDS, "1101"),
        (TermCode::DDP_TAGGED_NOT_OF_STREAM, "1102"),
        (TermCode::DDP_TAGGED_TO_WRAP, "1103"),
        (TermCode::DDP_TAGGED_VERSION, "1104"),
        (TermCode::DDP_UNTAGGED_QN, "1201"),
        (TermCode::DDP_UNTAGGED_NO_BUFFER, "1202"),
        (TermCode::DDP_UNTAGGED_MSN_RANGE, "1203"),
        (TermCode::DDP_UNTAGGED_MO, "1204"),
        (TermCode::DDP_UNTAGGED_TOO_LONG, "1205"),
        (TermCode::DDP_UNTAGGED_VERSION, "1206"),
        (TermCode::RDMAP_PROT_INVALID_STAG, "0100"),
        (TermCode::RDMAP_PROT_BOUNDS, "0101"),
        (TermCode::RDMAP_PROT_ACCESS, "0102"),
        (TermCode::RDMAP_PROT_NOT_OF_STREAM, "0103"),
        (TermCode::RDMAP_PROT_TO_WRAP, "0104"),
        (TermCode::RDMAP_PROT_CANNOT_INVALIDATE, "0109"),
        (TermCode::RDMAP_OP_VERSION, "0205"),
        (TermCode::RDMAP_OP_OPCODE, "0206"),
        (TermCode::RDMAP_OP_CATASTROPHIC_STREAM, "0207"),
        (TermCode::MPA_CRC, "2002"),
        (TermCode::MPA_MARKER, "2003"),
        (TermCode::MPA_BAD_FRAME, "2004"),
        (TermCode::MPA_INSUFFICIENT_IRD, "2006"),
        (TermCode::MPA_NO_RTR, "2007"),
    ] {
        let mut body = [0; Terminate::MAX_LEN];
        assert_eq!(Terminate::new(code).encode(&mut body), 4);
        assert_eq!(body[..2], hex(control));
        assert!(code.text().is_some());
        let copied = Terminate::about(code, &write_header(1, 2), 3);
        assert_eq!(copied.header.is_some(), code.layer != 2);
    }
}

/// Control fields without flags: the first interpretation, and the second if there is one.
#[test]
fn terminates_without_flags() {
    let code = |layer, etype, code| TermCode { layer, etype, code };
    for (control, first, second) in [
        ("20020000", code(2, 0, 2), None),
        ("02020000", code(2, 0, 2), None),
        ("02010000", code(2, 0, 1), None),
        ("02050000", code(2, 0, 5), Some(code(0, 2, 5))),
        ("02080000", code(0, 2, 8), None),
        ("02ff0000", code(0, 2, 0xff), None),
        ("20050000", code(2, 0, 5), Some(code(0, 2, 5))),
        ("20060000", code(2, 0, 6), Some(code(0, 2, 6))),
        ("21060000", code(1, 2, 6), None),
        ("11040000", code(1, 1, 4), None),
        ("12060000", code(1, 2, 6), None),
        ("00000000", code(0, 0, 0), None),
        ("00550000", code(0, 0, 0x55), None),
        ("01000000", code(0, 1, 0), Some(code(1, 0, 0))),
        ("f7990000", code(15, 7, 0x99), None),
    ] {
        let terminate = Terminate::decode(&hex(control)).unwrap();
        assert_eq!((terminate.term_code(), terminate.alternative), (first, second), "{control}");
        assert_eq!((terminate.ddp_segment_len, terminate.header), (None, None));
    }
}

#[test]
fn terminates_with_parts_missing() {
    let refused = untagged(Opcode::ReadRequest, 5);
    let request = ReadRequest { sink_stag: 1, sink_to: 2, size: 3, src_stag: 4, src_to: 5 };
    let mut body = [0; Terminate::MAX_LEN];
    let whole = Terminate::about_read(TermCode::RDMAP_PROT_ACCESS, &refused, &request);
    assert_eq!(whole.encode(&mut body), body.len());
    for len in 0..body.len() {
        let got = Terminate::decode(&body[..len]);
        if len < 4 {
            assert_eq!(got, Err(WireError::BadTerminate));
            continue;
        }
        let got = got.unwrap();
        assert_eq!(got.term_code(), TermCode::RDMAP_PROT_ACCESS);
        assert_eq!(got.ddp_segment_len.is_some(), len >= 6);
        assert_eq!(got.header.is_some(), len >= 24);
        assert_eq!(got.read_request, None);
    }
    let longer = [&body[..], b"more"].concat();
    assert_eq!(Terminate::decode(&longer), Ok(whole));
}

/// The flags determine the position of each part, in the standard's format and in siw's, whatever follows. A
/// Read Request without a header is ignored: its position would be undefined.
#[test]
fn terminates_have_the_parts_of_their_flags() {
    const HEADER: &str = "c140 00000001 0000000000000002";
    const REQUEST: &str = "00000001 0000000000000002 00000003 00000004 0000000000000005";
    let code = TermCode::RDMAP_PROT_ACCESS;
    let request = ReadRequest { sink_stag: 1, sink_to: 2, size: 3, src_stag: 4, src_to: 5 };
    // The type byte, and the flags of length, header and Read Request.
    for (format, type_byte, [length, header, read]) in
        [("standard", 0x01, [0x80, 0x40, 0x20]), ("siw", 0x10, [0x01, 0x02, 0x04])]
    {
        for (has_length, has_header, has_read) in
            (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0))
        {
            let flags = [(has_length, length), (has_header, header), (has_read, read)];
            let flags = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum();
            let mut body = vec![type_byte, code.code, flags, 0];
            let parts = [(has_length, "000e"), (has_header, HEADER), (has_read && has_header, REQUEST)];
            body.extend(parts.iter().filter(|(set, _)| *set).flat_map(|(_, part)| hex(part)));
            body.extend([0x41; 60]);
            let terminate = Terminate::decode(&body).unwrap();
            let case = format!("{format}, flags {flags:#04x}");
            // Without flags nothing distinguishes the formats: see terminates_without_flags.
            if flags != 0 {
                assert_eq!((terminate.term_code(), terminate.alternative), (code, None), "{case}");
            }
            assert_eq!(terminate.ddp_segment_len, has_length.then_some(14), "{case}");
            let quoted = terminate.header.map(|quoted| quoted.decode());
            assert_eq!(quoted, has_header.then_some(Ok(write_header(1, 2))), "{case}");
            assert_eq!(terminate.read_request, (has_read && has_header).then_some(request), "{case}");
        }
    }
}

fn frame(kind: Kind) -> Frame {
    Frame { kind, markers: false, crc: false, reject: false, revision: 2, enhanced: None }
}

#[test]
fn mpa_flags_and_private_data() {
    let block = Enhanced { peer_to_peer: true, rtr_send: true, ird: 0x3fff, ord: 5, ..Enhanced::default() };
    let mut seen = Vec::new();
    for kind in [Kind::Request, Kind::Reply] {
        for (markers, crc, enhanced) in
            [(false, false, None), (true, false, None), (false, true, Some(block)), (true, true, None)]
        {
            for len in [0, 1, 4, 251, 508, 512] {
                let frame = Frame { markers, crc, enhanced, ..frame(kind) };
                let private_data: Vec<u8> = (0..len).map(|n| n as u8).collect();
                let mut out = vec![0xee; 3];
                let result = mpa::encode(&frame, &private_data, &mut out);
                if len == 512 && enhanced.is_some() {
                    assert_eq!(result, Err(MpaError::PrivateDataLength(516)));
                    assert_eq!(out, [0xee; 3]);
                    continue;
                }
                assert_eq!(result, Ok(()));
                let consumed = out.len() - 3;
                let expected = Decoded::Frame { frame, private_data: &private_data, consumed };
                assert_eq!(mpa::decode(kind, &out[3..]), Ok(expected));
                seen.push(out[3 + 16]);
            }
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0x00, 0x50, 0x80, 0xc0]);
}

#[test]
fn mpa_reject_is_for_replies() {
    for (kind, reject) in [(Kind::Request, false), (Kind::Reply, true)] {
        let mut out = Vec::new();
        mpa::encode(&Frame { reject: true, ..frame(kind) }, b"why", &mut out).unwrap();
        out[16] |= 0x0f;
        let expected = Frame { reject, ..frame(kind) };
        assert_eq!(
            mpa::decode(kind, &out),
            Ok(Decoded::Frame { frame: expected, private_data: b"why", consumed: 23 })
        );
    }
}

#[test]
fn mpa_refusals() {
    let header = |flags: u8, revision: u8, len: u16| {
        [&mpa::KEY_REQ[..], &[flags, revision], &len.to_be_bytes(), &[0xab; 600]].concat()
    };
    let decode = |bytes: &[u8]| mpa::decode(Kind::Request, bytes).err();
    assert_eq!(decode(&header(0, 0, 0)), Some(MpaError::Revision(0)));
    assert_eq!(decode(&header(0, 3, 0)), Some(MpaError::Revision(3)));
    assert_eq!(decode(&header(0, 2, 513)), Some(MpaError::PrivateDataLength(513)));
    assert_eq!(decode(&header(0, 2, 0xffff)[..20]), Some(MpaError::PrivateDataLength(0xffff)));
    assert_eq!(decode(&header(0, 2, 512)), None);
    for len in 0..4 {
        assert_eq!(decode(&header(0x10, 2, len)[..20]), Some(MpaError::EnhancedTooShort(len.into())));
        assert_eq!(decode(&header(0x10, 1, len)), None, "revision 1 has no such flag");
    }
    let old = header(0x10, 1, 4);
    let Ok(Decoded::Frame { frame: got, private_data, .. }) = mpa::decode(Kind::Request, &old) else {
        panic!("a frame of revision 1")
    };
    assert_eq!((got.enhanced, private_data), (None, &[0xab; 4][..]));

    let http = b"GET / HTTP/1.1\r\n";
    assert_eq!(mpa::decode(Kind::Request, http), Err(MpaError::WrongKey));
    assert_eq!(mpa::decode(Kind::Request, &http[..1]), Err(MpaError::WrongKey));
    assert_eq!(mpa::decode(Kind::Request, b""), Ok(Decoded::Need(20)));
    for at in 0..16 {
        let mut bytes = mpa::KEY_REP;
        bytes[at] ^= 0x20;
        assert_eq!(mpa::decode(Kind::Reply, &bytes[..=at]), Err(MpaError::WrongKey));
        assert_eq!(mpa::decode(Kind::Reply, &bytes[..at]), Ok(Decoded::Need(20)));
    }
}

#[test]
fn mpa_encode_refuses_other_revisions() {
    let mut out = Vec::new();
    for revision in [0, 3] {
        let bad = Frame { revision, ..frame(Kind::Request) };
        assert_eq!(mpa::encode(&bad, b"", &mut out), Err(MpaError::Revision(revision)));
    }
    let old = Frame { revision: 1, enhanced: Some(Enhanced::default()), ..frame(Kind::Request) };
    assert_eq!(mpa::encode(&old, b"", &mut out), Err(MpaError::Revision(1)));
    assert!(out.is_empty());
}

#[test]
fn enhanced_block() {
    let block = |bytes| Enhanced::decode(bytes);
    assert_eq!(block([0x80, 0, 0, 0]), Enhanced { peer_to_peer: true, ..Enhanced::default() });
    assert_eq!(block([0x40, 0, 0, 0]), Enhanced { rtr_send: true, ..Enhanced::default() });
    assert_eq!(block([0, 0, 0x80, 0]), Enhanced { rtr_write: true, ..Enhanced::default() });
    assert_eq!(block([0, 0, 0x40, 0]), Enhanced { rtr_read: true, ..Enhanced::default() });
    assert_eq!(block([0x3f, 0xff, 0, 1]), Enhanced { ird: 0x3fff, ord: 1, ..Enhanced::default() });
    for first in (0..=u16::MAX).step_by(if cfg!(miri) { 101 } else { 1 }) {
        let second = first.rotate_left(5) ^ 0x5a5a;
        let [a, b] = first.to_be_bytes();
        let [c, d] = second.to_be_bytes();
        assert_eq!(block([a, b, c, d]).encode(), [a, b, c, d]);
    }
    let deep = Enhanced { ird: 0x4000, ord: 0xffff, ..Enhanced::default() };
    assert_eq!(deep.encode(), [0x3f, 0xff, 0x3f, 0xff], "no depth runs into the flags");
}
