// SPDX-License-Identifier: BSD-3-Clause
//! The ICRC, with the identification known and unknown.

use super::super::icrc::{check, check_expecting, check_rxe_flush, icrc, icrc_of_rxe_flush, split};
use super::super::{Addresses, BadIcrc, Flow, UDP_PORT};
use super::random::Random;
use super::{each_captured, hex};

const V4: Flow = Flow {
    addresses: Addresses::V4 { source: [10, 80, 0, 2], destination: [10, 80, 0, 1] },
    source_port: 0xfd4d,
    destination_port: UDP_PORT,
};

const V6: Flow = Flow {
    addresses: Addresses::V6 { source: [0xfd; 16], destination: [0xfe; 16] },
    source_port: 0xc000,
    destination_port: UDP_PORT,
};

/// An acknowledgement with id 769e.
#[test]
fn worked_example() {
    let packet = hex("1100ffff 00000011 00f055e7 1f000001");
    let expected = [0x4a, 0x52, 0xbd, 0xdc];
    assert_eq!(icrc(&V4, 0x769e, &[&packet]), expected);
    let datagram = [&packet[..], &expected].concat();
    assert_eq!(split(&datagram), Some((&packet[..], expected)));
    assert_eq!(check(&V4, &datagram), Ok(Some(0x769e)));
}

#[test]
fn every_captured_packet_has_the_right_icrc() {
    let mut ids = 0;
    for captured in each_captured() {
        let (packet, received) = split(&captured.datagram).unwrap();
        assert_eq!(packet, captured.packet());
        if let Some(id) = captured.id {
            assert_eq!(u64::from(id), captured.number("id"));
            ids += 1;
        }
        let id = captured.id.unwrap_or(0);
        let (right, other) = (check(&captured.flow, &captured.datagram), icrc(&captured.flow, id, &[packet]));
        if captured.is_flush() {
            assert_ne!(other, received);
            assert_ne!(right, Ok(captured.id));
            assert_eq!(icrc_of_rxe_flush(&captured.flow, id, packet), received);
            assert_eq!(check_rxe_flush(&captured.flow, &captured.datagram), Ok(captured.id));
        } else {
            assert_eq!(other, received, "{}", captured.fields);
            assert_eq!(right, Ok(captured.id), "{}", captured.fields);
            assert_eq!(check_rxe_flush(&captured.flow, &captured.datagram), Err(BadIcrc));
        }
    }
    assert_eq!(ids, if cfg!(miri) { 24 } else { 146 }, "the others are IPv6");
}

#[test]
fn parts_make_one_packet() {
    let mut random = Random(0x5eed_0201);
    for len in [12, 60, 100, 101, 200].into_iter().take(if cfg!(miri) { 2 } else { 5 }) {
        let packet = random.bytes(len);
        let whole = icrc(&V4, 7, &[&packet]);
        for at in 12..=packet.len() {
            let (front, rest) = packet.split_at(at);
            assert_eq!(icrc(&V4, 7, &[front, rest]), whole);
            let (middle, end) = rest.split_at(rest.len() / 2);
            assert_eq!(icrc(&V4, 7, &[front, &[], middle, end]), whole);
        }
    }
}

/// Short packets are treated in another way than long ones.
#[test]
fn it_is_the_crc_of_headers_and_packet_at_every_length() {
    let mut random = Random(0x5eed_0205);
    let lengths = (12..300).chain([4096, 4112]);
    for len in lengths.step_by(if cfg!(miri) { 17 } else { 1 }) {
        let (packet, mut masked) = (random.bytes(len), vec![0xff; 8]);
        masked.extend(hex("45ff 0000 1234 4000 ff 11 ffff 0a500002 0a500001 fd4d 12b7 0000 ffff"));
        let udp_len = (8 + len + 4) as u16;
        masked[8 + 2..8 + 4].copy_from_slice(&(20 + udp_len).to_be_bytes());
        masked[8 + 24..8 + 26].copy_from_slice(&udp_len.to_be_bytes());
        masked.extend(&packet);
        masked[8 + 28 + 4] = 0xff;
        let expected = crc32fast::hash(&masked).to_le_bytes();
        assert_eq!(icrc(&V4, 0x1234, &[&packet]), expected, "{len} bytes");
        for id in [0, 0x1234, 0xffff] {
            let datagram = [&packet[..], &expected].concat();
            assert_eq!(check_expecting(&V4, id, &datagram), Ok(Some(0x1234)), "{len} bytes");
        }
    }
}

