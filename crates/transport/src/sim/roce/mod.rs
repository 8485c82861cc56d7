// SPDX-License-Identifier: BSD-3-Clause
//! Two reliable connections of RoCE joined by a network of packets, run through seeded schedules.
//!
//! A schedule is a function of its seed, as in the simulation of iWARP. The checker observes packets and
//! calls of the host, never the state of a connection, and compares each with a model of what verbs
//! guarantee. A corrupted packet fails the check of its ICRC, so the network drops it; a few schedules
//! deliver corrupted packets, and then only the properties that hold with a hostile peer are checked. In half
//! of the schedules both sides are on one host: each moves to shared memory at some time, while packets are
//! on their way through the network, and leaves it when it fails ([`shared`]). A quarter of the networks with
//! faults lose nothing, often without a timer: there all must complete whatever is late, repeated or out of
//! order, except behind a late NAK or a repeated packet that is out of order, which nothing repeats.
//!
//! The checker was verified with planted defects; each of these fails within 2,000 schedules:
//!
//! - a requester that goes back to the oldest packet at each repeated NAK ([`pace`]);
//! - a requester that waits for half of the RNR timer ([`pace`]);
//! - a transport timer that uses retries while the link is full ([`checker`]);
//! - a responder that answers a repeated atomic operation with the result of the latest one, under the PSN of
//!   the request ([`executed`]), or under its own ([`checker`]);
//! - a responder that does not answer a repeated atomic write ([`checker`]);
//! - a responder that answers a flush to persistence at once ([`checker`]), that stores an atomic write
//!   before such a flush is complete, or that flushes a range instead of the region ([`executed`]);
//! - a requester that does not send again what is outstanding when the link changes ([`checker`]);
//! - a responder whose ACK hides that packets behind it were dropped, or that withdraws a NAK although some
//!   are still missing ([`run`]).
//!
//! This one fails within 20,000: a requester that uses a retry for what is overtaken when the link changes
//! ([`checker`]).

mod checker;
mod executed;
mod network;
mod pace;
mod plan;
mod program;
mod run;
mod shared;
mod time;
mod uc;
mod world;

use super::schedules;
use super::schedules::Simulation;
use world::Sim;

#[test]
fn a_million_schedules() {
    schedules::run::<Sim>("sim::roce::a_million");
}

#[test]
fn a_seed_is_a_schedule() {
    schedules::a_seed_is_a_schedule::<Sim>();
}

/// Each rare event of the schedules happens in some of them.
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
    assert!(sim.copies > 1000, "{} direct copies", sim.copies);
    assert!(sim.words > 1000, "{} words accessed directly", sim.words);
    assert!(sim.moves > 1000, "{} moves to shared memory", sim.moves);
    assert!(sim.leaves > 100, "{} times back", sim.leaves);
}
