// SPDX-License-Identifier: BSD-3-Clause
//! Two reliable connections of RoCE joined by a network of packets, run through seeded schedules.
//!
//! As the simulation of iWARP beside it: a schedule is a function of its seed, and a model of what verbs
//! promise is kept beside the connections and checked at each call that they make. It looks at packets and at
//! calls, never into a connection. A packet that the network has corrupted fails its ICRC, so it is lost; a
//! few schedules let corrupted packets pass, and then only what must hold with any peer is checked.

mod checker;
mod executed;
mod network;
mod pace;
mod plan;
mod program;
mod run;
mod time;
mod world;

use super::schedules;
use super::schedules::Simulation;
use world::Sim;

#[test]
fn a_million_schedules() {
    schedules::run::<Sim>("sim::roce::a_million");
}

/// What a schedule does depends on its seed alone, not on those that ran before it.
#[test]
fn a_seed_is_a_schedule() {
    let mut used = Sim::new(false);
    for seed in 0..300 {
        let first = used.run(seed);
        assert_eq!(first, used.run(seed), "seed {seed}, twice in a row");
        assert_eq!(first, Sim::new(false).run(seed), "seed {seed}, in a new world");
    }
}

/// Whether what a schedule is to try happens at all.
#[test]
fn schedules_reach_every_status() {
    use crate::wr::status;
    let mut sim = Sim::new(false);
    for seed in 0..6000 {
        sim.run(seed);
    }
    for (code, what) in [
        (status::SUCCESS, "SUCCESS"),
        (status::LOC_PROT_ERR, "LOC_PROT_ERR"),
        (status::WR_FLUSH_ERR, "WR_FLUSH_ERR"),
        (status::REM_ACCESS_ERR, "REM_ACCESS_ERR"),
        (status::REM_INV_REQ_ERR, "REM_INV_REQ_ERR"),
        (status::REM_OP_ERR, "REM_OP_ERR"),
        (status::RETRY_EXC_ERR, "RETRY_EXC_ERR"),
        (status::RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR"),
    ] {
        let count = sim.statuses[code as usize];
        assert!(count > 20, "{count} of {what}");
    }
}
