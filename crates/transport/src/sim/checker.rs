// SPDX-License-Identifier: BSD-3-Clause
//! What must hold in every schedule, by a model that looks at the same calls as the host, and never into a
//! connection.
//!
//! For each side it knows what was posted, follows what went to the link through a parser of its own, and
//! knows by the addresses and the contents of placements how far the other side is with them.

mod completed;
mod placed;
mod transferred;

use super::memory::{self, PERSISTENT};
use super::tap::{Seen, Segment, Tap, rdmap};
use crate::wr::{Op, RecvWr, SendWr};

#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub wr: SendWr,
    /// Which message, or which read or atomic operation of its side it is.
    number: usize,
    /// How many atomic operations were posted before.
    atomics: usize,
    /// How many messages of the peer had been received when it was posted.
    knows: usize,
    /// It was carried out by direct copy, all of it.
    transferred: bool,
}

impl Posted {
    /// It uses up a receive of the peer.
    fn is_message(&self) -> bool {
        matches!(self.wr.op, Op::Send | Op::SendWithImm | Op::SendWithInv | Op::WriteWithImm)
    }

    fn is_write(&self) -> bool {
        matches!(self.wr.op, Op::Write | Op::WriteWithImm)
    }

    /// Its answer comes over the link.
    fn is_answered(&self) -> bool {
        self.wr.is_answered() && !self.transferred
    }

    fn overruns(&self, receive: &RecvWr) -> bool {
        self.wr.op != Op::WriteWithImm && self.wr.len > receive.capacity()
    }

    /// Bytes that are placed at the peer.
    fn carries(&self) -> usize {
        if self.wr.is_answered() { 0 } else { self.wr.len as usize }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Durability {
    #[default]
    NotAsked,
    Pending,
    Reported,
}

/// Why a connection may end, and what a side can be blamed for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Causes {
    /// The program ended or destroyed it, or it was never opened.
    pub told: bool,
    /// An access to memory was refused or failed.
    pub memory: bool,
    /// The link failed.
    pub broken: bool,
    /// The stream's end was read, or seen while messages waited.
    pub end_read: bool,
    /// There was no receive, and the connection was not to wait for one.
    pub no_receive: bool,
    /// A message was longer than its receive.
    pub too_long: bool,
    pub disk: bool,
    /// The peer broke a rule.
    pub forgery: bool,
    pub no_reads: bool,
    /// Messages waited too long for receives or for room.
    pub starved: bool,
}

impl Causes {
    /// What this side itself ended the connection for.
    pub(super) fn own(&self) -> bool {
        self.told
            || self.memory
            || self.no_receive
            || self.too_long
            || self.disk
            || self.no_reads
            || self.forgery
    }
}

/// One side.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub requests: Vec<Posted>,
    messages: Vec<usize>,
    /// Reads and atomic operations.
    reads: Vec<usize>,
    atomics: Vec<usize>,
    pub taken: usize,
    pub done: usize,
    // What it gave to the link.
    tap: Tap,
    handed: usize,
    begun: bool,
    stage: u8,
    ends: Vec<u64>,
    /// A request, and how many of its bytes were transferred by direct copy.
    part_transferred: (usize, usize),
    messages_handed: usize,
    answering: bool,
    answer_ends: Vec<u64>,
    pub first_end: Option<u64>,
    // What it received.
    pub taken_receives: Vec<RecvWr>,
    pub received: usize,
    pub delivered: usize,
    /// How many windows were invalidated for messages of the peer.
    invalidated: usize,
    placed_request: usize,
    placed_bytes: usize,
    placed_read: usize,
    read_bytes: usize,
    /// What the words were that the peer's atomic operations have changed.
    originals: Vec<u64>,
    pub durability: Vec<Durability>,
    // Its end.
    pub causes: Causes,
    /// Reads that the peer takes at a time.
    pub ord: u32,
    pub open: bool,
    pub closed: bool,
    /// What the link had been given by the end, and whether all of that still goes out.
    pub graceful: Option<usize>,
    pub ended: bool,
    pub destroyed: bool,
    /// It broke a rule on the wire; its messages up to here still count.
    pub forged: bool,
    genuine_messages: usize,
    answer_bytes: usize,
    atomic_answers: usize,
    read_requests: usize,
    pub send_refused: bool,
    pub receive_refused: bool,
}

impl Model {
    fn begin(&mut self) {
        let mut old = std::mem::take(self);
        macro_rules! reuse {
            ($($field:ident),*) => { $(old.$field.clear(); self.$field = old.$field;)* };
        }
        reuse!(requests, messages, reads, atomics, originals, ends, answer_ends, taken_receives, durability);
    }

    /// Everything that was posted is over.
    pub(super) fn sends_are_over(&self) -> bool {
        self.done == self.requests.len()
    }

    pub(super) fn between_fpdus(&self) -> bool {
        self.tap.at_boundary()
    }

    /// The request under way is on the link as a whole, but for its last trailer.
    fn all_but_trailer(&self) -> bool {
        let Some(posted) = self.requests.get(self.handed) else { return false };
        let stages = u8::from(matches!(posted.wr.op, Op::WriteWithImm | Op::SendWithImm));
        self.begun && self.stage == stages && self.tap.trails()
    }

    /// Read Requests and Atomic Requests given to the link.
    pub(super) fn read_requests(&self) -> usize {
        self.read_requests
    }

    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Atomic operations posted.
    pub(super) fn atomics(&self) -> usize {
        self.atomics.len()
    }

    /// Atomic operations of the peer carried out.
    pub(super) fn changes(&self) -> usize {
        self.originals.len()
    }

    /// Atomic Responses given to the link.
    pub(super) fn atomic_answers(&self) -> usize {
        self.atomic_answers
    }
}

