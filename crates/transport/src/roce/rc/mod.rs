// SPDX-License-Identifier: BSD-3-Clause
//! One reliable connection (RC) as a state machine.
//!
//! An [`Rc`] is plain data with one entry, [`Rc::step`]: its arguments are what has happened, and it calls
//! its [`PacketLink`] for what must happen now. It has no lock, socket, thread or clock, as the iWARP
//! connection.
//!
//! A step first takes the packets that have arrived, then sends the replies to the peer's requests, then
//! requests of its own: an acknowledgement that has arrived makes room in the window, and one that is due
//! goes out before data.
//!
//! ```text
//! posted ─▶ sq ─▶ requester ─▶ request packets ─▶ link ─▶ responder ─▶ placements, completed receives
//!                    ▲                                        │
//!                    └── ACKs, read data, results, NAKs ◀── replies
//! ```

mod ending;
mod requester;
mod responder;
mod run;
mod terms;
#[cfg(test)]
mod tests;

use crate::host::Host;
use crate::limits::{MAX_READS, MAX_WAITING_PACKETS};
use crate::policy::mode::Mode;
use crate::roce::link::{Batch, Dropped, PacketLink};
use crate::roce::packet::PacketBuf;
use crate::roce::state::State;
use crate::roce::wire::{Opcode, Operation, Packet, is_same_partition};
use crate::sq::Progress;
use crate::step::{ATOMIC_OPERATIONS, Awaits, Budget, Quota, Stepped, reason};
use crate::units::{Errno, Micros};
use ending::{End, Failed};
use requester::{Requester, Sent};
use responder::{Replied, Responder};
use run::Run;

pub use terms::{RNR_UNLIMITED, ReceiveTerms, SendTerms};

const _: () = assert!(MAX_READS <= u8::MAX as u16);

/// One reliable connection, from the transition to RTR to the last completion.
pub struct Rc {
    num: u32,
    own_receives: bool,
    state: State,
    terms: Option<ReceiveTerms>,
    requester: Requester,
    responder: Responder,
    buf: PacketBuf,
    /// The last step did not send all replies: the next one sends requests before them.
    requests_first: bool,
    /// A request of the peer has arrived.
    is_established: bool,
    /// Waits until the send queue is drained.
    is_draining: bool,
    /// No packet is left to a later step.
    is_last_step: bool,
}

impl Rc {
    /// `num` is the queue pair's number, which completions carry, `max_send_wr` the length of its send queue.
    /// `own_receives`: receives belong to the queue pair and end with it; those of a shared receive queue do
    /// not. `mode`: how its heuristics decide. ENOMEM.
    pub fn new(num: u32, max_send_wr: u32, own_receives: bool, mode: Mode) -> Result<Self, Errno> {
        Ok(Self {
            num,
            own_receives,
            state: State::Idle,
            terms: None,
            requester: Requester::new(max_send_wr, mode)?,
            responder: Responder::new(num, mode),
            buf: PacketBuf::new()?,
            requests_first: false,
            is_established: false,
            is_draining: false,
            is_last_step: false,
        })
    }

    /// The transition to RTR: requests of the peer are carried out. ENOMEM.
    pub fn receive(&mut self, terms: ReceiveTerms) -> Result<(), Errno> {
        self.responder.open(terms)?;
        self.terms = Some(terms);
        self.state = State::Receiving;
        Ok(())
    }

    /// The transition to RTS: requests are sent with the next step.
    pub fn send(&mut self, terms: SendTerms) {
        if let (State::Receiving, Some(path)) = (self.state, &self.terms) {
            self.requester.open(path, &terms);
            self.state = State::Open;
        }
    }

    /// Begins no request, as in the state SQD, or begins requests again.
    pub fn drain(&mut self, on: bool) {
        self.requester.drain(on);
        self.is_draining = on;
    }

    /// Whether the requests that had begun before [`Self::drain`] are complete: true once.
    pub fn has_drained(&mut self) -> bool {
        let drained = self.is_draining && self.requester.is_drained();
        self.is_draining &= !drained;
        drained
    }

