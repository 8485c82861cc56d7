// SPDX-License-Identifier: BSD-3-Clause
//! Two connection managers of RoCE, the programs above them, and a network that loses, duplicates, delays and
//! reorders messages, run through seeded schedules.
//!
//! A host connects to the other one or to itself. The programs accept, reject, establish, disconnect and
//! destroy at random times, or do not answer. A process is killed without a message, and its peer checks
//! whether it exists. A peer without a connection sends messages with guessed communication ids, and with the
//! right ids from another address. [`checker`] compares the events of each program with the calls of the
//! other one, and with the worst times that follow from the retries. The random numbers of a host are often
//! communication ids that programs still have, which must not be allocated again. Beside the connections,
//! service ids are resolved ([`query`]). When a schedule has ended,
//! no manager has an exchange left. The same for iWARP is in [`iwarp`].

mod checker;
mod iwarp;
mod plan;
mod query;
mod world;

use super::schedules;
use super::schedules::Simulation;
use checker::Outcome;
use world::Sim;

#[test]
fn a_million_schedules() {
    schedules::run::<Sim>("sim::cm::a_million");
}

#[test]
fn a_seed_is_a_schedule() {
    schedules::a_seed_is_a_schedule::<Sim>();
}

/// Each rare event of the schedules happens in some of them.
#[test]
fn schedules_reach_every_outcome() {
    let mut sim = Sim::new(false);
    for seed in 0..6000 {
        sim.run(seed);
    }
    for outcome in Outcome::ALL {
        let counts = sim.outcomes[outcome as usize];
        let is_possible = [outcome != Outcome::ConnectError, true];
        for (count, is_possible) in counts.iter().zip(is_possible) {
            assert!(*count > 20 || !is_possible, "{outcome:?}: {counts:?} at active and passive sides");
        }
    }
    assert!(sim.ends > 1000, "{} connections ended by the peer", sim.ends);
    assert!(sim.resolved.iter().all(|count| *count > 20), "resolutions: {:?}", sim.resolved);
    assert!(sim.kills > 1000, "{} processes killed", sim.kills);
}
