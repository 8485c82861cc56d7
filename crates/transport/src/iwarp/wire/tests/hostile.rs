// SPDX-License-Identifier: BSD-3-Clause
//! Random and damaged input: no panic, and the same result however it is divided.

use super::super::ddp::Header;
use super::super::inbound::Inbound;
use super::super::mpa::{self, Decoded, Kind};
use super::super::rdmap::Opcode;
use super::super::stream::{Receiver, encode_fpdu, fpdu_len};
use super::super::terminate::Terminate;
use super::{Segment, feed};

/// xorshift64*, with the same sequence in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn segment(&mut self) -> Segment {
        let opcode = Opcode::from_u8(self.below(12) as u8).unwrap();
        let (last, word, long) = (self.below(2) == 0, self.next() as u32, self.next());
        let header = match opcode.queue() {
            None => Header::Tagged { opcode, last, stag: word, to: long },
            Some(qn) => Header::Untagged {
                opcode,
                last,
                inv_stag: word,
                qn,
                msn: long as u32,
                mo: (long >> 32) as u32,
            },
        };
        let len = match self.below(8) {
            0 => 0,
            1 => self.below(3000),
            _ => self.below(40),
        };
        (header, self.bytes(len))
    }
}

fn encode(segments: &[Segment], crc: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    for (header, payload) in segments {
        let mut bytes = vec![0; fpdu_len(header.len() + payload.len())];
        encode_fpdu(header, payload, crc, &mut bytes);
        stream.extend(bytes);
    }
    stream
}

/// Miri takes a thousand times longer for each, and checks the paths rather than the values.
fn rounds(of_a_processor: usize) -> usize {
    if cfg!(miri) { of_a_processor / 100 } else { of_a_processor }
}

const CHUNKS: [usize; 6] = [1, 2, 3, 7, 64, usize::MAX / 2];

#[test]
fn streams_come_through() {
    let mut random = Random(0x5eed_0001);
    for round in 0..rounds(200) {
        let crc = round % 2 == 0;
        let count = 1 + random.below(12);
        let segments: Vec<Segment> = (0..count).map(|_| random.segment()).collect();
        let stream = encode(&segments, crc);
        for chunk in CHUNKS {
            let mut receiver = Receiver::new(crc);
            let got = feed(&mut receiver, &stream, chunk);
            assert_eq!((&got.0, got.1), (&segments, None));
            assert!(receiver.at_boundary(0));
        }
    }
}

#[test]
fn damaged_streams_give_one_answer() {
    let mut random = Random(0x5eed_0002);
    let (mut failed, mut passed) = (0, 0);
    for round in 0..rounds(600) {
        let crc = round % 2 == 0;
        let segments: Vec<Segment> = (0..1 + random.below(6)).map(|_| random.segment()).collect();
        let mut stream = encode(&segments, crc);
        for _ in 0..1 + random.below(4) {
            let at = random.below(stream.len().min(64));
            stream[at] = random.next() as u8;
        }
        stream.truncate(1 + random.below(stream.len()));
        let mut receiver = Receiver::new(crc);
        let expected = feed(&mut receiver, &stream, usize::MAX / 2);
        let terminate = receiver.terminate();
        assert_eq!(terminate.map(|t| t.term_code()), expected.1.and_then(|error| error.terminate()));
        for chunk in CHUNKS {
            let mut receiver = Receiver::new(crc);
            assert_eq!(feed(&mut receiver, &stream, chunk), expected);
            assert_eq!(receiver.terminate(), terminate);
        }
        if expected.1.is_some() { failed += 1 } else { passed += 1 }
    }
    assert!(
        failed > rounds(100) && passed > rounds(50),
        "{failed} failed, {passed} passed: the damage is too one-sided"
    );
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(0x5eed_0003);
    for round in 0..rounds(3000) {
        let len = random.below(400);
        let mut stream = random.bytes(len);
        // Mostly valid beginnings, so that later checks are reached as well.
        if round % 3 != 0 && len > 3 {
            stream[0] = 0;
            stream[2] = [0xc1, 0x41, 0x81, 0x01][random.below(4)];
            stream[3] = 0x40 | (stream[3] & 0x0f);
        }
        let mut inbound = Inbound::new();
        let (segments, error) = feed(&mut Receiver::new(round % 2 == 0), &stream, 1 + random.below(50));
        for (header, payload) in segments {
            if let Err(error) = inbound.check(&header, payload.len()) {
                assert!(!error.to_string().is_empty());
            }
        }
        assert!(error.is_none_or(|error| !error.to_string().is_empty()));
    }
}

#[test]
fn random_terminates_never_panic() {
    let mut random = Random(0x5eed_0004);
    for _ in 0..rounds(5000) {
        let len = random.below(80);
        let body = random.bytes(len);
        if let Ok(terminate) = Terminate::decode(&body) {
            assert!(!terminate.to_string().is_empty());
            let mut out = [0; Terminate::MAX_LEN];
            let len = terminate.encode(&mut out);
            let again = Terminate::decode(&out[..len]).unwrap();
            assert_eq!(again.header, terminate.header);
        }
    }
}

#[test]
fn damaged_handshakes_never_panic() {
    let mut random = Random(0x5eed_0005);
    for _ in 0..rounds(5000) {
        let tail = 4 + random.below(600);
        let mut bytes = [&mpa::KEY_REP[..], &random.bytes(tail)].concat();
        bytes[17] &= 3;
        bytes[18] &= 3;
        if random.below(4) == 0 {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        match mpa::decode(Kind::Reply, &bytes) {
            Ok(Decoded::Need(wanted)) => assert!(wanted > bytes.len() && wanted <= mpa::MAX_FRAME_LEN),
            Ok(Decoded::Frame { frame, private_data, consumed }) => {
                assert!(consumed <= bytes.len());
                let mut again = Vec::new();
                mpa::encode(&frame, private_data, &mut again).unwrap();
                assert_eq!(again.len(), consumed);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
