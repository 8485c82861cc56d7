// SPDX-License-Identifier: BSD-3-Clause
//! The sending half: work requests and answers to the peer's reads become FPDUs, FPDUs go to the link.
//!
//! Payload is never copied on its way: the link reads it from registered memory, whose rights are checked
//! anew for each call. Only a CRC, which must cover the very bytes that are sent, requires a copy.
//!
//! Requests go out in posting order. A read or an atomic operation waits while as many of both as the peer
//! can take are under way, a fenced request until none is. Answers to the peer's reads and atomic operations
//! and work requests take turns, message by message.

mod atomic;
mod queue;
mod transfer;

use std::collections::VecDeque;

use crate::iwarp::wire::codes::{QN_REQUEST, QN_SEND};
use crate::iwarp::wire::ddp::{FIRST_MSN, Header, TAGGED_LEN, UNTAGGED_LEN};
use crate::iwarp::wire::rdmap::{AtomicResponse, Opcode, ReadRequest, TermCode, encode_immediate};
use crate::iwarp::wire::stream;
use crate::iwarp::wire::terminate::Terminate;

use super::ending::{End, Refusal, read_denied};
use super::fpdu::{Fpdu, Origin, Payload, terminate_fpdu};
use super::sq::{Entry, Progress, SendQueue};
use super::terms::{Framing, IMMEDIATE_OF_SEND};
use crate::access::{Access, Bind, FIRST_SINK, REMOTE_READ, Unreachable};
use crate::host::{Host, LinkError, Part};
use crate::limits::{MAX_READS, MAX_SGE};
use crate::step::Quota;
use crate::units::Errno;
use crate::wr::{Local, Op, SendWr, status};
use queue::{Batch, FpduQueue};
use transfer::Transferred;

/// STag of a message without payload: it is not looked at, but some adapters refuse 0.
const NO_MEMORY: u32 = 1;

/// The STag of the sink of our read with this MSN, whose tagged offset counts from 0. The peer takes far
/// fewer reads at a time than there are such STags.
pub(super) fn sink(msn: u32) -> u32 {
    FIRST_SINK | msn
}

/// A peer's request that was accepted and is answered in its turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// With the bytes that are there then.
    Read(ReadRequest),
    /// With what the word was. The operation has been carried out.
    Atomic(AtomicResponse),
}

#[derive(Clone, Copy, Debug)]
struct Response {
    number: u64,
    answer: Answer,
    sent: u32,
    /// It may go out: what it must find durable is.
    released: bool,
}

/// What came of [`SendHalf::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing is left that could be sent now.
    Idle,
    /// The link takes no more for now.
    Blocked,
    /// More could be sent, but the budget is used up.
    Busy,
}

/// Why the sending half cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A work request of our own is wrong: its position and the status it gets.
    Request { position: u64, status: u32 },
    /// The memory that a peer reads is gone.
    Response(TermCode),
    /// The link failed.
    Link(Errno),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Request { position, status } => Self::Request { position, status },
            Failure::Response(code) => {
                Self::Refused(Some(Terminate::new(code)), Refusal::Unmapped(Opcode::ReadRequest))
            }
            Failure::Link(e) => Self::Link(e),
        }
    }
}

pub(super) struct SendHalf {
    pub sq: SendQueue,
    framing: Framing,
    queue: FpduQueue,
    responses: VecDeque<Response>,
    next_response: u64,
    /// Whether the message under way is an answer to the head of `responses`.
    answering: bool,
    answer_next: bool,
    /// Payload bytes of the current request in FPDUs, and how many of its messages are (immediate data is a
    /// message of its own).
    taken: u32,
    stage: u8,
    /// The host may carry out requests by direct copy; and it has done so with what is taken of the current
    /// one.
    transfers: bool,
    copied_directly: bool,
    send_msn: u32,
    /// Of reads and atomic operations, as is `reads_open`.
    read_msn: u32,
    atomic_response_msn: u32,
    reads_open: u32,
    /// Bytes that may still be made into FPDUs.
    allowance: usize,
    /// The link took less than it was given: it says so when it takes more.
    blocked: bool,
}

