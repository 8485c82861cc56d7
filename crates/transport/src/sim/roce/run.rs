// SPDX-License-Identifier: BSD-3-Clause
//! One schedule: phase 1 with its faults, then phase 2, in which there are none and all requests must
//! complete.

use super::plan::Plan;
use super::world::Sim;
use crate::sim::memory::REGIONS;
use crate::sim::random::Draw;
use crate::sim::schedules::Simulation;
use crate::sim::world::say;
use crate::step::{Awaits, reason};
use crate::testing::memory::State;

/// A schedule with more actions does not end.
const MOST_ACTIONS: usize = 100_000;

impl Simulation for Sim {
    fn new(trace: bool) -> Self {
        Self::empty(trace)
    }

    fn run(&mut self, seed: u64) -> u64 {
        let mut draw = Draw::new(seed);
        let plan = Plan::new(&mut draw);
        say!(self, "{plan:#?}");
        self.begin(plan, draw);
        for me in 0..2 {
            self.first_receives(me);
            let side = &self.plan.sides[me];
            let (opens, sends) = (!side.opens_late, !side.opens_late && !side.sends_late);
            if opens {
                self.open(me);
            }
            if sends {
                self.open_for_sending(me);
            }
        }
        // Often before anything is sent.
        if self.draw.below(2) == 0 {
            let first = self.draw.below(2);
            self.accept_memory(first);
        }
        self.phase_1();
        self.phase_2();
        self.print
    }
}

impl Sim {
    fn phase_1(&mut self) {
        let mut idle = 0;
        for _ in 0..self.plan.actions {
            self.actions += 1;
            if self.act() || self.draw.below(2) == 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            let is_blocked = self.sides.iter().any(|side| side.blocked);
            if idle > 8 && self.nothing_can_run() && !self.advance() && !is_blocked {
                return;
            }
        }
    }

    fn phase_2(&mut self) {
        say!(self, "phase 2");
        self.healed = true;
        for me in 0..2 {
            self.sides[me].pace.was_late(self.now);
            self.unblock(me);
            self.open(me);
            self.open_for_sending(me);
        }
        let before = [0, 1].map(|me| self.sides[me].pace.clone());
        let began = self.now;
        self.settle_down();
        if !self.forged {
            self.ends_in_time(began, &before);
            if self.checker.sides.iter().all(|side| !side.is_over()) {
                (0..2).for_each(|me| self.healthy(me));
            }
        }
        for me in 0..2 {
            self.disconnect(me);
        }
        self.settle_down();
        (0..2).for_each(|me| self.over(me));
    }

    /// Executes all actions that are possible, and advances the time.
    fn settle_down(&mut self) {
        loop {
            let mut moved = false;
            for me in 0..2 {
                moved |= self.step(me);
                while self.arrive(me) {
                    moved = true;
                }
                moved |= self.post(me) | self.receive_if_late(me) | self.disk(me);
                moved |= self.poll(me, 0, usize::MAX) | self.poll(me, 1, usize::MAX);
                self.actions += 1;
            }
            assert!(self.actions < MOST_ACTIONS, "no progress");
            if !moved && self.sides.iter().all(|side| side.reasons == 0) && !self.advance() {
                return;
            }
        }
    }

    /// A connection that has not ended has executed all requests.
    fn healthy(&self, me: usize) {
        let model = &self.checker.sides[me];
        // Without a timer, what was lost stays lost, as does a duplicate for which the peer has no room.
        let may_lose = self.checker.losses > 0 || self.plan.exceeds_peer(me);
        if self.plan.sides[me].terms.timeout == 0 && may_lose {
            return;
        }
        let (done, all) = (model.done, model.requests.len());
        assert!(done == all, "side {me} rests with {done} requests of {all}");
        let received = self.checker.sides[1 - me].received;
        assert_eq!(received, model.messages.len(), "messages of side {me} are lost");
        assert!(
            self.conns[me].as_ref().is_some_and(|conn| conn.has_completed_all()),
            "side {me} keeps requests"
        );
    }

    fn over(&self, me: usize) {
        let model = &self.checker.sides[me];
        if model.destroyed {
            return;
        }
        assert!(model.ended, "side {me} has not reported the end");
        let side = &self.sides[me];
        assert_eq!(side.queues.requests().count(), 0, "side {me} keeps requests");
        assert_eq!(side.queues.taken_receives.len(), 0, "side {me} keeps a receive");
        assert!(self.plan.sides[me].shared || side.queues.receives.is_empty(), "side {me} keeps receives");
        if !self.forged {
            self.checker.over(me);
        }
    }

    // ---- actions -----------------------------------------------------------------------------------------------------------------------

