// SPDX-License-Identifier: BSD-3-Clause
//! RoCE packets and messages of connection management: what parses encodes to the same bytes, except reserved
//! bits and pad, and the ICRC of it is found right whatever the identification.
#![no_main]

use libfuzzer_sys::fuzz_target;

use transport::roce::wire::cm::{CMA_HEADER_LEN, CmaHeader, MAD_LEN, Mad, Message};
use transport::roce::wire::icrc::{self, Addresses, Flow};
use transport::roce::wire::{BTH_LEN, Extension, MAX_HEADERS, Packet, UDP_PORT};

const FLOW: Flow = Flow {
    addresses: Addresses::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2] },
    source_port: 0xc001,
    destination_port: UDP_PORT,
};

fuzz_target!(|bytes: &[u8]| {
    packet(bytes);
    message(bytes);
    let _ = icrc::check(&FLOW, bytes);
    let _ = icrc::check_rxe_flush(&FLOW, bytes);
});

fn packet(bytes: &[u8]) {
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let headers = Packet::encode_headers(&packet.bth, &packet.extension);
    assert!(headers.len() <= MAX_HEADERS);
    let pad = usize::from(packet.bth.pad);
    assert_eq!(headers.len() + packet.payload.len() + pad, bytes.len());
    let again = [&headers[..], packet.payload, &[0; 3][..pad]].concat();
    assert_eq!(Packet::parse(&again), Ok(packet));

    let mut expected = bytes.to_vec();
    match packet.extension {
        Extension::Deth(_) | Extension::DethImm(..) => expected[BTH_LEN + 4] = 0,
        Extension::Flush(..) => {
            expected[BTH_LEN..BTH_LEN + 3].fill(0);
            expected[BTH_LEN + 3] &= 0x3f;
        }
        _ => {}
    }
    expected[bytes.len() - pad..].fill(0);
    assert_eq!(again, expected);

    if packet.payload.len() <= 4096 {
        let id = u16::from_be_bytes([bytes[10], bytes[11]]);
        let sum = icrc::icrc(&FLOW, id, &[&headers, packet.payload, &[0; 3][..pad]]);
        let datagram = [&again[..], &sum].concat();
        assert_eq!(icrc::split(&datagram), Some((&again[..], sum)));
        assert_eq!(icrc::check(&FLOW, &datagram), Ok(Some(id)));
    }
}

fn message(bytes: &[u8]) {
    // Without the fixed part the fuzzer would have to find it first.
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    if let Some((attribute, rest)) = bytes.split_first() {
        mad[17] = *attribute;
        let len = rest.len().min(MAD_LEN - 24);
        mad[24..24 + len].copy_from_slice(&rest[..len]);
    }
    for payload in [&mad[..], bytes] {
        let Ok(decoded) = Mad::decode(payload) else { continue };
        assert_eq!(Mad::decode(&decoded.encode()).as_ref(), Ok(&decoded));
        match &decoded.message {
            Message::Req(req) => cma_header(&req.private_data),
            Message::SidrReq(req) => cma_header(&req.private_data),
            Message::Rej(rej) => assert!(!rej.reason.to_string().is_empty()),
            _ => {}
        }
    }
}

fn cma_header(private_data: &[u8]) {
    if let Ok((header, rest)) = CmaHeader::decode(private_data) {
        assert_eq!(rest.len(), private_data.len() - CMA_HEADER_LEN);
        let again = header.encode();
        assert_eq!(CmaHeader::decode(&again), Ok((header, &[][..])));
    }
}