impl SendHalf {
    pub(super) fn new(capacity: u32) -> Result<Self, Errno> {
        Ok(Self {
            sq: SendQueue::new(capacity)?,
            framing: Framing::default(),
            queue: FpduQueue::new(),
            responses: VecDeque::new(),
            next_response: 0,
            answering: false,
            answer_next: false,
            taken: 0,
            stage: 0,
            transfers: false,
            copied_directly: false,
            send_msn: FIRST_MSN,
            read_msn: FIRST_MSN,
            atomic_response_msn: FIRST_MSN,
            reads_open: 0,
            allowance: usize::MAX,
            blocked: false,
        })
    }

    /// ENOMEM. What is reserved here does not grow later, while the connection is in use.
    pub(super) fn open(&mut self, framing: Framing, transfers: bool) -> Result<(), Errno> {
        self.queue.open()?;
        self.responses.try_reserve(usize::from(MAX_READS)).map_err(|_| libc::ENOMEM)?;
        self.framing = framing;
        self.transfers = transfers;
        Ok(())
    }

    /// Lets about this many bytes of requests and answers go out before the next change; `usize::MAX` is no
    /// limit.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.allowance = bytes;
    }

    /// Whether there is a limit. What went out without one has been subtracted, too.
    fn is_limited(&self) -> bool {
        self.allowance < usize::MAX / 2
    }

    /// Whether the peer may have one more request open: it has no more than we announced.
    pub(super) fn may_answer(&self) -> bool {
        self.responses.len() < usize::from(MAX_READS)
    }

    /// Takes a peer's request, to be answered in its turn but not before it is released; gives its number.
    /// `None` when the peer has more open than we announced.
    pub(super) fn answer(&mut self, answer: Answer) -> Option<u64> {
        if !self.may_answer() {
            return None;
        }
        let number = self.next_response;
        self.next_response += 1;
        self.responses.push_back(Response { number, answer, sent: 0, released: false });
        Some(number)
    }

    /// Lets an answer go.
    pub(super) fn release_answer(&mut self, number: u64) {
        if let Some(response) = self.responses.iter_mut().find(|response| response.number == number) {
            response.released = true;
        }
    }

    /// The MSN of the oldest read or atomic operation under way.
    pub(super) fn awaited_msn(&self) -> u32 {
        self.read_msn.wrapping_sub(self.reads_open)
    }

    /// A read or an atomic operation of ours was answered: the next one, or a fenced request, may go.
    pub(super) fn read_done(&mut self) {
        self.reads_open -= 1;
    }

    /// A Write without payload: means nothing but that we are there.
    pub(super) fn queue_empty_write(&mut self) {
        let header = Header::Tagged { opcode: Opcode::Write, last: true, stag: NO_MEMORY, to: 0 };
        self.queue.push(Fpdu::short(&header, &[], self.framing.crc, Origin::Control));
    }

    /// Queues an empty Write where that cannot come between the segments of a message. More of a message that
    /// has begun serves as well.
    pub(super) fn send_probe(&mut self) {
        if self.queue.is_empty() && self.taken == 0 && self.stage == 0 && !self.answering {
            self.queue_empty_write();
        }
    }

    /// What still goes out at the end of the stream: the rest of the FPDU that the link has begun to take,
    /// then the Terminate message if there is one. `None` when the rest cannot be had any more. Nothing else
    /// is sent after this.
    pub(super) fn final_bytes(
        &mut self,
        host: &mut impl Host,
        terminate: Option<Terminate>,
    ) -> Option<Vec<u8>> {
        let begun = self.queue.cut();
        self.responses.clear();
        let mut bytes = Vec::new();
        for part in begun.iter().flat_map(Fpdu::rest) {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Memory(access) => {
                    let at = bytes.len();
                    bytes.try_reserve(access.len).ok()?;
                    bytes.resize(at + access.len, 0);
                    host.fetch(access, &mut bytes[at..]).ok()?;
                }
            }
        }
        if let Some(terminate) = terminate {
            bytes.extend_from_slice(&terminate_fpdu(&terminate, self.framing.crc));
        }
        Some(bytes)
    }

    /// The link may take more.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Takes what was posted, sends what can be sent now, and completes what has been sent: in this order,
    /// and before anything that arrives is looked at, so that no answer can be seen before the completion of
    /// what it answers.
    pub(super) fn flush(
        &mut self,
        host: &mut impl Host,
        qp_num: u32,
        budget: &mut Quota,
    ) -> Result<Flushed, Failure> {
        let flushed = loop {
            while !self.sq.is_full() {
                let Some(wr) = host.next_send() else { break };
                self.sq.push(wr);
            }
            if self.blocked {
                break Ok(Flushed::Blocked);
            }
            if self.transfers {
                match self.transfer(host, budget) {
                    Transferred::Requests => {
                        self.sq.retire(host, qp_num);
                        continue;
                    }
                    Transferred::Part => break Ok(Flushed::Busy),
                    Transferred::Nothing => {}
                }
            }
            let filled = self.fill(host);
            if self.queue.is_empty() {
                break filled.map(|()| Flushed::Idle);
            }
            if budget.is_used_up() {
                break Ok(Flushed::Busy);
            }
            match self.send_batch(host) {
                Ok(Some((fpdus, n))) => budget.charge(fpdus, n),
                Ok(None) => {
                    self.blocked = true;
                    break Ok(Flushed::Blocked);
                }
                Err(failure) => break Err(failure),
            }
            self.sq.retire(host, qp_num);
        };
        self.sq.retire(host, qp_num);
        flushed
    }

    /// Gives the link what it takes of the queued FPDUs, and says how many and how many bytes that are;
    /// `None` when that is nothing for now.
    fn send_batch(&mut self, host: &mut impl Host) -> Result<Option<(usize, usize)>, Failure> {
        let segment = self.framing.segment;
        let mut most = usize::MAX;
        loop {
            let mut batch = Batch::new();
            self.queue.gather(segment, most, &mut batch);
            match host.send(&batch.parts, segment.is_some()) {
                Ok(n) => {
                    drop(batch);
                    let before = self.queue.len();
                    self.queue.taken(n, |position| self.sq.sent(position));
                    return Ok(Some((before - self.queue.len(), n)));
                }
                Err(LinkError::Blocked) => return Ok(None),
                Err(LinkError::Broken(e)) => return Err(Failure::Link(e)),
                // What precedes a refused FPDU still goes out: it is in order.
                Err(LinkError::Memory(part, why)) => match (batch.owner(part), why) {
                    (0, Unreachable::Denied(denied)) => return Err(self.refused(read_denied(denied))),
                    (0, Unreachable::Fault) if most == 1 || self.queue.len() == 1 => {
                        return Err(self.refused(TermCode::RDMAP_PROT_BOUNDS));
                    }
                    // The kernel does not say whose memory it was: alone the first one is not blamed for
                    // another.
                    (_, Unreachable::Fault) => most = 1,
                    (owner, Unreachable::Denied(_)) => most = owner,
                },
            }
        }
    }

    /// The memory behind the first FPDU cannot be read: a wrong request of our own, or a read that the peer
    /// is told of.
    fn refused(&self, code: TermCode) -> Failure {
        refused(self.queue.front().map_or(Origin::Control, |fpdu| fpdu.origin), code)
    }

    /// Makes FPDUs of what may go out, up to one batch. On failure those before it are there.
    fn fill(&mut self, host: &mut impl Host) -> Result<(), Failure> {
        let (mut fpdus, mut bytes) = self.queue.room();
        while fpdus > 0 && bytes > 0 && self.allowance > 0 {
            let Some(fpdu) = self.next_fpdu(host)? else { return Ok(()) };
            fpdus -= 1;
            bytes = bytes.saturating_sub(fpdu.len());
            self.allowance = self.allowance.saturating_sub(fpdu.len());
            self.queue.push(fpdu);
        }
        Ok(())
    }

    fn next_fpdu(&mut self, host: &mut impl Host) -> Result<Option<Fpdu>, Failure> {
        let in_request = self.taken > 0 || self.stage > 0;
        let answerable = self.responses.front().is_some_and(|response| response.released);
        if self.answering || (!in_request && self.answer_next && answerable) {
            return self.next_of_response(host);
        }
        loop {
            match self.sendable(host)? {
                Some(position) => {
                    let fpdu = self.next_of_request(host, position)?;
                    // Nothing is sent for a request that concerns this side alone; it is complete then.
                    if fpdu.is_some() || self.sq.next_position() == Some(position) {
                        return Ok(fpdu);
                    }
                }
                None if answerable => return self.next_of_response(host),
                None => return Ok(None),
            }
        }
    }

    /// The position of the next request if it may go out now.
    fn sendable(&self, host: &impl Host) -> Result<Option<u64>, Failure> {
        let Some(position) = self.sq.next_position() else { return Ok(None) };
        let (ord, reads_open) = (self.framing.ord, self.reads_open);
        let Some(Entry { wr, .. }) = self.sq.entry(position) else { return Ok(None) };
        let answered = wr.is_answered();
        if answered && ord == 0 {
            return Err(Failure::Request { position, status: status::LOC_QP_OP_ERR });
        }
        let waits = (wr.fence && reads_open > 0)
            || (answered && reads_open >= ord)
            || self.waits_to_transfer(host, wr);
        Ok((!waits).then_some(position))
    }

    /// Bytes that the next ULPDU may have, of `len` that a message would take in a single one.
    fn mulpdu(&self, len: usize) -> usize {
        let most = self.framing.mulpdu.min(self.allowance.max(stream::MIN_MULPDU));
        self.queue.mulpdu(self.framing.segment, most, len)
    }

    fn next_of_response(&mut self, host: &mut impl Host) -> Result<Option<Fpdu>, Failure> {
        let Some(response) = self.responses.front().copied() else { return Ok(None) };
        let request = match response.answer {
            Answer::Read(request) => request,
            Answer::Atomic(answer) => return Ok(Some(self.atomic_response(&answer))),
        };
        let left = request.size - response.sent;
        let mulpdu = self.mulpdu(TAGGED_LEN + left as usize);
        let len = left.min(stream::max_tagged_payload(mulpdu) as u32);
        let last = response.sent + len == request.size;
        let header = Header::Tagged {
            opcode: Opcode::ReadResponse,
            last,
            stag: request.sink_stag,
            to: request.sink_to.wrapping_add(u64::from(response.sent)),
        };
        let addr = request.src_to.wrapping_add(u64::from(response.sent));
        let source = Access { stag: request.src_stag, addr, len: len as usize, rights: REMOTE_READ };
        let crc = self.framing.crc;
        let payload =
            payload(host, [source].into_iter(), source.len, crc, &mut self.queue, Origin::Response)?;
        let fpdu = Fpdu::new(&header, payload, source.len, crc, Origin::Response);
        self.answering = !last;
        if last {
            self.responses.pop_front();
            self.answer_next = false;
        } else if let Some(response) = self.responses.front_mut() {
            response.sent += len;
        }
        Ok(Some(fpdu))
    }

    fn next_of_request(&mut self, host: &mut impl Host, position: u64) -> Result<Option<Fpdu>, Failure> {
        let Some(entry) = self.sq.at(position) else { return Ok(None) };
        let SendWr { op, imm, solicited, .. } = entry.wr;
        match (op, self.stage) {
            (Op::Read, _) => Ok(self.read_request(position)),
            (Op::CompareSwap | Op::FetchAdd, _) => Ok(self.atomic_request(position)),
            // The immediate data of a Send goes first, so that the receive is complete when the Send is.
            (Op::SendWithImm, 0) => Ok(Some(self.immediate(imm, solicited, position, false))),
            (Op::WriteWithImm, 1) => Ok(Some(self.immediate(imm, solicited, position, true))),
            (Op::BindMw | Op::LocalInv, _) => self.change_window(host, position).map(|()| None),
            _ => self.data(host, position),
        }
    }

    fn data(&mut self, host: &mut impl Host, position: u64) -> Result<Option<Fpdu>, Failure> {
        let Some(Entry { wr, .. }) = self.sq.entry(position) else { return Ok(None) };
        let tagged = matches!(wr.op, Op::Write | Op::WriteWithImm);
        let (left, header_len) = (wr.len - self.taken, if tagged { TAGGED_LEN } else { UNTAGGED_LEN });
        let mulpdu = self.mulpdu(header_len + left as usize);
        let room =
            if tagged { stream::max_tagged_payload(mulpdu) } else { stream::max_untagged_payload(mulpdu) };
        let len = left.min(room as u32);
        let (crc, queue) = (self.framing.crc, &mut self.queue);
        let last = self.taken + len == wr.len;
        let header = if tagged {
            let stag = if wr.len == 0 { NO_MEMORY } else { wr.rkey };
            let to = wr.remote_addr.wrapping_add(u64::from(self.taken));
            Header::Tagged { opcode: Opcode::Write, last, stag, to }
        } else {
            let (opcode, inv_stag) = match (wr.op, wr.solicited) {
                (Op::SendWithInv, false) => (Opcode::SendInv, wr.rkey),
                (Op::SendWithInv, true) => (Opcode::SendSeInv, wr.rkey),
                (_, false) => (Opcode::Send, 0),
                (_, true) => (Opcode::SendSe, 0),
            };
            Header::Untagged { opcode, last, inv_stag, qn: QN_SEND, msn: self.send_msn, mo: self.taken }
        };
        let over = last && wr.op != Op::WriteWithImm;
        let origin = Origin::Request { position, last: over };
        let fpdu = match &wr.local {
            Local::Inline(bytes) => {
                let body = &bytes[self.taken as usize..][..len as usize];
                Fpdu::short(&header, body, crc, origin)
            }
            Local::LongInline(bytes) => {
                let body = &bytes[self.taken as usize..][..len as usize];
                let mut copy = queue.copy(body.len()).map_err(Failure::Link)?;
                copy[..body.len()].copy_from_slice(body);
                Fpdu::new(&header, Payload::Copied(copy), body.len(), crc, origin)
            }
            Local::Memory { addr, lkey } => {
                let addr = addr.wrapping_add(u64::from(self.taken));
                let source = Access { stag: *lkey, addr, len: len as usize, rights: 0 };
                let payload = payload(host, [source].into_iter(), source.len, crc, queue, origin)?;
                Fpdu::new(&header, payload, source.len, crc, origin)
            }
            local @ (Local::Entries(_) | Local::Window { .. } | Local::Atomic { .. }) => {
                let len = len as usize;
                let sources = local.parts(self.taken, len, 0);
                let payload = payload(host, sources, len, crc, queue, origin)?;
                Fpdu::new(&header, payload, len, crc, origin)
            }
        };
        self.taken += len;
        if last {
            if !tagged {
                self.send_msn = self.send_msn.wrapping_add(1);
            }
            self.message_taken(over);
        }
        Ok(Some(fpdu))
    }

    /// Carries out a request that binds or invalidates a window. Requests behind it rest on it, those before
    /// it are with the link or in FPDUs.
    #[cold]
    fn change_window(&mut self, host: &mut impl Host, position: u64) -> Result<(), Failure> {
        let Some(entry) = self.sq.at(position) else { return Ok(()) };
        let SendWr { remote_addr: addr, rkey, .. } = entry.wr;
        let changed = match entry.wr.local {
            Local::Window { region, access, len } => host.bind(Bind { rkey, region, addr, len, access }),
            _ => host.invalidate(rkey),
        };
        changed.map_err(|_| Failure::Request { position, status: status::MW_BIND_ERR })?;
        entry.progress = Progress::Done(status::SUCCESS);
        self.sq.advance();
        Ok(())
    }

    fn read_request(&mut self, position: u64) -> Option<Fpdu> {
        let Entry { wr, .. } = self.sq.at(position)?;
        let empty = wr.len == 0;
        let request = ReadRequest {
            sink_stag: if empty { NO_MEMORY } else { sink(self.read_msn) },
            sink_to: 0,
            size: wr.len,
            src_stag: if empty { NO_MEMORY } else { wr.rkey },
            src_to: wr.remote_addr,
        };
        let header = Header::Untagged {
            opcode: Opcode::ReadRequest,
            last: true,
            inv_stag: 0,
            qn: QN_REQUEST,
            msn: self.read_msn,
            mo: 0,
        };
        self.read_msn = self.read_msn.wrapping_add(1);
        self.reads_open += 1;
        self.message_taken(true);
        let origin = Origin::Request { position, last: true };
        Some(Fpdu::short(&header, &request.encode(), self.framing.crc, origin))
    }

    fn immediate(&mut self, imm: [u8; 4], solicited: bool, position: u64, over: bool) -> Fpdu {
        let mut body = encode_immediate(imm);
        if !over {
            body[4..].copy_from_slice(&IMMEDIATE_OF_SEND);
        }
        let opcode = if solicited { Opcode::ImmediateSe } else { Opcode::Immediate };
        let header =
            Header::Untagged { opcode, last: true, inv_stag: 0, qn: QN_SEND, msn: self.send_msn, mo: 0 };
        self.send_msn = self.send_msn.wrapping_add(1);
        self.message_taken(over);
        Fpdu::short(&header, &body, self.framing.crc, Origin::Request { position, last: over })
    }

    /// A message of the current request is in FPDUs; `over`: it was its last one.
    fn message_taken(&mut self, over: bool) {
        self.taken = 0;
        if over {
            self.stage = 0;
            self.sq.advance();
            self.answer_next = true;
        } else {
            self.stage += 1;
        }
    }

    /// Nothing is queued, and nothing waits to be sent.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.responses.is_empty() && self.sq.is_empty() && self.reads_open == 0
    }
}

