// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the wire format: worked examples, a capture of a kernel peer, hostile input.

mod capture;
pub(in crate::roce) mod cm;
mod examples;
mod hostile;
mod icrc;
pub(in crate::roce) mod random;
mod rules;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::{Addresses, Flow, Packet};

const CAPTURE: &str = include_str!("../../../../tests/data/rxe.hex");

/// Decodes hexadecimal digits; white space is skipped, and `xx*n` is the byte xx, n times.
fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (digits, count) = match word.split_once('*') {
            Some((byte, count)) => (byte, count.parse().expect("a count")),
            None => (word, 1),
        };
        assert_eq!(digits.len() % 2, 0, "half a byte: {word}");
        let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
        let word: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).expect(pair)).collect();
        bytes.extend(word.repeat(count));
    }
    bytes
}

/// A packet of the capture.
struct Captured {
    /// Its fields as the comment in front of it has them: `RC READ request sport=.. QP=..`.
    fields: &'static str,
    flow: Flow,
    /// The identification, if it is an IPv4 packet.
    id: Option<u16>,
    /// The UDP payload.
    datagram: Vec<u8>,
}

impl Captured {
    fn new(fields: &'static str, bytes: &[u8]) -> Self {
        let be16 = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (addresses, id, udp_at) = if bytes[0] == 0x45 {
            assert_eq!((usize::from(be16(2)), be16(6)), (bytes.len(), 0x4000), "{fields}");
            let address = |at: usize| bytes[at..at + 4].try_into().unwrap();
            (Addresses::V4 { source: address(12), destination: address(16) }, Some(be16(4)), 20)
        } else {
            let address = |at: usize| bytes[at..at + 16].try_into().unwrap();
            (Addresses::V6 { source: address(8), destination: address(24) }, None, 40)
        };
        assert_eq!(usize::from(be16(udp_at + 4)), bytes.len() - udp_at, "{fields}");
        let flow = Flow { addresses, source_port: be16(udp_at), destination_port: be16(udp_at + 2) };
        Self { fields, flow, id, datagram: bytes[udp_at + 8..].to_vec() }
    }

    /// The value of `name=value` in the decoded fields.
    fn field(&self, name: &str) -> Option<&'static str> {
        let mut words = self.fields.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// A hexadecimal field.
    fn number(&self, name: &str) -> u64 {
        let text = self.field(name).unwrap_or_else(|| panic!("no {name} in {}", self.fields));
        u64::from_str_radix(text, 16).expect(text)
    }

    /// The service and the operation, as in `RC READ request`.
    fn operation(&self) -> &'static str {
        self.fields.split(" sport=").next().expect("an operation")
    }

    /// The datagram without ICRC.
    fn packet(&self) -> &[u8] {
        &self.datagram[..self.datagram.len() - 4]
    }

    fn is_flush(&self) -> bool {
        self.operation() == "RC FLUSH"
    }
}

/// All packets of the capture, parsed once: that takes Miri a minute.
fn capture() -> &'static [Captured] {
    static PACKETS: LazyLock<Vec<Captured>> = LazyLock::new(|| {
        let mut packets = Vec::new();
        let mut fields = "";
        for line in CAPTURE.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                fields = comment;
            } else if let Some(bytes) = line.strip_prefix("C ").or(line.strip_prefix("S ")) {
                packets.push(Captured::new(fields, &hex(bytes)));
            }
        }
        assert_eq!(packets.len(), 166);
        packets
    });
    &PACKETS
}

/// The packets of the capture for a test of each: all, and for Miri, which takes a second for each, the first
/// of each operation over IPv4 and over IPv6.
fn each_captured() -> impl Iterator<Item = &'static Captured> {
    let mut seen = BTreeSet::new();
    capture().iter().filter(move |captured| {
        let is_first = seen.insert((captured.operation(), captured.id.is_some()));
        is_first || !cfg!(miri)
    })
}

/// Encodes a packet, with zeros as pad.
fn encode(packet: &Packet<'_>) -> Vec<u8> {
    let headers = Packet::encode_headers(&packet.bth, &packet.extension);
    [&headers[..], packet.payload, &[0; 3][..usize::from(packet.bth.pad)]].concat()
}
