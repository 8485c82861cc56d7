// SPDX-License-Identifier: BSD-3-Clause
//! What must hold in every schedule, by a model that looks at the same calls as the host, and never into a connection.
//!
//! For each side it knows what was posted, follows what went to the link through a parser of its own, and knows by the addresses and the
//! contents of placements how far the other side is with them.

use super::memory::{self, Memory, PERSISTENT, READABLE, SINKS};
use super::tap::{Seen, Segment, Tap, rdmap};
use crate::access::Access;
use crate::conn::wr::{Completion, Local, Op, RecvWr, SendWr, opcode, status};

#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub wr: SendWr,
    /// Which message, or which read of its side it is.
    number: usize,
    /// How many messages of the peer had been received when it was posted.
    knows: usize,
}

impl Posted {
    /// It uses up a receive of the peer.
    fn is_message(&self) -> bool {
        matches!(self.wr.op, Op::Send | Op::SendWithImm | Op::WriteWithImm)
    }

    fn is_write(&self) -> bool {
        matches!(self.wr.op, Op::Write | Op::WriteWithImm)
    }

    fn overruns(&self, receive: &RecvWr) -> bool {
        self.wr.op != Op::WriteWithImm && self.wr.len > receive.len
    }

    /// Bytes that are placed at the peer.
    fn carries(&self) -> usize {
        if self.wr.op == Op::Read { 0 } else { self.wr.len as usize }
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
    reads: Vec<usize>,
    pub taken: usize,
    pub done: usize,
    failed: bool,
    // What it gave to the link.
    tap: Tap,
    handed: usize,
    begun: bool,
    stage: u8,
    ends: Vec<u64>,
    messages_handed: usize,
    answering: bool,
    answer_ends: Vec<u64>,
    pub first_end: Option<u64>,
    // What it received.
    pub receives: Vec<RecvWr>,
    pub next_receive: usize,
    pub taken_receives: Vec<usize>,
    pub received: usize,
    receive_failed: bool,
    pub delivered: usize,
    placed_request: usize,
    placed_bytes: usize,
    placed_read: usize,
    read_bytes: usize,
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
    pub established: bool,
    /// It broke a rule on the wire; its messages up to here still count.
    pub forged: bool,
    genuine_messages: usize,
    answer_bytes: usize,
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
        reuse!(requests, messages, reads, ends, answer_ends, receives, taken_receives, durability);
    }

    /// Everything that was posted is over.
    pub(super) fn sends_are_over(&self) -> bool {
        self.done == self.requests.len()
    }

    pub(super) fn receives_are_over(&self) -> bool {
        self.next_receive == self.receives.len() && self.received == self.taken_receives.len()
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

    /// Read Requests given to the link.
    pub(super) fn read_requests(&self) -> usize {
        self.read_requests
    }

    pub(super) fn messages(&self) -> usize {
        self.messages.len()
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
        let mut posted = Posted { wr, number: model.reads.len(), knows };
        if wr.op == Op::Read {
            model.reads.push(index);
        } else if posted.is_message() {
            posted.number = model.messages.len();
            model.messages.push(index);
        }
        model.requests.push(posted);
    }

    // ---- what goes to the link ---------------------------------------------------------------------------------------------------------

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
        if segment.opcode == rdmap::READ_RESPONSE {
            return self.answer_begun(side);
        }
        if !is_of_request(&segment) || self.sides[side].begun {
            return;
        }
        self.sides[side].begun = true;
        let index = self.sides[side].handed;
        let model = &self.sides[side];
        assert!(index < model.taken, "side {side} sends what nobody posted: {segment:?}");
        let wr = &model.requests[index].wr;
        let (fence, read_here, ord) = (wr.fence, wr.op == Op::Read, model.ord as usize);
        if fence || read_here {
            let asked = model.requests[..index].iter().filter(|posted| posted.wr.op == Op::Read).count();
            let open = asked - self.answers_taken(side, read).min(asked);
            assert!(!fence || open == 0, "request {index} of side {side} passes its fence");
            assert!(!read_here || open < ord, "side {side} has more reads open than its peer takes");
        }
    }