/// The payload of an FPDU: `len` bytes of registered memory, in one or several ranges.
fn payload(
    host: &mut impl Host,
    mut sources: impl Iterator<Item = Access>,
    len: usize,
    crc: bool,
    queue: &mut FpduQueue,
    origin: Origin,
) -> Result<Payload, Failure> {
    if len == 0 {
        return Ok(Payload::None);
    }
    if crc {
        let mut bytes = queue.copy(len).map_err(Failure::Link)?;
        let mut at = 0;
        for source in sources {
            host.fetch(source, &mut bytes[at..][..source.len]).map_err(|why| match why {
                Unreachable::Denied(denied) => refused(origin, read_denied(denied)),
                Unreachable::Fault => refused(origin, TermCode::RDMAP_PROT_BOUNDS),
            })?;
            at += source.len;
        }
        return Ok(Payload::Copied(bytes));
    }
    let first = sources.next();
    match (first, sources.next()) {
        (None, _) => Ok(Payload::None),
        (Some(only), None) => Ok(Payload::Memory(only)),
        (Some(first), Some(second)) => {
            let mut ranges = Vec::new();
            ranges.try_reserve_exact(MAX_SGE).map_err(|_| Failure::Link(libc::ENOMEM))?;
            ranges.extend([first, second].into_iter().chain(sources));
            Ok(Payload::Gathered(ranges))
        }
    }
}

/// What it means that memory cannot be read: a wrong request of our own, or a read that the peer is told of.
fn refused(origin: Origin, code: TermCode) -> Failure {
    match origin {
        Origin::Request { position, .. } => Failure::Request { position, status: status::LOC_PROT_ERR },
        _ => Failure::Response(code),
    }
}

/// The progress of the request at a position, when the connection ends because of it.
pub(super) fn fail_request(sq: &mut SendQueue, position: u64, status: u32) {
    if let Some(entry) = sq.at(position) {
        entry.progress = Progress::Done(status);
    }
}
