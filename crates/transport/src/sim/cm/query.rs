// SPDX-License-Identifier: BSD-3-Clause
//! Resolutions of service ids (SIDR) in the schedules: what the two programs do, and what they may see.

use super::checker::{ACTIVE, PASSIVE, REJECT, REPLY, REQUEST, data};
use super::plan::{Answer, END_US, MS, Plan, S, some_time};
use super::world::{FORGER, Happening, Sim, address};
use crate::roce::cm::{CommId, Event, Resolve, Route, SidrAnswer, SidrReply, SidrRequest};
use crate::roce::wire::DEFAULT_PKEY;
use crate::roce::wire::cm::{MAD_LEN, Mad, Message, PortSpace, ServiceId, SidrRep, SidrReq, SidrStatus};
use crate::sim::random::Draw;
use crate::units::Micros;

/// 16 intervals of 4.29 s, and late timers.
const WORST_US: Micros = 16 * 4_295 * MS + 2 * S;
/// A request that is answered so soon is repeated often enough for one copy and one answer to arrive.
const SOON_US: Micros = 2 * S;
const QKEY: u32 = 0x0123_4567;

/// One resolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryPlan {
    /// The hosts of the active and the passive side.
    pub hosts: [usize; 2],
    pub at: Micros,
    pub answer: Answer,
    pub answer_after: Micros,
    /// A side destroys its identifier this long after the call or the answer.
    pub destroy_after: [Option<Micros>; 2],
    pub seed: u64,
}