    /// Executes an action, or tries to; false if none of that kind is possible.
    fn act(&mut self) -> bool {
        let what = self.draw.below(32);
        let me = self.draw.below(2);
        match what {
            0..9 => self.step(me),
            9..18 => self.arrive(me),
            18..22 => {
                let together = if self.plan.sides[me].mix.alike > 0 { self.draw.between(1, 5) } else { 1 };
                (0..together).fold(false, |posted, _| self.post(me) || posted)
            }
            22 => self.receive_if_late(me),
            23 | 24 => {
                let (which, most) = (self.draw.below(2), self.draw.between(1, 4));
                self.poll(me, which, most)
            }
            25 => self.disk(me),
            26 => self.unblock(me),
            27 => self.open(me) || self.open_for_sending(me) || self.accept_memory(me),
            28 | 29 => self.advance(),
            _ => self.mishap(me),
        }
    }

    /// Another event during a step.
    pub(super) fn inside(&mut self) {
        for _ in 0..self.draw.between(1, 6) {
            self.act();
        }
    }

    fn mishap(&mut self, me: usize) -> bool {
        let plan = self.plan;
        let side = plan.sides[me];
        if self.fault(plan.spurious) {
            let reasons = self.draw.below(reason::ALL as usize + 1) as u32;
            self.sides[me].reasons |= reasons & !reason::DISCONNECT;
            // Packets of another connection.
            self.sides[me].has_lost |= self.draw.below(4) == 0;
        }
        if self.fault(plan.steal) {
            self.steal(me);
        }
        if self.fault(plan.deregister) && self.sides[me].batch.is_empty() {
            self.spoil(me, State::Deregistered);
        }
        if self.fault(plan.unmap) {
            self.spoil(me, State::Unmapped);
        }
        if self.fault(side.disconnect) {
            self.disconnect(me);
        }
        if self.fault(side.destroy) {
            self.destroy(me);
        }
        if self.trouble(plan.late) {
            self.now += 1 << self.draw.below(20);
            self.expire();
        }
        false
    }

    fn spoil(&mut self, me: usize, how: State) {
        let region = self.draw.below(REGIONS);
        say!(self, "side {me}: region {region} is now {how:?}");
        self.memories[me].table[region].state = how;
    }

    /// RTR, if the queue pair is not there yet.
    fn open(&mut self, me: usize) -> bool {
        let Some(conn) = self.conns[me].as_mut().filter(|_| !self.checker.sides[me].open) else {
            return false;
        };
        say!(self, "side {me} is in RTR");
        conn.receive(self.plan.sides[me].path).unwrap();
        self.checker.sides[me].open = true;
        true
    }

    /// RTS, if it is in RTR.
    fn open_for_sending(&mut self, me: usize) -> bool {
        let model = &mut self.checker.sides[me];
        let Some(conn) = self.conns[me].as_mut().filter(|_| model.open && !model.sends) else { return false };
        say!(self, "side {me} is in RTS");
        conn.send(self.plan.sides[me].terms);
        model.sends = true;
        true
    }

    /// The link takes packets again.
    fn unblock(&mut self, me: usize) -> bool {
        let was_blocked = std::mem::take(&mut self.sides[me].blocked);
        if was_blocked {
            self.sides[me].reasons |= reason::WRITABLE;
        }
        was_blocked
    }

    /// One step, as the driver does it; false when there is no reason for one.
    fn step(&mut self, me: usize) -> bool {
        if self.sides[me].reasons == 0 {
            return false;
        }
        let Some(mut conn) = self.conns[me].take() else {
            if self.checker.sides[me].destroyed {
                self.sides[me].reasons = 0;
            }
            return false;
        };
        let why = std::mem::take(&mut self.sides[me].reasons);
        say!(self, "side {me} steps: {why:#b}");
        let moved = self.moves(me);
        let why = if moved { why | reason::READABLE | reason::WRITABLE } else { why };
        // The link need not take packets: reasons may be spurious.
        if why & reason::WRITABLE != 0 {
            self.sides[me].pace.unblock(self.now);
        }
        self.checker.sides[me].disconnected |= self.checker.sides[me].open && why & reason::DISCONNECT != 0;
        if why & reason::DURABLE != 0 {
            for (number, durable) in std::mem::take(&mut self.sides[me].flushed) {
                self.checker.flush_ends(me, number, durable);
                conn.durable(&mut self.host(me), number, durable);
            }
        }
        let budget = self.plan.sides[me].budget();
        let stepped = conn.step(&mut self.host(me), why, budget);
        let side = &mut self.sides[me];
        side.timer = conn.deadline();
        side.stalled = stepped.awaits == Awaits::Receive;
        assert!(side.batch.is_empty(), "a step of side {me} leaves placements");
        self.conns[me] = Some(conn);
        if side.stalled && !self.plan.sides[me].shared && !side.queues.receives.is_empty() {
            side.reasons |= reason::RECEIVE;
        }
        if stepped.again {
            side.reasons |= reason::AGAIN;
        }
        self.note(u64::from(why) << 8 | u64::from(stepped.again) << 1 | me as u64);
        true
    }

    pub(super) fn stepping(&self, me: usize) -> bool {
        self.conns[me].is_none() && !self.checker.sides[me].destroyed
    }
}
