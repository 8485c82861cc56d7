// SPDX-License-Identifier: BSD-3-Clause
//! What an exchange does with a message of the peer. The manager has found the exchange by the communication
//! id of this side, and has compared the addresses.

use super::super::event::{ConnParam, Event, Response};
use super::super::terms::{REJECT_DATA_LEN, duration_us};
use super::{Due, Exchange, Outputs, Peer, State, messages};
use crate::limits::CM_SERVICE_TIMEOUT;
use crate::roce::wire::cm::{Answered, Dreq, Message, Mra, Reason, Rej, Rep};
use crate::units::Micros;

impl Exchange {
    /// The REQ of this exchange has arrived again.
    pub(in super::super) fn duplicate_req(&mut self, now: Micros, out: &mut Outputs) {
        match self.state {
            State::ReqReceived => self.send(messages::mra(self, Answered::Req), out),
            // The REP is lost, or has crossed the REQ.
            State::RepSent => {
                if let Some(repeat) = &self.repeat {
                    self.send(repeat.mad.message.clone(), out);
                }
            }
            State::DreqSent(_) => self.send_rejection(Answered::Req, self.peer.comm_id, out),
            State::TimeWait(_) if self.rejection.is_some() => {
                self.send_rejection(Answered::Req, self.peer.comm_id, out);
                self.remember(now);
            }
            _ => {}
        }
    }

    /// Whether an answer with this transaction id may be that of the peer: it repeats the one of the REQ.
    pub(in super::super) fn is_answered_by(&self, transaction: u64) -> bool {
        self.state != State::ReqSent || self.transaction == transaction
    }

    /// Whether a REP would be the first one of this exchange.
    pub(in super::super) fn awaits_reply(&self) -> bool {
        self.state == State::ReqSent
    }

    /// A REP. Returns false if it belongs to another connection than this exchange.
    pub(in super::super) fn received_rep(&mut self, rep: &Rep, out: &mut Outputs) -> bool {
        if self.state == State::ReqSent {
            self.peer = Peer { comm_id: rep.local_comm_id, ca_guid: rep.local_ca_guid, qpn: rep.local_qpn };
            self.terms = self.terms.with_reply(rep);
            self.state = State::RepReceived;
            self.repeat = None;
            self.report(Event::Response(Box::new(response(rep))), out);
            return true;
        }
        if !self.is_active {
            return false;
        }
        if self.rejection.is_some() {
            self.send_rejection(Answered::Rep, rep.local_comm_id, out);
            return true;
        }
        if rep.local_comm_id != self.peer.comm_id {
            return false;
        }
        match self.state {
            State::RepReceived => self.send(messages::mra(self, Answered::Rep), out),
            State::Established => {
                if let Ok(rtu) = messages::rtu(self, &[]) {
                    self.send(Message::Rtu(rtu), out);
                }
            }
            _ => {}
        }
        true
    }

    /// A REP from a queue pair that already has another connection: the attempt fails at both sides.
    pub(in super::super) fn reject_stale_rep(&mut self, rep: &Rep, now: Micros, out: &mut Outputs) {
        let reason = Reason::STALE_CONNECTION;
        self.peer.comm_id = rep.local_comm_id;
        self.state = State::RepReceived;
        self.refuse(reason, messages::EMPTY, now, out);
        self.report(Event::Rejected { reason, private_data: Box::new(messages::EMPTY) }, out);
    }

    /// An RTU with this communication id of the peer.
    pub(in super::super) fn received_rtu(&mut self, comm_id: u32, out: &mut Outputs) {
        if self.state == State::RepSent && comm_id == self.peer.comm_id {
            self.enter_established(out);
        }
    }

    /// An MRA: the peer needs more time.
    pub(in super::super) fn received_mra(&mut self, mra: &Mra, now: Micros) {
        let is_expected = match self.state {
            State::ReqSent => mra.answered == Answered::Req,
            State::RepSent => mra.answered == Answered::Rep && mra.local_comm_id == self.peer.comm_id,
            _ => false,
        };
        if let (true, Some(repeat)) = (is_expected, &mut self.repeat) {
            repeat.extend(duration_us(mra.service_timeout.min(CM_SERVICE_TIMEOUT)), now);
        }
    }

