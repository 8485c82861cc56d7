// SPDX-License-Identifier: BSD-3-Clause
//! Two hosts, the network between them, and the programs.

#![expect(
    clippy::disallowed_types,
    reason = "the sessions of a manager are Send, and share a list with the world"
)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use super::checker::{ACTIVE, Attempt, Outcome, PASSIVE, REJECT, REPLY, REQUEST, data, qpn};
use super::plan::{Answer, END_US, End, PACKET_LIFE_US, Plan, WATCH_US};
use super::query::{self, Query};
use crate::roce::cm::{
    Accept, Bound, CommId, Connect, Event, Limits, LocalPeer, Manager, Output, REJECT_DATA_LEN,
    REPLY_DATA_LEN, REQUEST_DATA_LEN, Received, Request, Route, Settings, Timing, refusal,
};
use crate::roce::wire::cm::{
    Answered, Drep, Dreq, MAD_LEN, Mad, Message, PortSpace, Reason, Rej, Rtu, ServiceId, Transport,
};
use crate::roce::wire::{DEFAULT_PKEY, PathMtu, Psn};
use crate::sim::random::Draw;
use crate::sim::schedules::Simulation;
use crate::units::Micros;

const PORT: u16 = 7471;
pub(super) const FORGER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

pub(super) fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1))
}

fn service() -> ServiceId {
    ServiceId::new(PortSpace::Tcp, PORT)
}

/// What happens at a point in time.
pub(super) enum Happening {
    /// A datagram arrives at a host.
    Arrive {
        host: usize,
        route: Route,
        mad: Box<[u8; MAD_LEN]>,
    },
    /// Data arrives at the passive side of a connection.
    Data {
        attempt: usize,
    },
    Timer {
        host: usize,
    },
    Connect {
        attempt: usize,
    },
    Answer {
        attempt: usize,
    },
    Establish {
        attempt: usize,
    },
    End {
        attempt: usize,
        side: usize,
        how: End,
    },
    /// A side checks whether the process of its peer exists.
    Watch {
        attempt: usize,
        side: usize,
    },
    Resolve {
        query: usize,
    },
    AnswerQuery {
        query: usize,
    },
    EndQuery {
        query: usize,
        side: usize,
    },
}

/// The communication ids of a host that identifiers or unfetched events have.
type Held = Arc<Mutex<Vec<u32>>>;

struct Entry(Reverse<(Micros, u64)>, Happening);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

pub(super) struct Sim {
    trace: bool,
    pub(super) draw: Draw,
    pub(super) plan: Plan,
    pub(super) now: Micros,
    order: u64,
    print: u64,
    pub(super) managers: Vec<Manager>,
    /// When the timer of a host expires.
    timers: [Option<Micros>; 2],
    happenings: BinaryHeap<Entry>,
    attempts: Vec<Attempt>,
    owners: HashMap<(usize, CommId), (usize, usize)>,
    pub(super) queries: Vec<Query>,
    pub(super) query_owners: HashMap<(usize, CommId), usize>,
    held: [Held; 2],
    /// By outcome, at active and passive sides, in all schedules.
    pub outcomes: [[u64; 2]; 4],
    /// Connections that the peer has ended, in all schedules.
    pub ends: u64,
    /// Sides whose process was killed, in all schedules.
    pub kills: u64,
    /// Resolutions by outcome, in all schedules.
    pub resolved: [u64; 3],
}

impl Simulation for Sim {
    fn new(trace: bool) -> Self {
        let mut draw = Draw::new(0);
        Self {
            trace,
            plan: Plan::new(&mut draw),
            draw,
            now: 0,
            order: 0,
            print: 0,
            managers: Vec::new(),
            timers: [None; 2],
            happenings: BinaryHeap::new(),
            attempts: Vec::new(),
            owners: HashMap::new(),
            queries: Vec::new(),
            query_owners: HashMap::new(),
            held: Default::default(),
            outcomes: [[0; 2]; 4],
            ends: 0,
            kills: 0,
            resolved: [0; 3],
        }
    }

