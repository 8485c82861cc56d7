// SPDX-License-Identifier: BSD-3-Clause
//! A raw TCP peer with a separate FPDU encoder, and the ends under test. It uses no code of the crate
//! `transport`.

use super::common::*;
use rdma_sys::*;
use softverbs::rdma as cm;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) const ESTABLISHED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
pub(crate) const DISCONNECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED;

/// Most bytes of a ULPDU.
pub(crate) const MAX_ULPDU: usize = 65535;

/// Bytes from hexadecimal digits; anything between single quotes stands for itself.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, part) in text.split('\'').enumerate() {
        if i % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u32> =
            part.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
        assert!(digits.len() % 2 == 0, "half a byte in {part:?}");
        bytes.extend(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8));
    }
    bytes
}

/// CRC32c, bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}

fn pad(ulpdu_len: usize) -> usize {
    (4 - (2 + ulpdu_len) % 4) % 4
}

/// The FPDU of a ULPDU. Without CRC the field has an arbitrary value.
pub(crate) fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut bytes = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(2 + ulpdu.len() + pad(ulpdu.len()), 0);
    let sum = if crc { crc32c(&bytes) } else { 0xdead_beef };
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// A tagged segment; `control` are the bytes of DDP and RDMAP.
pub(crate) fn tagged(control: [u8; 2], stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    [&control[..], &stag.to_be_bytes(), &to.to_be_bytes(), payload].concat()
}

/// An untagged segment.
pub(crate) fn untagged(control: [u8; 2], stag: u32, [qn, msn, mo]: [u32; 3], payload: &[u8]) -> Vec<u8> {
    let words = [stag, qn, msn, mo].map(u32::to_be_bytes).concat();
    [&control[..], &words, payload].concat()
}

/// The sink of the peer's reads.
pub(crate) const SINK: (u32, u64) = (0xabcd_ef01, 0x1122_3344_5566_7788);

/// A Read Request of `size` bytes.
pub(crate) fn read_request(msn: u32, size: u32, stag: u32, to: u64) -> Vec<u8> {
    let body = [
        &SINK.0.to_be_bytes()[..],
        &SINK.1.to_be_bytes(),
        &size.to_be_bytes(),
        &stag.to_be_bytes(),
        &to.to_be_bytes(),
    ];
    untagged([0x41, 0x41], 0, [1, msn, 0], &body.concat())
}

/// An Atomic Request, whose number is the complement of its MSN; `fields` are data and its mask, comparand
/// and its mask.
pub(crate) fn atomic_request(msn: u32, operation: u8, stag: u32, to: u64, fields: [u64; 4]) -> Vec<u8> {
    let body = [
        &[0, 0, 0, operation][..],
        &(!msn).to_be_bytes(),
        &stag.to_be_bytes(),
        &to.to_be_bytes(),
        &fields.map(u64::to_be_bytes).concat(),
    ];
    untagged([0x41, 0x4a], 0, [1, msn, 0], &body.concat())
}

/// How bytes are divided into TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    Whole,
    /// One byte a segment.
    Bytes,
}

