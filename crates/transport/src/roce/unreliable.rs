// SPDX-License-Identifier: BSD-3-Clause
//! What the services without acknowledgements, UC and UD, have in common.
//!
//! A request is complete when the link has taken all its packets; while the link takes nothing, it waits in
//! the send queue. A request that fails moves the queue pair to SQE: what is behind it is flushed, and
//! receives go on (IBTA 10.3.1). Nothing that a peer sends ends the queue pair, or is answered.

use std::fmt;

use super::link::{Dropped, PacketLink};
use super::packet::{PacketBuf, payload_behind};
use super::state::State;
use super::wire::{Bth, Extension, Psn};
use crate::host::{Ended, Ending, Host};
use crate::route::Route;
use crate::rq::RecvQueue;
use crate::sq::{Progress, SendQueue};
use crate::step::{Awaits, Budget, Quota, Stepped, reason};
use crate::units::{Errno, Micros};
use crate::wr::{SendWr, status};

/// The next packet of a request.
pub struct Outgoing<'a> {
    /// Without pad.
    pub bth: Bth,
    /// The headers of its operation.
    pub extension: Extension,
    /// Bytes of payload.
    pub len: usize,
    /// Nothing of the request is left.
    pub is_last: bool,
    /// Where it goes, if the queue pair has no peer.
    pub route: Option<&'a Route>,
}

/// Why a received packet fills no receive and changes no memory.
pub enum NotTaken {
    /// It is dropped.
    Dropped(Dropped),
    /// The memory of the receive does not permit it, or is gone.
    NotPlaced,
}

impl From<Dropped> for NotTaken {
    fn from(why: Dropped) -> Self {
        Self::Dropped(why)
    }
}

/// A service without acknowledgements.
pub trait Service: Sized {
    /// The queue pair has a peer, and reports its first packet.
    const IS_CONNECTED: bool;

    /// For the queue pair with this number.
    fn new(num: u32) -> Self;
    /// Its receive queue.
    fn rq(&self) -> &RecvQueue;
    /// As [`Self::rq`].
    fn rq_mut(&mut self) -> &mut RecvQueue;
    /// Carries out a request that sends nothing; `None` if it is another one.
    fn carry_out(&mut self, host: &mut impl Host, wr: &SendWr) -> Option<Result<(), u32>>;
    /// The packet with this PSN of a request, of which `offset` bytes were sent. The status of a request that
    /// fails.
    fn packet<'a>(&self, num: u32, wr: &'a SendWr, offset: usize, psn: Psn) -> Result<Outgoing<'a>, u32>;
    /// Takes a received packet. `own_receives`: receives belong to this queue pair alone.
    fn take(&mut self, host: &mut impl PacketLink, bytes: &[u8], own_receives: bool) -> Result<(), NotTaken>;
    /// Explains the status of a request that has failed.
    fn explain(&self, status: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// A queue pair of such a service, from the transition to RTR to the last completion.
pub struct Unreliable<S> {
    num: u32,
    own_receives: bool,
    state: State,
    pub(super) service: S,
    psn: Psn,
    sq: SendQueue,
    /// Bytes of the request at the head of the queue that were sent.
    offset: usize,
    /// Packets of that request were sent.
    has_begun: bool,
    buf: PacketBuf,
    /// The link takes nothing until it reports room.
    is_blocked: bool,
    /// No request is begun, as in the state SQD.
    is_draining: bool,
    /// The state SQD has not been reported.
    reports_drained: bool,
    /// A request has failed, and requests are flushed, as in the state SQE.
    is_failed: bool,
    /// A packet of the peer has arrived.
    is_established: bool,
}

/// Why a queue pair has ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Local,
    /// The memory of a receive does not permit it, or is gone.
    Receive,
    Lost(Errno),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("queue pair closed by this side"),
            Self::Receive => f.write_str("the memory of the posted receive cannot be written"),
            Self::Lost(errno) => {
                write!(f, "queue pair lost: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

/// Why a request has failed.
struct NotSent<'a, S> {
    status: u32,
    service: &'a S,
}

impl<S: Service> fmt::Display for NotSent<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service.explain(self.status, f)?;
        f.write_str("; the queue pair is in SQE until ibv_modify_qp moves it to RTS")
    }
}

/// Whether one direction is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// What may be moved now.
    All,
    /// The budget is used up.
    Busy,
}