    /// A REJ.
    pub(in super::super) fn received_rej(&mut self, rej: &Rej, now: Micros, out: &mut Outputs) {
        if self.state != State::ReqSent && rej.local_comm_id != self.peer.comm_id {
            return;
        }
        self.ended_by_peer(rej.reason, rej.private_data, now, out);
    }

    /// The peer has ended the attempt or the connection.
    fn ended_by_peer(
        &mut self,
        reason: Reason,
        private_data: [u8; REJECT_DATA_LEN],
        now: Micros,
        out: &mut Outputs,
    ) {
        match self.state {
            State::ReqSent | State::RepReceived | State::ReqReceived | State::RepSent => {
                self.abandon(reason, private_data, now, out);
            }
            State::Established => self.end_connection(Due::Disconnected, now, out),
            State::DreqSent(due) => self.end_connection(due, now, out),
            State::TimeWait(_) | State::Gone => {}
        }
    }

    /// The communication id of a peer that may still send a message.
    pub(in super::super) fn live_peer(&self) -> Option<u32> {
        let is_over = matches!(self.state, State::TimeWait(_) | State::Gone);
        (self.peer.comm_id != 0 && !is_over).then_some(self.peer.comm_id)
    }

    /// The process of the peer has died. The kernel would have sent a REJ or a DREQ for it: these are the
    /// reasons of [`Exchange::destroy`] at the other side.
    pub(in super::super) fn peer_died(&mut self, now: Micros, out: &mut Outputs) {
        let reason = if self.is_active { Reason::CONSUMER } else { Reason::TIMEOUT };
        self.ended_by_peer(reason, messages::EMPTY, now, out);
    }

    /// A DREQ. Returns false if it belongs to another connection than this exchange.
    pub(in super::super) fn received_dreq(
        &mut self,
        dreq: &Dreq,
        transaction: u64,
        now: Micros,
        out: &mut Outputs,
    ) -> bool {
        if self.state == State::ReqSent && dreq.remote_qpn == self.qpn {
            // The peer has given up its REP, which is late or lost.
            self.peer.comm_id = dreq.local_comm_id;
        }
        if dreq.local_comm_id != self.peer.comm_id || dreq.remote_qpn != self.qpn {
            return false;
        }
        if matches!(self.state, State::ReqReceived | State::Gone) {
            return false;
        }
        // The DREP has the transaction id of the DREQ. It is sent before the end is reported, at which the
        // program may exit.
        let drep = super::Mad { transaction, message: messages::drep(self) };
        out.push_back(super::Output::Send { route: self.route(), mad: drep });
        match self.state {
            State::ReqSent | State::RepReceived => {
                self.abandon(Reason::CONSUMER, messages::EMPTY, now, out);
            }
            // The RTU is lost: only an established peer disconnects.
            State::RepSent => {
                self.enter_established(out);
                self.end_connection(Due::Disconnected, now, out);
            }
            State::Established => self.end_connection(Due::Disconnected, now, out),
            State::DreqSent(due) => self.end_connection(due, now, out),
            State::TimeWait(_) | State::ReqReceived | State::Gone => {}
        }
        true
    }

    /// A DREP with this communication id of the peer.
    pub(in super::super) fn received_drep(&mut self, comm_id: u32, now: Micros, out: &mut Outputs) {
        if let (State::DreqSent(due), true) = (self.state, comm_id == self.peer.comm_id) {
            self.end_connection(due, now, out);
        }
    }
}

fn response(rep: &Rep) -> Response {
    Response {
        param: ConnParam {
            qpn: rep.local_qpn,
            srq: rep.srq,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.end_to_end_flow_control,
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry_count,
        },
        private_data: rep.private_data,
    }
}