impl QueryPlan {
    pub(super) fn new(index: u64, draw: &mut Draw) -> Self {
        let active = draw.below(2);
        let answers = [Answer::Accept, Answer::Accept, Answer::Reject, Answer::Destroy, Answer::Nothing];
        Self {
            hosts: [active, if draw.chance(40) { active } else { 1 - active }],
            at: draw.below(2_000) as Micros * MS,
            answer: draw.one_of(&answers),
            answer_after: some_time(draw),
            destroy_after: [draw.chance(40), draw.chance(128)].map(|ends| ends.then(|| some_time(draw))),
            seed: (draw.below(1 << 30) as u64) << 2 | index,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Query {
    plan: QueryPlan,
    ids: [Option<CommId>; 2],
    is_destroyed: [bool; 2],
    called: Micros,
    /// When the passive program has accepted, rejected or destroyed the request.
    answered: Option<Micros>,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Valid,
    Refused,
    Unreachable,
}

pub(super) fn service() -> ServiceId {
    ServiceId::new(PortSpace::Udp, 7471)
}

impl Query {
    pub(super) fn new(plan: QueryPlan) -> Self {
        Self { plan, ids: [None; 2], is_destroyed: [false; 2], called: 0, answered: None, outcome: None }
    }

    /// Checks an event of the active side, and records it.
    fn event(&mut self, event: &Event, plan: &Plan, now: Micros) {
        assert!(!self.is_destroyed[ACTIVE] && self.outcome.is_none(), "{event:?}: {self:?}");
        assert!(now - self.called <= WORST_US, "{} ms after the call", (now - self.called) / MS);
        let outcome = match event {
            Event::SidrReply(reply) => self.reply(reply),
            Event::Unreachable => {
                let is_soon = self.answered.is_some_and(|at| at - self.called <= SOON_US);
                assert!(!is_soon || plan.outage.is_some(), "unreachable without a fault: {self:?}");
                Outcome::Unreachable
            }
            other => panic!("{other:?}"),
        };
        self.outcome = Some(outcome);
    }

    fn reply(&self, reply: &SidrReply) -> Outcome {
        assert!(self.answered.is_some(), "{reply:?} without an answer");
        let (answer, seed) = (self.plan.answer, self.plan.seed);
        let refused = data(seed, REJECT + PASSIVE as u64);
        let (status, queue_pair, private_data) = match answer {
            Answer::Accept => (SidrStatus::VALID, (number(seed), QKEY), data(seed, REPLY)),
            Answer::Reject => (SidrStatus::REJECTED, (0, 0), refused),
            // It is destroyed without an answer.
            Answer::Destroy | Answer::Nothing => (SidrStatus::REJECTED, (0, 0), [0; 136]),
        };
        assert_eq!((reply.status, (reply.qpn, reply.qkey)), (status, queue_pair), "{self:?}");
        assert_eq!(reply.private_data, private_data, "of a SIDR_REP");
        if status == SidrStatus::VALID { Outcome::Valid } else { Outcome::Refused }
    }
}

/// The queue pair of the passive side.
fn number(seed: u64) -> u32 {
    0x20_0000 | (seed as u32 & 0xf_ffff)
}

impl Sim {
    pub(super) fn resolve(&mut self, index: usize) {
        let plan = self.queries[index].plan;
        let [host, peer] = plan.hosts;
        let private_data = data::<180>(plan.seed, REQUEST);
        let call = Resolve {
            service: service(),
            source_port: 40_000,
            pkey: DEFAULT_PKEY,
            private_data: &private_data,
        };
        let route = Route { local: address(host), remote: address(peer) };
        let id = self.managers[host].resolve(route, &call, self.now).unwrap();
        self.queries[index].called = self.now;
        self.hold_query(index, ACTIVE, id, plan.destroy_after[ACTIVE]);
    }

    /// A side of a resolution has a request id until the program destroys it.
    fn hold_query(&mut self, query: usize, side: usize, id: CommId, destroy_after: Option<Micros>) {
        let host = self.queries[query].plan.hosts[side];
        self.queries[query].ids[side] = Some(id);
        self.hold_id(host, id);
        self.query_owners.insert((host, id), query);
        if let Some(wait) = destroy_after {
            self.after(wait, Happening::EndQuery { query, side });
        }
        self.add(self.now + END_US, Happening::EndQuery { query, side });
    }

    pub(super) fn queried(&mut self, host: usize, id: CommId, request: &SidrRequest) {
        let is_it = |query: &Query| {
            query.plan.hosts[PASSIVE] == host && request.private_data == data(query.plan.seed, REQUEST)
        };
        let query = self.queries.iter().position(is_it).expect("a request of an active side");
        self.say(|| format!("resolution {query} is requested"));
        assert_eq!(self.queries[query].ids[PASSIVE], None, "a SIDR_REQ is reported once");
        let plan = self.queries[query].plan;
        self.hold_query(query, PASSIVE, id, None);
        if plan.answer != Answer::Nothing {
            self.after(plan.answer_after, Happening::AnswerQuery { query });
        }
    }

    pub(super) fn query_event(&mut self, query: usize, event: &Event) {
        self.say(|| format!("resolution {query}: {event:?}"));
        self.note(query as u64);
        self.queries[query].event(event, &self.plan, self.now);
    }

    pub(super) fn answer_query(&mut self, query: usize) {
        let plan = self.queries[query].plan;
        let Some(id) = self.queries[query].ids[PASSIVE] else { return };
        if self.queries[query].is_destroyed[PASSIVE] {
            return;
        }
        let manager = &mut self.managers[plan.hosts[PASSIVE]];
        manager.fetched(id);
        let private_data = data::<136>(plan.seed, REPLY);
        let refused = data::<136>(plan.seed, REJECT + PASSIVE as u64);
        let answer = match plan.answer {
            Answer::Accept => {
                SidrAnswer::Valid { qpn: number(plan.seed), qkey: QKEY, private_data: &private_data }
            }
            Answer::Reject => SidrAnswer::Refused { status: SidrStatus::REJECTED, private_data: &refused },
            Answer::Destroy | Answer::Nothing => return self.end_query(query, PASSIVE),
        };
        manager.answer(id, &answer, self.now).unwrap();
        self.queries[query].answered = Some(self.now);
        if let Some(wait) = plan.destroy_after[PASSIVE] {
            self.after(wait, Happening::EndQuery { query, side: PASSIVE });
        }
    }

    /// The program destroys the identifier of a side.
    pub(super) fn end_query(&mut self, index: usize, side: usize) {
        let query = &mut self.queries[index];
        let Some(id) = query.ids[side].filter(|_| !query.is_destroyed[side]) else { return };
        query.is_destroyed[side] = true;
        if side == PASSIVE && query.answered.is_none() {
            query.answered = Some(self.now);
        }
        let is_late = self.now - query.called > WORST_US;
        assert!(side == PASSIVE || !is_late || query.outcome.is_some(), "no outcome: {query:?}");
        let host = query.plan.hosts[side];
        self.managers[host].destroy(id, self.now);
        self.release_id(host, id);
    }

    /// Counts the outcomes when the schedule has ended.
    pub(super) fn count_queries(&mut self) {
        for query in &self.queries {
            if let Some(outcome) = query.outcome {
                self.resolved[outcome as usize] += 1;
            }
        }
    }

    /// A SIDR_REP that looks like the answer to a request: with a guessed transaction id, or from another
    /// address.
    pub(super) fn forge_reply(&mut self, host: usize, route: Route, transaction: u64, req: &SidrReq) {
        let is_guess = self.draw.chance(128);
        let route = if is_guess { route } else { Route { remote: FORGER, ..route } };
        let message = Message::SidrRep(SidrRep {
            request_id: req.request_id,
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: 9,
            service_id: req.service_id,
            qkey: 9,
            info: [0; SidrRep::INFO_LEN],
            private_data: [9; SidrRep::PRIVATE_DATA_LEN],
        });
        let mad = Mad { transaction: transaction ^ u64::from(is_guess) << 40, message };
        let wait = self.transit();
        let mad: Box<[u8; MAD_LEN]> = Box::new(mad.encode());
        self.after(wait, Happening::Arrive { host, route, mad });
    }
}
