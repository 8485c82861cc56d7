// SPDX-License-Identifier: BSD-3-Clause
//! The exchange of one communication id (IBTA 12.9): calls of the program, messages of the peer and the time
//! go in; messages to send and events to report come out. A plain value without socket, lock or clock.
//!
//! ```text
//! active   ReqSent ── REP ─▶ RepReceived ── establish: RTU ─▶ Established
//! passive  ReqReceived ── accept: REP ─▶ RepSent ── RTU, data or DREQ ─▶ Established
//! both     Established ── disconnect: DREQ ─▶ DreqSent ── DREP, DREQ ─▶ TimeWait ─▶ Gone
//!          Established ── DREQ ─▶ TimeWait
//! ```
//!
//! An attempt that fails leads to `TimeWait` as well, in which a repeated message of the peer gets the same
//! answer as before. Whichever side gives up an attempt that the other one may consider established sends a
//! DREQ until it is answered. In contrast to the kernel, a destroyed exchange continues to do so.

mod messages;
mod received;

pub(super) use messages::{padded, valid_qpn};

use std::collections::VecDeque;
use std::net::IpAddr;

use super::event::{Event, Output};
use super::repeat::Repeat;
use super::terms::{
    Accept, CommId, Connect, REJECT_DATA_LEN, Route, Settings, Terms, duration_us, request_interval_us,
};
use crate::limits::{CM_MAX_TIME_WAIT, CM_MAX_TIMEOUT, CM_MIN_TIME_WAIT, CM_MIN_TIMEOUT, CM_SERVICE_TIMEOUT};
use crate::roce::wire::cm::{Answered, Dreq, Mad, Message, Reason, Req};
use crate::units::{Errno, Micros};

/// What a manager and its exchanges produce.
pub(super) type Outputs = VecDeque<Output>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Active: the REQ is repeated.
    ReqSent,
    /// Active: the program has not established the connection.
    RepReceived,
    /// Passive: the program has not accepted.
    ReqReceived,
    /// Passive: the REP is repeated.
    RepSent,
    Established,
    /// The DREQ is repeated. The event is due when that has ended.
    DreqSent(Due),
    /// Repeated messages of the peer are answered. The event is due at the end.
    TimeWait(Due),
    /// The exchange can be removed.
    Gone,
}

/// An event that is reported at the end of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    ConnectError,
    Disconnected,
    TimeWaitExit,
}

/// The side of the connection behind the communication id of the peer. All 0 until the peer has sent them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub comm_id: u32,
    pub ca_guid: u64,
    pub qpn: u32,
}

/// A queue pair of another adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePair {
    pub address: IpAddr,
    pub ca_guid: u64,
    pub qpn: u32,
}

/// The answer to a repeated REQ or REP of an attempt that this side has ended.
struct Rejection {
    reason: Reason,
    private_data: Box<[u8; REJECT_DATA_LEN]>,
}

/// How long this side waits for answers, and how often it repeats messages.
#[derive(Clone, Copy)]
struct Pace {
    interval: Micros,
    retries: u8,
}

impl Pace {
    /// The time after which a peer with this pace no longer repeats a message.
    fn whole(self) -> Micros {
        (Micros::from(self.retries) + 1) * self.interval
    }
}

pub(super) struct Exchange {
    pub id: CommId,
    pub peer: Peer,
    pub state: State,
    ca_guid: u64,
    qpn: u32,
    transaction: u64,
    terms: Terms,
    is_active: bool,
    is_destroyed: bool,
    own_pace: Pace,
    /// The pace of the peer's REQ or REP.
    peer_pace: Pace,
    repeat: Option<Repeat>,
    /// The end of `TimeWait`, or of an unfetched request.
    ends: Option<Micros>,
    rejection: Option<Rejection>,
}

impl Exchange {
    /// An active exchange; sends the REQ.
    pub(super) fn connect(
        id: CommId,
        settings: &Settings,
        transaction: u64,
        route: Route,
        call: &Connect<'_>,
        now: Micros,
        out: &mut Outputs,
    ) -> Result<Self, Errno> {
        let req = messages::req(id, settings, route, call)?;
        let timing = settings.timing;
        let own_pace = Pace {
            interval: request_interval_us(timing.response_timeout, timing.packet_life),
            retries: timing.max_retries,
        };
        let peer_pace = Pace { interval: duration_us(timing.response_timeout), retries: timing.max_retries };
        let mut exchange = Self {
            id,
            peer: Peer::default(),
            state: State::ReqSent,
            ca_guid: settings.ca_guid,
            qpn: call.qpn,
            transaction,
            terms: Terms::of_connect(route, call),
            is_active: true,
            is_destroyed: false,
            own_pace,
            peer_pace,
            repeat: None,
            ends: None,
            rejection: None,
        };
        exchange.send_repeatedly(Message::Req(req), now, out);
        Ok(exchange)
    }

