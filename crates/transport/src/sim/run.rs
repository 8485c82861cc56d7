// SPDX-License-Identifier: BSD-3-Clause
//! One schedule: phase 1 with its faults, then phase 2, in which there are none and all requests must
//! complete.

use super::plan::Plan;
use super::random::Draw;
use super::world::{Sim, say};
use crate::iwarp::conn::{FIRST_FPDU_TIMEOUT_S, RESPONDER_PAUSE_MS};
use crate::iwarp::conn::{Role, Terms};
use crate::step::{Awaits, reason};
use crate::testing::memory::State;

/// A schedule with more actions does not end.
const MOST_ACTIONS: usize = 400_000;

impl Sim {
    /// Runs the schedule of a seed; gives a digest of all that happened.
    pub(super) fn schedule(&mut self, seed: u64) -> u64 {
        let mut draw = Draw::new(seed);
        let plan = Plan::new(&mut draw);
        say!(self, "{plan:#?}");
        self.begin(plan, draw);
        for me in 0..2 {
            self.first_receives(me);
            if self.plan.lose && me == 1 {
                self.lose(me);
            } else if !self.plan.sides[me].opens_late {
                self.open(me);
            }
        }
        self.phase_1();
        self.phase_2();
        self.print
    }

    fn phase_1(&mut self) {
        let mut idle = 0;
        for _ in 0..self.plan.actions {
            self.actions += 1;
            if self.act() || self.draw.below(2) == 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > 8 && self.nothing_can_run() && !self.advance() {
                return;
            }
        }
    }

    pub(super) fn phase_2(&mut self) {
        say!(self, "phase 2");
        self.healed = true;
        for me in 0..2 {
            if !self.checker.sides[me].open && !self.checker.sides[me].ended {
                self.open(me);
            }
        }
        self.settle_down();
        if self.checker.sides.iter().all(|side| !side.closed && side.open && !side.destroyed) {
            for me in 0..2 {
                self.healthy(me);
            }
            let me = self.draw.below(2);
            self.disconnect(me);
        }
        self.settle_down();
        for me in 0..2 {
            self.over(me);
        }
    }

    /// Executes all actions that are possible, and advances the time.
    fn settle_down(&mut self) {
        loop {
            let mut moved = false;
            for me in 0..2 {
                self.wake(me);
                moved |= self.step(me);
                moved |= self.arrive(me, usize::MAX);
                moved |= self.post(me) | self.receive_if_late(me) | self.disk(me);
                moved |= self.poll(me, 0, usize::MAX) | self.poll(me, 1, usize::MAX);
                self.actions += 1;
            }
            assert!(self.actions < MOST_ACTIONS, "no progress");
            if !moved && self.sides.iter().all(|side| side.due == 0 && side.reasons == 0) && !self.advance() {
                return;
            }
        }
    }

    /// A connection that has not ended has executed all requests.
    fn healthy(&self, me: usize) {
        let (model, peer) = (&self.checker.sides[me], &self.checker.sides[1 - me]);
        assert!(
            model.sends_are_over(),
            "side {me} rests with {} requests of {}",
            model.done,
            model.requests.len()
        );
        assert_eq!(peer.delivered, model.messages(), "messages of side {me} are lost");
        assert_eq!(peer.changes(), model.atomics(), "atomic operations of side {me} are lost");
    }

    fn over(&self, me: usize) {
        let model = &self.checker.sides[me];
        if !model.destroyed {
            assert!(model.ended, "side {me} has not reported the end");
            assert!(model.sends_are_over(), "side {me} keeps {} of {}", model.done, model.requests.len());
            assert_eq!(model.received, model.taken_receives.len(), "side {me} keeps a receive");
            let own = !self.plan.sides[me].shared;
            assert!(!own || self.sides[me].queues.receives.is_empty(), "side {me} keeps receives");
        }
        assert!(!model.open || model.closed, "side {me} keeps its link");
        self.checker.all_delivered(me, self.pipes[1 - me].lossy);
    }

    // ---- actions -----------------------------------------------------------------------------------------------------------------------

