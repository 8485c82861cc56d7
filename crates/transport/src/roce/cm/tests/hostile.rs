// SPDX-License-Identifier: BSD-3-Clause
//! A malicious peer: it takes part in exchanges, so that it knows their ids, and sends any message at any
//! time. The simulation has forgers, which do not know them.

use std::collections::BTreeMap;

use super::*;
use crate::roce::wire::Addresses;
use crate::roce::wire::cm::{CMA_HEADER_LEN, CmaHeader, Rej, SidrReq, SidrStatus};
use crate::roce::wire::tests::cm::message;
use crate::roce::wire::tests::random::Random;

/// Hosts of the peer.
const HOSTS: usize = 3;
const STEPS: usize = 400;

fn datagram_service() -> ServiceId {
    ServiceId::new(PortSpace::Udp, 7002)
}

/// The route of a host of the peer.
fn route_of(host: usize) -> Route {
    Route { remote: [10, 80, 0, host as u8 + 1].into(), local: [10, 80, 0, 99].into() }
}

/// What the program has seen of an exchange.
#[derive(Default)]
struct Seen {
    events: Vec<&'static str>,
    is_established: bool,
    is_request: bool,
    is_fetched: bool,
}

struct Attack {
    random: Random,
    manager: Manager,
    now: Micros,
    listeners: [ListenerId; 2],
    /// The exchanges of the program.
    exchanges: BTreeMap<CommId, Seen>,
    /// Communication ids, queue pair numbers and transaction ids that the peer has received.
    ids: Vec<u32>,
    qpns: Vec<u32>,
    transactions: Vec<u64>,
}

impl Attack {
    fn new(seed: u64) -> Self {
        let mut manager = manager(1, 100);
        let listeners =
            [service(), datagram_service()].map(|to| manager.listen(to, Transport::Rc, Bound::Any, 3));
        Self {
            random: Random(seed),
            manager,
            now: 1_000_000,
            listeners,
            exchanges: BTreeMap::new(),
            ids: vec![0],
            qpns: vec![QPN],
            transactions: vec![0],
        }
    }

