// SPDX-License-Identifier: BSD-3-Clause
//! Random and damaged packets: no panic, and what parses encodes to the same bytes.

use super::super::{BTH_LEN, Extension, Malformed, Opcode, Operation, Packet};
use super::encode;
use super::random::{Random, opcodes};

/// Miri takes a thousand times longer for each.
fn rounds(of_a_processor: usize) -> usize {
    if cfg!(miri) { (of_a_processor / 1000).max(1) } else { of_a_processor }
}

/// Those whose packets are damaged in every place.
fn damaged() -> impl Iterator<Item = Opcode> {
    opcodes().into_iter().step_by(if cfg!(miri) { 9 } else { 1 })
}

#[test]
fn random_packets_come_through() {
    let mut random = Random(0x5eed_0101);
    for opcode in opcodes() {
        for _ in 0..rounds(200) {
            let (bth, extension, payload) = random.packet(opcode);
            let packet = Packet { bth, extension, payload: &payload };
            let bytes = encode(&packet);
            assert_eq!(Packet::parse(&bytes), Ok(packet));
        }
    }
}

/// At each length: an error if headers are missing or the length is no multiple of 4, else less payload.
#[test]
fn truncated_packets() {
    let mut random = Random(0x5eed_0102);
    for opcode in damaged() {
        let (bth, extension, payload) = random.packet(opcode);
        let bytes = encode(&Packet { bth, extension, payload: &payload });
        let headers = Packet::encode_headers(&bth, &extension).len();
        for len in 0..bytes.len() {
            let parsed = Packet::parse(&bytes[..len]);
            if len < headers {
                assert_eq!(parsed, Err(Malformed::Short(len)), "{opcode}");
            } else if len % 4 != 0 {
                assert_eq!(parsed, Err(Malformed::Length(len)), "{opcode}");
            } else if len - headers < usize::from(bth.pad) {
                assert_eq!(parsed, Err(Malformed::Pad(bth.pad)), "{opcode}");
            } else {
                let payload = &bytes[headers..len - usize::from(bth.pad)];
                assert_eq!(parsed, Ok(Packet { bth, extension, payload }));
            }
        }
    }
}

#[test]
fn a_pad_count_without_payload() {
    let mut random = Random(0x5eed_0103);
    for opcode in opcodes() {
        let (mut bth, extension, _) = random.packet(opcode);
        for pad in 1..4 {
            bth.pad = pad;
            let headers = Packet::encode_headers(&bth, &extension);
            assert_eq!(Packet::parse(&headers), Err(Malformed::Pad(pad)), "{opcode}");
        }
    }
}

#[test]
fn payload_where_there_is_none() {
    let mut random = Random(0x5eed_0104);
    for opcode in opcodes() {
        let (bth, extension, _) = random.packet(opcode);
        if !opcode.operation().is_some_and(Operation::has_payload) {
            let bytes = [&Packet::encode_headers(&bth, &extension)[..], &[0; 8]].concat();
            assert_eq!(Packet::parse(&bytes), Err(Malformed::Payload(8)), "{opcode}");
        }
    }
}

#[test]
fn every_other_version() {
    for opcode in 0..=255 {
        for version in 1..16 {
            let mut bytes = [0; 64];
            bytes[..2].copy_from_slice(&[opcode, 0x40 | version]);
            assert_eq!(Packet::parse(&bytes), Err(Malformed::Version(version)));
        }
    }
}

#[test]
fn reserved_bits_are_ignored() {
    let mut datagram = [0; 24];
    datagram[0] = 0x64;
    let plain = Packet::parse(&datagram).unwrap().extension;
    datagram[16] = 0xff;
    assert_eq!(Packet::parse(&datagram).unwrap().extension, plain, "DETH");

    let mut flush = [0; 32];
    flush[0] = 0x1c;
    let plain = Packet::parse(&flush).unwrap().extension;
    flush[12..16].copy_from_slice(&[0xff, 0xff, 0xff, 0xc0]);
    assert_eq!(Packet::parse(&flush).unwrap().extension, plain, "FETH");
}

/// The bytes of a packet that are sent as 0, whatever was received.
fn without_ignored_bits(packet: &Packet<'_>, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match packet.extension {
        Extension::Deth(_) | Extension::DethImm(..) => bytes[BTH_LEN + 4] = 0,
        Extension::Flush(..) => {
            bytes[BTH_LEN..BTH_LEN + 3].fill(0);
            bytes[BTH_LEN + 3] &= 0x3f;
        }
        _ => {}
    }
    let pad_at = bytes.len() - usize::from(packet.bth.pad);
    bytes[pad_at..].fill(0);
    bytes
}

#[test]
fn random_bytes_are_survived() {
    let mut random = Random(0x5eed_0105);
    let opcodes = opcodes();
    let mut parsed = 0;
    for round in 0..rounds(100_000) {
        let len = random.below(30) * 4 + random.below(8) / 7;
        let mut bytes = random.bytes(len);
        // Mostly valid beginnings, so that later checks are reached as well.
        if round % 8 != 0 && len > 1 {
            bytes[0] = opcodes[random.below(opcodes.len())].to_u8();
            bytes[1] &= 0xf0;
        }
        match Packet::parse(&bytes) {
            Ok(packet) => {
                assert_eq!(encode(&packet), without_ignored_bits(&packet, &bytes));
                parsed += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(parsed > rounds(20_000), "{parsed} parsed: too few");
}

#[test]
fn damaged_packets_parse_to_the_same_or_are_dropped() {
    let mut random = Random(0x5eed_0106);
    for opcode in damaged() {
        let (bth, extension, payload) = random.packet(opcode);
        let bytes = encode(&Packet { bth, extension, payload: &payload });
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 0x80 >> (bit % 8);
            if let Ok(packet) = Packet::parse(&damaged) {
                assert_eq!(encode(&packet), without_ignored_bits(&packet, &damaged));
            }
        }
    }
    assert_eq!(Opcode::from_u8(0x15), Err(Malformed::Opcode(0x15)), "RESYNC is of RD only");
}