    /// Executes an action, or tries to; false if none of that kind is possible.
    pub(super) fn act(&mut self) -> bool {
        let what = self.draw.below(32);
        let me = self.draw.below(2);
        match what {
            0..10 => self.step(me),
            10..16 => {
                let most = self.draw.between(1, self.plan.arrival);
                self.arrive(me, most)
            }
            16..20 => self.wake(me),
            20..24 => {
                let together = if self.plan.sides[me].mix.alike > 0 { self.draw.between(1, 5) } else { 1 };
                (0..together).fold(false, |posted, _| self.post(me) || posted)
            }
            24 => self.receive_if_late(me),
            25 | 26 => {
                let (which, most) = (self.draw.below(2), self.draw.between(1, 4));
                self.poll(me, which, most)
            }
            27 => self.disk(me),
            28 if !self.checker.sides[me].open && !self.checker.sides[me].ended => {
                self.open(me);
                true
            }
            28 => self.advance(),
            _ => self.trouble(me),
        }
    }

    /// Another event during a step.
    pub(super) fn inside(&mut self) {
        if self.draw.below(2) == 0 {
            // The other side executes all that is possible: a step is long enough for that.
            let peer = usize::from(self.stepping(0));
            for _ in 0..2 {
                self.arrive(1 - peer, usize::MAX);
                self.wake(peer);
                self.step(peer);
                self.post(peer);
                self.arrive(peer, usize::MAX);
            }
            return;
        }
        for _ in 0..self.draw.between(1, 6) {
            self.act();
        }
    }

