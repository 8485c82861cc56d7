// SPDX-License-Identifier: BSD-3-Clause
//! Parses the bytes that a connection sends, independently: the checker must not use the code that it checks.

/// A segment on the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub opcode: u8,
    pub last: bool,
    pub to: u64,
    pub len: usize,
    /// Where its payload ends, in bytes of the stream.
    pub payload_end: u64,
}

pub(super) mod rdmap {
    pub(crate) const WRITE: u8 = 0;
    pub(crate) const READ_REQUEST: u8 = 1;
    pub(crate) const READ_RESPONSE: u8 = 2;
    pub(crate) const SEND: u8 = 3;
    pub(crate) const SEND_INV: u8 = 4;
    pub(crate) const SEND_SE: u8 = 5;
    pub(crate) const SEND_SE_INV: u8 = 6;
    pub(crate) const TERMINATE: u8 = 7;
    pub(crate) const IMMEDIATE: u8 = 8;
    pub(crate) const IMMEDIATE_SE: u8 = 9;
    pub(crate) const ATOMIC_REQUEST: u8 = 10;
    pub(crate) const ATOMIC_RESPONSE: u8 = 11;
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// The header of a segment is on the link.
    Begun(Segment),
    /// Its whole FPDU is on the link.
    Handed(Segment),
}

#[derive(Debug, Default)]
pub(super) struct Tap {
    head: [u8; 20],
    have: usize,
    /// Bytes of the FPDU behind the header.
    left: usize,
    segment: Segment,
    offset: u64,
}

impl Tap {
    /// Takes bytes of `input` up to the next event; `None` when all were taken.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Option<Seen> {
        loop {
            if self.left > 0 {
                let n = self.left.min(input.len());
                *input = &input[n..];
                self.offset += n as u64;
                self.left -= n;
                if self.left > 0 {
                    return None;
                }
                self.have = 0;
                return Some(Seen::Handed(self.segment));
            }
            let (&byte, rest) = input.split_first()?;
            *input = rest;
            self.head[self.have] = byte;
            self.have += 1;
            self.offset += 1;
            let header = if self.have > 2 && self.head[2] & 0x80 == 0 { 20 } else { 16 };
            if self.have == header {
                self.begin();
                return Some(Seen::Begun(self.segment));
            }
        }
    }

    fn begin(&mut self) {
        let head = &self.head;
        let ulpdu = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let tagged = head[2] & 0x80 != 0;
        let len = ulpdu - (self.have - 2);
        let mut to = 0;
        if tagged {
            to = head[8..16].iter().fold(0, |to, byte| to << 8 | u64::from(*byte));
        }
        assert!(head[2] & 3 == 1 && head[3] >> 6 == 1, "versions on the wire");
        self.segment = Segment {
            opcode: head[3] & 15,
            last: head[2] & 0x40 != 0,
            to,
            len,
            payload_end: self.offset + len as u64,
        };
        let pad = (2 + ulpdu).wrapping_neg() & 3;
        self.left = len + pad + 4;
    }

    /// Where the payload of the segment under way ends, if it is the last one of its message.
    pub(super) fn last_payload_end(&self) -> u64 {
        if self.left > 0 && self.segment.last { self.segment.payload_end } else { u64::MAX }
    }

    /// All but the trailer of the last segment of a message is on the link.
    pub(super) fn trails(&self) -> bool {
        self.left > 0 && self.segment.last && self.segment.payload_end <= self.offset
    }

    /// No FPDU is incomplete.
    pub(super) fn at_boundary(&self) -> bool {
        self.have == 0
    }
}