    /// Answers to reads of a side that are among the first `read` bytes for it. Without a CRC the payload counts before its trailer is there.
    fn answers_taken(&self, side: usize, read: u64) -> usize {
        let peer = &self.sides[1 - side];
        let whole = peer.answer_ends.iter().filter(|end| **end <= read).count();
        whole + usize::from(peer.answering && peer.tap.last_payload_end() <= read)
    }

    /// The first segment of an answer: what it answers rests on what came before.
    fn answer_begun(&mut self, side: usize) {
        if std::mem::replace(&mut self.sides[side].answering, true) {
            return;
        }
        let number = self.sides[side].answer_ends.len();
        let peer = &self.sides[1 - side];
        let Some(index) = peer.reads.get(number).copied() else { panic!("an answer without a question") };
        // Without a CRC a read is taken before the trailer behind it is there.
        let asked = peer.handed > index || (peer.handed == index && peer.tap.last_payload_end() < u64::MAX);
        assert!(asked, "read {number} answered before it was asked");
        let wr = peer.requests[index].wr;
        self.placed_up_to(side, index, "an answer");
        if wr.len > 0 && wr.rkey == memory::stag(side, PERSISTENT) {
            let state = self.sides[side].durability.get(number).copied().unwrap_or_default();
            assert_eq!(state, Durability::Reported, "read {number} answered before its flush");
        }
    }