    /// True in `n` of 4 cases.
    fn often(&mut self, n: usize) -> bool {
        self.random.below(4) < n
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.below(values.len())]
    }

    /// A communication id of this side, most often one that the peer knows.
    fn known_id(&mut self) -> u32 {
        let recent = self.ids.len().saturating_sub(8);
        let ids = self.ids[recent..].to_vec();
        if self.often(3) { self.one_of(&ids) } else { self.random.bits(32) as u32 }
    }

    /// A communication id of the peer, which has few.
    fn own_id(&mut self) -> u32 {
        self.random.below(6) as u32
    }

    fn own_qpn(&mut self) -> u32 {
        self.one_of(&[0, 1, 0x101, 0x102, 0x103, 0x104, 0xff_ffff])
    }

    /// One of the peer, or that of this side.
    fn guid(&mut self) -> u64 {
        self.one_of(&GUIDS)
    }

    /// A message with ids that may be right, in every field otherwise with any value.
    fn message(&mut self, route: Route) -> Mad {
        let kind = self.random.below(9);
        let mut message = message(&mut self.random, kind);
        let (own, known, qpn, guid) = (self.own_id(), self.known_id(), self.own_qpn(), self.guid());
        match &mut message {
            Message::Req(req) => {
                (req.local_comm_id, req.local_qpn, req.local_ca_guid) = (own, qpn, guid);
                if self.often(3) {
                    (req.transport, req.service_id, req.path_mtu) = (Transport::Rc, service(), 3);
                    let gid = crate::roce::wire::gid;
                    (req.primary.local_gid, req.primary.remote_gid) = (gid(route.remote), gid(route.local));
                    req.private_data[..CMA_HEADER_LEN].copy_from_slice(&header(route));
                }
            }
            Message::SidrReq(req) => {
                req.request_id = own;
                if self.often(3) {
                    req.service_id = datagram_service();
                    req.private_data[..CMA_HEADER_LEN].copy_from_slice(&header(route));
                }
            }
            Message::Rep(rep) => {
                (rep.local_comm_id, rep.remote_comm_id) = (own, known);
                (rep.local_qpn, rep.local_ca_guid) = (qpn, guid);
            }
            Message::Rej(rej) => {
                (rej.local_comm_id, rej.remote_comm_id) = (own, known);
                let reason = rej.reason;
                rej.reason =
                    self.one_of(&[Reason::TIMEOUT, Reason::STALE_CONNECTION, Reason::CONSUMER, reason]);
                rej.info[..8].copy_from_slice(&guid.to_be_bytes());
            }
            Message::Mra(mra) => (mra.local_comm_id, mra.remote_comm_id) = (own, known),
            Message::Rtu(rtu) => (rtu.local_comm_id, rtu.remote_comm_id) = (own, known),
            Message::Dreq(dreq) => {
                (dreq.local_comm_id, dreq.remote_comm_id) = (own, known);
                let qpns = self.qpns.clone();
                dreq.remote_qpn = self.one_of(&qpns);
            }
            Message::Drep(drep) => (drep.local_comm_id, drep.remote_comm_id) = (own, known),
            Message::SidrRep(rep) => rep.request_id = known,
        }
        let transactions = self.transactions.clone();
        Mad { transaction: self.one_of(&transactions), message }
    }

    /// The peer sends a message, the program makes a call, or time passes.
    fn step(&mut self) {
        match self.random.below(8) {
            0..=4 => {
                let host = self.random.below(HOSTS);
                let mad = self.message(route_of(host));
                let received = self.manager.receive(&mad, route_of(host), self.now);
                if received == Received::NoListener {
                    assert!(matches!(mad.message, Message::Req(_) | Message::SidrReq(_)), "{mad:?}");
                }
                // A REQ of a stale connection is rejected, and the connection ends.
                assert!(self.drain() <= 2, "{mad:?} is amplified");
            }
            5 | 6 => self.call(),
            _ => {
                let soon = self.now + self.random.below(3_000_000) as Micros;
                let due = self.manager.deadline().filter(|_| self.often(2));
                self.now = due.unwrap_or(soon).max(self.now);
                self.manager.expire(self.now);
            }
        }
        self.drain();
        let is_pending = |seen: &&Seen| seen.is_request && !seen.is_fetched;
        let pending = self.exchanges.values().filter(is_pending).count();
        assert!(pending <= 2 * 3, "{pending} pending requests");
    }

    fn call(&mut self) {
        let route = route_of(self.random.below(HOSTS));
        let ids: Vec<_> = self.exchanges.keys().copied().collect();
        let qpn = 0x900 + self.random.below(4) as u32;
        if ids.is_empty() || self.random.below(6) == 0 {
            let id = if self.often(3) {
                self.manager.connect(route, &connect(qpn), self.now)
            } else {
                let pkey = DEFAULT_PKEY;
                let call =
                    Resolve { service: datagram_service(), source_port: 4711, pkey, private_data: b"" };
                self.manager.resolve(route, &call, self.now)
            };
            assert!(self.exchanges.insert(id.unwrap(), Seen::default()).is_none(), "an id is used twice");
            return;
        }
        let (id, now) = (self.one_of(&ids), self.now);
        let manager = &mut self.manager;
        // Most calls do not fit the state, and fail.
        match self.random.below(12) {
            0..=2 => _ = manager.accept(id, &accept(qpn), now),
            3 => _ = manager.reject(id, Reason::CONSUMER, b"no", now),
            4 => _ = manager.disconnect(id, b"", now),
            5 | 6 => {
                let is_established = manager.establish(id, b"").is_ok();
                self.exchanges.get_mut(&id).unwrap().is_established |= is_established;
            }
            7 => manager.received_data(id),
            8 => {
                manager.fetched(id);
                self.exchanges.get_mut(&id).unwrap().is_fetched = true;
            }
            9 => {
                let answer = SidrAnswer::Refused { status: SidrStatus::REJECTED, private_data: b"" };
                _ = manager.answer(id, &answer, now);
            }
            10 => {
                let dead = manager.local_peers().next();
                dead.iter().for_each(|peer| manager.peer_died(peer, now));
            }
            _ => {
                manager.destroy(id, now);
                self.exchanges.remove(&id);
            }
        }
    }

    /// Takes what the manager has produced. Returns the number of messages.
    fn drain(&mut self) -> usize {
        let mut sent = 0;
        while let Some(output) = self.manager.poll() {
            match output {
                Output::Send { mad, .. } => {
                    sent += 1;
                    self.transactions.truncate(8);
                    self.transactions.insert(0, mad.transaction);
                    match &mad.message {
                        Message::Req(req) => self.knows(req.local_comm_id, req.local_qpn),
                        Message::Rep(rep) => self.knows(rep.local_comm_id, rep.local_qpn),
                        Message::SidrReq(SidrReq { request_id, .. }) => self.knows(*request_id, QPN),
                        Message::Rej(Rej { local_comm_id, .. }) => self.knows(*local_comm_id, QPN),
                        _ => {}
                    }
                }
                Output::Event { id, event } => self.event(id, &event),
            }
        }
        sent
    }

    fn knows(&mut self, id: u32, qpn: u32) {
        self.ids.push(id);
        self.qpns.truncate(8);
        self.qpns.insert(0, qpn);
    }

    /// The events of an exchange are those that [`Event`] promises.
    fn event(&mut self, id: CommId, event: &Event) {
        let kind = match event {
            Event::Request(_) | Event::SidrRequest(_) => {
                let new = Seen { is_request: true, ..Seen::default() };
                assert!(self.exchanges.insert(id, new).is_none(), "{id:?} is in use");
                return;
            }
            Event::Response(_) => "response",
            Event::Established => "established",
            Event::Rejected { .. } => "rejected",
            Event::Unreachable => "unreachable",
            Event::ConnectError => "error",
            Event::Disconnected => "disconnected",
            Event::TimeWaitExit => "exit",
            Event::SidrReply(_) => "reply",
        };
        let seen = self.exchanges.get_mut(&id).expect("the program has destroyed it");
        let is_over = |event: &&str| ["rejected", "unreachable", "error", "exit", "reply"].contains(event);
        assert!(
            !seen.events.iter().any(|event| is_over(event) || *event == kind),
            "{kind}: {:?}",
            seen.events
        );
        seen.is_established |= kind == "established";
        match kind {
            "disconnected" => assert!(seen.is_established),
            "exit" => assert!(seen.events.contains(&"disconnected")),
            "rejected" | "unreachable" => assert!(!seen.is_established),
            _ => {}
        }
        seen.events.push(kind);
    }

    /// The program ends, and the peer is silent. Nothing is left.
    fn end(mut self) -> usize {
        let events = self.exchanges.values().map(|seen| seen.events.len()).sum();
        for id in std::mem::take(&mut self.exchanges).into_keys() {
            self.manager.destroy(id, self.now);
        }
        for listener in self.listeners {
            self.manager.stop_listening(listener, self.now);
        }
        let begin = self.now;
        while let Some(due) = self.manager.deadline() {
            self.now = due.max(self.now);
            self.manager.expire(self.now);
            self.drain();
            // With the longest timeouts: all DREQs, and then the time in which the peer may repeat its REQ.
            assert!((self.now - begin) / 1_000_000 < 1_000, "it takes too long");
        }
        assert!(self.manager.is_empty() && !self.manager.has_held());
        events
    }
}