impl<S: Service> Unreliable<S> {
    /// `num` is the queue pair's number, which completions carry, `max_send_wr` the length of its send queue.
    /// `own_receives`: receives belong to the queue pair and end with it; those of a shared receive queue do
    /// not. ENOMEM.
    pub fn new(num: u32, max_send_wr: u32, own_receives: bool) -> Result<Self, Errno> {
        Ok(Self {
            num,
            own_receives,
            state: State::Idle,
            service: S::new(num),
            psn: Psn::new(0),
            sq: SendQueue::new(max_send_wr)?,
            offset: 0,
            has_begun: false,
            buf: PacketBuf::new()?,
            is_blocked: false,
            is_draining: false,
            reports_drained: false,
            is_failed: false,
            is_established: false,
        })
    }

    /// The transition to RTR, with the attributes that the service has taken.
    pub(super) fn begin(&mut self) {
        self.state = State::Receiving;
    }

    /// The transition to RTS: requests are sent, the first packet with this PSN.
    pub fn send(&mut self, psn: Psn) {
        if self.state == State::Receiving {
            (self.state, self.psn) = (State::Open, psn);
        }
    }

    /// Begins no request, as in the state SQD, or begins requests again.
    pub fn drain(&mut self, on: bool) {
        (self.is_draining, self.reports_drained) = (on, on);
    }

    /// Whether the requests that had begun before [`Self::drain`] are complete: true once.
    pub fn has_drained(&mut self) -> bool {
        let has_drained = self.reports_drained && !self.has_begun;
        self.reports_drained &= !has_drained;
        has_drained
    }

    /// The transition from SQE to RTS: what is posted from now on is sent.
    pub fn resume(&mut self) {
        self.is_failed = false;
    }

    /// Requests that were taken from the host and are not completed.
    pub fn outstanding(&self) -> usize {
        self.sq.len()
    }

    /// Ends a queue pair whose link is gone.
    pub fn lose(&mut self, host: &mut impl PacketLink, errno: Errno) {
        self.end(host, End::Lost(errno));
    }

    /// There is no timer.
    pub fn deadline(&self) -> Option<Micros> {
        None
    }

    /// There is no flush.
    pub fn durable(&mut self, _host: &mut impl PacketLink, _number: u64, _durable: bool) {}

    /// Does what can be done now: `why` has the reasons of the step.
    pub fn step(&mut self, host: &mut impl PacketLink, why: u32, budget: Budget) -> Stepped {
        let mut stepped = Stepped::default();
        let (mut to_send, mut to_receive) = (budget.send, budget.receive);
        if matches!(self.state, State::Receiving | State::Open) {
            self.is_blocked &= why & reason::WRITABLE == 0;
            self.service.rq_mut().deliver_kept(host);
            let received = self.receive_all(host, &mut to_receive);
            let sent = self.send_all(host, &mut to_send);
            stepped.again = sent == Moved::Busy || matches!(received, Ok(Moved::Busy));
            if let Err(end) = received {
                self.end(host, end);
            }
        }
        if why & reason::DISCONNECT != 0 {
            self.end(host, End::Local);
        }
        if self.state == State::Over {
            stepped.again = false;
            while host.receive_packets().is_some() {}
            self.flush(host);
        }
        let used = budget.used(Budget { send: to_send, receive: to_receive });
        (stepped.moved, stepped.operations) = (used.bytes, used.operations);
        stepped.awaits = match (self.service.rq().keeps_completions(), self.state) {
            (true, _) => Awaits::Room,
            // What is posted from now on is flushed by a step.
            (false, State::Over) => Awaits::Receive,
            (false, _) => Awaits::Nothing,
        };
        stepped
    }

    /// Takes what was posted, and sends it.
    fn send_all(&mut self, host: &mut impl PacketLink, budget: &mut Quota) -> Moved {
        let moved = loop {
            while !self.sq.is_full() {
                let Some(wr) = host.next_send() else { break };
                self.sq.push(wr);
            }
            if self.is_failed {
                self.sq.flush(host, self.num);
                return Moved::All;
            }
            let may_begin = self.state == State::Open && !self.is_blocked;
            let may_begin = may_begin && (self.has_begun || !self.is_draining);
            let Some(position) = self.sq.next_position().filter(|_| may_begin) else { break Moved::All };
            if budget.is_used_up() {
                break Moved::Busy;
            }
            match self.send_next(host, position, budget.bytes) {
                Ok(true) => budget.charge(1, self.buf.len()),
                Ok(false) => {
                    self.is_blocked = true;
                    break Moved::All;
                }
                Err(status) => self.fail(host, position, status),
            }
            self.sq.retire(host, self.num);
        };
        // Also what the completion queue had no room for.
        self.sq.retire(host, self.num);
        moved
    }

