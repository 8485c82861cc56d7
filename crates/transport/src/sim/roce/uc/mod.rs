// SPDX-License-Identifier: BSD-3-Clause
//! An unreliable connection over a network that loses, repeats, reorders and delays packets.
//!
//! One side sends, the other receives. The checker knows from the packets which message each of them belongs
//! to, and what a receiver must do with it; it never looks into a connection. Every packet that continues its
//! message, or begins one that was not begun before, must be placed or dropped for a cause that the checker
//! has seen; every other one must have no effect. A receive that completes holds one message, and messages
//! complete in the order in which they were sent, none of them twice.

mod checker;
mod plan;
mod world;

use crate::sim::schedules;
use crate::sim::schedules::Simulation;
use world::Sim;

#[test]
fn a_million_schedules() {
    schedules::run::<Sim>("sim::roce::uc::a_million");
}

#[test]
fn a_seed_is_a_schedule() {
    schedules::a_seed_is_a_schedule::<Sim>();
}

/// Each rare event of the schedules happens in some of them.
#[test]
fn schedules_reach_every_outcome() {
    let mut sim = Sim::new(false);
    for seed in 0..3000 {
        sim.run(seed);
    }
    let seen = sim.seen();
    for (what, count) in seen {
        assert!(count > 20, "{count} of {what}");
    }
}
