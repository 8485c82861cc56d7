// SPDX-License-Identifier: BSD-3-Clause
//! Two connections joined by a simulated link, run through seeded schedules.
//!
//! A schedule is a function of its seed: which faults there are and how often, what the two programs post and
//! when, in which pieces bytes travel, who ends the connection. Whatever it is, a model of what verbs promise
//! is kept beside the connections, and checked at each call that they make. `SIM_SCHEDULES` says how many
//! schedules are run, `SIM_SEED` runs one alone and prints what happens in it.

mod checker;
mod exhaustive;
mod forge;
mod host;
mod memory;
mod plan;
mod program;
pub(crate) mod random;
mod run;
mod tap;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use world::Sim;

const THREADS: u64 = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Runs every THREADS-th seed below `schedules`, until one fails on any thread.
fn run_seeds(first: u64, schedules: u64, failed: &AtomicBool) {
    let mut sim = Sim::new();
    for seed in (first..schedules).step_by(THREADS as usize) {
        if failed.load(Ordering::Relaxed) {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| sim.run(seed))) {
            failed.store(true, Ordering::Relaxed);
            eprintln!(
                "schedule {seed} fails; alone: SIM_SEED={seed} cargo test -p transport --profile sim sim::a_million -- --nocapture"
            );
            resume_unwind(panic);
        }
    }
}

#[test]
fn a_million_schedules() {
    if let Some(seed) = number("SIM_SEED") {
        let mut sim = Sim::new();
        sim.trace = true;
        sim.run(seed);
        return;
    }
    let schedules = number("SIM_SCHEDULES").unwrap_or(20_000);
    let (failed, began) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|i| {
                let failed = &failed;
                scope.spawn(move || run_seeds(i, schedules, failed))
            })
            .collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
    });
    let rate = schedules as f64 / began.elapsed().as_secs_f64();
    println!("{schedules} schedules, {rate:.0} a second");
}

/// Whether what a schedule is to try happens at all.
#[test]
fn schedules_copy_directly() {
    let mut sim = Sim::new();
    for seed in 0..3000 {
        sim.run(seed);
    }
    assert!(sim.transfers > 100, "{} transfers", sim.transfers);
    assert!(sim.transferred_together > 20, "{} of several requests", sim.transferred_together);
    for (answer, wrong) in ["no", "yes"].iter().zip(&sim.mispredicted) {
        assert!(wrong.get() > 20, "{} wrong answers {answer}", wrong.get());
    }
}

/// What a schedule does depends on its seed alone, not on those that ran before it.
#[test]
fn a_seed_is_a_schedule() {
    let mut used = Sim::new();
    for seed in 0..300 {
        let first = used.run(seed);
        assert_eq!(first, used.run(seed), "seed {seed}, twice in a row");
        assert_eq!(first, Sim::new().run(seed), "seed {seed}, in a new world");
    }
}
