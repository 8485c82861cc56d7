// SPDX-License-Identifier: BSD-3-Clause
//! Checks of the stream: FPDUs in the order of the requests, and responses to requests that were received.

use super::super::memory::{self, PERSISTENT};
use super::super::tap::{Seen, Segment, Tap, rdmap};
use super::{Checker, Durability, Outbound, Posted};
use crate::wr::Op;

/// The bytes that a side has sent. How much of them the peer has read is a number of bytes.
#[derive(Debug, Default)]
pub(in crate::sim) struct OutboundStream {
    tap: Tap,
    handed: usize,
    begun: bool,
    stage: u8,
    /// Where each request ends.
    ends: Vec<u64>,
    messages: usize,
    answering: bool,
    answer_ends: Vec<u64>,
    answer_bytes: usize,
    atomic_answers: usize,
    read_requests: usize,
    /// Where the first FPDU ends.
    pub first_end: Option<u64>,
    /// It has violated the protocol; its messages up to here still count.
    pub forged: bool,
    genuine_messages: usize,
}

impl Outbound for OutboundStream {
    fn begin(&mut self) {
        let mut ends = std::mem::take(&mut self.ends);
        let mut answer_ends = std::mem::take(&mut self.answer_ends);
        ends.clear();
        answer_ends.clear();
        *self = Self { ends, answer_ends, ..Self::default() };
    }

    fn next(&self) -> usize {
        self.handed
    }

    /// All but the last trailer is enough.
    fn has_sent(&self, index: usize, posted: &Posted) -> bool {
        let stages = u8::from(matches!(posted.wr.op, Op::WriteWithImm | Op::SendWithImm));
        let all_but_trailer = self.begun && self.stage == stages && self.tap.trails();
        index < self.handed || (index == self.handed && all_but_trailer)
    }

    fn is_between(&self) -> bool {
        !self.begun && self.tap.at_boundary()
    }

    fn skip(&mut self) {
        self.handed += 1;
        // Not expected over the link.
        self.ends.push(0);
    }

    /// Without a CRC the payload counts before its trailer is there.
    fn answers(&self, read: u64) -> usize {
        let whole = self.answer_ends.iter().filter(|end| **end <= read).count();
        whole + usize::from(self.answering && self.tap.last_payload_end() <= read)
    }

    fn has_arrived(&self, index: usize, read: u64) -> bool {
        match self.ends.get(index) {
            Some(end) => *end <= read,
            None => self.handed == index && self.tap.last_payload_end() <= read,
        }
    }

    fn is_genuine(&self, message: usize) -> bool {
        !self.forged || message < self.genuine_messages
    }

    fn whole_messages(&self) -> usize {
        assert!(self.tap.at_boundary(), "the stream ends within an FPDU");
        self.messages
    }
}

impl OutboundStream {
    /// No FPDU is incomplete.
    pub(in crate::sim) fn between_fpdus(&self) -> bool {
        self.tap.at_boundary()
    }

    /// Read Requests and Atomic Requests given to the link.
    pub(in crate::sim) fn read_requests(&self) -> usize {
        self.read_requests
    }

    /// Atomic Responses given to the link.
    pub(in crate::sim) fn atomic_answers(&self) -> usize {
        self.atomic_answers
    }
}

impl Checker<OutboundStream> {
    /// The connection of a side has given bytes to the stream; it has read `read` of the one from its peer.
    pub(in crate::sim) fn handed(&mut self, side: usize, mut bytes: &[u8], read: u64) {
        while let Some(seen) = self.sides[side].outbound.tap.next(&mut bytes) {
            match seen {
                Seen::Begun(segment) => self.begun(side, segment, read),
                Seen::Handed(segment) => self.handed_segment(side, segment),
            }
        }
    }

    fn begun(&mut self, side: usize, segment: Segment, read: u64) {
        self.sides[side].outbound.first_end.get_or_insert(segment.payload_end);
        if is_answer(&segment) {
            return self.answer_begun(side, segment.opcode);
        }
        if !is_of_request(&segment) || self.sides[side].outbound.begun {
            return;
        }
        self.sides[side].outbound.begun = true;
        let index = self.sides[side].outbound.handed;
        let model = &self.sides[side];
        assert!(index < model.taken, "side {side} sends what was not posted: {segment:?}");
        let wr = &model.requests[index].wr;
        let (fence, read_here, ord) = (wr.fence, wr.is_answered(), model.ord as usize);
        if fence || read_here {
            let requests = model.requests[..index].iter().filter(|posted| posted.is_answered()).count();
            let open = requests - self.sides[1 - side].outbound.answers(read).min(requests);
            assert!(!fence || open == 0, "request {index} of side {side} passes its fence");
            assert!(!read_here || open < ord, "side {side} has more reads outstanding than its peer permits");
        }
    }

