// SPDX-License-Identifier: BSD-3-Clause
//! The sending half: turns work requests and responses to the peer's requests into FPDUs, and sends them.
//!
//! Payload is not copied: the link reads it from registered memory, whose rights are checked for each call.
//! Only a CRC requires a copy, as it must cover the very bytes that are sent.
//!
//! Requests are sent in posting order. A read or an atomic operation waits while ORD of them are outstanding,
//! a fenced request while any is. Work requests and responses to the peer's reads and atomic operations
//! alternate, message by message.

mod alone;
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
use super::terms::{Framing, IMMEDIATE_OF_SEND};
use crate::access::{Access, Bind, FIRST_SINK, REMOTE_READ, Unreachable};
use crate::direct::Part;
use crate::iwarp::link::{LinkError, StreamLink};
use crate::limits::{MAX_READS, MAX_SGE};
use crate::sq::{Entry, Progress, SendQueue};
use crate::step::Quota;
use crate::units::Errno;
use crate::wr::{Local, Op, SendWr, status};
use queue::{Batch, FpduQueue};
use transfer::Transferred;

/// STag of a message without payload. It is not checked, but some adapters refuse 0.
const NO_MEMORY: u32 = 1;

/// The sink STag of our read with this MSN; its tagged offsets start at 0. The ORD is far smaller than the
/// number of such STags.
pub(super) fn sink(msn: u32) -> u32 {
    FIRST_SINK | msn
}

/// The response to an accepted request of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A Read Response, with the contents of the memory when it is sent.
    Read(ReadRequest),
    /// An Atomic Response, with the previous value. The operation has been carried out.
    Atomic(AtomicResponse),
}

#[derive(Clone, Copy, Debug)]
struct Response {
    number: u64,
    answer: Answer,
    sent: u32,
    /// It may be sent: the flush that it waits for, if any, is complete.
    released: bool,
}

/// The result of [`SendHalf::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing more can be sent now.
    Idle,
    /// The link would block.
    Blocked,
    /// The budget is used up before everything was sent.
    Busy,
}