#[derive(Debug, Default)]
pub(super) struct Checker {
    pub sides: [Model; 2],
}

impl Checker {
    pub(super) fn begin(&mut self) {
        self.sides.iter_mut().for_each(Model::begin);
    }

    pub(super) fn posted(&mut self, side: usize, wr: SendWr) {
        let knows = self.sides[side].delivered;
        let model = &mut self.sides[side];
        let index = model.requests.len();
        let mut posted =
            Posted { wr, number: model.reads.len(), atomics: model.atomics.len(), knows, transferred: false };
        if posted.wr.is_answered() {
            model.reads.push(index);
            if posted.wr.is_atomic() {
                model.atomics.push(index);
            }
        } else if posted.is_message() {
            posted.number = model.messages.len();
            model.messages.push(index);
        }
        model.requests.push(posted);
    }

    pub(super) fn handed(&mut self, side: usize, mut bytes: &[u8], read: u64) {
        while let Some(seen) = self.sides[side].tap.next(&mut bytes) {
            match seen {
                Seen::Begun(segment) => self.begun(side, segment, read),
                Seen::Handed(segment) => self.handed_segment(side, segment),
            }
        }
    }

    fn begun(&mut self, side: usize, segment: Segment, read: u64) {
        self.sides[side].first_end.get_or_insert(segment.payload_end);
        if is_answer(&segment) {
            return self.answer_begun(side, segment.opcode);
        }
        if !is_of_request(&segment) || self.sides[side].begun {
            return;
        }
        self.sides[side].begun = true;
        let index = self.sides[side].handed;
        let model = &self.sides[side];
        assert!(index < model.taken, "side {side} sends what nobody posted: {segment:?}");
        let wr = &model.requests[index].wr;
        let (fence, read_here, ord) = (wr.fence, wr.is_answered(), model.ord as usize);
        if fence || read_here {
            let asked = model.requests[..index].iter().filter(|posted| posted.is_answered()).count();
            let open = asked - self.answers_taken(side, read).min(asked);
            assert!(!fence || open == 0, "request {index} of side {side} passes its fence");
            assert!(!read_here || open < ord, "side {side} has more reads open than its peer takes");
        }
    }

    /// Answers to reads of a side that are among the first `read` bytes for it. Without a CRC the payload
    /// counts before its trailer is there.
    fn answers_taken(&self, side: usize, read: u64) -> usize {
        let peer = &self.sides[1 - side];
        let whole = peer.answer_ends.iter().filter(|end| **end <= read).count();
        whole + usize::from(peer.answering && peer.tap.last_payload_end() <= read)
    }

    /// The first segment of an answer: what it answers rests on what came before.
    fn answer_begun(&mut self, side: usize, opcode: u8) {
        if std::mem::replace(&mut self.sides[side].answering, true) {
            return;
        }
        let number = self.sides[side].answer_ends.len();
        let peer = &self.sides[1 - side];
        let Some(index) = peer.reads.get(number).copied() else { panic!("an answer without a question") };
        // Without a CRC a read is taken before the trailer behind it is there.
        let asked = peer.handed > index || (peer.handed == index && peer.tap.last_payload_end() < u64::MAX);
        assert!(asked, "read {number} answered before it was asked");
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
            model.atomic_answers += usize::from(segment.opcode == rdmap::ATOMIC_RESPONSE);
            model.answer_bytes += segment.len;
            if segment.last {
                model.answer_bytes = 0;
                model.answering = false;
                model.answer_ends.push(segment.payload_end);
            }
            return;
        }
        if !is_of_request(&segment) || !segment.last {
            return;
        }
        let posted = model.requests[model.handed].clone();
        let over = match (posted.wr.op, segment.opcode, model.stage) {
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
        model.stage += 1;
        if over {
            model.stage = 0;
            model.begun = false;
            model.handed += 1;
            model.ends.push(segment.payload_end);
            model.messages_handed += usize::from(posted.is_message());
            model.read_requests += usize::from(posted.wr.is_answered());
        }
    }

    /// Side `side` sends something that its peer must refuse.
    pub(super) fn forged(&mut self, side: usize) {
        let model = &mut self.sides[side];
        model.forged = true;
        model.genuine_messages = model.messages_handed;
        self.sides[1 - side].causes.forgery = true;
    }

    /// The read of a side that its peer has to answer next: its MSN, its length, and the length of what its
    /// peer has sent of that.
    pub(super) fn open_read(&self, side: usize) -> Option<(usize, usize, usize)> {
        let (model, peer) = (&self.sides[side], &self.sides[1 - side]);
        let number = peer.answer_ends.len();
        let index = *model.reads.get(number)?;
        let len = model.requests[index].wr.len as usize;
        (model.handed > index).then_some((number + 1, len, peer.answer_bytes))
    }

    /// The connection lets go of the link; `whole`: after these words, the stream ends.
    pub(super) fn closed(&mut self, side: usize, whole: bool) {
        let model = &mut self.sides[side];
        assert!(!model.closed, "side {side} closes its link twice");
        model.closed = true;
        if whole {
            assert!(model.tap.at_boundary(), "side {side} ends its stream within an FPDU");
            model.graceful = Some(model.messages_handed);
        }
    }
}

fn is_answer(segment: &Segment) -> bool {
    matches!(segment.opcode, rdmap::READ_RESPONSE | rdmap::ATOMIC_RESPONSE)
}

fn is_of_request(segment: &Segment) -> bool {
    let is_empty_write = segment.opcode == rdmap::WRITE && segment.len == 0 && segment.to == 0;
    !(is_empty_write || segment.opcode == rdmap::TERMINATE)
}