    /// Changes attributes of a connection that carries out requests; `None`: as before. Returns whether an
    /// access of the peer is not permitted any more.
    pub fn change(&mut self, access: Option<u32>, rnr_timer: Option<u8>) -> bool {
        self.responder.change(access, rnr_timer)
    }

    /// If the link has changed, sends again what is not acknowledged: it is lost, or packets over the new
    /// link overtake it. Neither this nor a gap among these packets uses a retry. Returns whether it has
    /// changed.
    fn change_link(&mut self, host: &mut impl PacketLink) -> bool {
        let has_changed = host.has_changed();
        if has_changed {
            self.requester.change_link();
            self.responder.unblock();
        }
        has_changed
    }

    /// Requests that were taken from the host and are not completed.
    pub fn outstanding(&self) -> usize {
        self.requester.sq.len()
    }

    /// Ends a connection whose link is gone.
    pub fn lose(&mut self, host: &mut impl PacketLink, errno: Errno) {
        self.end(host, End::Lost(errno));
    }

    /// When a step with [`reason::TIME`] is due.
    pub fn deadline(&self) -> Option<Micros> {
        if self.state == State::Open { self.requester.deadline() } else { None }
    }

    /// What a flush to persistence waited for, by the number that [`Host::make_durable`] was given; a step
    /// with [`reason::DURABLE`] follows. Also after the end: the NAK for the request that was refused is
    /// behind this response.
    pub fn durable(&mut self, host: &mut impl PacketLink, number: u64, durable: bool) {
        if let Err(end) = self.responder.durable(number, durable) {
            self.end(host, end);
        }
    }

    /// Does what can be done now: `why` has the reasons of the step.
    pub fn step(&mut self, host: &mut impl PacketLink, why: u32, budget: Budget) -> Stepped {
        let mut stepped = Stepped::default();
        self.change_link(host);
        match self.state {
            State::Idle if why & reason::DISCONNECT == 0 => return stepped,
            State::Idle | State::Receiving | State::Open => {
                if let Err(end) = self.exchange(host, why, budget, &mut stepped) {
                    self.end(host, end);
                }
            }
            State::Over => {}
        }
        if self.state == State::Over {
            if why & reason::DISCONNECT != 0 {
                self.responder.discard_reads();
            }
            self.flush(host);
            self.linger(host, why, budget, &mut stepped);
        }
        stepped.awaits = match (self.responder.inbound.rq.keeps_completions(), self.state) {
            (true, _) => Awaits::Room,
            // What is posted from now on is flushed by a step.
            (false, State::Over) => Awaits::Receive,
            (false, _) => Awaits::Nothing,
        };
        stepped.again |= self.change_link(host);
        stepped
    }

    fn exchange(
        &mut self,
        host: &mut impl PacketLink,
        why: u32,
        budget: Budget,
        stepped: &mut Stepped,
    ) -> Result<(), End> {
        let (mut to_send, mut to_receive) = (budget.send, budget.receive);
        self.responder.inbound.rq.deliver_kept(host);
        if why & reason::DISCONNECT != 0 {
            // All packets that have arrived, whatever the budget: there is no later step for them, and the
            // peer may have acknowledged requests before it disconnected.
            let mut arrived = Quota { bytes: usize::MAX, operations: MAX_WAITING_PACKETS };
            self.is_last_step = true;
            let received = self.receive_all(host, &mut arrived, &mut Quota::default());
            self.responder.acknowledge();
            return Err(received.err().unwrap_or(End::Local));
        }
        if why & reason::WRITABLE != 0 {
            self.unblock();
        }
        let drained = self.receive_all(host, &mut to_receive, &mut to_send);
        if matches!(drained, Ok(true)) && host.has_lost_packets() {
            self.responder.lost_packets();
        }
        self.responder.acknowledge();
        if let (true, Ok(has_drained)) = (why & reason::TIME != 0, &drained) {
            self.requester.expire(host, *has_drained)?;
        }
        let mut sent = None;
        if std::mem::take(&mut self.requests_first) && drained.is_ok() {
            sent = Some(self.requester.send(host, &mut self.buf, self.num, &mut to_send)?);
        }
        let replied = self.responder.send_replies(host, &mut self.buf, &mut to_send);
        // The replies to what came before a refused request leave before its NAK.
        let (is_drained, replied) = (drained?, replied?);
        self.requests_first = sent.is_none() && replied != Replied::All;
        let sent = match sent {
            Some(sent) => sent,
            None => self.requester.send(host, &mut self.buf, self.num, &mut to_send)?,
        };
        let used = budget.used(Budget { send: to_send, receive: to_receive });
        (stepped.moved, stepped.operations) = (used.bytes, used.operations);
        stepped.again = !is_drained || sent == Sent::Busy || replied == Replied::Busy;
        Ok(())
    }