/// Why the sending half ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A work request of ours is invalid: its position, and the status of its completion.
    Request { position: u64, status: u32 },
    /// The memory that the peer reads is no longer accessible.
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
    /// Whether the current message answers the head of `responses`.
    answering: bool,
    answer_next: bool,
    /// Payload bytes of the current request that are in FPDUs, and the number of its messages that are:
    /// immediate data is a separate message.
    taken: u32,
    stage: u8,
    /// Whether the host may carry out requests by direct copy, and whether it has done so with the first
    /// `taken` bytes of the current one.
    transfers: bool,
    copied_directly: bool,
    send_msn: u32,
    /// For reads and atomic operations, as is `reads_open`.
    read_msn: u32,
    atomic_response_msn: u32,
    reads_open: u32,
    /// Bytes that may still be made into FPDUs.
    allowance: usize,
    /// The link would block. It becomes writable later.
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

    /// ENOMEM. Allocates all that the connection needs later.
    pub(super) fn open(&mut self, framing: Framing, transfers: bool) -> Result<(), Errno> {
        self.queue.open()?;
        self.responses.try_reserve(usize::from(MAX_READS)).map_err(|_| libc::ENOMEM)?;
        self.framing = framing;
        self.transfers = transfers;
        Ok(())
    }

    /// Limits the bytes of requests and responses that are sent from now on, approximately; `usize::MAX` is
    /// no limit.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.allowance = bytes;
    }

    /// Whether there is a limit. Bytes sent without one have been subtracted from `usize::MAX`.
    fn is_limited(&self) -> bool {
        self.allowance < usize::MAX / 2
    }

    /// Whether the peer may have another request outstanding: fewer than [`MAX_READS`], the largest IRD, are.
    pub(super) fn may_answer(&self) -> bool {
        self.responses.len() < usize::from(MAX_READS)
    }

    /// Queues the response to a peer's request, which is not sent before it is released; returns its number.
    /// `None` if the peer has more than [`MAX_READS`] outstanding.
    pub(super) fn answer(&mut self, answer: Answer) -> Option<u64> {
        if !self.may_answer() {
            return None;
        }
        let number = self.next_response;
        self.next_response += 1;
        self.responses.push_back(Response { number, answer, sent: 0, released: false });
        Some(number)
    }

    /// Permits a response to be sent.
    pub(super) fn release_answer(&mut self, number: u64) {
        if let Some(response) = self.responses.iter_mut().find(|response| response.number == number) {
            response.released = true;
        }
    }

    /// The MSN of the oldest outstanding read or atomic operation.
    pub(super) fn awaited_msn(&self) -> u32 {
        self.read_msn.wrapping_sub(self.reads_open)
    }

    /// A read or an atomic operation of ours is complete: another one, or a fenced request, may be sent.
    pub(super) fn read_done(&mut self) {
        self.reads_open -= 1;
    }

    /// Queues an RDMA Write without payload, which has no effect except that the peer receives an FPDU.
    pub(super) fn queue_empty_write(&mut self) {
        let header = Header::Tagged { opcode: Opcode::Write, last: true, stag: NO_MEMORY, to: 0 };
        self.queue.push(Fpdu::short(&header, &[], self.framing.crc, Origin::Control));
    }

    /// Queues an empty Write unless it would come between the segments of a message. In that case the next
    /// segment of the message serves as a probe.
    pub(super) fn send_probe(&mut self) {
        if self.queue.is_empty() && self.taken == 0 && self.stage == 0 && !self.answering {
            self.queue_empty_write();
        }
    }

    /// The last bytes of the stream: the rest of a partly sent FPDU, then the Terminate message if there is
    /// one. `None` if that rest is no longer accessible. Nothing is sent after these bytes.
    pub(super) fn final_bytes(
        &mut self,
        host: &mut impl StreamLink,
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

    /// The link may be writable again.
    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Takes posted requests, sends as much as possible, and completes requests that were sent. The caller
    /// does this before it processes input, so that the program sees the completion of a request before the
    /// peer's reply to it.
    pub(super) fn flush(
        &mut self,
        host: &mut impl StreamLink,
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
                    Ok(Transferred::Requests) => {
                        self.sq.retire(host, qp_num);
                        continue;
                    }
                    Ok(Transferred::Part) => break Ok(Flushed::Busy),
                    Ok(Transferred::Nothing) => {}
                    Err(failure) => break Err(failure),
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

    /// Sends queued FPDUs, and returns the number of FPDUs and of bytes that the link accepted; `None` if it
    /// would block. A function apart: its arrays would be on the stack of all steps,
    /// in threads with small stacks.
    #[inline(never)]
    fn send_batch(&mut self, host: &mut impl StreamLink) -> Result<Option<(usize, usize)>, Failure> {
        let segment = self.framing.segment;
        let mut most = usize::MAX;
        loop {
            let mut batch = Batch::new();
            self.queue.gather(segment, most, &mut batch);
            match host.send(&batch.parts, segment.is_some()) {
                Ok(n) => {
                    drop(batch);
                    let before = self.queue.len();
                    self.queue.taken(n, &mut self.sq);
                    return Ok(Some((before - self.queue.len(), n)));
                }
                Err(LinkError::Blocked) => return Ok(None),
                Err(LinkError::Broken(e)) => return Err(Failure::Link(e)),
                // The FPDUs before the refused one are valid and are still sent.
                Err(LinkError::Memory(part, why)) => match (batch.owner(part), why) {
                    (0, Unreachable::Denied(denied)) => return Err(self.refused(read_denied(denied))),
                    (0, Unreachable::Fault) if most == 1 || self.queue.len() == 1 => {
                        return Err(self.refused(TermCode::RDMAP_PROT_BOUNDS));
                    }
                    // The kernel does not report which part is not mapped: send the first FPDU alone to find
                    // out whether it is that one.
                    (_, Unreachable::Fault) => most = 1,
                    (owner, Unreachable::Denied(_)) => most = owner,
                },
            }
        }
    }

    /// The failure to report when the memory of the first FPDU is not readable.
    fn refused(&self, code: TermCode) -> Failure {
        refused(self.queue.front().map_or(Origin::Control, |fpdu| fpdu.origin), code)
    }

    /// Makes FPDUs of the requests and responses that may be sent, up to one batch. On failure the FPDUs made
    /// before it stay queued.
    fn fill(&mut self, host: &mut impl StreamLink) -> Result<(), Failure> {
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

    fn next_fpdu(&mut self, host: &mut impl StreamLink) -> Result<Option<Fpdu>, Failure> {
        let in_request = self.taken > 0 || self.stage > 0;
        let answerable = self.responses.front().is_some_and(|response| response.released);
        if self.answering || (!in_request && self.answer_next && answerable) {
            return self.next_of_response(host);
        }
        loop {
            match self.sendable(host)? {
                Some(position) => {
                    let fpdu = self.next_of_request(host, position)?;
                    // A request without messages, such as a bind, is already complete.
                    if fpdu.is_some() || self.sq.next_position() == Some(position) {
                        return Ok(fpdu);
                    }
                }
                None if answerable => return self.next_of_response(host),
                None => return Ok(None),
            }
        }
    }

    /// The position of the next request if it may be sent now.
    fn sendable(&self, host: &impl StreamLink) -> Result<Option<u64>, Failure> {
        let Some(position) = self.sq.next_position() else { return Ok(None) };
        let (ord, reads_open) = (self.framing.ord, self.reads_open);
        let Some(Entry { wr, .. }) = self.sq.entry(position) else { return Ok(None) };
        let answered = wr.is_answered();
        // iWARP has neither; the device refuses to create queue pairs for them.
        let is_missing = matches!(wr.op, Op::AtomicWrite | Op::Flush);
        if is_missing || (answered && ord == 0) {
            return Err(Failure::Request { position, status: status::LOC_QP_OP_ERR });
        }
        let waits = (wr.fence && reads_open > 0)
            || (answered && reads_open >= ord)
            || (self.transfers && self.waits_to_transfer(host, wr));
        Ok((!waits).then_some(position))
    }

    /// The maximum length of the next ULPDU. `len`: the length of a ULPDU with all that is left of the
    /// message.
    fn mulpdu(&self, len: usize) -> usize {
        let most = self.framing.mulpdu.min(self.allowance.max(stream::MIN_MULPDU));
        self.queue.mulpdu(self.framing.segment, most, len)
    }

    fn next_of_response(&mut self, host: &mut impl StreamLink) -> Result<Option<Fpdu>, Failure> {
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

    fn next_of_request(
        &mut self,
        host: &mut impl StreamLink,
        position: u64,
    ) -> Result<Option<Fpdu>, Failure> {
        let Some(entry) = self.sq.at(position) else { return Ok(None) };
        let SendWr { op, imm, solicited, .. } = entry.wr;
        match (op, self.stage) {
            (Op::Read, _) => Ok(self.read_request(position)),
            (Op::CompareSwap | Op::FetchAdd, _) => Ok(self.atomic_request(position)),
            // The immediate data of a Send precedes it, so that the last segment of the Send completes the
            // receive.
            (Op::SendWithImm, 0) => Ok(Some(self.immediate(imm, solicited, position, false))),
            (Op::WriteWithImm, 1) => Ok(Some(self.immediate(imm, solicited, position, true))),
            (Op::BindMw | Op::LocalInv, _) => self.change_window(host, position).map(|()| None),
            _ => self.data(host, position),
        }
    }

    fn data(&mut self, host: &mut impl StreamLink, position: u64) -> Result<Option<Fpdu>, Failure> {
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
            untagged(wr, last, self.send_msn, self.taken)
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
            local @ (Local::Entries(_)
            | Local::Window { .. }
            | Local::Atomic { .. }
            | Local::Flush { .. }) => {
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

    /// Carries out a request that binds or invalidates a window. Later requests depend on it; earlier ones
    /// have been sent or are in FPDUs.
    #[cold]
    fn change_window(&mut self, host: &mut impl StreamLink, position: u64) -> Result<(), Failure> {
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

    /// All FPDUs of a message of the current request have been made; `over`: it was the last message.
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

    /// Whether nothing is queued or outstanding.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.responses.is_empty() && self.sq.is_empty() && self.reads_open == 0
    }
}

/// The header of a segment of a Send, at offset `mo` of the message.
#[inline]
fn untagged(wr: &SendWr, last: bool, msn: u32, mo: u32) -> Header {
    let (opcode, inv_stag) = match (wr.op, wr.solicited) {
        (Op::SendWithInv, false) => (Opcode::SendInv, wr.rkey),
        (Op::SendWithInv, true) => (Opcode::SendSeInv, wr.rkey),
        (_, false) => (Opcode::Send, 0),
        (_, true) => (Opcode::SendSe, 0),
    };
    Header::Untagged { opcode, last, inv_stag, qn: QN_SEND, msn, mo }
}

/// The payload of an FPDU: `len` bytes of registered memory, in one or several ranges.
fn payload(
    host: &mut impl StreamLink,
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

/// The failure to report when memory is not readable: an invalid request of ours, or a denied read of the
/// peer.
fn refused(origin: Origin, code: TermCode) -> Failure {
    match origin {
        Origin::Request { position, .. } => Failure::Request { position, status: status::LOC_PROT_ERR },
        _ => Failure::Response(code),
    }
}

/// Completes the request at a position with the status that ends the connection.
pub(super) fn fail_request(sq: &mut SendQueue, position: u64, status: u32) {
    if let Some(entry) = sq.at(position) {
        entry.progress = Progress::Done(status);
    }
}
