// SPDX-License-Identifier: BSD-3-Clause
//! The protocol of the connections under test: private data, and messages. Numbers are big-endian.
//!
//! Version 1. Bytes after the fields of private data are ignored, since a transport may pad them with zeros.

use crate::output::printable;

/// The remotely accessible memory of a responder, in bytes; [`GUARD`] bytes follow that are not.
pub(super) const LEN: usize = 256 << 10;
pub(super) const GUARD: usize = 4096;
/// The maximum length of the content of a message.
pub(super) const MAX_CONTENT: usize = 4096;
/// The length of a buffer for any message.
pub(super) const SLOT: usize = 4224;

const MAGIC: &[u8; 8] = b"rpmatest";
const VERSION: u8 = 1;
/// The length of a request: the maximum of InfiniBand and RoCE.
const REQUEST: usize = 56;
const HEADER: usize = MAGIC.len() + 2 + 4;

/// Pseudo-random bytes, so that a missing or misplaced byte is detected.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        // The generator SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_be_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

/// A checksum of bytes: FNV-1a.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The private data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Whether the responder is to reject it.
    pub(super) is_rejected: bool,
    /// The seed of the bytes that fill the rest, so that each of them is compared.
    pub(super) seed: u32,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[VERSION, u8::from(self.is_rejected)]].concat();
        bytes.extend(self.seed.to_be_bytes());
        bytes.extend(pattern(self.seed.into(), REQUEST - HEADER));
        bytes
    }

    /// `Err(None)`: not from `rpma selftest`; otherwise the reason.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Option<String>> {
        let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC)).ok_or(None)?;
        let (version, is_rejected) = (header[8], header[9] != 0);
        if version != VERSION {
            return Err(Some(format!("it speaks version {VERSION}, not {version}")));
        }
        let seed = u32::from_be_bytes([header[10], header[11], header[12], header[13]]);
        match bytes.get(HEADER..REQUEST) == Some(&pattern(seed.into(), REQUEST - HEADER)) {
            true => Ok(Self { is_rejected, seed }),
            false => Err(Some("the private data of the request have changed on their way".to_owned())),
        }
    }
}

/// The private data of the responder's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome(Welcome),
    /// The responder accepts only to send this reason; not every transport has private data in a rejection.
    Refused(String),
}

/// The descriptors of the memory that the responder exposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// That of the request.
    pub(super) seed: u32,
    /// The peer configuration, for flushes to persistence.
    pub(super) peer: Vec<u8>,
    /// The memory, to be read, written and flushed to visibility.
    pub(super) lent: Vec<u8>,
    /// The same memory, to be written and flushed to persistence; empty if it cannot be registered for that.
    pub(super) durable: Vec<u8>,
    /// The same memory, only to be read.
    pub(super) readable: Vec<u8>,
}

impl Answer {
    /// At most 196 bytes, the limit of InfiniBand.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[VERSION]].concat();
        let counted = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
        match self {
            Self::Welcome(Welcome { seed, peer, lent, durable, readable }) => {
                bytes.push(0);
                bytes.extend(seed.to_be_bytes());
                for part in [peer, lent, durable, readable] {
                    bytes.extend(counted(part));
                }
            }
            Self::Refused(why) => {
                bytes.push(1);
                bytes.extend(counted(why.as_bytes().get(..160).unwrap_or(why.as_bytes())));
            }
        }
        bytes
    }

    /// `None`: not from `rpma selftest`, or from another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&[VERSION])?;
        let mut take = |len: usize| {
            let (taken, left) = rest.split_at_checked(len)?;
            rest = left;
            Some(taken)
        };
        let code = take(1)?[0];
        let seed = if code == 0 { u32::from_be_bytes(take(4)?.try_into().ok()?) } else { 0 };
        let mut counted = || {
            let len = take(1)?[0];
            Some(take(len.into())?.to_vec())
        };
        match code {
            0 => Some(Self::Welcome(Welcome {
                seed,
                peer: counted()?,
                lent: counted()?,
                durable: counted()?,
                readable: counted()?,
            })),
            1 => {
                let why = counted()?;
                Some(Self::Refused(printable(&String::from_utf8_lossy(&why))))
            }
            _ => None,
        }
    }
}