#[test]
fn every_identification_is_recovered() {
    let packet = [0x5a; 48];
    let step = if cfg!(miri) { 1001 } else { 1 };
    for id in (0..=u16::MAX).step_by(step) {
        let datagram = [&packet[..], &icrc(&V4, id, &[&packet])].concat();
        assert_eq!(check(&V4, &datagram), Ok(Some(id)));
    }
}

#[test]
fn identifications_are_recovered_at_every_length() {
    let mut random = Random(0x5eed_0202);
    let lengths = (12..4200).step_by(4).chain([8_192, 16_256, 16_384, 32_768, 65_503]);
    for len in lengths.step_by(if cfg!(miri) { 101 } else { 1 }) {
        let packet = random.bytes(len);
        let id = random.next() as u16;
        let datagram = [&packet[..], &icrc(&V4, id, &[&packet])].concat();
        assert_eq!(check(&V4, &datagram), Ok(Some(id)), "{len} bytes");
    }
}

/// IPv6 has nothing to solve for, so `check` finds every error of up to 32 bits in a row.
#[test]
fn every_flipped_bit_is_found() {
    let mut random = Random(0x5eed_0203);
    let packet = random.bytes(if cfg!(miri) { 16 } else { 256 });
    for (flow, id) in [(&V4, 0x1234), (&V4, 0), (&V6, 0)] {
        let right = [&packet[..], &icrc(flow, id, &[&packet])].concat();
        for bit in 0..right.len() * 8 {
            let mut damaged = right.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // FECN, BECN and the reserved bits beside them.
            let is_covered = bit / 8 != 4;
            assert_eq!(check(flow, &damaged).is_err(), is_covered, "bit {bit}");
        }
    }
}

#[test]
fn every_field_of_the_flow_counts() {
    let packet = [0x5a; 32];
    for flow in [V4, V6] {
        let datagram = [&packet[..], &icrc(&flow, 0, &[&packet])].concat();
        assert!(check(&flow, &datagram).is_ok());
        let mut others = vec![
            Flow { source_port: flow.source_port ^ 1, ..flow },
            Flow { destination_port: flow.destination_port ^ 1, ..flow },
        ];
        match flow.addresses {
            Addresses::V4 { source, destination } => others.extend([
                Flow { addresses: Addresses::V4 { source: [10, 80, 0, 3], destination }, ..flow },
                Flow { addresses: Addresses::V4 { source, destination: [11, 80, 0, 1] }, ..flow },
            ]),
            Addresses::V6 { source, destination } => others.extend([
                Flow { addresses: Addresses::V6 { source: [0xfc; 16], destination }, ..flow },
                Flow { addresses: Addresses::V6 { source, destination: [0xfc; 16] }, ..flow },
            ]),
        }
        for other in others {
            assert_eq!(check(&other, &datagram), Err(BadIcrc), "{other:?}");
        }
    }
}

#[test]
fn short_datagrams_have_no_icrc() {
    for len in 0..16 {
        assert_eq!(split(&vec![0; len]), None);
        assert_eq!(check(&V4, &vec![0; len]), Err(BadIcrc));
        assert_eq!(check_rxe_flush(&V4, &vec![0; len]), Err(BadIcrc));
    }
    assert!(split(&[0; 16]).is_some());
}

/// One of 65,536 random ICRCs passes if the identification is unknown.
#[test]
fn random_icrcs_seldom_pass() {
    let mut random = Random(0x5eed_0204);
    let rounds = if cfg!(miri) { 500 } else { 200_000 };
    let passed = (0..rounds).filter(|_| {
        let datagram: [u8; 48] = random.array();
        check(&V4, &datagram).is_ok()
    });
    assert!(passed.count() <= 12);
}