    /// The operations that a packet is charged for.
    fn operations(&self, operation: Operation) -> usize {
        match operation {
            Operation::CompareSwap | Operation::FetchAdd if !self.is_last_step => ATOMIC_OPERATIONS,
            _ => 1,
        }
    }

    /// Processes received packets. False: the budget is used up.
    fn receive_all(
        &mut self,
        host: &mut impl PacketLink,
        budget: &mut Quota,
        to_send: &mut Quota,
    ) -> Result<bool, End> {
        self.resume(host, budget)?;
        loop {
            if budget.is_used_up() {
                return Ok(false);
            }
            let batch = host.receive_packets();
            // Also if it has found no packet, but the end of the memory.
            self.change_link(host);
            let Some(batch) = batch else { return Ok(true) };
            self.receive_batch(host, &batch, budget, to_send)?;
        }
    }

    /// Processes packets that have arrived together.
    fn receive_batch<H: PacketLink>(
        &mut self,
        host: &mut H,
        batch: &Batch<H::Buffer>,
        budget: &mut Quota,
        to_send: &mut Quota,
    ) -> Result<(), End> {
        let mut next = 0;
        while let Some(bytes) = batch.packet(next) {
            if self.responder.must_acknowledge() {
                self.responder.acknowledge();
                self.responder.send_replies(host, &mut self.buf, to_send)?;
                host.send_batch();
            }
            let (operation, packet) = match self.parse(bytes) {
                Ok(parsed) => parsed,
                Err(why) => {
                    budget.charge(1, bytes.len());
                    host.dropped_packet(why);
                    next += 1;
                    continue;
                }
            };
            if let Some(run) = Run::find(batch, next, operation, &packet) {
                let count = match operation.is_response() {
                    true => self.requester.receive_run(host, &run, &packet),
                    false => self.responder.receive_run(host, &run, &packet),
                };
                if count > 0 {
                    budget.charge(count, count * run.packet_len());
                    next += count;
                    self.note_established(host, operation);
                    continue;
                }
            }
            let operations = self.operations(operation);
            // Other packets of the batch are carried out whatever the budget.
            let is_too_much = operations > 1 && budget.is_used_up();
            budget.charge(operations, bytes.len());
            next += 1;
            if operation.is_response() {
                self.requester.receive(host, operation, &packet)?;
                continue;
            }
            let is_behind = !self.responder.deferred.is_empty();
            if is_behind || is_too_much || self.responder.must_defer(operation, &packet) {
                if !self.responder.defer(packet.bth.psn, bytes) {
                    host.dropped_packet(Dropped::Overflow);
                }
                continue;
            }
            self.responder.receive(host, operation, &packet)?;
            self.note_established(host, operation);
        }
        Ok(())
    }

    /// A packet was carried out.
    fn note_established(&mut self, host: &mut impl Host, operation: Operation) {
        if operation.is_request() && !std::mem::replace(&mut self.is_established, true) {
            host.established();
        }
    }

    /// Executes deferred requests, up to the next one that must wait or the end of the budget.
    fn resume(&mut self, host: &mut impl PacketLink, budget: &mut Quota) -> Result<(), End> {
        while !budget.is_used_up() {
            let Some(bytes) = self.responder.deferred.pop_front() else { break };
            let Ok((operation, packet)) = self.parse(&bytes) else { continue };
            if self.responder.must_defer(operation, &packet) {
                self.responder.deferred.push_front(bytes);
                break;
            }
            budget.charge(self.operations(operation), bytes.len());
            self.responder.receive(host, operation, &packet)?;
            self.note_established(host, operation);
        }
        self.responder.resumed();
        Ok(())
    }