    /// A passive exchange: a REQ has arrived, and its event is being reported.
    pub(super) fn requested(
        id: CommId,
        settings: &Settings,
        terms: Terms,
        transaction: u64,
        req: &Req,
        now: Micros,
    ) -> Self {
        let (own, peer) = (bounded(req.local_response_timeout), bounded(req.remote_response_timeout));
        let life = req.primary.ack_timeout.saturating_sub(1);
        let mut exchange = Self {
            id,
            peer: Peer { comm_id: req.local_comm_id, ca_guid: req.local_ca_guid, qpn: req.local_qpn },
            state: State::ReqReceived,
            ca_guid: settings.ca_guid,
            qpn: 0,
            transaction,
            terms,
            is_active: false,
            is_destroyed: false,
            own_pace: Pace { interval: duration_us(own), retries: req.max_cm_retries },
            peer_pace: Pace {
                interval: request_interval_us(peer, life.min(CM_MAX_TIME_WAIT)),
                retries: req.max_cm_retries,
            },
            repeat: None,
            ends: None,
            rejection: None,
        };
        // The peer has then given up, even if it has received an MRA.
        exchange.ends = Some(now + exchange.peer_pace.whole() + duration_us(CM_SERVICE_TIMEOUT));
        exchange
    }

    pub(super) fn route(&self) -> Route {
        self.terms.route
    }