/// The header of rdma_cm of a request to this side.
fn header(route: Route) -> [u8; CMA_HEADER_LEN] {
    let addresses = Addresses::between(route.remote, route.local).unwrap();
    CmaHeader { source_port: 4711, addresses }.encode()
}

#[test]
fn a_malicious_peer_breaks_no_rule_of_this_side() {
    let mut events = 0;
    for seed in 1..=if cfg!(miri) { 2 } else { 500 } {
        let mut attack = Attack::new(seed);
        for _ in 0..STEPS {
            attack.step();
        }
        events += attack.end();
    }
    assert!(events > 0);
}

/// A peer sends messages in the name of this host, so that the answers return to it.
#[test]
fn no_answer_is_answered_for_ever() {
    let mut attack = Attack::new(7);
    let route = Route { remote: route_of(0).local, ..route_of(0) };
    for _ in 0..20_000 {
        let mut waiting = vec![attack.message(route)];
        for hop in 0.. {
            assert!(hop < 4, "{waiting:?}");
            let mut answers = Vec::new();
            for mad in waiting {
                if attack.manager.receive(&mad, route, attack.now) == Received::NoListener {
                    answers.extend(refusal(&mad, Reason::INVALID_SERVICE_ID));
                }
                while let Some(output) = attack.manager.poll() {
                    match output {
                        Output::Send { mad, .. } => answers.push(mad),
                        Output::Event { id, .. } => attack.manager.destroy(id, attack.now),
                    }
                }
            }
            waiting = answers;
            if waiting.is_empty() {
                break;
            }
        }
    }
}
