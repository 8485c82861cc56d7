// SPDX-License-Identifier: BSD-3-Clause
//! Sender, receiver, the network between them, and the actions of a schedule.

use std::collections::VecDeque;

use super::checker::Checker;
use super::plan::Plan;
use crate::access::{Access, Denied, REMOTE_WRITE};
use crate::host::{Durable, Ended};
use crate::roce::link::Dropped;
use crate::roce::uc::Uc;
use crate::roce::wire::Packet;
use crate::sim::memory::{self, READABLE, RECEIVES, REGIONS};
use crate::sim::random::Draw;
use crate::sim::request::Mix;
use crate::sim::roce::network::Network;
use crate::sim::roce::plan::NUMBERS;
use crate::sim::schedules::Simulation;
use crate::sim::world::say;
use crate::step::reason;
use crate::testing::memory::{Placement, Regions, State};
use crate::testing::packets::PacketWorld;
use crate::testing::queues::{Queues, WorkQueue};
use crate::testing::world::{Parts, World};
use crate::units::Micros;
use crate::wr::{Completion, Entries, RecvWr, Sge};

/// A schedule with more actions does not end.
const MOST_ACTIONS: usize = 100_000;
/// Bytes in front of a packet on its way, with its sequence.
const MARK: usize = 8;
/// The sequence of a packet that is not one of the sender's.
const FORGED: u64 = u64::MAX;

#[derive(Default)]
struct Side {
    reasons: u32,
    /// The link takes nothing.
    blocked: bool,
    batch: Vec<Placement>,
    queues: Queues,
}

pub(super) struct Sim {
    conns: [Option<Uc>; 2],
    sides: [Side; 2],
    network: Network,
    arrived: VecDeque<Vec<u8>>,
    memories: [Regions; 2],
    checker: Checker,
    plan: Plan,
    draw: Draw,
    now: Micros,
    healed: bool,
    /// A corrupted packet was delivered: the model is not compared any more.
    forged: bool,
    receives: usize,
    actions: usize,
    print: u64,
    trace: bool,
}

impl Simulation for Sim {
    fn new(trace: bool) -> Self {
        let mut draw = Draw::new(0);
        Self {
            conns: [None, None],
            sides: Default::default(),
            network: Network::default(),
            arrived: VecDeque::new(),
            memories: [memory::new(0), memory::new(1)],
            checker: Checker::default(),
            plan: Plan::new(&mut draw),
            draw,
            now: 0,
            healed: false,
            forged: false,
            receives: 0,
            actions: 0,
            print: 0,
            trace,
        }
    }

    fn run(&mut self, seed: u64) -> u64 {
        let mut draw = Draw::new(seed);
        let plan = Plan::new(&mut draw);
        say!(self, "{plan:#?}");
        self.begin(plan, draw);
        for _ in 0..self.plan.actions {
            self.act();
        }
        self.finish();
        self.print
    }
}

impl Sim {
    /// What has happened, and how often.
    pub(super) fn seen(&self) -> Vec<(&'static str, u64)> {
        let expected = [
            "a message arrives",
            "a message is broken off",
            "a packet is late",
            "a packet continues nothing",
            "no receive",
            "access denied",
            "too long",
            "LOC_PROT_ERR",
            "LOC_LEN_ERR of a shared receive",
            "REM_INV_REQ_ERR of a shared receive",
        ];
        let count = |what| self.checker.seen.iter().find(|(seen, _)| *seen == what).map_or(0, |(_, n)| *n);
        expected.map(|what| (what, count(what))).to_vec()
    }

    fn begin(&mut self, plan: Plan, draw: Draw) {
        (self.plan, self.draw) = (plan, draw);
        (self.now, self.healed, self.forged) = (1_000, false, false);
        (self.receives, self.actions, self.print) = (0, 0, 0);
        self.checker.begin();
        self.network.begin();
        self.arrived.clear();
        for (me, number) in NUMBERS.into_iter().enumerate() {
            let mut queues = Queues::new(64, plan.recv_cq, false);
            queues.drops_messages = plan.shared;
            self.sides[me] = Side { queues, ..Side::default() };
            memory::begin(&mut self.memories[me], me);
            let mut conn = Uc::new(number, plan.max_send_wr, !plan.shared).unwrap();
            conn.receive(plan.terms(me));
            conn.send(plan.first);
            self.conns[me] = Some(conn);
        }
        if !plan.late_receives {
            (0..plan.requests).for_each(|_| self.post_receive());
        }
    }

