// SPDX-License-Identifier: BSD-3-Clause
//! Two identifiers of iWARP that connect over a lossy link, run through seeded schedules: their phases, and
//! the MPA handshake.
//!
//! Bytes arrive in fragments of any size after any delay. The link refuses connections, resets, or loses
//! everything from some time on. Both programs accept, reject, disconnect and destroy at random times.
//! Checked after each step: a program sees ESTABLISHED only if the other one has accepted; each identifier
//! reports at most one outcome and one end, and nothing after it was destroyed. Checked at the end: no
//! program waits for ever, and without faults and impatient programs both sides are established.

mod identifier;
mod world;

use crate::cm::EventKind;
use crate::sim::schedules::{self, Simulation};
use world::World;

/// All schedules.
struct Sim {
    trace: bool,
    /// By the outcome that initiators have seen.
    outcomes: [u64; EventKind::ALL.len()],
}

impl Simulation for Sim {
    fn new(trace: bool) -> Self {
        Self { trace, outcomes: Default::default() }
    }

    fn run(&mut self, seed: u64) -> u64 {
        let world = World::new(seed);
        if self.trace {
            println!("{:?}", world.faults);
        }
        let (outcome, print) = world.run(self.trace);
        if let Some(outcome) = outcome {
            self.outcomes[outcome as usize] += 1;
        }
        print
    }
}

#[test]
fn a_million_schedules() {
    schedules::run::<Sim>("sim::cm::iwarp::a_million");
}

#[test]
fn a_seed_is_a_schedule() {
    schedules::a_seed_is_a_schedule::<Sim>();
}

/// Each rare event of the schedules happens in some of them.
#[test]
fn schedules_reach_every_outcome() {
    let mut sim = Sim::new(false);
    for seed in 0..3_000 {
        sim.run(seed);
    }
    for outcome in [EventKind::Established, EventKind::Rejected, EventKind::Unreachable] {
        let count = sim.outcomes[outcome as usize];
        assert!(count > 60, "{count} of {outcome:?}");
    }
}
