// SPDX-License-Identifier: BSD-3-Clause
//! Unreliable datagrams (UD) as a state machine: a queue pair without a peer and without acknowledgements.
//!
//! A send is one packet with its own destination. It is complete when the link has taken the packet; while
//! the link takes nothing, it waits in the send queue. A packet that arrives with the Q_Key of the queue pair
//! fills a receive, behind the IP header that it came with; without a receive it is dropped (IBTA 9.8.3).
//!
//! A send that fails moves the queue pair to SQE: what is behind it is flushed, and receives go on. Nothing
//! that a peer sends ends the queue pair.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::host::{Ended, Ending, Host};
use crate::roce::link::{Dropped, PacketLink};
use crate::roce::packet::{PacketBuf, payload_of_next};
use crate::roce::payload::{self, Piece};
use crate::roce::wire::{
    Bth, DEFAULT_PKEY, Deth, Extension, IP_HEADER_LEN, Opcode, Operation, Packet, PathMtu, Psn,
    is_same_partition,
};
use crate::rq::{Current, RecvQueue};
use crate::sq::{Progress, SendQueue};
use crate::step::{Awaits, Budget, Quota, Stepped, reason};
use crate::units::{Errno, Micros};
use crate::wr::{Completion, Destination, Extra, OWN_QKEY, Op, Sender, opcode, status};

/// The attributes of the transition to RTR.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The most bytes of a datagram.
    pub mtu: PathMtu,
    /// The Q_Key of packets that it accepts.
    pub qkey: u32,
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// RTR.
    Receiving,
    /// RTS, SQD and SQE.
    Open,
    Over,
}

/// A queue pair of type UD, from the transition to RTR to the last completion.
pub struct Ud {
    num: u32,
    own_receives: bool,
    state: State,
    terms: Terms,
    psn: Psn,
    sq: SendQueue,
    rq: RecvQueue,
    buf: PacketBuf,
    /// The link takes nothing until it reports room.
    is_blocked: bool,
    /// No send is begun, as in the state SQD.
    is_draining: bool,
    /// The state SQD has not been reported.
    reports_drained: bool,
    /// A send has failed, and sends are flushed, as in the state SQE.
    is_failed: bool,
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

/// Why a send has failed.
struct NotSent {
    status: u32,
    mtu: PathMtu,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            status::LOC_LEN_ERR => {
                write!(f, "a datagram has at most {} bytes, active_mtu of the port", self.mtu.bytes())?;
            }
            status::LOC_PROT_ERR => f.write_str("its memory cannot be read")?,
            status::LOC_QP_OP_ERR => f.write_str("only sends with an address handle can be posted")?,
            _ => f.write_str("a fault was injected")?,
        }
        f.write_str("; the queue pair is in SQE until ibv_modify_qp moves it to RTS")
    }
}

impl Ud {
    /// `num` is the queue pair's number, which completions carry, `max_send_wr` the length of its send queue.
    /// `own_receives`: receives belong to the queue pair and end with it; those of a shared receive queue do
    /// not. ENOMEM.
    pub fn new(num: u32, max_send_wr: u32, own_receives: bool) -> Result<Self, Errno> {
        let mut rq = RecvQueue::new(num);
        rq.wait_for_receives = false;
        Ok(Self {
            num,
            own_receives,
            state: State::Idle,
            terms: Terms { mtu: PathMtu::Mtu256, qkey: 0 },
            psn: Psn::new(0),
            sq: SendQueue::new(max_send_wr)?,
            rq,
            buf: PacketBuf::new()?,
            is_blocked: false,
            is_draining: false,
            reports_drained: false,
            is_failed: false,
        })
    }

    /// The transition to RTR: datagrams are received.
    pub fn receive(&mut self, terms: Terms) {
        self.terms = terms;
        self.state = State::Receiving;
    }

    /// The transition to RTS: datagrams are sent, the first one with this PSN.
    pub fn send(&mut self, psn: Psn) {
        if self.state == State::Receiving {
            (self.state, self.psn) = (State::Open, psn);
        }
    }