    fn note(&mut self, what: u64) {
        self.print = (self.print ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// A fault with this rate happens now.
    fn fault(&mut self, rate: u32) -> bool {
        !self.healed && self.draw.chance(rate)
    }

    fn host(&mut self, me: usize) -> At<'_> {
        At { sim: self, me }
    }

    // ---- actions ---------------------------------------------------------------------------------------

    fn act(&mut self) {
        self.actions += 1;
        assert!(self.actions < MOST_ACTIONS, "no progress");
        match self.draw.below(24) {
            0..5 => drop(self.step(0)),
            5..9 => drop(self.step(1)),
            9..15 => drop(self.arrive()),
            15..18 => drop(self.post()),
            18 => self.post_receive_if_late(),
            19 => drop(self.poll(1 + self.actions % 3)),
            20 => self.unblock(),
            21 => drop(self.resume()),
            22 => self.now += 1 << self.draw.below(16),
            _ => self.mishap(),
        }
    }

    /// No faults any more: what is under way ends, and a last message arrives.
    fn finish(&mut self) {
        say!(self, "phase 2");
        self.healed = true;
        self.unblock();
        self.settle_down();
        let is_over = self.checker.ended.contains(&true) || self.checker.disconnected;
        if !self.forged && !is_over {
            assert_eq!(self.checker.done, self.checker.requests.len(), "requests are not complete");
            let is_clean = |me: usize| self.memories[me].table.iter().all(|one| one.state == State::Mapped);
            let may_write = self.plan.access & REMOTE_WRITE != 0;
            // A short receive stays until a message fits.
            if is_clean(0) && is_clean(1) && may_write && self.plan.short_receive == 0 {
                let before = self.checker.messages;
                self.post_receive();
                self.plan.requests = self.checker.requests.len() + 1;
                self.plan.mix = Mix { bad_request: 0, ..self.plan.mix };
                assert!(self.post());
                self.settle_down();
                assert_eq!(self.checker.messages, before + 1, "the last message does not arrive");
            }
        }
        for me in 0..2 {
            self.disconnect(me);
        }
        self.settle_down();
        for (me, side) in self.sides.iter().enumerate() {
            assert!(self.checker.ended[me], "side {me} has not reported the end");
            assert_eq!(side.queues.requests().count(), 0, "side {me} keeps requests");
            assert_eq!(side.queues.taken_receives.len(), 0, "side {me} keeps a receive");
        }
    }

    fn settle_down(&mut self) {
        loop {
            self.actions += 1;
            assert!(self.actions < MOST_ACTIONS, "no progress");
            let mut moved = self.step(0) | self.step(1) | self.resume() | self.post();
            while self.arrive() {
                moved = true;
            }
            moved |= self.poll(usize::MAX);
            if moved || self.sides.iter().any(|side| side.reasons != 0) {
                continue;
            }
            let Some(next) = self.network.next(self.now) else { return };
            self.now = next;
        }
    }

    fn mishap(&mut self) {
        let plan = self.plan;
        let me = self.draw.below(2);
        if self.fault(plan.spurious) {
            self.sides[me].reasons |= self.draw.below(reason::ALL as usize + 1) as u32 & !reason::DISCONNECT;
        }
        if self.fault(plan.spoil) && self.sides[me].batch.is_empty() {
            let how = self.draw.one_of(&[State::Deregistered, State::Unmapped]);
            let region = self.draw.below(REGIONS);
            say!(self, "side {me}: region {region} is now {how:?}");
            self.memories[me].table[region].state = how;
        }
        if self.fault(plan.disconnect) {
            self.disconnect(me);
        }
    }

    fn disconnect(&mut self, me: usize) {
        say!(self, "side {me} disconnects");
        self.checker.disconnected = true;
        self.sides[me].reasons |= reason::DISCONNECT;
    }

    fn step(&mut self, me: usize) -> bool {
        if self.sides[me].reasons == 0 {
            return false;
        }
        let Some(mut conn) = self.conns[me].take() else { return false };
        let why = std::mem::take(&mut self.sides[me].reasons);
        say!(self, "side {me} steps: {why:#b}");
        let budget = self.plan.budget();
        let stepped = conn.step(&mut self.host(me), why, budget);
        assert!(self.sides[me].batch.is_empty(), "a step of side {me} leaves placements");
        if me == 1 && !self.forged {
            self.checker.settles();
        }
        self.conns[me] = Some(conn);
        if stepped.again {
            self.sides[me].reasons |= reason::AGAIN;
        }
        self.note(u64::from(why) << 8 | u64::from(stepped.again) << 1 | me as u64);
        true
    }

    fn post(&mut self) -> bool {
        let index = self.checker.requests.len();
        let in_use = self.sides[0].queues.in_use();
        if index >= self.plan.requests || in_use >= self.plan.max_send_wr as usize {
            return false;
        }
        let last = self.checker.requests.last().cloned();
        let mut wr = self.plan.mix.request(&mut self.draw, &self.memories[0], 0, index, last.as_ref());
        // Writes go to memory that nothing else changes.
        wr.fence = false;
        say!(self, "posts {wr:x?}");
        self.checker.posted(wr.clone());
        self.sides[0].queues.sends.push_back(wr);
        self.sides[0].reasons |= reason::POSTED;
        true
    }

    /// Posts a receive of one place in several pieces.
    fn post_receive(&mut self) {
        let short = self.fault(self.plan.short_receive);
        let len = if short { self.draw.below(64) } else { self.plan.mix.longest };
        let mut at = memory::base(1, RECEIVES) + self.draw.below(memory::len(RECEIVES) - len + 1) as u64;
        let mut left = len;
        let mut entries = Vec::new();
        for _ in 0..self.draw.below(3) {
            let piece = self.draw.below(left + 1);
            entries.push(Sge::new(at, piece as u32, memory::stag(1, RECEIVES)));
            (at, left) = (at + piece as u64, left - piece);
        }
        entries.push(Sge::new(at, left as u32, memory::stag(1, RECEIVES)));
        let entries: Entries = entries.into_iter().filter(|entry| entry.len > 0).collect();
        let wr = RecvWr::new(20_000 + self.receives as u64, &entries, len as u32).unwrap();
        say!(self, "posts receive {} of {len}", wr.wr_id);
        self.receives += 1;
        self.sides[1].queues.receives.push_back(wr);
        self.sides[1].reasons |= reason::RECEIVE;
    }

    fn post_receive_if_late(&mut self) {
        if self.plan.late_receives && self.receives < self.plan.requests {
            self.post_receive();
        }
    }

    fn poll(&mut self, most: usize) -> bool {
        let mut moved = false;
        for side in &mut self.sides {
            for queue in [WorkQueue::Send, WorkQueue::Receive] {
                let (count, waiting) = side.queues.poll(queue, most);
                side.reasons |= if waiting { reason::ROOM } else { 0 };
                moved |= count > 0;
            }
        }
        moved
    }

    fn unblock(&mut self) {
        for side in &mut self.sides {
            if std::mem::take(&mut side.blocked) {
                side.reasons |= reason::WRITABLE;
            }
        }
    }

    /// The program moves the sender from SQE to RTS, when it has seen that all requests have failed.
    fn resume(&mut self) -> bool {
        let is_flushed = self.checker.done == self.checker.requests.len();
        let (true, true, Some(conn)) = (self.checker.in_sqe, is_flushed, &mut self.conns[0]) else {
            return false;
        };
        say!(self, "SQE to RTS");
        conn.resume();
        self.checker.in_sqe = false;
        self.sides[0].queues.resume();
        true
    }

    fn depart(&mut self, sequence: u64, packet: &[u8]) {
        if self.fault(self.plan.lose) {
            say!(self, "that packet is lost");
            return;
        }
        let copies = if self.fault(self.plan.duplicate) { 2 } else { 1 };
        let marked = [&sequence.to_le_bytes()[..], packet].concat();
        for _ in 0..copies {
            let delay = if self.fault(self.plan.delay) { 1 << self.draw.below(16) } else { 0 };
            self.network.depart(self.now + delay, delay > 0, marked.clone());
        }
    }

    /// A packet arrives; false when there is none.
    fn arrive(&mut self) -> bool {
        let count = self.network.arrivals(self.now);
        if count == 0 {
            return false;
        }
        let reordered = count > 1 && self.fault(self.plan.reorder);
        let which = if reordered { self.draw.below(count) } else { 0 };
        let Some((mut packet, _)) = self.network.take(self.now, which) else { return false };
        if self.fault(self.plan.forge) {
            say!(self, "a corrupted packet is delivered");
            for _ in 0..self.draw.between(1, 4) {
                let at = MARK + self.draw.below((packet.len() - MARK).min(40));
                packet[at] ^= 1 << self.draw.below(8);
            }
            packet[..MARK].copy_from_slice(&FORGED.to_le_bytes());
        }
        if self.arrived.len() < self.plan.buffer || self.healed {
            self.arrived.push_back(packet);
            self.sides[1].reasons |= reason::READABLE;
        }
        true
    }
}

/// The world of one of the two.
struct At<'a> {
    sim: &'a mut Sim,
    me: usize,
}

