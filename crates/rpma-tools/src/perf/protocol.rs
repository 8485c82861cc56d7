// SPDX-License-Identifier: BSD-3-Clause
//! The protocol between the two sides: private data of connections, and messages. Numbers are big-endian.
//!
//! Version 1. A client first opens a control connection, whose answer has the number of the session; the
//! request of each measuring connection includes it. Bytes after the fields are ignored, since a transport
//! may pad private data with zeros.

use super::options::{MAX_DEPTH, MAX_SIZE, Operation};
use crate::output::printable;

const MAGIC: &[u8; 8] = b"rpmaperf";
const VERSION: u8 = 1;

/// The purpose of a connection: the private data of its request, 20 of the 56 bytes that InfiniBand permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Begins a session.
    Control,
    /// Measures, within a session.
    Measure { session: u32, operation: Operation, size: usize, depth: usize },
}

/// Why private data are not a valid request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nonsense {
    /// Not from `rpma perf`: rejected without a reason.
    Foreign,
    /// Rejected with this reason.
    Refused(String),
}

/// Reads fields in order; None past the end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a length and as many bytes.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let len = self.byte()?;
        self.bytes(len.into())
    }
}

impl Wish {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (role, session, depth, size) = match *self {
            Self::Control => (0, 0, 0, 0),
            Self::Measure { session, operation, size, depth } => (operation.code(), session, depth, size),
        };
        let mut bytes = [MAGIC.as_slice(), &[VERSION, role]].concat();
        bytes.extend((depth as u16).to_be_bytes());
        bytes.extend((size as u32).to_be_bytes());
        bytes.extend(session.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Nonsense> {
        let mut fields = Fields(bytes);
        if fields.array() != Some(*MAGIC) {
            return Err(Nonsense::Foreign);
        }
        let refused = |why: &str| Nonsense::Refused(why.to_owned());
        let version = fields.byte().ok_or(Nonsense::Foreign)?;
        if version != VERSION {
            return Err(Nonsense::Refused(format!("it speaks version {VERSION}, not {version}")));
        }
        let (Some(role), Some(depth), Some(size), Some(session)) =
            (fields.byte(), fields.array().map(u16::from_be_bytes), fields.u32(), fields.u32())
        else {
            return Err(refused("the request is too short"));
        };
        if role == 0 {
            return Ok(Self::Control);
        }
        let operation =
            Operation::of_code(role).ok_or_else(|| refused("it does not support this operation"))?;
        let (size, depth) = (size as usize, usize::from(depth));
        if !(1..=MAX_SIZE).contains(&size) || !(1..=MAX_DEPTH).contains(&depth) {
            return Err(refused("size or depth are out of range"));
        }
        Ok(Self::Measure { session, operation, size, depth })
    }
}

/// The private data of the server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome {
        session: u32,
        /// Whether the memory is a file.
        is_file: bool,
        /// The descriptor of the peer configuration, for flushes to persistence.
        peer: Vec<u8>,
        /// The descriptor of the memory.
        memory: Vec<u8>,
    },
    /// The server refuses, for this reason.
    Refused(String),
    /// The server refuses because another client is measuring, which may have gone without the server having
    /// detected it yet.
    Busy,
}

impl Answer {
    /// At most 196 bytes, the limit of InfiniBand.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[VERSION]].concat();
        let counted = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
        match self {
            Self::Welcome { session, is_file, peer, memory } => {
                bytes.extend([0, u8::from(*is_file)]);
                bytes.extend(session.to_be_bytes());
                bytes.extend(counted(peer));
                bytes.extend(counted(memory));
            }
            Self::Refused(why) => {
                bytes.push(1);
                let end = (0..=160).rev().find(|&end| why.is_char_boundary(end.min(why.len())));
                bytes.extend(counted(&why.as_bytes()[..end.unwrap_or(0).min(why.len())]));
            }
            Self::Busy => bytes.push(2),
        }
        bytes
    }

    /// `None`: not from `rpma perf serve`, or from another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.array() != Some(*MAGIC) || fields.byte() != Some(VERSION) {
            return None;
        }
        match fields.byte()? {
            0 => Some(Self::Welcome {
                is_file: fields.byte()? != 0,
                session: fields.u32()?,
                peer: fields.counted()?.to_vec(),
                memory: fields.counted()?.to_vec(),
            }),
            1 => {
                let why = String::from_utf8_lossy(fields.counted()?);
                Some(Self::Refused(printable(&why)))
            }
            2 => Some(Self::Busy),
            _ => None,
        }
    }
}

/// A request of `gpspm` to make these bytes of the memory durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Persist {
    /// Returned in the answer.
    pub(super) number: u32,
    pub(super) len: u32,
    pub(super) offset: u64,
}

impl Persist {
    pub(super) const LEN: usize = 16;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { number: fields.u32()?, len: fields.u32()?, offset: fields.u64()? })
    }

    /// Offset and length, if the range is in a memory of this size.
    pub(super) fn range(&self, size: usize) -> Option<(usize, usize)> {
        let (offset, len) = (usize::try_from(self.offset).ok()?, self.len as usize);
        offset.checked_add(len).filter(|&end| end <= size).map(|_| (offset, len))
    }
}