    /// When [`Exchange::expire`] is due.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.repeat.as_ref().map(Repeat::due).or(self.ends)
    }

    /// The queue pair of the peer, while another connection with it would make this one stale.
    pub(super) fn remote_queue_pair(&self) -> Option<QueuePair> {
        let is_held = self.peer.qpn != 0 && self.rejection.is_none() && self.state != State::Gone;
        let Peer { ca_guid, qpn, .. } = self.peer;
        is_held.then_some(QueuePair { address: self.terms.route.remote, ca_guid, qpn })
    }

    /// The attributes of the queue pair, once both sides have determined them.
    pub(super) fn terms(&self) -> Option<Terms> {
        (self.qpn != 0 && self.peer.qpn != 0).then_some(self.terms)
    }

    /// The attributes if the program accepts with these parameters.
    pub(super) fn terms_for(&self, call: &Accept<'_>) -> Option<Terms> {
        (self.state == State::ReqReceived).then(|| self.terms.with_accept(call))
    }

    /// The program has fetched the request.
    pub(super) fn fetched(&mut self) {
        if self.state == State::ReqReceived {
            self.ends = None;
        }
    }

    /// Accepts the request: sends the REP.
    pub(super) fn accept(&mut self, call: &Accept<'_>, now: Micros, out: &mut Outputs) -> Result<(), Errno> {
        if self.state != State::ReqReceived || self.is_destroyed {
            return Err(libc::EINVAL);
        }
        let rep = messages::rep(self, call)?;
        self.qpn = call.qpn;
        self.terms = self.terms.with_accept(call);
        self.state = State::RepSent;
        self.send_repeatedly(Message::Rep(rep), now, out);
        Ok(())
    }

    /// Establishes the connection after a REP: sends the RTU.
    pub(super) fn establish(&mut self, private_data: &[u8], out: &mut Outputs) -> Result<(), Errno> {
        if self.state != State::RepReceived || self.is_destroyed {
            return Err(libc::EINVAL);
        }
        // A repeated REP is answered without private data, as the kernel does.
        let rtu = messages::rtu(self, private_data)?;
        self.state = State::Established;
        self.send(Message::Rtu(rtu), out);
        Ok(())
    }

    /// Rejects a request or a reply: sends a REJ.
    pub(super) fn reject(
        &mut self,
        reason: Reason,
        private_data: &[u8],
        now: Micros,
        out: &mut Outputs,
    ) -> Result<(), Errno> {
        if !matches!(self.state, State::ReqReceived | State::RepReceived) || self.is_destroyed {
            return Err(libc::EINVAL);
        }
        self.refuse(reason, padded(private_data)?, now, out);
        Ok(())
    }

    /// Ends the connection: sends a DREQ. Without effect if it has ended.
    pub(super) fn disconnect(
        &mut self,
        private_data: &[u8],
        now: Micros,
        out: &mut Outputs,
    ) -> Result<(), Errno> {
        match self.state {
            _ if self.is_destroyed => Err(libc::EINVAL),
            State::Established => {
                let dreq = messages::dreq(self, padded(private_data)?);
                self.state = State::DreqSent(Due::Disconnected);
                self.send_repeatedly(dreq, now, out);
                Ok(())
            }
            State::RepSent => {
                self.give_up(Reason::CONSUMER, Due::ConnectError, now, out);
                Ok(())
            }
            State::DreqSent(_) | State::TimeWait(_) => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    /// The queue pair has received a packet of the peer, which replaces the RTU.
    pub(super) fn received_data(&mut self, out: &mut Outputs) {
        if self.state == State::RepSent {
            self.enter_established(out);
        }
    }

    /// The program has destroyed the identifier. No further event is reported.
    pub(super) fn destroy(&mut self, now: Micros, out: &mut Outputs) {
        self.is_destroyed = true;
        match self.state {
            State::ReqSent => self.refuse(Reason::TIMEOUT, messages::EMPTY, now, out),
            State::RepReceived | State::ReqReceived => {
                self.refuse(Reason::CONSUMER, messages::EMPTY, now, out);
            }
            State::RepSent => self.give_up(Reason::CONSUMER, Due::Nothing, now, out),
            State::Established => {
                self.state = State::DreqSent(Due::Nothing);
                let dreq = messages::dreq(self, [0; Dreq::PRIVATE_DATA_LEN]);
                self.send_repeatedly(dreq, now, out);
            }
            State::DreqSent(_) | State::TimeWait(_) | State::Gone => {}
        }
    }

    /// The process is killed: the exchange disappears without a message.
    #[cfg(test)]
    pub(super) fn kill(&mut self) {
        (self.state, self.repeat, self.ends) = (State::Gone, None, None);
    }

    /// The timer has expired.
    pub(super) fn expire(&mut self, now: Micros, out: &mut Outputs) {
        if let Some(repeat) = &mut self.repeat {
            if repeat.due() > now {
                return;
            }
            if repeat.expired(now) {
                out.push_back(Output::Send { route: self.terms.route, mad: repeat.mad.clone() });
                return;
            }
            return self.retries_exhausted(now, out);
        }
        if self.ends.is_none_or(|ends| ends > now) {
            return;
        }
        match self.state {
            State::ReqReceived => self.abandon(Reason::TIMEOUT, messages::EMPTY, now, out),
            State::TimeWait(_) => self.end_time_wait(out),
            _ => self.ends = None,
        }
    }

    /// Whether the program expects nothing of it any more but perhaps the end of the time wait.
    pub(super) fn has_ended(&self) -> bool {
        match self.state {
            State::TimeWait(_) => true,
            State::DreqSent(_) => self.is_destroyed,
            _ => false,
        }
    }

    /// There are too many exchanges that have ended.
    pub(super) fn forget(&mut self, out: &mut Outputs) {
        if self.has_ended() {
            self.end_time_wait(out);
            (self.state, self.repeat) = (State::Gone, None);
        }
    }

    /// The time wait has ended.
    fn end_time_wait(&mut self, out: &mut Outputs) {
        if let State::TimeWait(due) = self.state {
            self.state = State::Gone;
            self.ends = None;
            self.report_due(due, out);
        }
    }

    /// All repetitions of a message are without an answer.
    fn retries_exhausted(&mut self, now: Micros, out: &mut Outputs) {
        match self.state {
            State::ReqSent => {
                self.refuse(Reason::TIMEOUT, messages::EMPTY, now, out);
                self.report(Event::Unreachable, out);
            }
            State::RepSent => {
                self.give_up(Reason::TIMEOUT, Due::Nothing, now, out);
                self.report(Event::Unreachable, out);
            }
            State::DreqSent(due) => self.end_connection(due, now, out),
            _ => self.repeat = None,
        }
    }

    /// The RTU, or what replaces it, has arrived.
    fn enter_established(&mut self, out: &mut Outputs) {
        self.state = State::Established;
        self.repeat = None;
        self.report(Event::Established, out);
    }

    /// The connection has ended at both sides, or the peer is lost.
    fn end_connection(&mut self, due: Due, now: Micros, out: &mut Outputs) {
        self.report_due(due, out);
        let exit = if due == Due::Disconnected { Due::TimeWaitExit } else { Due::Nothing };
        self.wait(exit, now);
    }

    /// The attempt ends without an answer to the peer, which has given it up.
    fn abandon(
        &mut self,
        reason: Reason,
        private_data: [u8; REJECT_DATA_LEN],
        now: Micros,
        out: &mut Outputs,
    ) {
        // The peer may use its queue pair for another attempt.
        self.peer.qpn = 0;
        self.report(Event::Rejected { reason, private_data: Box::new(private_data) }, out);
        self.wait(Due::Nothing, now);
    }

    /// Sends a REJ, and again whenever the peer repeats its message.
    fn refuse(
        &mut self,
        reason: Reason,
        private_data: [u8; REJECT_DATA_LEN],
        now: Micros,
        out: &mut Outputs,
    ) {
        let answered = match self.state {
            State::RepReceived => Answered::Rep,
            State::ReqReceived => Answered::Req,
            _ => Answered::Other,
        };
        self.rejection = Some(Rejection { reason, private_data: Box::new(private_data) });
        self.send_rejection(answered, self.peer.comm_id, out);
        self.state = State::TimeWait(Due::Nothing);
        self.repeat = None;
        self.remember(now);
    }

    /// Keeps the rejection for as long as the peer may repeat its message, even if it has received an MRA.
    fn remember(&mut self, now: Micros) {
        self.ends = Some(now + self.peer_pace.whole() + duration_us(CM_SERVICE_TIMEOUT));
    }

    /// Ends an accepted request whose RTU has not arrived. The peer is either still waiting for the REP, and
    /// takes the REJ, or considers the connection established, and takes the DREQ.
    fn give_up(&mut self, reason: Reason, due: Due, now: Micros, out: &mut Outputs) {
        self.rejection = Some(Rejection { reason, private_data: Box::new(messages::EMPTY) });
        self.send_rejection(Answered::Req, self.peer.comm_id, out);
        self.state = State::DreqSent(due);
        let dreq = messages::dreq(self, [0; Dreq::PRIVATE_DATA_LEN]);
        self.send_repeatedly(dreq, now, out);
    }

    /// Begins the time wait.
    fn wait(&mut self, due: Due, now: Micros) {
        self.repeat = None;
        self.state = State::TimeWait(due);
        if self.rejection.is_some() {
            return self.remember(now);
        }
        let code = self.terms.ack_timeout.clamp(CM_MIN_TIME_WAIT, CM_MAX_TIME_WAIT);
        self.ends = Some(now + duration_us(code));
    }

    fn report_due(&self, due: Due, out: &mut Outputs) {
        match due {
            Due::Nothing => {}
            Due::ConnectError => self.report(Event::ConnectError, out),
            Due::Disconnected => self.report(Event::Disconnected, out),
            Due::TimeWaitExit => self.report(Event::TimeWaitExit, out),
        }
    }

    fn report(&self, event: Event, out: &mut Outputs) {
        if !self.is_destroyed {
            out.push_back(Output::Event { id: self.id, event });
        }
    }

    fn mad(&self, message: Message) -> Mad {
        Mad { transaction: self.transaction, message }
    }

    fn send(&self, message: Message, out: &mut Outputs) {
        out.push_back(Output::Send { route: self.terms.route, mad: self.mad(message) });
    }

    fn send_repeatedly(&mut self, message: Message, now: Micros, out: &mut Outputs) {
        let mad = self.mad(message);
        out.push_back(Output::Send { route: self.terms.route, mad: mad.clone() });
        self.ends = None;
        self.repeat = Some(Repeat::new(mad, self.own_pace.interval, self.own_pace.retries, now));
    }

    fn send_rejection(&self, answered: Answered, remote_comm_id: u32, out: &mut Outputs) {
        if let Some(rejection) = &self.rejection {
            self.send(messages::rej(self, rejection, answered, remote_comm_id), out);
        }
    }
}

/// A timeout of the peer, within what this side accepts.
fn bounded(code: u8) -> u8 {
    code.clamp(CM_MIN_TIMEOUT, CM_MAX_TIMEOUT)
}