impl At<'_> {
    fn is_checked(&self) -> bool {
        !self.sim.forged
    }
}

impl World for At<'_> {
    type Memory = Regions;

    fn parts(&mut self) -> Parts<'_, Regions> {
        let side = &mut self.sim.sides[self.me];
        Parts { memory: &mut self.sim.memories[self.me], queues: &mut side.queues, batch: &mut side.batch }
    }

    fn time(&mut self) -> Micros {
        unreachable!("there is no timer")
    }

    fn uses(&self, _call: &str) {}

    fn failed(&mut self, access: Access, why: &dyn std::fmt::Debug, _inbound: bool) {
        say!(self.sim, "side {}: {access:x?} fails: {why:?}", self.me);
        self.sim.checker.failed(self.me, access);
    }

    fn placed(&mut self, access: Access, bytes: &[u8], _directly: bool) {
        say!(self.sim, "side {}: {access:x?} is placed", self.me);
        assert_eq!(self.me, 1, "nothing is sent to the sender");
        assert_ne!(access.stag, memory::stag(1, READABLE));
        if self.is_checked() {
            let Sim { checker, memories, .. } = &mut *self.sim;
            checker.placed(access, bytes, &memories[0]);
        }
        self.sim.note(access.addr ^ access.len as u64);
    }

    fn flush(&mut self, _access: Access, _number: u64) -> Durable {
        unreachable!("there is no flush")
    }

    fn invalidate_window(&mut self, _stag: u32) -> Result<(), Denied> {
        unreachable!("there is no window")
    }

    fn took_receive(&mut self, wr: Option<&RecvWr>) {
        say!(self.sim, "takes {wr:x?}");
        if self.is_checked() {
            self.sim.checker.took_receive(wr);
        }
    }

    fn completes(&mut self, queue: WorkQueue, completion: &Completion) {
        say!(self.sim, "side {}: {queue:?} {completion:x?}", self.me);
        self.sim.note(completion.wr_id << 8 | u64::from(completion.status));
        match (queue, self.me) {
            (WorkQueue::Send, _) => self.sim.checker.completes_send(completion.status),
            (WorkQueue::Receive, 1) if self.is_checked() => {
                let Sim { checker, memories, plan, .. } = &mut *self.sim;
                checker.completes_receive(completion, memories, plan);
            }
            _ => {}
        }
    }

    fn no_room(&mut self, queue: WorkQueue) {
        if queue == WorkQueue::Receive && self.is_checked() {
            say!(self.sim, "no room for a completion");
            self.sim.checker.keeps_completion();
        }
    }

    fn releases(&mut self) {
        self.sim.checker.completes_send(crate::wr::status::SUCCESS);
    }

    fn has_ended(&mut self, how: Ended) {
        say!(self.sim, "side {} has ended: {how:?}", self.me);
        self.sim.checker.ended[self.me] = true;
        let is_caused = self.sim.checker.disconnected || self.sim.checker.receiver_denied;
        assert!(is_caused || self.sim.forged, "side {} has ended without a cause", self.me);
    }
}