/// What a message asks for; the answer has the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The same message back, with the same immediate data.
    Echo,
    /// The checksum of `b` bytes at `a`, in `a`; the guard can be asked for as well.
    Sum,
    /// To store `b` bytes of the pattern `c` at `a`.
    Fill,
    /// The number of open connections, in `a`.
    Count,
    /// To disconnect, without an answer.
    Close,
    /// To be killed, without an answer.
    Die,
    /// Only an answer: a write had the immediate data `a`.
    Immediate,
}

const KINDS: [Kind; 7] =
    [Kind::Echo, Kind::Sum, Kind::Fill, Kind::Count, Kind::Close, Kind::Die, Kind::Immediate];

/// A message: three numbers, and a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
    pub(super) content: Vec<u8>,
}

impl Message {
    pub(super) fn new(kind: Kind, numbers: [u64; 3]) -> Self {
        let [a, b, c] = numbers;
        Self { kind, a, b, c, content: Vec::new() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind as u8];
        for number in [self.a, self.b, self.c] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(&self.content);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let kind = *KINDS.get(usize::from(kind))?;
        let number = |at: usize| Some(u64::from_be_bytes(rest.get(at..at + 8)?.try_into().ok()?));
        Some(Self { kind, a: number(0)?, b: number(8)?, c: number(16)?, content: rest.get(24..)?.to_vec() })
    }

    /// Offset and length, if the range is in the memory with its guard.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        let (offset, len) = (usize::try_from(self.a).ok()?, usize::try_from(self.b).ok()?);
        offset.checked_add(len).filter(|&end| end <= LEN + GUARD).map(|_| (offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_and_a_changed_one_does_not() {
        let request = Request { is_rejected: true, seed: 7 };
        let mut bytes = request.encode();
        assert_eq!((bytes.len(), Request::decode(&bytes)), (REQUEST, Ok(request)));
        bytes[REQUEST - 1] ^= 1;
        assert!(Request::decode(&bytes).unwrap_err().unwrap().contains("changed"));
        assert_eq!(Request::decode(b"rpmaperf"), Err(None));
        assert_eq!(Request::decode(&[0; REQUEST]), Err(None));
    }

    #[test]
    fn an_answer_comes_back_and_fits() {
        let bytes = || vec![9; 25];
        let welcome = Welcome { seed: 1, peer: bytes(), lent: bytes(), durable: bytes(), readable: bytes() };
        for answer in [Answer::Welcome(welcome), Answer::Refused("no".to_owned())] {
            let mut bytes = answer.encode();
            assert!((0..bytes.len()).all(|len| Answer::decode(&bytes[..len]).is_none()));
            bytes.resize(196, 0);
            assert_eq!(Answer::decode(&bytes), Some(answer));
        }
    }

    #[test]
    fn a_message_comes_back() {
        for (code, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, code);
            let message = Message { content: vec![1, 2], ..Message::new(kind, [1, 2, u64::MAX]) };
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        assert_eq!(Message::decode(&[0; 24]), None);
        assert_eq!(Message::decode(&[7; 25]), None);
        let longest = Message { content: vec![0; MAX_CONTENT], ..Message::new(Kind::Echo, [0; 3]) };
        assert!(longest.encode().len() <= SLOT);
    }

    #[test]
    fn only_bytes_of_the_memory_are_named() {
        let range = |a, b| Message::new(Kind::Sum, [a, b, 0]).range();
        assert_eq!(range(0, (LEN + GUARD) as u64), Some((0, LEN + GUARD)));
        assert_eq!(range(1, (LEN + GUARD) as u64), None);
        assert_eq!(range(u64::MAX, 1), None);
    }

    #[test]
    fn patterns_differ() {
        assert_eq!(pattern(1, 13).len(), 13);
        assert_eq!(pattern(1, 64)[..13], pattern(1, 13));
        assert_ne!(sum(&pattern(1, 64)), sum(&pattern(2, 64)));
        assert_ne!(sum(&[0]), sum(&[]));
    }
}
