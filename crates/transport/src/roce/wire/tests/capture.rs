// SPDX-License-Identifier: BSD-3-Clause
//! Packets captured between kernel peers (rxe of Linux 6.1 and 6.12).

use std::collections::BTreeMap;

use super::super::{
    Aeth, AtomicEth, Deth, Extension, Feth, Malformed, Opcode, Operation, Packet, Psn, Reth, Selectivity,
};
use super::{Captured, capture, each_captured, encode, hex};

/// The name of an opcode in the capture.
fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Ud(Operation::SendOnly) => "UD SEND only",
        Opcode::Ud(Operation::SendOnlyImm) => "UD SEND only imm",
        Opcode::Rc(operation) => match operation {
            Operation::SendFirst => "RC SEND first",
            Operation::SendMiddle => "RC SEND middle",
            Operation::SendLast => "RC SEND last",
            Operation::SendOnly => "RC SEND only",
            Operation::SendOnlyImm => "RC SEND only imm",
            Operation::SendOnlyInv => "RC SEND only inv",
            Operation::WriteFirst => "RC WRITE first",
            Operation::WriteMiddle => "RC WRITE middle",
            Operation::WriteLast => "RC WRITE last",
            Operation::WriteOnly => "RC WRITE only",
            Operation::WriteOnlyImm => "RC WRITE only imm",
            Operation::ReadRequest => "RC READ request",
            Operation::ReadFirst => "RC READ resp first",
            Operation::ReadMiddle => "RC READ resp middle",
            Operation::ReadLast => "RC READ resp last",
            Operation::ReadOnly => "RC READ resp only",
            Operation::Acknowledge => "RC ACK",
            Operation::AtomicAcknowledge => "RC ATOMIC ack",
            Operation::CompareSwap => "RC CMPSWAP",
            Operation::FetchAdd => "RC FETCHADD",
            Operation::Flush => "RC FLUSH",
            Operation::AtomicWrite => "RC ATOMIC WRITE",
            _ => "not in the capture",
        },
        _ => "not in the capture",
    }
}

fn parse(captured: &Captured) -> Packet<'_> {
    Packet::parse(captured.packet()).unwrap_or_else(|error| panic!("{error}: {}", captured.fields))
}

/// A decimal field.
fn decimal(captured: &Captured, name: &str) -> usize {
    captured.field(name).expect(name).parse().expect(name)
}

#[test]
fn every_packet_encodes_to_the_same_bytes() {
    for captured in capture() {
        assert_eq!(encode(&parse(captured)), captured.packet(), "{}", captured.fields);
    }
}

/// The BTH has the values that another decoder has printed.
#[test]
fn base_transport_headers() {
    for captured in each_captured() {
        let Packet { bth, payload, .. } = parse(captured);
        let fields = captured.fields;
        assert_eq!(name(bth.opcode), captured.operation());
        assert_eq!(u64::from(bth.dest_qp), captured.number("QP"), "{fields}");
        assert_eq!(u64::from(bth.psn.get()), captured.number("PSN"), "{fields}");
        let words: Vec<&str> = fields.split_whitespace().collect();
        assert_eq!(bth.ack_req, words.contains(&"AckReq"), "{fields}");
        assert_eq!(bth.solicited, words.contains(&"SE"), "{fields}");
        assert_eq!(bth.migrated, captured.field("M") == Some("1"), "{fields}");
        assert_eq!(payload.len(), decimal(captured, "data"), "{fields}");
        assert_eq!(usize::from(bth.pad), decimal(captured, "pad"), "{fields}");
        assert_eq!((bth.pkey, bth.fecn, bth.becn), (0xffff, false, false));
        assert_eq!((bth.reserved_6, bth.reserved_7), (0, 0));
    }
}