impl PacketWorld for At<'_> {
    fn transmit(&mut self, packet: &[u8]) -> bool {
        assert_eq!(self.me, 0, "the receiver answers nothing");
        if self.sim.sides[0].blocked || self.sim.fault(self.sim.plan.blocked) {
            self.sim.sides[0].blocked = true;
            return false;
        }
        let parsed = Packet::parse(packet).expect("a packet");
        say!(self.sim, "sends {:?}, {} bytes", parsed.bth, parsed.payload.len());
        let Sim { checker, memories, plan, .. } = &mut *self.sim;
        let sequence = checker.sends(&parsed, &memories[0], plan);
        self.sim.note(u64::from(parsed.bth.psn.get()));
        self.sim.depart(sequence, packet);
        true
    }

    fn arrive(&mut self) -> Option<Vec<u8>> {
        if self.me == 0 {
            return None;
        }
        let mut packet = self.sim.arrived.pop_front()?;
        let rest = packet.split_off(MARK);
        let sequence = packet.first_chunk().map_or(FORGED, |mark| u64::from_le_bytes(*mark));
        say!(self.sim, "takes packet {sequence}");
        if sequence == FORGED {
            self.sim.forged = true;
        }
        if self.is_checked() {
            self.sim.checker.takes(sequence);
            if self.sim.plan.access & REMOTE_WRITE == 0 {
                self.sim.checker.denies_writes();
            }
            if self.sim.sides[1].queues.recv_cq.waiting {
                self.sim.checker.no_receive();
            }
        }
        Some(rest)
    }

    /// One by one: the checker knows by the last packet what each effect belongs to.
    fn follows(&mut self) -> Option<usize> {
        None
    }

    fn dropped(&mut self, why: Dropped) {
        say!(self.sim, "dropped: {why:?}");
        if self.is_checked() {
            self.sim.checker.dropped(why);
        }
    }

    fn enters_sqe(&mut self) {
        say!(self.sim, "SQE");
        self.sim.checker.in_sqe = true;
    }
}
