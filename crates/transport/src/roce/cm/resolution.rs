// SPDX-License-Identifier: BSD-3-Clause
//! The resolution of one service id (SIDR, IBTA 12.11): which queue pair serves a port for datagrams. A plain
//! value without socket, lock or clock.
//!
//! ```text
//! active   Sent ── SIDR_REP ─▶ Gone
//! passive  Received ── answer: SIDR_REP ─▶ Answered ─▶ Gone
//! ```
//!
//! The SIDR_REQ is repeated until it is answered. In contrast to the kernel, which reports a repeated
//! SIDR_REQ as another connect request once it has answered the first one, the passive side repeats its
//! answer for as long as the peer may repeat its request.

use super::event::{Event, Output, SidrReply};
use super::exchange::{Outputs, padded, valid_qpn};
use super::repeat::Repeat;
use super::terms::{CommId, Resolve, Route, SIDR_REQUEST_DATA_LEN, SidrAnswer, Timing, duration_us};
use crate::roce::wire::cm::{
    CMA_HEADER_LEN, CmaHeader, Mad, Message, ServiceId, SidrRep, SidrReq, SidrStatus,
};
use crate::units::{Errno, Micros};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Active: the SIDR_REQ is repeated.
    Sent,
    /// Passive: the program has not decided.
    Received,
    /// Passive: a repeated SIDR_REQ gets the same SIDR_REP.
    Answered,
    /// The resolution can be removed.
    Gone,
}

pub(super) struct Resolution {
    pub id: CommId,
    pub state: State,
    pub route: Route,
    pub transaction: u64,
    /// The request id of the active side.
    pub request_id: u32,
    service: ServiceId,
    is_destroyed: bool,
    repeat: Option<Repeat>,
    answer: Option<Box<SidrRep>>,
    /// The end of `Answered`.
    ends: Option<Micros>,
    timing: Timing,
}

impl Resolution {
    /// The active side; sends the SIDR_REQ.
    pub(super) fn request(
        id: CommId,
        timing: Timing,
        transaction: u64,
        route: Route,
        call: &Resolve<'_>,
        now: Micros,
        out: &mut Outputs,
    ) -> Result<Self, Errno> {
        let header = CmaHeader { source_port: call.source_port, addresses: route.addresses()? };
        let mut private_data = [0; SidrReq::PRIVATE_DATA_LEN];
        private_data[..CMA_HEADER_LEN].copy_from_slice(&header.encode());
        private_data[CMA_HEADER_LEN..].copy_from_slice(&padded::<SIDR_REQUEST_DATA_LEN>(call.private_data)?);
        let req = SidrReq { request_id: id.0, pkey: call.pkey, service_id: call.service, private_data };
        let mad = Mad { transaction, message: Message::SidrReq(req) };
        out.push_back(Output::Send { route, mad: mad.clone() });
        let interval = duration_us(timing.response_timeout);
        let repeat = Repeat::new(mad, interval, timing.max_retries, now);
        Ok(Self {
            id,
            state: State::Sent,
            route,
            transaction,
            request_id: id.0,
            service: call.service,
            is_destroyed: false,
            repeat: Some(repeat),
            answer: None,
            ends: None,
            timing,
        })
    }

    /// The passive side: a SIDR_REQ has arrived, and its event is being reported.
    pub(super) fn requested(
        id: CommId,
        timing: Timing,
        transaction: u64,
        route: Route,
        req: &SidrReq,
    ) -> Self {
        Self {
            id,
            state: State::Received,
            route,
            transaction,
            request_id: req.request_id,
            service: req.service_id,
            is_destroyed: false,
            repeat: None,
            answer: None,
            ends: None,
            timing,
        }
    }

    /// When [`Resolution::expire`] is due.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.repeat.as_ref().map(Repeat::due).or(self.ends)
    }

    /// Whether only repeated requests are answered.
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Answered
    }

    /// Answers the request: sends the SIDR_REP.
    pub(super) fn answer(
        &mut self,
        answer: &SidrAnswer<'_>,
        now: Micros,
        out: &mut Outputs,
    ) -> Result<(), Errno> {
        if self.state != State::Received || self.is_destroyed {
            return Err(libc::EINVAL);
        }
        let (status, qpn, qkey, private_data) = match *answer {
            SidrAnswer::Valid { qpn, qkey, private_data } => {
                valid_qpn(qpn)?;
                (SidrStatus::VALID, qpn, qkey, private_data)
            }
            SidrAnswer::Refused { status, private_data } => (status, 0, 0, private_data),
        };
        let rep = SidrRep {
            request_id: self.request_id,
            status,
            info_len: 0,
            qpn,
            service_id: self.service,
            qkey,
            info: [0; SidrRep::INFO_LEN],
            private_data: padded(private_data)?,
        };
        self.answer = Some(Box::new(rep));
        self.state = State::Answered;
        // The peer does not announce how often it repeats its request. This is how Linux does.
        let intervals = Micros::from(self.timing.max_retries) + 1;
        self.ends = Some(now + intervals * duration_us(self.timing.response_timeout));
        self.send_answer(out);
        Ok(())
    }

    /// The SIDR_REQ has arrived again. There is no message by which the peer would wait longer for the
    /// answer.
    pub(super) fn duplicate_req(&self, out: &mut Outputs) {
        self.send_answer(out);
    }

    fn send_answer(&self, out: &mut Outputs) {
        if let Some(rep) = &self.answer {
            let mad = Mad { transaction: self.transaction, message: Message::SidrRep(SidrRep::clone(rep)) };
            out.push_back(Output::Send { route: self.route, mad });
        }
    }

    /// The SIDR_REP.
    pub(super) fn received_sidr_rep(&mut self, rep: &SidrRep, out: &mut Outputs) {
        if self.state == State::Sent {
            self.finish();
            self.report(
                Event::SidrReply(Box::new(SidrReply {
                    route: self.route,
                    status: rep.status,
                    qpn: rep.qpn,
                    qkey: rep.qkey,
                    private_data: rep.private_data,
                })),
                out,
            );
        }
    }

    /// The program has destroyed the identifier. No further event is reported.
    pub(super) fn destroy(&mut self, now: Micros, out: &mut Outputs) {
        match self.state {
            State::Sent => self.finish(),
            State::Received => {
                let answer = SidrAnswer::Refused { status: SidrStatus::REJECTED, private_data: &[] };
                // A refusal without private data does not fail.
                let _ = self.answer(&answer, now, out);
            }
            State::Answered | State::Gone => {}
        }
        self.is_destroyed = true;
    }

    /// The timer has expired.
    pub(super) fn expire(&mut self, now: Micros, out: &mut Outputs) {
        let Some(repeat) = &mut self.repeat else {
            if self.ends.is_some_and(|ends| ends <= now) {
                self.finish();
            }
            return;
        };
        if repeat.due() > now {
            return;
        }
        if repeat.expired(now) {
            out.push_back(Output::Send { route: self.route, mad: repeat.mad.clone() });
            return;
        }
        self.finish();
        self.report(Event::Unreachable, out);
    }

    /// Nothing is to be sent any more.
    pub(super) fn finish(&mut self) {
        (self.state, self.repeat, self.ends) = (State::Gone, None, None);
    }

    fn report(&self, event: Event, out: &mut Outputs) {
        if !self.is_destroyed {
            out.push_back(Output::Event { id: self.id, event });
        }
    }
}