/// The peer's side of a connection.
pub(crate) struct Wire {
    pub stream: TcpStream,
    pub crc: bool,
    input: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream, crc: false, input: Vec::new() }
    }

    /// Sends bytes. The other end may close before it has read everything.
    pub(crate) fn send(&mut self, bytes: &[u8], pieces: Pieces) {
        let step = if pieces == Pieces::Whole { bytes.len().max(1) } else { 1 };
        for piece in bytes.chunks(step) {
            if self.stream.write_all(piece).is_err() {
                return;
            }
        }
    }

    pub(crate) fn send_ulpdu(&mut self, ulpdu: &[u8], pieces: Pieces) {
        let bytes = fpdu(ulpdu, self.crc);
        self.send(&bytes, pieces);
    }

    /// Receives more bytes; false at the end of the stream.
    fn more(&mut self) -> bool {
        let mut chunk = vec![0; 1 << 16];
        match self.stream.read(&mut chunk) {
            Ok(n) => {
                self.input.extend_from_slice(&chunk[..n]);
                n > 0
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => false,
            Err(e) => panic!("nothing comes, and the stream does not end: {e}"),
        }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        while self.input.len() < len {
            assert!(self.more(), "the stream ended after {:02x?}, {len} bytes were expected", self.input);
        }
        self.input.drain(..len).collect()
    }

    /// All bytes up to the end of the stream.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.input)
    }

    /// The next ULPDU; `None` at the end of the stream. The frame around it is checked.
    pub(crate) fn ulpdu(&mut self) -> Option<Vec<u8>> {
        while self.input.len() < 2 {
            if !self.more() {
                assert!(self.input.is_empty(), "the stream ends within a length field");
                return None;
            }
        }
        let len = usize::from(u16::from_be_bytes([self.input[0], self.input[1]]));
        let whole = self.take(2 + len + pad(len) + 4);
        let (covered, field) = whole.split_at(whole.len() - 4);
        let expected = if self.crc { crc32c(covered) } else { 0 };
        assert_eq!(field, expected.to_le_bytes(), "the CRC field of {whole:02x?}");
        assert!(covered[2 + len..].iter().all(|byte| *byte == 0), "the pad of {whole:02x?}");
        Some(covered[2..2 + len].to_vec())
    }

    /// Waits until everything sent before has been processed, with a Read without payload, which has this
    /// MSN.
    pub(crate) fn barrier(&mut self, msn: u32) {
        self.send_ulpdu(&read_request(msn, 0, 0xffff_ffff, u64::MAX), Pieces::Whole);
        assert_eq!(
            self.ulpdu(),
            Some(tagged([0xc1, 0x42], SINK.0, SINK.1, b"")),
            "the zero-length Read Response"
        );
    }
}

/// The connection parameters of a program: IRD, ORD, and whether messages wait for receives (RNR retry
/// count).
pub(crate) fn terms(ird: u8, ord: u8, waits: bool, private_data: &[u8]) -> rdma_conn_param {
    let rnr_retry_count = if waits { 7 } else { 0 };
    rdma_conn_param { responder_resources: ird, initiator_depth: ord, rnr_retry_count, ..param(private_data) }
}

/// A listening id of the provider under test.
pub(crate) struct Listening {
    pub events: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
    pub port: u16,
}

impl Listening {
    pub(crate) fn new() -> Self {
        // SAFETY: the channel is destroyed on drop.
        let events = unsafe { cm::rdma_create_event_channel() };
        let (id, port) = listen(events, c"127.0.0.1");
        Self { events, id, port }
    }

    /// A TCP connection to it.
    pub(crate) fn wire(&self) -> Wire {
        Wire::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// An established connection without an announced first message: the wire and the accepted end.
    pub(crate) fn establish(&self, crc: bool, terms: &mut rdma_conn_param) -> (Wire, End) {
        let mut wire = self.wire();
        wire.crc = crc;
        let flags = if crc { "50" } else { "10" };
        wire.send(&hex(&format!("'MPA ID Req Frame' {flags} 02 0004 0008 0008")), Pieces::Whole);
        let (id, _) = take_request(self.events);
        let end = accept_with(id, 16, terms);
        assert_eq!(next_event(end.events).0, ESTABLISHED);
        assert_eq!(wire.take(18), hex(&format!("'MPA ID Rep Frame' {flags} 02")));
        wire.take(6);
        (wire, end)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // SAFETY: each object is destroyed exactly once.
        unsafe {
            cm::rdma_destroy_id(self.id);
            cm::rdma_destroy_event_channel(self.events);
        }
    }
}

#[test]
fn the_encoder_of_the_peer_is_correct() {
    // RFC 3720 B.4, and a frame computed independently of our code.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let write = tagged([0xc1, 0x40], 0x1234_5601, 0x1000_2000, b"hello, iwarp!");
    let expected = "001b c140 12345601 0000000010002000 'hello, iwarp!' 000000 f534f21c";
    assert_eq!(fpdu(&write, true), hex(expected));
}