    /// A packet of this service whose P_Key is that of the queue pair.
    fn parse<'a>(&self, bytes: &'a [u8]) -> Result<(Operation, Packet<'a>), Dropped> {
        let packet = Packet::parse(bytes).map_err(|_| Dropped::Malformed)?;
        let (Opcode::Rc(operation), Some(terms)) = (packet.bth.opcode, self.terms) else {
            return Err(Dropped::Malformed);
        };
        match is_same_partition(packet.bth.pkey, terms.pkey) {
            true => Ok((operation, packet)),
            false => Err(Dropped::Pkey),
        }
    }

    /// After the end: sends what was replied to before it, and the NAK, which is repeated for a refused
    /// request that the peer sends again. Within the budget: before the end, the peer may have requested
    /// gigabytes.
    fn linger(&mut self, host: &mut impl PacketLink, why: u32, budget: Budget, stepped: &mut Stepped) {
        if why & reason::WRITABLE != 0 {
            self.unblock();
        }
        let (mut to_receive, mut to_send) = (budget.receive, budget.send);
        while !to_receive.is_used_up() {
            let Some(batch) = host.receive_packets() else { break };
            for bytes in (0..batch.count()).filter_map(|index| batch.packet(index)) {
                to_receive.charge(1, bytes.len());
                match self.parse(bytes) {
                    Ok((operation, packet)) if operation.is_request() => {
                        self.responder.receive_after_end(&packet);
                    }
                    _ => {}
                }
            }
        }
        let replied = self.responder.send_replies(host, &mut self.buf, &mut to_send);
        let used = budget.used(Budget { send: to_send, receive: to_receive });
        stepped.moved += used.bytes;
        stepped.operations += used.operations;
        // An error has queued a NAK, which takes the place of all replies.
        stepped.again = to_receive.is_used_up() || !matches!(replied, Ok(Replied::All | Replied::Blocked));
    }

    fn unblock(&mut self) {
        self.requester.unblock();
        self.responder.unblock();
    }

    fn end(&mut self, host: &mut impl PacketLink, end: End) {
        if self.state == State::Over {
            return;
        }
        self.state = State::Over;
        let mut failed = None;
        if let End::Request(Failed { position, status }) = end {
            if let Some(entry) = self.requester.sq.at(position) {
                entry.progress = Progress::Done(status);
            }
            failed = self.requester.sq.entry(position).map(|entry| (&entry.wr, status));
        }
        let ending = end.describe(failed);
        host.ends(ending);
        self.responder.deferred.clear();
        self.flush(host);
        host.ended(end.kind());
    }

    /// Completes with a flush error what is outstanding, and what was posted since.
    fn flush(&mut self, host: &mut impl Host) {
        self.requester.sq.flush(host, self.num);
        self.responder.inbound.rq.flush(host, self.own_receives);
    }

    /// The queue pair is destroyed: no further completions.
    pub fn abandon(&mut self, _host: &mut impl PacketLink) {
        self.state = State::Over;
    }

    /// Whether all requests that were taken from the host are completed.
    pub fn has_completed_all(&self) -> bool {
        self.requester.sq.is_empty()
    }

    /// Takes one more request, which fails with this status and ends the connection; the caller has checked
    /// [`Self::has_completed_all`].
    pub fn fail_next(&mut self, host: &mut impl PacketLink, status: u32) {
        if self.state != State::Open || self.requester.sq.is_full() {
            return;
        }
        if let Some(wr) = host.next_send() {
            let position = self.requester.sq.push(wr);
            self.end(host, End::Request(Failed { position, status }));
        }
    }

    /// The connection moves messages.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Receiving | State::Open)
    }

    /// The connection has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether it has taken a receive whose completion is not in the completion queue yet.
    pub fn has_receive(&self) -> bool {
        self.responder.inbound.rq.current.is_some() || self.responder.inbound.rq.keeps_completions()
    }

    /// Nothing is under way in either direction.
    pub fn is_at_rest(&self) -> bool {
        self.requester.is_at_rest() && self.responder.is_at_rest()
    }
}

crate::step::connection!(Rc, PacketLink, {
    fn awaits_entries(&self) -> bool {
        self.state == State::Open && self.requester.sq.has_unsignaled()
    }
});