    /// The first segment of a response: it must follow from what was received before.
    fn answer_begun(&mut self, side: usize, opcode: u8) {
        if std::mem::replace(&mut self.sides[side].outbound.answering, true) {
            return;
        }
        let number = self.sides[side].outbound.answer_ends.len();
        let peer = &self.sides[1 - side];
        let Some(index) = peer.reads.get(number).copied() else { panic!("a response without a request") };
        // Without a CRC a read is taken before the trailer behind it is there.
        let is_requested = peer.outbound.handed > index
            || (peer.outbound.handed == index && peer.outbound.tap.last_payload_end() < u64::MAX);
        assert!(is_requested, "read {number} answered before its request");
        let wr = peer.requests[index].wr.clone();
        let of_atomic = opcode == rdmap::ATOMIC_RESPONSE;
        assert_eq!(wr.is_atomic(), of_atomic, "request {index} is answered by opcode {opcode}");
        self.placed_up_to(side, index, "an answer");
        if wr.len > 0 && wr.rkey == memory::stag(side, PERSISTENT) {
            let state = self.sides[side].durability.get(number).copied().unwrap_or_default();
            assert_eq!(state, Durability::Reported, "read {number} answered before its flush");
        }
    }

    fn handed_segment(&mut self, side: usize, segment: Segment) {
        let model = &mut self.sides[side];
        if is_answer(&segment) {
            model.outbound.atomic_answers += usize::from(segment.opcode == rdmap::ATOMIC_RESPONSE);
            model.outbound.answer_bytes += segment.len;
            if segment.last {
                model.outbound.answer_bytes = 0;
                model.outbound.answering = false;
                model.outbound.answer_ends.push(segment.payload_end);
            }
            return;
        }
        if !is_of_request(&segment) || !segment.last {
            return;
        }
        let posted = model.requests[model.outbound.handed].clone();
        let over = match (posted.wr.op, segment.opcode, model.outbound.stage) {
            (Op::Write, rdmap::WRITE, 0) | (Op::Read, rdmap::READ_REQUEST, 0) => true,
            (Op::FetchAdd | Op::CompareSwap, rdmap::ATOMIC_REQUEST, 0) => true,
            (Op::WriteWithImm, rdmap::WRITE, 0) => false,
            (Op::WriteWithImm, rdmap::IMMEDIATE | rdmap::IMMEDIATE_SE, 1) => true,
            (Op::SendWithImm, rdmap::IMMEDIATE | rdmap::IMMEDIATE_SE, 0) => false,
            (Op::SendWithImm, rdmap::SEND | rdmap::SEND_SE, 1) => true,
            (Op::Send, rdmap::SEND | rdmap::SEND_SE, 0) => true,
            (Op::SendWithInv, rdmap::SEND_INV | rdmap::SEND_SE_INV, 0) => true,
            _ => panic!("{segment:?} on the link as part of {:?}", posted.wr),
        };
        model.outbound.stage += 1;
        if over {
            model.outbound.stage = 0;
            model.outbound.begun = false;
            model.outbound.handed += 1;
            model.outbound.ends.push(segment.payload_end);
            model.outbound.messages += usize::from(posted.is_message());
            model.outbound.read_requests += usize::from(posted.wr.is_answered());
        }
    }

    /// Side `side` sends something that its peer must refuse.
    pub(in crate::sim) fn forged(&mut self, side: usize) {
        let model = &mut self.sides[side];
        model.outbound.forged = true;
        model.outbound.genuine_messages = model.outbound.messages;
        self.sides[1 - side].causes.forgery = true;
    }

    /// The read of a side that its peer has to answer next: its MSN, its length, and the length of what its
    /// peer has sent of that.
    pub(in crate::sim) fn open_read(&self, side: usize) -> Option<(usize, usize, usize)> {
        let (model, peer) = (&self.sides[side], &self.sides[1 - side]);
        let number = peer.outbound.answer_ends.len();
        let index = *model.reads.get(number)?;
        let len = model.requests[index].wr.len as usize;
        let is_open = model.outbound.handed > index && !model.requests[index].transferred;
        is_open.then_some((number + 1, len, peer.outbound.answer_bytes))
    }
}

fn is_answer(segment: &Segment) -> bool {
    matches!(segment.opcode, rdmap::READ_RESPONSE | rdmap::ATOMIC_RESPONSE)
}

fn is_of_request(segment: &Segment) -> bool {
    let is_empty_write = segment.opcode == rdmap::WRITE && segment.len == 0 && segment.to == 0;
    !(is_empty_write || segment.opcode == rdmap::TERMINATE)
}
