// SPDX-License-Identifier: BSD-3-Clause
//! Packets byte by byte: the figures and tables of the standard with values filled in.

use super::super::{
    Aeth, AtomicEth, Bth, Deth, Extension, Feth, Nak, Opcode, Operation, Packet, Psn, Reth, Selectivity,
    Syndrome,
};
use super::{encode, hex};

const RETH: Reth = Reth { va: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c, len: 0x0d0e_0f10 };

fn rc(operation: Operation) -> Bth {
    Bth::new(Opcode::Rc(operation), 0x12_3456, Psn::new(0xab_cdef))
}

/// Asserts that `packet` encodes to these bytes and that they parse to `packet`.
#[track_caller]
fn both_ways(bth: Bth, extension: Extension, payload: &[u8], expected: &str) {
    let packet = Packet { bth, extension, payload };
    let bytes = hex(expected);
    assert_eq!(encode(&packet), bytes);
    assert_eq!(Packet::parse(&bytes), Ok(packet));
}

/// Each field of the BTH alone.
#[test]
fn base_transport_header() {
    let zero = Bth { migrated: false, pkey: 0, dest_qp: 0, psn: Psn::new(0), ..rc(Operation::SendOnly) };
    let one = |bth: Bth, expected: &str| both_ways(bth, Extension::None, &[], expected);
    one(zero, "04000000 00000000 00000000");
    one(Bth { opcode: Opcode::Rc(Operation::WriteLast), ..zero }, "08000000 00000000 00000000");
    one(Bth { opcode: Opcode::Uc(Operation::SendOnly), ..zero }, "24000000 00000000 00000000");
    one(Bth { solicited: true, ..zero }, "04800000 00000000 00000000");
    one(Bth { migrated: true, ..zero }, "04400000 00000000 00000000");
    one(Bth { pkey: 0xffff, ..zero }, "0400ffff 00000000 00000000");
    one(Bth { fecn: true, ..zero }, "04000000 80000000 00000000");
    one(Bth { becn: true, ..zero }, "04000000 40000000 00000000");
    one(Bth { reserved_6: 0x3f, ..zero }, "04000000 3f000000 00000000");
    one(Bth { dest_qp: 0xff_ffff, ..zero }, "04000000 00ffffff 00000000");
    one(Bth { ack_req: true, ..zero }, "04000000 00000000 80000000");
    one(Bth { reserved_7: 0x7f, ..zero }, "04000000 00000000 7f000000");
    one(Bth { psn: Psn::new(0xff_ffff), ..zero }, "04000000 00000000 00ffffff");
}

#[test]
fn pad_follows_the_payload() {
    for (payload, expected) in [
        (&b""[..], "0440ffff 00123456 00abcdef"),
        (b"a", "0470ffff 00123456 00abcdef 61000000"),
        (b"ab", "0460ffff 00123456 00abcdef 61620000"),
        (b"abc", "0450ffff 00123456 00abcdef 61626300"),
        (b"abcd", "0440ffff 00123456 00abcdef 61626364"),
    ] {
        let bth = Bth { pad: super::super::pad_len(payload.len()), ..rc(Operation::SendOnly) };
        both_ways(bth, Extension::None, payload, expected);
    }
}

#[test]
fn sends() {
    let imm = [0xde, 0xad, 0xbe, 0xef];
    both_ways(rc(Operation::SendFirst), Extension::None, b"abcd", "0040ffff 00123456 00abcdef 61626364");
    both_ways(rc(Operation::SendMiddle), Extension::None, b"abcd", "0140ffff 00123456 00abcdef 61626364");
    both_ways(rc(Operation::SendLast), Extension::None, b"abcd", "0240ffff 00123456 00abcdef 61626364");
    both_ways(rc(Operation::SendLastImm), Extension::Imm(imm), b"", "0340ffff 00123456 00abcdef deadbeef");
    both_ways(rc(Operation::SendOnlyImm), Extension::Imm(imm), b"", "0540ffff 00123456 00abcdef deadbeef");
    let ieth = Extension::Ieth(0xcafe_f00d);
    both_ways(rc(Operation::SendLastInv), ieth, b"", "1640ffff 00123456 00abcdef cafef00d");
    both_ways(rc(Operation::SendOnlyInv), ieth, b"abcd", "1740ffff 00123456 00abcdef cafef00d 61626364");
}

#[test]
fn writes() {
    const RETH_BYTES: &str = "01020304 05060708 090a0b0c 0d0e0f10";
    let imm = [0xde, 0xad, 0xbe, 0xef];
    let reth = Extension::Reth(RETH);
    both_ways(
        rc(Operation::WriteFirst),
        reth,
        b"abcd",
        &format!("0640ffff 00123456 00abcdef {RETH_BYTES} 61626364"),
    );
    both_ways(rc(Operation::WriteMiddle), Extension::None, b"abcd", "0740ffff 00123456 00abcdef 61626364");
    both_ways(rc(Operation::WriteLastImm), Extension::Imm(imm), b"", "0940ffff 00123456 00abcdef deadbeef");
    both_ways(rc(Operation::WriteOnly), reth, b"", &format!("0a40ffff 00123456 00abcdef {RETH_BYTES}"));
    both_ways(
        rc(Operation::WriteOnlyImm),
        Extension::RethImm(RETH, imm),
        b"abcd",
        &format!("0b40ffff 00123456 00abcdef {RETH_BYTES} deadbeef 61626364"),
    );
    both_ways(
        rc(Operation::AtomicWrite),
        reth,
        b"abcdefgh",
        &format!("1d40ffff 00123456 00abcdef {RETH_BYTES} 61626364 65666768"),
    );
}