#[test]
fn extension_headers() {
    for captured in each_captured() {
        let number = |name| captured.number(name);
        let check_reth = |reth: Reth| {
            assert_eq!(
                (reth.va, u64::from(reth.rkey)),
                (number("va"), number("rkey")),
                "{}",
                captured.fields
            );
            assert_eq!(reth.len as usize, decimal(captured, "len"), "{}", captured.fields);
        };
        let check_aeth = |aeth: Aeth| {
            let syndrome = captured.field("syn").unwrap().split_once('(').unwrap().0;
            assert_eq!(format!("{:02x}", aeth.syndrome.to_u8()), syndrome);
            assert_eq!(u64::from(aeth.msn), number("msn"));
        };
        let check_imm = |imm: [u8; 4]| assert_eq!(u64::from(u32::from_be_bytes(imm)), number("imm"));
        let check_deth = |deth: Deth| {
            assert_eq!((u64::from(deth.qkey), u64::from(deth.source_qp)), (number("qkey"), number("srcqp")));
        };
        match parse(captured).extension {
            Extension::None => assert_eq!(captured.field("va"), None),
            Extension::Reth(reth) => check_reth(reth),
            Extension::RethImm(reth, imm) => {
                check_reth(reth);
                check_imm(imm);
            }
            Extension::Imm(imm) => check_imm(imm),
            Extension::Ieth(rkey) => assert_eq!(u64::from(rkey), number("inv-rkey")),
            Extension::Aeth(aeth) => check_aeth(aeth),
            Extension::Atomic(atomic) => {
                let AtomicEth { va, rkey, swap_add, compare } = atomic;
                assert_eq!((va, u64::from(rkey)), (number("va"), number("rkey")));
                assert_eq!((swap_add, compare), (number("swap/add"), number("cmp")));
            }
            Extension::AtomicAck(aeth, original) => {
                check_aeth(aeth);
                assert_eq!(original, number("orig"), "{}", captured.fields);
            }
            Extension::Flush(feth, reth) => {
                check_reth(reth);
                let expected = match number("feth") {
                    1 => Feth { placement: Feth::GLOBAL_VISIBILITY, selectivity: Selectivity::Range },
                    2 => Feth { placement: Feth::PERSISTENCE, selectivity: Selectivity::Range },
                    0x11 => Feth { placement: Feth::GLOBAL_VISIBILITY, selectivity: Selectivity::Region },
                    other => panic!("{other:#x}"),
                };
                assert_eq!(feth, expected);
            }
            Extension::Deth(deth) => check_deth(deth),
            Extension::DethImm(deth, imm) => {
                check_deth(deth);
                check_imm(imm);
            }
            Extension::Cnp(_) => panic!("rxe sends no CNP"),
        }
    }
}

#[test]
fn the_capture_has_all_that_rxe_sends() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for captured in capture() {
        *counts.entry(captured.operation()).or_default() += 1;
    }
    let names: Vec<&str> = counts.keys().copied().collect();
    let expected = [
        "RC ACK",
        "RC ATOMIC WRITE",
        "RC ATOMIC ack",
        "RC CMPSWAP",
        "RC FETCHADD",
        "RC FLUSH",
        "RC READ request",
        "RC READ resp first",
        "RC READ resp last",
        "RC READ resp middle",
        "RC READ resp only",
        "RC SEND first",
        "RC SEND last",
        "RC SEND middle",
        "RC SEND only",
        "RC SEND only imm",
        "RC SEND only inv",
        "RC WRITE first",
        "RC WRITE last",
        "RC WRITE middle",
        "RC WRITE only",
        "RC WRITE only imm",
        "UD SEND only",
        "UD SEND only imm",
    ];
    assert_eq!(names, expected);
}

/// The first read of session 1: request and response have one PSN.
#[test]
fn a_read() {
    let packets = capture();
    let find = |name: &str| packets.iter().find(|captured| captured.operation() == name).map(parse).unwrap();
    let (request, response) = (find("RC READ request"), find("RC READ resp only"));
    let reth = Reth { va: 0x55a5_eb42_2370, rkey: 0x572, len: 64 };
    assert_eq!(request.extension, Extension::Reth(reth));
    assert_eq!((request.bth.psn, response.bth.psn), (Psn::new(0x2a_f51b), Psn::new(0x2a_f51b)));
    assert!(response.payload.starts_with(b"rdma-ping-0: ABC") && response.payload.len() == 64);
}

#[test]
fn truncated_captured_packets() {
    for captured in each_captured() {
        let packet = captured.packet();
        let headers = packet.len() - decimal(captured, "data") - decimal(captured, "pad");
        for len in 0..headers {
            assert_eq!(Packet::parse(&packet[..len]), Err(Malformed::Short(len)));
        }
    }
    assert_eq!(hex("00*3 0102 03"), [0, 0, 0, 1, 2, 3]);
}
