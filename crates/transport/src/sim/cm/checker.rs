// SPDX-License-Identifier: BSD-3-Clause
//! The calls and events of the two programs of a connection, and which events may follow from them.

use super::plan::{Answer, AttemptPlan, MS, Plan, S};
use crate::roce::cm::{CommId, Event, REJECT_DATA_LEN, Terms};
use crate::roce::wire::cm::Reason;
use crate::units::Micros;

pub(super) const ACTIVE: usize = 0;
pub(super) const PASSIVE: usize = 1;

/// 16 intervals of 4.83 s, and one more that an MRA may have cut short, and the MRA.
const WORST_CONNECT_US: Micros = 17 * 4_832 * MS + 69 * S + SLACK_US;
/// The same with intervals of 4.29 s.
const WORST_ACCEPT_US: Micros = 17 * 4_295 * MS + 69 * S + SLACK_US;
const WORST_DISCONNECT_US: Micros = 16 * 4_832 * MS + SLACK_US;
/// Late timers.
const SLACK_US: Micros = 2 * S;

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Established,
    Rejected,
    Unreachable,
    ConnectError,
}

impl Outcome {
    pub(super) const ALL: [Self; 4] =
        [Self::Established, Self::Rejected, Self::Unreachable, Self::ConnectError];
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Side {
    pub id: Option<CommId>,
    /// When the program has called connect or accept.
    pub called: Option<Micros>,
    /// The active side has a reply.
    pub has_reply: bool,
    pub outcome: Option<Outcome>,
    /// When the program has disconnected.
    pub disconnected: Option<Micros>,
    /// DISCONNECTED was reported.
    pub has_ended: bool,
    pub has_exited: bool,
    /// The program has destroyed its identifier, or its process is killed.
    pub is_destroyed: bool,
    pub is_killed: bool,
    pub terms: Option<Terms>,
}

impl Side {
    pub(super) fn is_established(&self) -> bool {
        self.outcome == Some(Outcome::Established)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub plan: AttemptPlan,
    pub sides: [Side; 2],
    pub requests: u32,
    /// The passive program has fetched the request.
    pub has_fetched: bool,
    pub has_accepted: bool,
    /// The passive program has rejected the request, the active one the reply.
    pub has_rejected: [bool; 2],
}

/// Private data of a message: `which` tells them apart.
pub(super) fn data<const N: usize>(seed: u64, which: u64) -> [u8; N] {
    let word = (seed << 8 | which).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    std::array::from_fn(|i| word[i % 8] ^ i as u8)
}

pub(super) const REQUEST: u64 = 1;
pub(super) const REPLY: u64 = 2;
/// The REJ of the active and the passive side: plus the side.
pub(super) const REJECT: u64 = 3;

impl Attempt {
    pub(super) fn new(plan: AttemptPlan) -> Self {
        Self {
            plan,
            sides: Default::default(),
            requests: 0,
            has_fetched: false,
            has_accepted: false,
            has_rejected: [false; 2],
        }
    }

    /// Whether the event of the request is queued at a host.
    pub(super) fn is_pending(&self, host: usize) -> bool {
        let is_here = self.plan.hosts[PASSIVE] == host && self.requests > 0;
        is_here && !self.has_fetched && !self.sides[PASSIVE].is_destroyed
    }

    /// Checks an event, and records it.
    pub(super) fn event(&mut self, me: usize, event: &Event, plan: &Plan, now: Micros) {
        let side = self.sides[me];
        assert!(!side.is_destroyed, "{event:?} after the end of the identifier");
        match event {
            Event::Request(request) => {
                assert_eq!(request.private_data, data(self.plan.seed, REQUEST), "of a REQ");
                assert_eq!((me, self.requests), (PASSIVE, 1), "a REQ is reported once");
            }
            Event::Response(response) => {
                assert!(me == ACTIVE && self.has_accepted, "a reply, but the peer has not accepted");
                assert_eq!(response.private_data, data(self.plan.seed, REPLY), "of a REP");
                assert!(side.outcome.is_none() && !side.has_reply, "a second outcome");
                self.check_time(side.called, WORST_CONNECT_US, now);
                self.sides[me].has_reply = true;
            }
            Event::Established => {
                assert!(me == PASSIVE && self.sides[ACTIVE].is_established(), "the peer is not");
                self.decide(me, Outcome::Established, now);
            }
            Event::Rejected { reason, private_data } => {
                self.check_rejection(me, *reason, private_data);
                self.decide(me, Outcome::Rejected, now);
            }
            Event::Unreachable => {
                let is_silent = me == ACTIVE && !matches!(self.plan.answer, Answer::Reject | Answer::Destroy);
                let is_slow = is_silent && self.plan.answer != Answer::Accept;
                assert!(is_slow || !plan.is_answered(), "unreachable without a fault");
                self.decide(me, Outcome::Unreachable, now);
            }
            Event::ConnectError => {
                assert!(me == PASSIVE && side.disconnected.is_some());
                self.decide(me, Outcome::ConnectError, now);
            }
            Event::Disconnected => {
                assert!(side.is_established() && !side.has_ended, "{side:?}");
                if side.disconnected.is_some() {
                    self.check_time(side.disconnected, WORST_DISCONNECT_US, now);
                } else {
                    let peer = &self.sides[1 - me];
                    let has_ended = peer.disconnected.is_some() || peer.is_destroyed;
                    let has_failed = peer.outcome.is_some_and(|outcome| outcome != Outcome::Established);
                    assert!(has_ended || has_failed, "ended without a cause: {peer:?}");
                }
                self.sides[me].has_ended = true;
            }
            Event::TimeWaitExit => {
                assert!(side.has_ended && !side.has_exited);
                self.sides[me].has_exited = true;
            }
            Event::SidrRequest(_) | Event::SidrReply(_) => panic!("{event:?} of a connection"),
        }
    }