#[test]
fn reads_and_acknowledgements() {
    both_ways(
        rc(Operation::ReadRequest),
        Extension::Reth(RETH),
        b"",
        "0c40ffff 00123456 00abcdef 01020304 05060708 090a0b0c 0d0e0f10",
    );
    let aeth = |syndrome| Extension::Aeth(Aeth { syndrome, msn: 0x01_0203 });
    let ack = aeth(Syndrome::ACK);
    both_ways(rc(Operation::ReadFirst), ack, b"abcd", "0d40ffff 00123456 00abcdef 1f010203 61626364");
    both_ways(rc(Operation::ReadMiddle), Extension::None, b"abcd", "0e40ffff 00123456 00abcdef 61626364");
    both_ways(rc(Operation::ReadLast), ack, b"abcd", "0f40ffff 00123456 00abcdef 1f010203 61626364");
    both_ways(rc(Operation::ReadOnly), ack, b"", "1040ffff 00123456 00abcdef 1f010203");
    for (syndrome, expected) in [
        (Syndrome::ACK, "1140ffff 00123456 00abcdef 1f010203"),
        (Syndrome::Ack { credits: 0 }, "1140ffff 00123456 00abcdef 00010203"),
        (Syndrome::Rnr { timer: 0 }, "1140ffff 00123456 00abcdef 20010203"),
        (Syndrome::Rnr { timer: 31 }, "1140ffff 00123456 00abcdef 3f010203"),
        (Syndrome::Reserved(0x40), "1140ffff 00123456 00abcdef 40010203"),
        (Syndrome::Nak(Nak::PsnSequence), "1140ffff 00123456 00abcdef 60010203"),
        (Syndrome::Nak(Nak::InvalidRequest), "1140ffff 00123456 00abcdef 61010203"),
        (Syndrome::Nak(Nak::RemoteAccess), "1140ffff 00123456 00abcdef 62010203"),
        (Syndrome::Nak(Nak::RemoteOperational), "1140ffff 00123456 00abcdef 63010203"),
        (Syndrome::Nak(Nak::InvalidRdRequest), "1140ffff 00123456 00abcdef 64010203"),
        (Syndrome::Nak(Nak::Other(31)), "1140ffff 00123456 00abcdef 7f010203"),
        (Syndrome::Reserved(0x9f), "1140ffff 00123456 00abcdef 9f010203"),
    ] {
        both_ways(rc(Operation::Acknowledge), aeth(syndrome), b"", expected);
    }
}

#[test]
fn atomics() {
    let atomic = AtomicEth {
        va: 0x0102_0304_0506_0708,
        rkey: 0x090a_0b0c,
        swap_add: 0x1112_1314_1516_1718,
        compare: 0x2122_2324_2526_2728,
    };
    const BYTES: &str = "01020304 05060708 090a0b0c 11121314 15161718 21222324 25262728";
    let expected = |opcode: &str| format!("{opcode}40ffff 00123456 00abcdef {BYTES}");
    both_ways(rc(Operation::CompareSwap), Extension::Atomic(atomic), b"", &expected("13"));
    both_ways(rc(Operation::FetchAdd), Extension::Atomic(atomic), b"", &expected("14"));
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 7 };
    both_ways(
        rc(Operation::AtomicAcknowledge),
        Extension::AtomicAck(aeth, 0x3132_3334_3536_3738),
        b"",
        "1240ffff 00123456 00abcdef 1f000007 31323334 35363738",
    );
}

#[test]
fn flushes() {
    for (placement, selectivity, feth) in [
        (0, Selectivity::Range, "00000000"),
        (Feth::GLOBAL_VISIBILITY, Selectivity::Range, "00000001"),
        (Feth::PERSISTENCE, Selectivity::Range, "00000002"),
        (Feth::GLOBAL_VISIBILITY | Feth::PERSISTENCE, Selectivity::Region, "00000013"),
        (0x0c, Selectivity::Reserved(2), "0000002c"),
        (0, Selectivity::Reserved(3), "00000030"),
    ] {
        both_ways(
            rc(Operation::Flush),
            Extension::Flush(Feth { placement, selectivity }, RETH),
            b"",
            &format!("1c40ffff 00123456 00abcdef {feth} 01020304 05060708 090a0b0c 0d0e0f10"),
        );
    }
}

#[test]
fn datagrams() {
    let deth = Deth { qkey: 0x0123_4567, source_qp: 0x89_abcd };
    let ud = |operation| Bth { opcode: Opcode::Ud(operation), ..rc(operation) };
    both_ways(
        ud(Operation::SendOnly),
        Extension::Deth(deth),
        b"abcd",
        "6440ffff 00123456 00abcdef 01234567 0089abcd 61626364",
    );
    both_ways(
        ud(Operation::SendOnlyImm),
        Extension::DethImm(deth, [1, 2, 3, 4]),
        b"",
        "6540ffff 00123456 00abcdef 01234567 0089abcd 01020304",
    );
}

#[test]
fn congestion_notification() {
    both_ways(Bth::cnp(0xd2), Extension::Cnp([0; 16]), b"", "8100ffff 400000d2 00000000 00*16");
}