/// The answer to a [`Persist`]: an errno, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Persisted {
    pub(super) number: u32,
    pub(super) errno: u32,
}

impl Persisted {
    pub(super) const LEN: usize = 8;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..].copy_from_slice(&self.errno.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { number: fields.u32()?, errno: fields.u32()? })
    }
}

/// The limit on messages of `send` that are outstanding without credit, and the number of receives that the
/// server keeps posted. The acknowledgement of a message does not say that its receive was posted again, and
/// after the RNR NAK of a message without a receive the client waits 655 ms, the timer that rdma_cm sets.
pub(super) const RECEIVES: usize = 2 * MAX_DEPTH;
/// How many messages the server takes, and posts their receives again, before it sends [`CREDITED`].
pub(super) const CREDIT: usize = RECEIVES / 2;

/// The server's message that [`CREDIT`] more messages may be sent; its content is ignored.
pub(super) const CREDITED: [u8; Persisted::LEN] = [0; Persisted::LEN];

/// The message of a control connection that requests the processor time of the server; the server checks only
/// its length.
pub(super) const ASK: [u8; 4] = *b"cpu?";

/// The processor time of a process in nanoseconds, and the time of its clock at which that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) used: u64,
    pub(super) at: u64,
}

impl Cpu {
    pub(super) const LEN: usize = 16;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.used.to_be_bytes());
        bytes[8..].copy_from_slice(&self.at.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { used: fields.u64()?, at: fields.u64()? })
    }

    /// The average number of busy processors since `then`. `None`: no time has passed.
    pub(super) fn since(&self, then: &Self) -> Option<f64> {
        let time = self.at.checked_sub(then.at).filter(|&time| time > 0)?;
        Some(self.used.saturating_sub(then.used) as f64 / time as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish::Measure { session: 7, operation: Operation::Gpspm, size: 4096, depth: 32 };

    #[test]
    fn a_wish_comes_back_and_fits() {
        for wish in [Wish::Control, WISH] {
            let mut bytes = wish.encode();
            assert!(bytes.len() <= 56);
            assert_eq!(Wish::decode(&bytes), Ok(wish));
            bytes.resize(56, 0);
            assert_eq!(Wish::decode(&bytes), Ok(wish), "padded");
        }
    }

    #[test]
    fn nonsense_is_no_wish() {
        let good = WISH.encode();
        for len in 0..good.len() {
            assert!(Wish::decode(&good[..len]).is_err(), "{len} bytes");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Wish::decode(&bytes)
        };
        assert_eq!(changed(0, b'R'), Err(Nonsense::Foreign));
        let refused = |at, to, word: &str| match changed(at, to) {
            Err(Nonsense::Refused(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("{at} {to}: {other:?}"),
        };
        refused(8, 2, "version");
        refused(9, 200, "operation");
        refused(10, 255, "range");
        refused(11, 0, "range");
        refused(12, 255, "range");
    }

    #[test]
    fn an_answer_comes_back_and_fits() {
        let welcome = Answer::Welcome { session: 1, is_file: true, peer: vec![1], memory: vec![9; 24] };
        let refused = ["no", ""].map(|why| Answer::Refused(why.to_owned()));
        for answer in [welcome, Answer::Busy].into_iter().chain(refused) {
            let mut bytes = answer.encode();
            assert!((0..bytes.len()).all(|len| Answer::decode(&bytes[..len]).is_none()));
            bytes.resize(196, 0);
            assert_eq!(Answer::decode(&bytes), Some(answer));
        }
        let long = Answer::Refused("é".repeat(200)).encode();
        assert!(long.len() <= 196);
        assert_eq!(Answer::decode(&long), Some(Answer::Refused("é".repeat(80))));
    }

    #[test]
    fn only_bytes_of_the_memory_are_made_durable() {
        let range = |offset, len| Persist { number: 0, len, offset }.range(4096);
        assert_eq!(range(0, 4096), Some((0, 4096)));
        assert_eq!(range(4096, 0), Some((4096, 0)));
        for (offset, len) in [(1, 4096), (4097, 0), (u64::MAX, 1), (u64::MAX, u32::MAX), (0, u32::MAX)] {
            assert_eq!(range(offset, len), None, "{offset} {len}");
        }
    }

    #[test]
    fn messages_come_back() {
        let persist = Persist { number: 3, len: 4096, offset: 1 << 40 };
        assert_eq!(Persist::decode(&persist.encode()), Some(persist));
        assert!((0..Persist::LEN).all(|len| Persist::decode(&persist.encode()[..len]).is_none()));
        let persisted = Persisted { number: 3, errno: 5 };
        assert_eq!(Persisted::decode(&persisted.encode()), Some(persisted));
        let cpu = Cpu { used: 1_500_000, at: 3_000_000 };
        assert_eq!(Cpu::decode(&cpu.encode()), Some(cpu));
        assert_eq!(cpu.since(&Cpu::default()), Some(0.5));
        assert_eq!(cpu.since(&cpu), None);
    }
}
