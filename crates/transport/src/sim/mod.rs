// SPDX-License-Identifier: BSD-3-Clause
//! Two connections joined by a simulated link, run through seeded schedules.
//!
//! A schedule is a function of its seed: which faults there are and how often, what the two programs post and
//! when, in which pieces bytes travel, who ends the connection. A model of what verbs guarantee
//! is kept beside the connections, and compared with each call that they make. `SIM_SCHEDULES` sets how many
//! schedules are run, `SIM_FIRST` the first of them, so that a long run can be continued; `SIM_SEED` runs one
//! alone and prints what happens in it.

mod checker;
mod cm;
mod exhaustive;
mod forge;
mod host;
mod memory;
mod plan;
mod program;
pub(crate) mod random;
mod request;
mod roce;
mod run;
mod schedules;
mod tap;
mod world;

use world::Sim;

#[test]
fn a_million_schedules() {
    schedules::run::<Sim>("sim::a_million");
}

/// Each rare event of the schedules happens in some of them.
#[test]
fn schedules_access_memory_directly() {
    let mut sim = Sim::new();
    for seed in 0..3000 {
        sim.schedule(seed);
    }
    assert!(sim.transfers > 100, "{} transfers", sim.transfers);
    assert!(sim.transferred_together > 20, "{} of several requests", sim.transferred_together);
    assert!(sim.words > 100, "{} words accessed directly", sim.words);
    assert!(sim.carried_out > 20, "{} without the send queue", sim.carried_out);
    assert!(sim.sent_alone > 20, "{} messages without it", sim.sent_alone);
    for (answer, wrong) in ["no", "yes"].iter().zip(&sim.mispredicted) {
        assert!(wrong.get() > 20, "{} wrong answers {answer}", wrong.get());
    }
}

#[test]
fn a_seed_is_a_schedule() {
    schedules::a_seed_is_a_schedule::<Sim>();
}