    fn run(&mut self, seed: u64) -> u64 {
        self.begin(seed);
        while let Some(Entry(Reverse((at, _)), happening)) = self.happenings.pop() {
            self.now = at;
            self.happen(happening);
            self.drain();
        }
        self.check();
        self.print
    }
}

impl Sim {
    fn begin(&mut self, seed: u64) {
        self.draw = Draw::new(seed);
        self.plan = Plan::new(&mut self.draw);
        if self.trace {
            println!("{:#?}", self.plan);
        }
        (self.now, self.order, self.print, self.timers) = (0, 0, 0, [None; 2]);
        self.owners.clear();
        self.queries.clear();
        self.query_owners.clear();
        self.managers.clear();
        self.attempts.clear();
        for host in 0..2 {
            // Even numbers, so that a forged odd one belongs to no exchange. Many are in use.
            let mut ids = Draw::new(seed ^ (host as u64 + 1) << 60);
            let held = Held::default();
            self.held[host] = held.clone();
            let random = move || {
                let held = held.lock().unwrap();
                if !held.is_empty() && ids.chance(128) {
                    return ids.one_of(&held);
                }
                (ids.below(1 << 24) & !1) as u32
            };
            let settings = Settings {
                slot: host as u8 + 1,
                ca_guid: 0x1000 + host as u64,
                timing: Timing::default(),
                limits: Limits { process: 256, address: 128 },
            };
            let mut manager = Manager::new(settings, random);
            manager.listen(service(), Transport::Rc, Bound::Any, self.plan.backlog);
            manager.listen(query::service(), Transport::Rc, Bound::Any, 128);
            self.managers.push(manager);
        }
        for index in 0..self.plan.attempts.len() {
            let plan = self.plan.attempts[index];
            self.attempts.push(Attempt::new(plan));
            self.add(plan.connect_at, Happening::Connect { attempt: index });
        }
        for query in 0..self.plan.queries.len() {
            let plan = self.plan.queries[query];
            self.queries.push(Query::new(plan));
            self.add(plan.at, Happening::Resolve { query });
        }
    }

