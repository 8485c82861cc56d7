// SPDX-License-Identifier: BSD-3-Clause
//! One reliable connection as a state machine.
//!
//! A [`Conn`] is plain data with one entry point, [`Conn::step`]: its arguments say what has happened, and it
//! calls its [`Host`](crate::host::Host) for the effects. It has no lock, atomic, socket, thread or clock, so
//! two of them joined by a simulated link run through millions of schedules in seconds (`sim`), and the
//! results apply to every driver that makes one step at a time.
//!
//! A step sends before it receives: requests that the link has accepted complete before later input is
//! processed. So a program sees the completion of a request before that of the reply to it, as it expects.
//!
//! ```text
//! posted ─▶ sq ─▶ send ─▶ FPDUs ─▶ link ─▶ recv ─▶ placements, completed receives, responses
//!                  ▲                        │
//!                  └─ responses, read done ◀┘
//!
//! opening   until the first FPDU of the peer
//! ending    the cause, the Terminate message, the statuses
//! ```

mod ending;
mod fpdu;
mod opening;
mod recv;
mod send;
mod terms;
#[cfg(test)]
mod tests;

use crate::host::Ended;
use crate::iwarp::link::StreamLink;
use crate::iwarp::wire::terminate::Terminate;
use crate::step::{Awaits, Budget, Quota, Stepped, reason};
use crate::units::{Errno, Micros};
use crate::wr::SendWr;
use ending::{End, Refusal, status_of};
use opening::Opening;
use recv::{Ran, RecvHalf};
use send::{Failure, Flushed, SendHalf, fail_request};

pub use fpdu::terminate_fpdu;
#[cfg(test)]
pub(crate) use opening::{FIRST_FPDU_TIMEOUT_S, RESPONDER_PAUSE_MS};
pub use terms::{Framing, Role, Sizes, Terms};

/// Milliseconds that a message waits for a receive after the peer has closed the connection.
const STALLED_END_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Open,
    Over,
}

/// The result of [`Conn::carry_out`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offered {
    /// The request is complete.
    Complete,
    /// It is in the send queue, as if it had been posted. A step with [`reason::POSTED`] must follow.
    Taken,
    /// It was not carried out: it must be posted as the next request, and a step made.
    Refused,
}

/// One reliable connection, from the first posted receive to the last completion.
pub struct Conn {
    num: u32,
    own_receives: bool,
    state: State,
    send: SendHalf,
    recv: RecvHalf,
    opening: Opening,
    /// Nothing arrives after the bytes that the link holds.
    hung_up: bool,
    /// Sending has failed with this error. Bytes that the link holds are still received.
    broken: Option<Errno>,
    /// The next message waits for a receive, or for room in the completion queue.
    stalled: bool,
    /// The time until which it waits after the peer has closed the connection.
    stalled_until: Option<Micros>,
    receives_seen: u64,
}

impl Conn {
    /// `num` is the queue pair number that completions carry, `max_send_wr` the length of the send queue.
    /// `own_receives`: the receive queue is not shared, so its receives are flushed when the connection ends.
    /// ENOMEM.
    pub fn new(num: u32, max_send_wr: u32, own_receives: bool, sizes: Sizes) -> Result<Self, Errno> {
        Ok(Self {
            num,
            own_receives,
            state: State::Idle,
            send: SendHalf::new(max_send_wr)?,
            recv: RecvHalf::new(num, sizes),
            opening: Opening::default(),
            hung_up: false,
            broken: None,
            stalled: false,
            stalled_until: None,
            receives_seen: 0,
        })
    }

    /// Starts the connection; the caller then makes the first step. Called once, unless it fails with ENOMEM.
    pub fn open(&mut self, terms: Terms<'_>, now: Micros) -> Result<(), Errno> {
        // A CRC protects bytes on the wire; with CRCs negotiated, all bytes go over it.
        self.send.open(terms.framing, terms.transfers && !terms.framing.crc)?;
        self.recv.open(terms.framing.crc, terms.wait_for_receives, terms.early)?;
        self.state = State::Open;
        self.recv.look_again(false);
        self.opening.begin(terms.role, &mut self.send, now);
        Ok(())
    }

    /// Ends a connection that was never opened, or that has lost its link.
    pub fn lose(&mut self, host: &mut impl StreamLink, errno: Errno) {
        self.end(host, End::Link(errno));
    }

    /// From now on a message without a receive ends the connection, whatever [`Terms::wait_for_receives`]
    /// was. The caller then makes a step with [`reason::RECEIVE`].
    pub fn wait_no_more(&mut self) {
        self.recv.rq().wait_for_receives = false;
    }