    fn handed_segment(&mut self, side: usize, segment: Segment) {
        let model = &mut self.sides[side];
        if segment.opcode == rdmap::READ_RESPONSE {
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
        let posted = model.requests[model.handed];
        let over = match (posted.wr.op, segment.opcode, model.stage) {
            (Op::Write, rdmap::WRITE, 0) | (Op::Read, rdmap::READ_REQUEST, 0) => true,
            (Op::WriteWithImm, rdmap::WRITE, 0) => false,
            (Op::WriteWithImm, rdmap::IMMEDIATE | rdmap::IMMEDIATE_SE, 1) => true,
            (Op::SendWithImm, rdmap::IMMEDIATE | rdmap::IMMEDIATE_SE, 0) => false,
            (Op::SendWithImm, rdmap::SEND | rdmap::SEND_SE, 1) => true,
            (Op::Send, rdmap::SEND | rdmap::SEND_SE, 0) => true,
            _ => panic!("{segment:?} on the link as part of {:?}", posted.wr),
        };
        model.stage += 1;
        if over {
            model.stage = 0;
            model.begun = false;
            model.handed += 1;
            model.ends.push(segment.payload_end);
            model.messages_handed += usize::from(posted.is_message());
            model.read_requests += usize::from(posted.wr.op == Op::Read);
        }
    }

    /// Side `side` sends something that its peer must refuse.
    pub(super) fn forged(&mut self, side: usize) {
        let model = &mut self.sides[side];
        model.forged = true;
        model.genuine_messages = model.messages_handed;
        self.sides[1 - side].causes.forgery = true;
    }

    /// The read of a side that its peer has to answer next, with the length of what it has sent of that.
    pub(super) fn open_read(&self, side: usize) -> Option<(SendWr, usize)> {
        let (model, peer) = (&self.sides[side], &self.sides[1 - side]);
        let index = *model.reads.get(peer.answer_ends.len())?;
        (model.handed > index).then(|| (model.requests[index].wr, peer.answer_bytes))
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

    // ---- what is placed ----------------------------------------------------------------------------------------------------------------

    /// Everything that the peer's requests up to this one put here has been placed.
    fn placed_up_to(&mut self, side: usize, index: usize, what: &str) {
        self.pass_placed(side);
        assert!(
            self.sides[side].placed_request > index,
            "{what} on side {side} before request {index} was placed"
        );
    }

    fn pass_placed(&mut self, side: usize) {
        let [a, b] = &mut self.sides;
        let (model, peer) = if side == 0 { (a, b) } else { (b, a) };
        while let Some(posted) = peer.requests.get(model.placed_request) {
            if posted.carries() > model.placed_bytes {
                break;
            }
            model.placed_request += 1;
            model.placed_bytes = 0;
        }
        while let Some(index) = model.reads.get(model.placed_read) {
            if model.requests[*index].wr.len as usize > model.read_bytes {
                break;
            }
            model.placed_read += 1;
            model.read_bytes = 0;
        }
    }

    /// Bytes are placed on a side, in `region`.
    pub(super) fn placed(
        &mut self,
        side: usize,
        region: usize,
        access: Access,
        bytes: &[u8],
        memories: &[Memory; 2],
    ) {
        self.pass_placed(side);
        if region == SINKS {
            return self.answer_placed(side, access, bytes, memories);
        }
        let model = &self.sides[side];
        let peer = &self.sides[1 - side];
        let Some(posted) = peer.requests.get(model.placed_request) else {
            panic!("side {side}: {access:?} placed, which nobody sent");
        };
        assert!(model.placed_request < peer.taken, "placed before it was sent");
        let wr = &posted.wr;
        let at = model.placed_bytes;
        let to = if posted.is_write() {
            assert_eq!(access.stag, wr.rkey, "a write to another region");
            wr.remote_addr
        } else {
            let receive = model.taken_receives.get(posted.number);
            let Some(receive) = receive else { panic!("a message without a receive is placed") };
            let receive = &model.receives[*receive];
            assert!(
                access.stag == receive.lkey && at + bytes.len() <= receive.len as usize,
                "beyond the receive"
            );
            receive.addr
        };
        assert_eq!(
            access.addr,
            to + at as u64,
            "side {side}: out of order: request {}",
            model.placed_request
        );
        assert!(at + bytes.len() <= wr.len as usize, "more than was sent");
        if posted.is_write() && wr.len == 8 && to % 8 == 0 {
            assert_eq!(bytes.len(), 8, "an aligned write of 8 bytes in pieces");
        }
        let sent = match &wr.local {
            Local::Inline(inline) => &inline[at..at + bytes.len()],
            Local::Memory { addr, .. } => {
                memories[1 - side].contents_at(memory::SOURCE, addr + at as u64, bytes.len())
            }
        };
        assert_eq!(bytes, sent, "side {side}: other bytes than those of request {}", model.placed_request);
        self.sides[side].placed_bytes += bytes.len();
    }

    fn answer_placed(&mut self, side: usize, access: Access, bytes: &[u8], memories: &[Memory; 2]) {
        let model = &self.sides[side];
        let Some(index) = model.reads.get(model.placed_read).copied() else {
            panic!("an answer is placed that nobody waits for");
        };
        let wr = &model.requests[index].wr;
        let at = model.read_bytes;
        let Local::Memory { addr, lkey } = wr.local else { panic!("a read without a place") };
        assert!(access.addr == addr + at as u64 && access.stag == lkey, "side {side}: answer out of order");
        assert!(at + bytes.len() <= wr.len as usize, "an answer longer than the read");
        let from = wr.remote_addr + at as u64;
        if wr.rkey == memory::stag(1 - side, READABLE) {
            let there = memories[1 - side].contents_at(READABLE, from, bytes.len());
            assert_eq!(bytes, there, "side {side}: read {index} got other bytes");
        } else {
            for (i, byte) in bytes.iter().enumerate() {
                self.read_back(side, index, from + i as u64, *byte, memories);
            }
        }
        self.sides[side].read_bytes += bytes.len();
    }

    /// A byte read from memory that is also written is that of the last write posted before the read, or of a later one.
    fn read_back(&self, side: usize, index: usize, addr: u64, byte: u8, memories: &[Memory; 2]) {
        let (mut before, mut later) = (0, false);
        for (i, posted) in self.sides[side].requests.iter().enumerate() {
            let wr = &posted.wr;
            let at = addr.wrapping_sub(wr.remote_addr);
            if !posted.is_write() || at >= u64::from(wr.len) {
                continue;
            }
            let value = match &wr.local {
                Local::Inline(inline) => inline[at as usize],
                Local::Memory { addr, lkey } if *lkey == memory::stag(side, memory::SOURCE) => {
                    memories[side].contents_at(memory::SOURCE, addr + at, 1)[0]
                }
                Local::Memory { .. } => continue,
            };
            if i < index {
                before = value;
            } else {
                later |= value == byte;
            }
        }
        assert!(
            byte == before || later,
            "side {side}: read {index} passed a write that was posted before it"
        );
    }

    /// A persistent flush is asked for on `side`, on behalf of the peer's read with this number.
    pub(super) fn flush_begins(&mut self, side: usize, number: usize, access: Access) {
        let peer = &self.sides[1 - side];
        let Some(index) = peer.reads.get(number).copied() else { panic!("a flush that nobody asked for") };
        let wr = peer.requests[index].wr;
        assert!(access.addr == wr.remote_addr && access.len == wr.len as usize, "a flush of something else");
        self.placed_up_to(side, index, "a flush");
        let durability = &mut self.sides[side].durability;
        assert!(number >= durability.len(), "a flush is asked for twice");
        durability.resize(number, Durability::NotAsked);
        durability.push(Durability::Pending);
    }

    /// A side's connection takes the next receive.
    pub(super) fn take_receive(&mut self, side: usize) -> RecvWr {
        let peer = &self.sides[1 - side];
        let model = &self.sides[side];
        let wr = model.receives[model.next_receive];
        let message = peer.messages.get(model.taken_receives.len());
        let overrun = message.is_some_and(|index| peer.requests[*index].overruns(&wr));
        let model = &mut self.sides[side];
        model.causes.too_long |= overrun && !model.closed;
        model.taken_receives.push(model.next_receive);
        model.next_receive += 1;
        wr
    }

    // ---- completions -------------------------------------------------------------------------------------------------------------------

    /// The next request has succeeded; `read` is what its side has taken from the link.
    fn succeeded(&mut self, side: usize, read: u64) {
        self.pass_placed(side);
        let model = &self.sides[side];
        let (index, posted) = (model.done, &model.requests[model.done]);
        assert!(!model.failed, "request {index} of side {side} succeeds behind one that failed");
        let handed = index < model.handed || (index == model.handed && model.all_but_trailer());
        assert!(handed, "request {index} of side {side} succeeds and was not sent");
        if posted.wr.op == Op::Read {
            assert!(
                model.placed_read > posted.number,
                "read {index} of side {side} succeeds without its bytes"
            );
            let answers = self.answers_taken(side, read);
            assert!(answers > posted.number, "read {index} of side {side} succeeds without an answer");
        }
    }

    pub(super) fn release_send(&mut self, side: usize, read: u64) {
        let model = &self.sides[side];
        assert!(model.done < model.taken && !model.requests[model.done].wr.signaled, "side {side}: released");
        self.succeeded(side, read);
        self.sides[side].done += 1;
    }

    pub(super) fn send_completed(&mut self, side: usize, completion: &Completion, read: u64) {
        let model = &self.sides[side];
        let Completion { wr_id, status, .. } = *completion;
        assert!(!model.destroyed, "side {side} completes {wr_id} after it was destroyed");
        assert!(model.done < model.taken, "side {side} completes {wr_id}, which is not outstanding");
        let wr = model.requests[model.done].wr;
        assert_eq!(wr_id, wr.wr_id, "side {side} completes out of order, or twice");
        assert_eq!(completion.opcode, wr.op.completion_opcode());
        if status == status::SUCCESS {
            assert!(wr.signaled, "an unsignalled success");
            assert_eq!(completion.byte_len, wr.len);
            self.succeeded(side, read);
        } else {
            let causes = &model.causes;
            let explained = match status {
                status::WR_FLUSH_ERR => true,
                status::LOC_PROT_ERR => causes.memory,
                status::LOC_QP_OP_ERR => causes.no_reads,
                status::REM_ACCESS_ERR | status::REM_OP_ERR => {
                    wr.op == Op::Read && self.sides[1 - side].causes.own()
                }
                _ => false,
            };
            assert!(explained, "request {wr_id} of side {side} fails with status {status}");
            assert!(model.closed || !model.open, "request {wr_id} fails on a connection that is up");
            self.sides[side].failed = true;
        }
        self.sides[side].done += 1;
    }

    pub(super) fn receive_completed(&mut self, side: usize, completion: &Completion, read: u64) {
        let model = &self.sides[side];
        let Completion { wr_id, status, .. } = *completion;
        assert!(!model.destroyed, "side {side} completes {wr_id} after it was destroyed");
        let Some(receive) = model.taken_receives.get(model.received).copied() else {
            panic!("side {side} completes receive {wr_id}, which was not taken");
        };
        let receive = model.receives[receive];
        assert_eq!(wr_id, receive.wr_id, "side {side} completes receives out of order");
        let number = model.delivered;
        let peer = &self.sides[1 - side];
        let message = peer.messages.get(number).map(|index| (*index, peer.requests[*index]));
        match status {
            status::SUCCESS => {
                assert!(!model.receive_failed, "a receive succeeds behind one that failed");
                let Some((index, message)) = message else { panic!("a message that nobody sent") };
                self.message_received(side, index, &message, completion, read);
                self.sides[side].delivered += 1;
            }
            status::LOC_LEN_ERR => {
                let longer = message.is_some_and(|(_, message)| message.overruns(&receive));
                assert!(longer, "side {side}: message {number} is not too long");
                self.sides[side].receive_failed = true;
            }
            status::LOC_PROT_ERR => {
                assert!(model.causes.memory, "no memory was refused");
                self.sides[side].receive_failed = true;
            }
            status::WR_FLUSH_ERR => {
                assert!(model.closed || !model.open, "side {side} flushes a receive while it is up");
                self.sides[side].receive_failed = true;
            }
            _ => panic!("side {side}: receive {wr_id} fails with status {status}"),
        }
        self.sides[side].received += 1;
    }

    fn message_received(&mut self, side: usize, index: usize, sent: &Posted, got: &Completion, read: u64) {
        let wr = &sent.wr;
        let imm = (wr.op != Op::Send).then_some(wr.imm);
        let kind = if wr.op == Op::WriteWithImm { opcode::RECV_RDMA_WITH_IMM } else { opcode::RECV };
        let expected = (kind, wr.len, imm, wr.solicited);
        assert_eq!(
            (got.opcode, got.byte_len, got.imm, got.solicited),
            expected,
            "message {} of the peer",
            sent.number
        );
        self.placed_up_to(side, index, "a receive completed");
        let peer = &self.sides[1 - side];
        assert!(
            !peer.forged || sent.number < peer.genuine_messages,
            "side {side} goes on behind a forged message"
        );
        let arrived = match peer.ends.get(index) {
            Some(end) => *end <= read,
            None => peer.handed == index && peer.tap.last_payload_end() <= read,
        };
        assert!(arrived, "side {side}: message {} completed before it came", sent.number);
        // Who answers has received: the sender knows of that before it knows of the answer.
        let model = &self.sides[side];
        if let Some(answered) = sent.knows.checked_sub(1) {
            // Only reads may hold it up, whose answers have an order of their own, and a full completion queue.
            let reads = model.requests.get(model.done).is_some_and(|posted| {
                posted.wr.op == Op::Read && (posted.wr.len == 0 || model.placed_read <= posted.number)
            });
            let known = model.done > model.messages[answered] || reads || model.send_refused;
            assert!(known, "side {side}: an answer completed before what it answers");
        }
    }

    // ---- events ------------------------------------------------------------------------------------------------------------------------

    pub(super) fn established(&mut self, side: usize) {
        let model = &mut self.sides[side];
        assert!(
            !model.established && !model.ended && !model.closed,
            "side {side} established twice or too late"
        );
        model.established = true;
    }

    pub(super) fn ended(&mut self, side: usize, shared: bool) {
        let model = &mut self.sides[side];
        assert!(!model.ended && !model.destroyed, "side {side} ended twice");
        model.ended = true;
        assert!(model.sends_are_over() || model.send_refused, "side {side} ended before its requests");
        assert!(
            model.received == model.taken_receives.len() || model.receive_refused,
            "side {side} ended before a receive"
        );
        assert!(
            shared || model.receives_are_over() || model.receive_refused,
            "side {side} ended before its receives"
        );
    }

    /// Side `side` is over; what its peer gave to the link before a graceful end must have been delivered.
    pub(super) fn all_delivered(&self, side: usize, lossy: bool) {
        let (model, peer) = (&self.sides[side], &self.sides[1 - side]);
        let Some(handed) = peer.graceful else { return };
        if lossy || !model.open || model.causes.own() || model.causes.starved {
            return;
        }
        assert!(
            model.delivered >= handed,
            "side {side} received {} of {handed} messages sent before a graceful end",
            model.delivered
        );
    }
}

fn is_of_request(segment: &Segment) -> bool {
    let is_empty_write = segment.opcode == rdmap::WRITE && segment.len == 0 && segment.to == 0;
    !(is_empty_write || segment.opcode == rdmap::TERMINATE)
}