    /// Sends one packet of the next request, or carries the request out. False: the link takes nothing. The
    /// status of a request that fails. `budget`: at most so many bytes are sent in this step.
    fn send_next(&mut self, host: &mut impl PacketLink, position: u64, budget: usize) -> Result<bool, u32> {
        let Some(entry) = self.sq.entry(position) else { return Err(status::LOC_QP_OP_ERR) };
        let wr = &entry.wr;
        if let Some(result) = self.service.carry_out(host, wr) {
            result?;
            self.completes(position);
            return Ok(true);
        }
        let Outgoing { bth, extension, len, is_last, route } =
            self.service.packet(self.num, wr, self.offset, self.psn)?;
        self.buf.begin(bth, &extension, len);
        let is_aimed = route.is_none_or(|route| host.aim(route));
        let (bytes, is_only) = (self.offset..self.offset + len, self.offset == 0 && is_last);
        let following = |n: usize| {
            let is_near = (n + 1) * len < budget;
            if is_near { payload_behind(&self.sq, position, &bytes, is_only, &extension, n) } else { None }
        };
        if !(is_aimed && self.buf.send_local(host, &wr.local, bytes.start, len, &following)?) {
            return Ok(false);
        }
        self.psn = self.psn.next();
        (self.offset, self.has_begun) = (bytes.end, true);
        if is_last {
            self.completes(position);
        }
        Ok(true)
    }

    /// The request at the head of the queue is complete.
    fn completes(&mut self, position: u64) {
        (self.offset, self.has_begun) = (0, false);
        self.sq.sent(position);
        self.sq.advance();
    }

    /// A request fails: SQE. Of one whose first packets were sent the peer drops the message.
    fn fail(&mut self, host: &mut impl PacketLink, position: u64, status: u32) {
        self.is_failed = true;
        (self.offset, self.has_begun) = (0, false);
        host.send_failed();
        if let Some(entry) = self.sq.at(position) {
            entry.progress = Progress::Done(status);
        }
        let failed = self.sq.entry(position).map(|entry| (&entry.wr, status));
        let why = NotSent { status, service: &self.service };
        let operation = failed.map(|(wr, _)| wr.op.name());
        host.ends(Ending { failed, is_failure: true, operation, errno: None, why: &why });
        self.sq.flush(host, self.num);
    }

    /// Processes received packets.
    fn receive_all(&mut self, host: &mut impl PacketLink, budget: &mut Quota) -> Result<Moved, End> {
        loop {
            if budget.is_used_up() {
                return Ok(Moved::Busy);
            }
            let Some(batch) = host.receive_packets() else { return Ok(Moved::All) };
            for bytes in (0..batch.count()).filter_map(|index| batch.packet(index)) {
                budget.charge(1, bytes.len());
                match self.service.take(host, bytes, self.own_receives) {
                    Ok(()) if S::IS_CONNECTED && !std::mem::replace(&mut self.is_established, true) => {
                        host.established();
                    }
                    Ok(()) => {}
                    Err(NotTaken::Dropped(why)) => host.dropped_packet(why),
                    Err(NotTaken::NotPlaced) => return Err(End::Receive),
                }
            }
        }
    }

    fn end(&mut self, host: &mut impl PacketLink, end: End) {
        if self.state == State::Over {
            return;
        }
        self.state = State::Over;
        let (errno, kind) = match end {
            End::Local => (None, Ended::Closed),
            End::Receive => (None, Ended::Completed),
            End::Lost(errno) => (Some(errno), Ended::Failed),
        };
        let is_failure = kind.is_failure();
        host.ends(Ending { failed: None, is_failure, operation: None, errno, why: &end });
        self.flush(host);
        host.ended(kind);
    }

    /// Completes with a flush error what is outstanding, and what was posted since.
    fn flush(&mut self, host: &mut impl Host) {
        self.sq.flush(host, self.num);
        self.service.rq_mut().flush(host, self.own_receives);
    }

    /// The queue pair is destroyed: no further completions.
    pub fn abandon(&mut self, _host: &mut impl PacketLink) {
        self.state = State::Over;
    }

    /// Whether all requests that were taken from the host are completed.
    pub fn has_completed_all(&self) -> bool {
        self.sq.is_empty()
    }

    /// Takes one more request, which fails with this status; the caller has checked
    /// [`Self::has_completed_all`].
    pub fn fail_next(&mut self, host: &mut impl PacketLink, status: u32) {
        if self.state != State::Open || self.sq.is_full() {
            return;
        }
        if let Some(wr) = host.next_send() {
            let position = self.sq.push(wr);
            self.fail(host, position, status);
        }
    }

    /// The queue pair moves messages.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Receiving | State::Open)
    }

    /// The queue pair has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether it has taken a receive whose completion is not in the completion queue yet.
    pub fn has_receive(&self) -> bool {
        self.service.rq().current.is_some() || self.service.rq().keeps_completions()
    }
}