    pub(super) fn note(&mut self, what: u64) {
        self.print = (self.print ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:9} {}", self.now, what());
        }
    }

    pub(super) fn add(&mut self, at: Micros, happening: Happening) {
        self.order += 1;
        self.happenings.push(Entry(Reverse((at, self.order)), happening));
    }

    pub(super) fn after(&mut self, wait: Micros, happening: Happening) {
        self.add(self.now + wait, happening);
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Arrive { host, route, mad } => {
                let mad = Mad::decode(&mad[..]).unwrap();
                self.say(|| format!("host {host} receives {}", mad.message.name()));
                if self.is_for_killed(host, &mad.message) {
                    // Another process gets it, and has no listener.
                    let answer = refusal(&mad, Reason::INVALID_SERVICE_ID).unwrap();
                    return self.send(route, &answer);
                }
                let received = self.managers[host].receive(&mad, route, now);
                assert_eq!(received, Received::Taken);
            }
            Happening::Data { attempt } => {
                let host = self.attempts[attempt].plan.hosts[PASSIVE];
                if let Some(id) = self.attempts[attempt].sides[PASSIVE].id {
                    self.managers[host].received_data(id);
                }
            }
            Happening::Timer { host } => {
                if self.timers[host] == Some(now) {
                    self.timers[host] = None;
                    self.managers[host].expire(now);
                }
            }
            Happening::Connect { attempt } => self.connect(attempt),
            Happening::Answer { attempt } => self.answer(attempt),
            Happening::Establish { attempt } => self.establish(attempt),
            Happening::End { attempt, side, how } => self.end(attempt, side, how),
            Happening::Watch { attempt, side } => self.watch(attempt, side),
            Happening::Resolve { query } => self.resolve(query),
            Happening::AnswerQuery { query } => self.answer_query(query),
            Happening::EndQuery { query, side } => self.end_query(query, side),
        }
    }

    /// Whether a message is a REQ for a process that was killed.
    fn is_for_killed(&self, host: usize, message: &Message) -> bool {
        let Message::Req(req) = message else { return false };
        self.attempts.iter().any(|attempt| {
            let is_it = attempt.plan.hosts[PASSIVE] == host && qpn(attempt, ACTIVE) == req.local_qpn;
            is_it && attempt.sides[PASSIVE].is_killed
        })
    }

    /// Sends and reports what the managers have produced, and sets their timers.
    fn drain(&mut self) {
        for host in 0..2 {
            while let Some(output) = self.managers[host].poll() {
                match output {
                    Output::Send { route, mad } => self.send(route, &mad),
                    Output::Event { id, event } => self.event(host, id, &event),
                }
            }
        }
        for host in 0..2 {
            let deadline = self.managers[host].deadline();
            if self.timers[host].is_none_or(|at| deadline.is_none_or(|due| due < at)) {
                let late =
                    if self.plan.late > 0 { self.draw.below(self.plan.late) as Micros * 1_000 } else { 0 };
                self.timers[host] = deadline.map(|due| due.max(self.now) + late);
                if let Some(at) = self.timers[host] {
                    self.add(at, Happening::Timer { host });
                }
            }
        }
    }

    fn send(&mut self, route: Route, mad: &Mad) {
        self.forge(route, mad);
        let Some(host) = (0..2).find(|host| address(*host) == route.remote) else { return };
        self.note(u64::from(mad.encode()[17]));
        if self.plan.is_out(self.now) || self.draw.chance(self.plan.lose) {
            self.say(|| format!("lost: {} to host {host}", mad.message.name()));
            return;
        }
        let copies = 1 + usize::from(self.draw.chance(self.plan.duplicate));
        for _ in 0..copies {
            let wait = self.transit();
            let mad = Box::new(mad.encode());
            self.after(wait, Happening::Arrive { host, route: route.reversed(), mad });
        }
    }

    pub(super) fn transit(&mut self) -> Micros {
        if self.draw.chance(self.plan.delay) {
            return self.draw.below(PACKET_LIFE_US as usize) as Micros;
        }
        20
    }

    /// A message that looks like an answer to `mad`: with a guessed id or transaction id, or from another
    /// address.
    fn forge(&mut self, route: Route, mad: &Mad) {
        if !self.draw.chance(self.plan.forge) {
            return;
        }
        let Some(host) = (0..2).find(|host| address(*host) == route.local) else { return };
        if let Message::SidrReq(req) = &mad.message {
            return self.forge_reply(host, route, mad.transaction, req);
        }
        let Some((id, remote)) = ids(&mad.message) else { return };
        let is_guess = self.draw.chance(128);
        let route = if is_guess { route } else { Route { remote: FORGER, ..route } };
        // The last bit is wrong in one of the two, or, as an answer to a REQ, the transaction id.
        let (id, remote) = match (is_guess, self.draw.chance(128)) {
            (false, _) => (id, remote),
            (true, true) if remote == 0 => (id, remote),
            (true, true) => (id, remote ^ 1),
            (true, false) => (id ^ 1, remote),
        };
        let message = match self.draw.below(4) {
            0 => Message::Rtu(Rtu { local_comm_id: remote, remote_comm_id: id, private_data: [0; 224] }),
            1 => Message::Drep(Drep { local_comm_id: remote, remote_comm_id: id, private_data: [0; 224] }),
            2 => Message::Dreq(Dreq {
                local_comm_id: remote,
                remote_comm_id: id,
                remote_qpn: 0,
                private_data: [0; Dreq::PRIVATE_DATA_LEN],
            }),
            _ => Message::Rej(Rej {
                local_comm_id: remote,
                remote_comm_id: id,
                answered: Answered::Other,
                info_len: 0,
                reason: Reason::NO_RESOURCES,
                info: [0; Rej::INFO_LEN],
                private_data: [0; REJECT_DATA_LEN],
            }),
        };
        let wait = self.transit();
        let mad = Box::new(Mad { transaction: 7, message }.encode());
        self.after(wait, Happening::Arrive { host, route, mad });
    }

    fn event(&mut self, host: usize, id: CommId, event: &Event) {
        match event {
            Event::Request(request) => self.requested(host, id, request),
            Event::SidrRequest(request) => return self.queried(host, id, request),
            _ => {}
        }
        if let Some(query) = self.query_owners.get(&(host, id)) {
            return self.query_event(*query, event);
        }
        let (attempt, side) = self.owners[&(host, id)];
        self.say(|| format!("connection {attempt}, side {side}: {event:?}"));
        self.note(side as u64 + 2 * attempt as u64);
        let now = self.now;
        self.attempts[attempt].event(side, event, &self.plan, now);
        match event {
            Event::Request(_) => {
                let plan = self.attempts[attempt].plan;
                if plan.answer != Answer::Nothing {
                    self.after(plan.answer_after, Happening::Answer { attempt });
                }
            }
            Event::Response(_) => {
                self.attempts[attempt].sides[side].terms = self.managers[host].terms(id);
                self.attempts[attempt].check_terms();
                let wait = self.attempts[attempt].plan.establish_after;
                if wait == 0 {
                    self.establish(attempt);
                } else {
                    self.after(wait, Happening::Establish { attempt });
                }
            }
            Event::Established => self.established(attempt, side),
            Event::Disconnected if self.attempts[attempt].sides[side].disconnected.is_none() => {
                self.ends += 1
            }
            _ => {}
        }
    }

    fn requested(&mut self, host: usize, id: CommId, request: &Request) {
        let attempt = self.attempts.iter().position(|attempt| {
            attempt.plan.hosts[PASSIVE] == host && request.param.qpn == qpn(attempt, ACTIVE)
        });
        let attempt = attempt.expect("a request of an active side");
        self.hold(host, id, (attempt, PASSIVE));
        self.attempts[attempt].requests += 1;
        self.attempts[attempt].sides[PASSIVE].id = Some(id);
        let pending = self.attempts.iter().filter(|attempt| attempt.is_pending(host)).count();
        assert!(pending <= self.plan.backlog as usize, "{pending} pending requests");
        self.add(self.now + END_US, Happening::End { attempt, side: PASSIVE, how: End::Destroy });
    }

    /// A side of an attempt has a communication id until the program destroys it.
    fn hold(&mut self, host: usize, id: CommId, side: (usize, usize)) {
        self.hold_id(host, id);
        self.owners.insert((host, id), side);
    }

    pub(super) fn hold_id(&mut self, host: usize, id: CommId) {
        let mut held = self.held[host].lock().unwrap();
        assert!(!held.contains(&id.0), "{id:?} is in use");
        held.push(id.0);
        self.owners.remove(&(host, id));
        self.query_owners.remove(&(host, id));
    }

    pub(super) fn release_id(&mut self, host: usize, id: CommId) {
        self.held[host].lock().unwrap().retain(|held| *held != id.0);
    }

    /// The program destroys a side of an attempt.
    fn destroy(&mut self, index: usize, side: usize) {
        let attempt = &mut self.attempts[index];
        let host = attempt.plan.hosts[side];
        let Some(id) = attempt.sides[side].id else { return };
        attempt.sides[side].is_destroyed = true;
        self.managers[host].destroy(id, self.now);
        self.release_id(host, id);
    }

    /// The process of a side is killed: its exchange disappears without a message.
    fn kill(&mut self, index: usize, side: usize) {
        let attempt = &mut self.attempts[index];
        let host = attempt.plan.hosts[side];
        let Some(id) = attempt.sides[side].id else { return };
        (attempt.sides[side].is_destroyed, attempt.sides[side].is_killed) = (true, true);
        self.managers[host].kill(id);
        self.release_id(host, id);
        self.kills += 1;
        self.after(WATCH_US, Happening::Watch { attempt: index, side: 1 - side });
    }

    /// A side checks whether the process of its peer exists. It does not, but its messages may be in flight.
    fn watch(&mut self, index: usize, side: usize) {
        let attempt = &self.attempts[index];
        let (watching, peer) = (attempt.sides[side], attempt.sides[1 - side]);
        let Some(peer) = peer.id else { return };
        if let Some(id) = watching.id.filter(|_| !watching.is_killed) {
            let [host, other] = [side, 1 - side].map(|side| attempt.plan.hosts[side]);
            let route = Route { local: address(host), remote: address(other) };
            self.managers[host].peer_died(&LocalPeer { id, route, comm_id: peer.0 }, self.now);
        }
        if self.now < END_US {
            self.after(WATCH_US * 10, Happening::Watch { attempt: index, side });
        }
    }

    fn connect(&mut self, index: usize) {
        let attempt = &mut self.attempts[index];
        let [host, peer] = attempt.plan.hosts;
        let private_data = data::<REQUEST_DATA_LEN>(attempt.plan.seed, REQUEST);
        let call = Connect {
            service: service(),
            transport: Transport::Rc,
            source_port: 40_000 + index as u16,
            qpn: qpn(attempt, ACTIVE),
            srq: false,
            starting_psn: Psn::new(attempt.plan.seed as u32),
            mtu: PathMtu::Mtu1024,
            pkey: DEFAULT_PKEY,
            ack_timeout: 17,
            responder_resources: 4,
            initiator_depth: 16,
            retry_count: 7,
            rnr_retry_count: 6,
            flow_label: 0x1_2345,
            traffic_class: 0,
            hop_limit: 64,
            private_data: &private_data,
        };
        let route = Route { local: address(host), remote: address(peer) };
        let id = self.managers[host].connect(route, &call, self.now).unwrap();
        attempt.sides[ACTIVE].id = Some(id);
        attempt.sides[ACTIVE].called = Some(self.now);
        let (destroy_after, is_killed) = (attempt.plan.destroy_after, attempt.plan.kill);
        self.hold(host, id, (index, ACTIVE));
        let end = |how| Happening::End { attempt: index, side: ACTIVE, how };
        if let Some(wait) = destroy_after {
            self.after(wait, end(if is_killed { End::Kill } else { End::Destroy }));
        }
        self.after(END_US, end(End::Destroy));
    }

    fn answer(&mut self, index: usize) {
        let now = self.now;
        let attempt = &mut self.attempts[index];
        let plan = attempt.plan;
        let (manager, side) = (&mut self.managers[plan.hosts[PASSIVE]], &mut attempt.sides[PASSIVE]);
        let Some(id) = side.id.filter(|_| !side.is_destroyed) else { return };
        manager.fetched(id);
        attempt.has_fetched = true;
        match plan.answer {
            Answer::Accept => {
                let private_data = data::<REPLY_DATA_LEN>(plan.seed, REPLY);
                let call = Accept {
                    qpn: qpn(&self.attempts[index], PASSIVE),
                    srq: true,
                    starting_psn: Psn::new(!plan.seed as u32),
                    responder_resources: 8,
                    initiator_depth: 32,
                    rnr_retry_count: 5,
                    target_ack_delay: 15,
                    private_data: &private_data,
                };
                let terms = manager.terms_for(id, &call);
                let is_accepted = manager.accept(id, &call, now).is_ok();
                let attempt = &mut self.attempts[index];
                let side = &mut attempt.sides[PASSIVE];
                assert_eq!(is_accepted, side.outcome.is_none(), "a rejected request cannot be accepted");
                if !is_accepted {
                    return;
                }
                side.terms = terms;
                assert_eq!(terms, manager.terms(id));
                side.called = Some(now);
                attempt.has_accepted = true;
                let how = plan.accepted;
                if how != End::Wait {
                    self.after(plan.accepted_after, Happening::End { attempt: index, side: PASSIVE, how });
                }
            }
            Answer::Reject => {
                let private_data = data::<REJECT_DATA_LEN>(plan.seed, REJECT + PASSIVE as u64);
                let is_rejected = manager.reject(id, Reason::CONSUMER, &private_data, now).is_ok();
                assert_eq!(is_rejected, side.outcome.is_none());
                attempt.has_rejected[PASSIVE] |= is_rejected;
            }
            Answer::Destroy => self.destroy(index, PASSIVE),
            Answer::Nothing => {}
        }
    }

    fn establish(&mut self, index: usize) {
        let now = self.now;
        let attempt = &mut self.attempts[index];
        let plan = attempt.plan;
        let (manager, side) = (&mut self.managers[plan.hosts[ACTIVE]], &mut attempt.sides[ACTIVE]);
        let Some(id) = side.id.filter(|_| !side.is_destroyed) else { return };
        if plan.refuses {
            let private_data = data::<REJECT_DATA_LEN>(plan.seed, REJECT + ACTIVE as u64);
            let is_rejected = manager.reject(id, Reason::CONSUMER, &private_data, now).is_ok();
            assert_eq!(is_rejected, side.outcome.is_none());
            attempt.has_rejected[ACTIVE] |= is_rejected;
            return;
        }
        let is_established = manager.establish(id, &[]).is_ok();
        assert_eq!(is_established, side.outcome.is_none(), "the peer has given up, or not");
        if is_established {
            side.outcome = Some(Outcome::Established);
            self.established(index, ACTIVE);
            if plan.sends_data && !self.plan.is_out(now) {
                let wait = self.transit();
                self.after(wait, Happening::Data { attempt: index });
            }
        }
    }

    fn established(&mut self, attempt: usize, side: usize) {
        let plan = &self.attempts[attempt].plan;
        let (how, wait) = (plan.ends[side], plan.end_after[side]);
        if how != End::Wait {
            self.after(wait, Happening::End { attempt, side, how });
        }
    }

    fn end(&mut self, index: usize, side: usize, how: End) {
        let now = self.now;
        let attempt = &mut self.attempts[index];
        let manager = &mut self.managers[attempt.plan.hosts[side]];
        let Some(id) = attempt.sides[side].id.filter(|_| !attempt.sides[side].is_destroyed) else { return };
        if how == End::Kill {
            self.kill(index, side);
        } else if how == End::Destroy {
            if now >= END_US {
                attempt.check_end(side, &self.plan);
            }
            self.destroy(index, side);
        } else if manager.disconnect(id, &[], now).is_ok() && attempt.sides[side].disconnected.is_none() {
            attempt.sides[side].disconnected = Some(now);
        }
        self.say(|| format!("connection {index}, side {side}: {how:?}"));
    }

    /// The schedule has ended.
    fn check(&mut self) {
        self.count_queries();
        for attempt in &self.attempts {
            for (side, seen) in attempt.sides.iter().enumerate() {
                if let Some(outcome) = seen.outcome {
                    self.outcomes[outcome as usize][side] += 1;
                }
            }
        }
        for host in 0..2 {
            assert!(self.managers[host].is_empty(), "host {host} has an exchange left");
            assert!(!self.managers[host].has_held(), "host {host} has communication ids");
        }
    }
}

/// The communication ids of the sender and the receiver.
fn ids(message: &Message) -> Option<(u32, u32)> {
    match message {
        Message::Req(req) => Some((req.local_comm_id, 0)),
        Message::Rep(rep) => Some((rep.local_comm_id, rep.remote_comm_id)),
        Message::Rtu(rtu) => Some((rtu.local_comm_id, rtu.remote_comm_id)),
        Message::Dreq(dreq) => Some((dreq.local_comm_id, dreq.remote_comm_id)),
        _ => None,
    }
}
