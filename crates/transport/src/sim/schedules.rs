// SPDX-License-Identifier: BSD-3-Clause
//! Runs many schedules of a simulation, or one alone with a trace.

#![expect(clippy::disallowed_methods, reason = "a test reads its settings and reports its progress")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 2;
/// How often a long run reports its progress.
const REPORT: Duration = Duration::from_secs(60);

/// A simulation.
pub(super) trait Simulation {
    /// With or without a trace.
    fn new(trace: bool) -> Self;
    /// Runs the schedule of a seed; gives a digest of all that happened.
    fn run(&mut self, seed: u64) -> u64;
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Runs every THREADS-th seed, until one fails on any thread. The first thread reports progress.
fn run_seeds<S: Simulation>(test: &str, thread: u64, seeds: Range<u64>, failed: &AtomicBool) {
    let mut sim = S::new(false);
    let mut reported = Instant::now();
    for seed in seeds.clone().skip(thread as usize).step_by(THREADS as usize) {
        if failed.load(Ordering::Relaxed) {
            return;
        }
        if thread == 0 && reported.elapsed() >= REPORT {
            println!("{test}: {} of {} schedules", seed - seeds.start, seeds.end - seeds.start);
            reported = Instant::now();
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| sim.run(seed))) {
            failed.store(true, Ordering::Relaxed);
            eprintln!(
                "schedule {seed} fails; alone: SIM_SEED={seed} cargo test -p softverbs-transport --profile sim {test} -- --nocapture"
            );
            resume_unwind(panic);
        }
    }
}

/// What a schedule does depends on its seed alone, not on those that ran before it.
pub(super) fn a_seed_is_a_schedule<S: Simulation>() {
    let mut used = S::new(false);
    for seed in 0..300 {
        let first = used.run(seed);
        assert_eq!(first, used.run(seed), "seed {seed}, twice in a row");
        assert_eq!(first, S::new(false).run(seed), "seed {seed}, in a new world");
    }
}

/// Runs `SIM_SCHEDULES` schedules, the first of which has the seed `SIM_FIRST` (0), or that of `SIM_SEED`, in
/// the test of this name.
pub(super) fn run<S: Simulation>(test: &str) {
    if let Some(seed) = number("SIM_SEED") {
        S::new(true).run(seed);
        return;
    }
    let (schedules, first) = (number("SIM_SCHEDULES").unwrap_or(20_000), number("SIM_FIRST").unwrap_or(0));
    let (failed, began) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let failed = &failed;
                scope.spawn(move || run_seeds::<S>(test, thread, first..first + schedules, failed))
            })
            .collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
    });
    let rate = schedules as f64 / began.elapsed().as_secs_f64();
    println!("{schedules} schedules of {test}, {rate:.0} a second");
}