    /// When a step with [`reason::TIME`] is due.
    pub fn deadline(&self) -> Option<Micros> {
        if self.state != State::Open {
            return None;
        }
        match (self.opening.deadline(), self.stalled_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Reports the result of a flush to persistence, by the number that was passed to
    /// [`make_durable`](crate::host::Host::make_durable).
    /// The caller then makes a step with [`reason::DURABLE`].
    pub fn durable(&mut self, host: &mut impl StreamLink, number: u64, durable: bool) {
        if self.state != State::Open {
            return;
        }
        if durable {
            self.send.release_answer(number);
        } else {
            let code = crate::iwarp::wire::rdmap::TermCode::LOCAL_CATASTROPHIC;
            self.end(host, End::Refused(Some(Terminate::new(code)), Refusal::Durability));
        }
    }

    /// Carries out a request that finds nothing outstanding before it, and completes it, without taking it
    /// into the send queue: by direct copy, or as a message of one FPDU.
    #[inline]
    pub fn carry_out(&mut self, host: &mut impl StreamLink, wr: &SendWr) -> Offered {
        if self.state != State::Open || self.broken.is_some() {
            return Offered::Refused;
        }
        self.send.carry_out_alone(host, wr, self.num).unwrap_or_else(|errno| {
            self.cannot_send(errno);
            Offered::Refused
        })
    }

    /// Sends, receives and completes as much as the budget and the link permit. `why` has the [`reason`]s.
    pub fn step(&mut self, host: &mut impl StreamLink, why: u32, budget: Budget) -> Stepped {
        let mut stepped = Stepped::default();
        match self.state {
            State::Idle => return stepped,
            State::Open => {
                if let Err(end) = self.move_bytes(host, why, budget, &mut stepped) {
                    self.end(host, end);
                }
            }
            State::Over => {}
        }
        if self.state == State::Over {
            self.flush(host);
            // Requests that are posted from now on cause a step, which flushes them.
            self.stalled = true;
            stepped.again = false;
        }
        stepped.awaits = match (self.stalled, self.recv.rq().keeps_completions()) {
            (_, true) => Awaits::Room,
            (true, false) => Awaits::Receive,
            (false, false) => Awaits::Nothing,
        };
        stepped
    }

    fn move_bytes(
        &mut self,
        host: &mut impl StreamLink,
        why: u32,
        budget: Budget,
        stepped: &mut Stepped,
    ) -> Result<(), End> {
        if why & reason::DISCONNECT != 0 {
            if why & reason::POSTED != 0 {
                // Deferred requests are sent as far as the link accepts them.
                let mut to_send = budget.send;
                self.send_out(host, &mut to_send)?;
            }
            return Err(End::Local);
        }
        self.hung_up |= why & reason::HANGUP != 0;
        // Bytes already readable when the first-FPDU timer expires arrived in time: this process may have
        // been stopped.
        let time_up = why & reason::TIME != 0 && self.opening.awaits_first();
        if !self.opening.awaits_first() {
            self.opening.time(&mut self.send, host)?;
        }
        if why & reason::WRITABLE != 0 {
            self.send.unblock();
        }
        if why & (reason::READABLE | reason::HANGUP) != 0 || time_up {
            self.recv.look_again(self.hung_up);
        }
        let (mut to_send, mut to_receive) = (budget.send, budget.receive);
        let mut flushed = self.send_out(host, &mut to_send)?;
        let reads =
            reason::READABLE | reason::HANGUP | reason::RECEIVE | reason::ROOM | reason::AGAIN | reason::TIME;
        let mut ran = if self.stalled { Ran::Stalled } else { Ran::Drained };
        if why & reads != 0 || self.broken.is_some() {
            self.recv.rq().deliver_kept(host);
            loop {
                let result = self.recv.run(host, &mut self.send, &mut to_receive);
                let mut answers = matches!(result, Ok(Ran::Answers));
                if self.recv.has_received {
                    answers |= self.opening.received(&mut self.send, host);
                }
                ran = result?;
                if answers {
                    self.recv.answers_taken();
                    let was_broken = self.broken.is_some();
                    flushed = self.send_out(host, &mut to_send)?;
                    // More may have arrived since the last read, before the link failed.
                    if self.broken.is_some() && !was_broken {
                        continue;
                    }
                }
                if ran != Ran::Answers {
                    break;
                }
            }
        }
        if self.recv.has_acted() {
            host.acted();
        }
        let used = budget.used(Budget { send: to_send, receive: to_receive });
        (stepped.moved, stepped.operations) = (used.bytes, used.operations);
        if time_up && self.opening.awaits_first() {
            self.opening.time(&mut self.send, host)?;
        }
        if let (Some(errno), Ran::Drained) = (self.broken, ran) {
            return Err(End::Link(errno));
        }
        self.stalled = ran == Ran::Stalled;
        self.wait_after_end(host)?;
        stepped.again = ran == Ran::Busy || flushed == Flushed::Busy;
        Ok(())
    }

    /// Sends as much as possible. If the link fails here, it may still hold bytes that the peer sent before:
    /// these are received before the connection ends.
    fn send_out(&mut self, host: &mut impl StreamLink, budget: &mut Quota) -> Result<Flushed, End> {
        if self.broken.is_some() {
            return Ok(Flushed::Blocked);
        }
        match self.send.flush(host, self.num, budget) {
            Err(Failure::Link(errno)) => {
                self.cannot_send(errno);
                Ok(Flushed::Blocked)
            }
            flushed => Ok(flushed?),
        }
    }

    /// The link has failed: only what it still holds is received.
    #[cold]
    fn cannot_send(&mut self, errno: Errno) {
        self.broken = Some(errno);
        self.hung_up = true;
        self.recv.look_again(true);
    }

    /// Messages that arrived before the peer closed the connection are still delivered: the end is not
    /// reported while they wait for receives and the program keeps posting them.
    fn wait_after_end(&mut self, host: &mut impl StreamLink) -> Result<(), End> {
        if !(self.stalled && self.hung_up) {
            self.stalled_until = None;
            return Ok(());
        }
        let (seen, now) = (self.recv.rq().taken(), host.now());
        match self.stalled_until {
            Some(until) if seen == self.receives_seen => {
                if now >= until {
                    return Err(End::PeerClosed);
                }
            }
            _ => self.stalled_until = Some(now + STALLED_END_MS * 1_000),
        }
        self.receives_seen = seen;
        Ok(())
    }

    fn end(&mut self, host: &mut impl StreamLink, end: End) {
        if self.state == State::Over {
            return;
        }
        let opened = self.state == State::Open;
        self.state = State::Over;
        let (mut terminate, mut failed) = (None, None);
        match end {
            End::Refused(message, _) => terminate = message,
            End::Terminated(message) => {
                if let Some((position, entry)) = self.send.sq.oldest_awaited() {
                    failed = status_of(&message, entry.wr.is_atomic()).map(|status| (position, status));
                }
            }
            End::Request { position, status } => failed = Some((position, status)),
            End::Local | End::PeerClosed | End::Link(_) => {}
        }
        if let Some((position, status)) = failed {
            fail_request(&mut self.send.sq, position, status);
        }
        let failed = failed.and_then(|(position, status)| Some((&self.send.sq.entry(position)?.wr, status)));
        let ending = end.describe(failed);
        let how = if ending.is_failure { Ended::Failed } else { Ended::Closed };
        host.ends(ending);
        let last = if end.is_without_link() { None } else { self.send.final_bytes(host, terminate) };
        if opened {
            host.close(last.as_deref());
        }
        self.flush(host);
        host.ended(how);
    }

    /// Completes all outstanding and newly posted requests with a flush error.
    fn flush(&mut self, host: &mut impl StreamLink) {
        self.send.sq.flush(host, self.num);
        self.recv.rq().flush(host, self.own_receives);
    }

    /// The queue pair is being destroyed: nothing completes any more. Bytes that were already sent reach the
    /// peer before the end of the stream.
    pub fn abandon(&mut self, host: &mut impl StreamLink) {
        if std::mem::replace(&mut self.state, State::Over) == State::Open {
            let last = self.send.final_bytes(host, None);
            host.close(last.as_deref());
        }
    }

    /// Whether all send requests taken from the host have completed.
    pub fn has_completed_all(&self) -> bool {
        self.send.sq.is_empty()
    }

    /// Takes the next send request and fails it with this status, which ends the connection. The caller must
    /// have checked [`Self::has_completed_all`].
    pub fn fail_next(&mut self, host: &mut impl StreamLink, status: u32) {
        if self.state != State::Open || self.send.sq.is_full() {
            return;
        }
        if let Some(wr) = host.next_send() {
            let position = self.send.sq.push(wr);
            self.end(host, End::Request { position, status });
        }
    }

    /// Whether the connection is open.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether it has taken a receive whose completion is not in the completion queue yet.
    pub fn has_receive(&self) -> bool {
        self.recv.has_receive()
    }

    /// Whether nothing is outstanding in either direction.
    #[cfg(test)]
    fn is_at_rest(&self) -> bool {
        self.send.is_at_rest() && self.recv.is_at_rest()
    }
}

crate::step::connection!(Conn, StreamLink, {
    fn wait_no_more(&mut self) {
        self.wait_no_more();
    }
});