    /// Changes the Q_Key.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.terms.qkey = qkey;
    }

    /// Begins no send, as in the state SQD, or begins sends again.
    pub fn drain(&mut self, on: bool) {
        (self.is_draining, self.reports_drained) = (on, on);
    }

    /// Whether the sends that had begun before [`Self::drain`] are complete: true once.
    pub fn has_drained(&mut self) -> bool {
        // A send is complete in the step that begins it.
        std::mem::take(&mut self.reports_drained)
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

    /// Datagrams carry no flush.
    pub fn durable(&mut self, _host: &mut impl PacketLink, _number: u64, _durable: bool) {}

    /// Does what can be done now: `why` has the reasons of the step.
    pub fn step(&mut self, host: &mut impl PacketLink, why: u32, budget: Budget) -> Stepped {
        let mut stepped = Stepped::default();
        let (mut to_send, mut to_receive) = (budget.send, budget.receive);
        if matches!(self.state, State::Receiving | State::Open) {
            self.is_blocked &= why & reason::WRITABLE == 0;
            self.rq.deliver_kept(host);
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
        stepped.awaits = match (self.rq.keeps_completions(), self.state) {
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
            let may_begin = self.state == State::Open && !self.is_blocked && !self.is_draining;
            let Some(position) = self.sq.next_position().filter(|_| may_begin) else { break Moved::All };
            if budget.is_used_up() {
                break Moved::Busy;
            }
            match self.send_next(host, position) {
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

    /// Sends one datagram. False: the link takes nothing. The status of a send that fails.
    fn send_next(&mut self, host: &mut impl PacketLink, position: u64) -> Result<bool, u32> {
        let Some(entry) = self.sq.entry(position) else { return Err(status::LOC_QP_OP_ERR) };
        let wr = &entry.wr;
        let (Op::Send | Op::SendWithImm, Some(Destination { route, qp, qkey })) = (wr.op, &wr.to) else {
            return Err(status::LOC_QP_OP_ERR);
        };
        let len = wr.len as usize;
        if len > self.terms.mtu.bytes() {
            return Err(status::LOC_LEN_ERR);
        }
        let qkey = if qkey & OWN_QKEY == 0 { *qkey } else { self.terms.qkey };
        let deth = Deth { qkey, source_qp: self.num };
        let (operation, extension) = match wr.op {
            Op::SendWithImm => (Operation::SendOnlyImm, Extension::DethImm(deth, wr.imm)),
            _ => (Operation::SendOnly, Extension::Deth(deth)),
        };
        let bth = Bth { solicited: wr.solicited, ..Bth::new(Opcode::Ud(operation), *qp, self.psn) };
        self.buf.begin(bth, &extension, len);
        let following = |n: usize| payload_of_next(&self.sq, position, n);
        if !(host.aim(route) && self.buf.send_local(host, &wr.local, 0, len, &following)?) {
            return Ok(false);
        }
        self.psn = self.psn.add(1);
        self.sq.sent(position);
        self.sq.advance();
        Ok(true)
    }

    /// A send fails: SQE.
    fn fail(&mut self, host: &mut impl PacketLink, position: u64, status: u32) {
        self.is_failed = true;
        host.send_failed();
        if let Some(entry) = self.sq.at(position) {
            entry.progress = Progress::Done(status);
        }
        let failed = self.sq.entry(position).map(|entry| (&entry.wr, status));
        let why = NotSent { status, mtu: self.terms.mtu };
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
                match self.take(host, bytes) {
                    Ok(()) => {}
                    Err(NotTaken::Dropped(why)) => host.dropped_packet(why),
                    Err(NotTaken::NotPlaced) => return Err(End::Receive),
                }
            }
        }
    }

    /// Fills a receive with a datagram behind its IP header.
    fn take(&mut self, host: &mut impl PacketLink, bytes: &[u8]) -> Result<(), NotTaken> {
        let (header, datagram) = bytes.split_at_checked(IP_HEADER_LEN).ok_or(Dropped::Malformed)?;
        let Packet { bth, extension, payload } = Packet::parse(datagram).map_err(|_| Dropped::Malformed)?;
        let (Deth { qkey, source_qp }, extra) = match extension {
            Extension::Deth(deth) => (deth, Extra::Nothing),
            Extension::DethImm(deth, imm) => (deth, Extra::Imm(imm)),
            _ => return Err(Dropped::Malformed.into()),
        };
        if !is_same_partition(bth.pkey, DEFAULT_PKEY) {
            return Err(Dropped::Pkey.into());
        }
        if qkey != self.terms.qkey {
            return Err(Dropped::Qkey.into());
        }
        if self.rq.keeps_completions() {
            return Err(Dropped::NoReceive.into());
        }
        let wr = match self.rq.current.take() {
            Some(current) => current.wr,
            None => self.rq.take(host).ok().flatten().ok_or(Dropped::NoReceive)?,
        };
        let byte_len = (IP_HEADER_LEN + payload.len()) as u32;
        if byte_len > wr.capacity() {
            self.rq.current = Some(Current { wr, filled: 0 });
            // One of the queue pair's own receives is used by the next datagram (IBTA 9.9.3, class D); the
            // others are lost to the queue pairs that share them unless they complete (class E).
            if !self.own_receives {
                self.rq.fail_current(host, status::LOC_LEN_ERR);
            }
            return Err(Dropped::TooLong.into());
        }
        let from = bytes.len() - usize::from(bth.pad) - payload.len();
        let pieces = [
            Piece { ranges: wr.parts(0, IP_HEADER_LEN), from: 0, len: IP_HEADER_LEN },
            Piece { ranges: wr.parts(IP_HEADER_LEN as u32, payload.len()), from, len: payload.len() },
        ];
        if payload::place(host, pieces, bytes).is_err() {
            self.rq.current = Some(Current { wr, filled: 0 });
            self.rq.fail_current(host, status::LOC_PROT_ERR);
            return Err(NotTaken::NotPlaced);
        }
        let completion = Completion {
            wr_id: wr.wr_id,
            opcode: opcode::RECV,
            byte_len,
            extra,
            solicited: bth.solicited,
            sender: Some(Sender { qp: source_qp, is_ipv4: header[0] >> 4 != 6 }),
            ..Completion::default()
        };
        self.rq.complete(host, completion);
        Ok(())
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
        self.rq.flush(host, self.own_receives);
    }

    /// The queue pair is destroyed: no further completions.
    pub fn abandon(&mut self, _host: &mut impl PacketLink) {
        self.state = State::Over;
    }

    /// Whether all requests that were taken from the host are completed.
    pub fn has_completed_all(&self) -> bool {
        self.sq.is_empty()
    }

    /// Takes one more send, which fails with this status; the caller has checked [`Self::has_completed_all`].
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
        self.rq.current.is_some() || self.rq.keeps_completions()
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

/// Why a datagram fills no receive.
enum NotTaken {
    Dropped(Dropped),
    NotPlaced,
}

impl From<Dropped> for NotTaken {
    fn from(why: Dropped) -> Self {
        Self::Dropped(why)
    }
}

crate::step::connection!(Ud, PacketLink);