    fn trouble(&mut self, me: usize) -> bool {
        let plan = self.plan;
        let side = plan.sides[me];
        if self.fault(plan.spurious) {
            // A hang-up is never invented, nor is a disconnection by the program.
            let reasons = self.draw.below(reason::ALL as usize + 1) as u32;
            self.sides[me].reasons |= reasons & !(reason::HANGUP | reason::DISCONNECT);
        }
        if self.fault(plan.freeze) {
            let until = self.now + self.draw.below(200_000) as u64;
            self.pipes[me].frozen_until = until;
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
        if self.fault(side.exit) {
            self.exit(me);
        }
        if self.fault(side.disconnect) {
            self.disconnect(me);
        }
        if self.fault(side.destroy) {
            self.destroy(me);
        }
        if self.fault(plan.forge) {
            self.forge(me);
        }
        if self.fault(plan.cut) {
            self.reset();
        }
        false
    }

    fn spoil(&mut self, me: usize, how: State) {
        let region = self.draw.below(super::memory::REGIONS);
        say!(self, "side {me}: region {region} is now {how:?}");
        self.memories[me].table[region].state = how;
        // A deregistration waits for transfers, and there are none from then on. The memory may vanish
        // unnoticed.
        if how == State::Deregistered {
            self.sides[me].exported[region] = 0;
        }
    }

    pub(super) fn open(&mut self, me: usize) {
        let terms = self.plan.sides[me];
        let behind = self.pipes[1 - me].readable();
        let mut early = vec![0; if behind > 0 { self.draw.below(behind + 1) } else { 0 }];
        self.pipes[1 - me].read(&mut early);
        self.was_read(1 - me);
        say!(self, "side {me} opens with {} early bytes", early.len());
        let terms = Terms {
            framing: terms.framing,
            role: terms.role,
            wait_for_receives: terms.wait,
            early: &early,
            transfers: self.plan.transfers,
        };
        let Some(conn) = &mut self.conns[me] else { return };
        conn.open(terms, self.now).unwrap();
        self.sides[me].timer = conn.deadline();
        self.sides[me].opened_at = self.now;
        self.sides[me].reasons |= reason::READABLE;
        self.checker.sides[me].open = true;
        self.report(me);
    }

    /// The connection fails before it is opened.
    fn lose(&mut self, me: usize) {
        let Some(mut conn) = self.conns[me].take() else { return };
        self.checker.sides[me].causes.disconnected = true;
        conn.lose(&mut self.host(me), libc::ECONNREFUSED);
        // It is stepped only if it has a driver.
        self.sides[me].stalled = true;
        self.conns[me] = Some(conn);
        self.reset();
    }

    /// The driver gets the events of the socket.
    pub(super) fn wake(&mut self, me: usize) -> bool {
        let due = std::mem::take(&mut self.sides[me].due);
        let model = &self.checker.sides[me];
        if !model.open || model.closed {
            return false;
        }
        self.sides[me].reasons |= due;
        due != 0
    }

    pub(super) fn arrive(&mut self, from: usize, most: usize) -> bool {
        if !self.pipes[from].can_arrive(self.now) {
            return false;
        }
        self.pipes[from].arrive(most);
        say!(self, "{} bytes of side {from} have arrived", self.pipes[from].bytes_arrived());
        self.report(1 - from);
        // Bytes that are not read any more are lost when they arrive.
        self.was_read(from);
        true
    }

    pub(super) fn stepping(&self, me: usize) -> bool {
        self.conns[me].is_none() && !self.checker.sides[me].destroyed
    }

    /// One step, as the driver does it; false when there is no reason for one.
    pub(super) fn step(&mut self, me: usize) -> bool {
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
        let model = &mut self.checker.sides[me];
        model.causes.disconnected |= model.open && why & reason::DISCONNECT != 0;
        if why & reason::DURABLE != 0 {
            for (number, durable) in std::mem::take(&mut self.sides[me].flushed) {
                self.report_flushed(me, number, durable);
                conn.durable(&mut self.host(me), number, durable);
            }
        }
        let budget = self.plan.sides[me].budget();
        let stepped = conn.step(&mut self.host(me), why, budget);
        let side = &mut self.sides[me];
        side.timer = conn.deadline();
        side.stalled = stepped.awaits == Awaits::Receive;
        self.conns[me] = Some(conn);
        assert!(side.batch.is_empty(), "a step of side {me} leaves placements");
        assert!(!side.must_end || self.checker.sides[me].closed, "side {me} goes on after an access failed");
        if side.stalled && !self.plan.sides[me].shared && !side.queues.receives.is_empty() {
            side.reasons |= reason::RECEIVE;
        }
        if stepped.again {
            side.reasons |= reason::AGAIN;
        }
        self.note(u64::from(why) << 8 | u64::from(stepped.again) << 1 | me as u64);
        true
    }

    // ---- time --------------------------------------------------------------------------------------------------------------------------

    fn nothing_can_run(&self) -> bool {
        self.sides.iter().all(|side| side.reasons == 0 && side.due == 0 && side.flushes.is_empty())
            && self.pipes.iter().all(|pipe| !pipe.can_arrive(self.now))
            && !(self.stepping(0) || self.stepping(1))
    }

    /// Advances the time until something is due, if nothing can run before; false if nothing will be.
    fn advance(&mut self) -> bool {
        if !self.nothing_can_run() {
            return false;
        }
        let now = self.now;
        let frozen = self.pipes.iter().map(|pipe| pipe.frozen_until).filter(|until| *until > now);
        let timers = self.sides.iter().filter_map(|side| side.timer);
        let Some(next) = frozen.chain(timers).min() else { return false };
        self.now = next.max(now);
        say!(self, "time passes");
        for me in 0..2 {
            let side = &mut self.sides[me];
            if side.timer.is_some_and(|timer| timer <= self.now) {
                side.timer = None;
                side.reasons |= reason::TIME;
                let model = &mut self.checker.sides[me];
                // Its messages have waited for receives, or for room, as long as they may.
                model.causes.starved |= side.stalled || side.queues.is_waiting();
            }
        }
        true
    }

    // ---- more checks -------------------------------------------------------------------------------------------------------------------

    /// A responder does not send first, or not at once.
    pub(super) fn spoke(&self, me: usize) {
        let role = self.plan.sides[me].role;
        let has_received = self.checker.sides[1 - me]
            .outbound
            .first_end
            .is_some_and(|end| end <= self.pipes[1 - me].bytes_read());
        let waited = self.now >= self.sides[me].opened_at + RESPONDER_PAUSE_MS * 1_000;
        let may = has_received || (role != Role::RESPONDER_ANNOUNCED && (role != Role::RESPONDER || waited));
        assert!(may, "side {me} sends too early");
    }

    /// Side `me` ends its connection: there is a cause.
    pub(super) fn may_end(&self, me: usize) {
        let causes = &self.checker.sides[me].causes;
        let awaits_first = self.plan.sides[me].role == Role::RESPONDER_ANNOUNCED
            && self.now >= self.sides[me].opened_at + FIRST_FPDU_TIMEOUT_S * 1_000_000;
        let incoming = &self.pipes[1 - me];
        let waited_after_end = causes.starved && incoming.reset;
        let explained = causes.own()
            || causes.broken
            || causes.end_read
            || incoming.fin
            || awaits_first
            || waited_after_end;
        assert!(explained, "side {me} ends its connection without a cause");
    }
}