    fn decide(&mut self, me: usize, outcome: Outcome, now: Micros) {
        let side = self.sides[me];
        assert!(side.outcome.is_none(), "{outcome:?} after {:?}", side.outcome);
        let worst = if me == ACTIVE { WORST_CONNECT_US } else { WORST_ACCEPT_US };
        if !side.has_reply && (me == ACTIVE || outcome != Outcome::ConnectError) {
            self.check_time(side.called, worst, now);
        }
        self.sides[me].outcome = Some(outcome);
    }

    fn check_time(&self, called: Option<Micros>, worst: Micros, now: Micros) {
        let late = called.is_some_and(|at| now - at > worst);
        assert!(!late, "{} ms after the call: {self:?}", (now - called.unwrap_or(now)) / MS);
    }

    fn check_rejection(&self, me: usize, reason: Reason, private_data: &[u8; REJECT_DATA_LEN]) {
        let peer = &self.sides[1 - me];
        let is_empty = *private_data == [0; REJECT_DATA_LEN];
        if self.has_rejected[1 - me] && !is_empty {
            assert_eq!(reason, Reason::CONSUMER);
            assert_eq!(*private_data, data(self.plan.seed, REJECT + 1 - me as u64), "of a REJ");
            return;
        }
        assert!(is_empty, "private data of no peer");
        let has_ended = peer.is_destroyed || peer.disconnected.is_some();
        let has_failed = peer.outcome.is_some_and(|outcome| outcome != Outcome::Established);
        match reason {
            Reason::CONSUMER => assert!(has_ended || has_failed, "{peer:?}"),
            // A pending request ends by itself when the peer has given up.
            Reason::TIMEOUT => assert!(
                has_ended || has_failed || me == PASSIVE && self.sides[me].called.is_none(),
                "{peer:?}"
            ),
            Reason::INVALID_SERVICE_ID => assert!(me == ACTIVE && peer.is_killed, "{peer:?}"),
            Reason::INVALID_COMM_ID => assert!(me == PASSIVE && (has_ended || has_failed), "{peer:?}"),
            _ => panic!("rejected: {reason}"),
        }
    }

    /// The attributes of the two queue pairs belong together.
    pub(super) fn check_terms(&self) {
        let [Some(active), Some(passive)] = [self.sides[ACTIVE].terms, self.sides[PASSIVE].terms] else {
            return;
        };
        assert_eq!((active.dest_qp, passive.dest_qp), (qpn(self, PASSIVE), qpn(self, ACTIVE)));
        assert_eq!((active.sq_psn, active.rq_psn), (passive.rq_psn, passive.sq_psn));
        assert_eq!((active.mtu, active.pkey), (passive.mtu, passive.pkey));
        assert!(active.initiator_depth <= passive.responder_resources);
        assert!(passive.initiator_depth <= active.responder_resources);
        assert_eq!(active.route, passive.route.reversed());
    }

    /// The schedule has ended, or the program is about to destroy the identifier of a side.
    pub(super) fn check_end(&self, me: usize, plan: &Plan) {
        let side = &self.sides[me];
        let Some(_) = side.called.filter(|_| !side.is_destroyed) else { return };
        assert!(side.outcome.is_some() || side.has_reply, "no outcome at side {me}: {self:?}");
        if !side.is_established() {
            return;
        }
        let peer = &self.sides[1 - me];
        let is_over = peer.disconnected.is_some() || peer.is_destroyed || side.disconnected.is_some();
        let is_informed = side.disconnected.is_some() || plan.outage.is_none();
        assert!(!(is_over && is_informed) || side.has_ended, "no end at side {me}: {self:?}");
        assert!(!side.has_ended || side.has_exited, "no end of the time wait at side {me}: {self:?}");
    }
}

/// The queue pair of a side: no two are equal in a schedule.
pub(super) fn qpn(attempt: &Attempt, side: usize) -> u32 {
    0x10_0000 | (attempt.plan.seed as u32 & 0x7_ffff) << 1 | side as u32
}
