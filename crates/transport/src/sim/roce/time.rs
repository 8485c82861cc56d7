// SPDX-License-Identifier: BSD-3-Clause
//! Virtual time, and how much of it and how many packets a schedule may take.

use super::pace::Pace;
use super::world::Sim;
use crate::policy::probe::MOST;
use crate::roce::wire::rnr_delay_us;
use crate::sim::world::say;
use crate::step::reason;
use crate::units::Micros;

/// The longest delay of a packet.
const DELAY_US: Micros = 1 << 20;

impl Sim {
    pub(super) fn nothing_can_run(&self) -> bool {
        self.sides.iter().all(|side| side.reasons == 0 && side.flushes.is_empty())
            && self.networks.iter().all(|network| network.arrivals(self.now) == 0)
            && !(self.stepping(0) || self.stepping(1))
    }

    /// Time passes until something is due, if nothing can run before; false when nothing ever will be.
    pub(super) fn advance(&mut self) -> bool {
        if !self.nothing_can_run() {
            return false;
        }
        let arrivals = self.networks.iter().filter_map(|network| network.next(self.now));
        let timers = self.sides.iter().filter_map(|side| side.timer);
        let Some(next) = arrivals.chain(timers).min() else { return false };
        self.now = next.max(self.now);
        say!(self, "time passes");
        for me in (0..2).filter(|me| self.sides[*me].blocked).collect::<Vec<_>>() {
            self.is_late(me);
        }
        self.expire();
        if self.healed && !self.forged {
            for (me, side) in self.sides.iter().enumerate() {
                let is_over = self.checker.sides[me].is_over();
                assert!(is_over || side.pace.is_punctual(self.now), "the timer of side {me} is late");
            }
        }
        true
    }

    /// Timers expire.
    pub(super) fn expire(&mut self) {
        for side in &mut self.sides {
            if side.timer.is_some_and(|timer| timer <= self.now) {
                side.timer = None;
                side.reasons |= reason::TIME;
            }
        }
    }

    /// Phase 2 has taken a bounded time and so many packets.
    pub(super) fn ends_in_time(&self, began: Micros, before: &[Pace; 2]) {
        let mut most = 4 * DELAY_US;
        for (me, before) in before.iter().enumerate() {
            let (plan, peer) = (&self.plan.sides[me], &self.plan.sides[1 - me]);
            let timeout = plan.timeout_us().unwrap_or(0);
            let rounds = u64::from(plan.terms.retries) + 2;
            let messages = plan.requests as u64 + 1;
            most += 4 * timeout * rounds + messages * rnr_delay_us(peer.path.rnr_timer);
            let pace = &self.sides[me].pace;
            // What was lost before, and what the peer does not answer: it is over, or has forgotten the
            // result of an atomic operation, of which more were outstanding than it announced.
            let is_forgetful = plan.terms.reads > peer.path.reads;
            let is_silent = is_forgetful || self.checker.sides[1 - me].is_over();
            let late = self.checker.sides[me].late_replies;
            let faults = self.checker.faults + late + if is_silent { rounds } else { 0 };
            let changes: u64 = self.sides.iter().map(|side| side.pace.changes).sum();
            let (again, may) = (pace.again, pace.may_repeat(faults + changes));
            assert!(
                again <= may,
                "side {me} sends {again} packets again for {faults} faults and {} RNR NAKs",
                pace.rnr
            );
            let again = pace.again - before.again;
            // What the faults before phase 2 have left on its way, then a peer that is over.
            let rnr = pace.rnr - before.rnr;
            let outstanding = (rnr + 2 * rounds + u64::from(MOST)) * pace.most;
            assert!(again <= outstanding, "side {me} sends {again} packets again without a fault");
        }
        let took = self.now - began;
        assert!(took <= most, "phase 2 takes {took} us of {most}");
    }
}
