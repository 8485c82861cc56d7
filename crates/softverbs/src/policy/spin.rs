// SPDX-License-Identifier: BSD-3-Clause
//! Whether the engine spins, looking for more work, before it sleeps.
//!
//! Waking a thread takes longer than most of what the engine does, so right after some work it pays to look
//! for more. But a thread of the program may need its processor, perhaps the very one that waits for what
//! the engine has just placed or announced. Two signs show that:
//!
//! - a thread of the process was displaced while the engine woke up: then the engine took the processor from
//!   it;
//! - the engine has raised an event: then a thread of the program has been woken, and may have to run here.
//!
//! A stream of messages is no reason to spin either: while the engine sleeps they accumulate, and one system
//! call receives many.
//!
//! In all these cases the engine sleeps at once. It does not yield its processor: a thread of another process
//! could keep it for milliseconds.
//!
//! Worst cost of a wrong prediction: the processor for the length of the search (`SOFTVERBS_SPIN_US`) after
//! each piece of work, or one wake-up of the thread.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// Sleeps until the next check whether threads are displaced: it takes two system calls, and where a thread
/// was displaced once, one mostly spins.
const DISPLACED: u32 = 32;
/// The same if none was.
const ALONE: u32 = 8;
/// More bytes than this received at a time are a stream, and no message whose sender waits for an answer. Of
/// a batch of packets one counts.
const STREAM: u64 = 1024;

/// What the engine thread has counted so far.
#[derive(Clone, Copy)]
pub(crate) struct Signs {
    /// Events that it has raised.
    pub raised: u32,
    /// Bytes that it has received.
    pub received: u64,
}

pub(crate) struct Spin {
    length: Duration,
    until: Option<Instant>,
    /// Whether threads are taken to be displaced, and for how many more sleeps.
    displacing: bool,
    unasked: u32,
    preemptions: i64,
    raised: u32,
    received: u64,
    slept: bool,
    decisions: Decisions<Self>,
}

impl Policy for Spin {
    const WORST: Cost = Cost::Spins(1);

    /// It does not spin before [`Spin::with_length`].
    fn new(mode: Mode) -> Self {
        Self {
            length: Duration::ZERO,
            until: None,
            displacing: false,
            unasked: 0,
            preemptions: 0,
            raised: 0,
            received: 0,
            slept: false,
            decisions: Decisions::new(mode),
        }
    }
}

impl Spin {
    /// `length`: how long to spin after the last work.
    pub(crate) fn with_length(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// The engine has slept.
    pub(crate) fn slept(&mut self) {
        self.slept = true;
    }

    /// The engine has done some work. `preemptions` counts the preempted threads of the process, at the cost
    /// of two system calls.
    pub(crate) fn worked(
        &mut self,
        now: Instant,
        Signs { raised, received }: Signs,
        preemptions: impl FnOnce() -> i64,
    ) {
        let woke_others = std::mem::replace(&mut self.raised, raised) != raised;
        let stream = received.wrapping_sub(std::mem::replace(&mut self.received, received)) > STREAM;
        let slept = std::mem::take(&mut self.slept);
        let pays = match self.decisions.prescribed() {
            _ if self.length.is_zero() => false,
            None => !((slept && self.displaces(preemptions)) || woke_others || stream),
            Some(pays) => pays,
        };
        self.until = pays.then(|| now + self.length);
    }

    /// The engine has slept: whether its waking up has displaced a thread.
    fn displaces(&mut self, preemptions: impl FnOnce() -> i64) -> bool {
        if self.unasked > 0 {
            self.unasked -= 1;
            return self.displacing;
        }
        let preemptions = preemptions();
        let changed = std::mem::replace(&mut self.preemptions, preemptions) != preemptions;
        if std::mem::take(&mut self.displacing) {
            // Preemptions since the last check say nothing about this sleep; those until the next one do.
            return true;
        }
        self.displacing = changed;
        self.unasked = if changed { DISPLACED - 1 } else { ALONE - 1 };
        changed
    }

    /// Whether to spin on instead of sleeping.
    pub(crate) fn goes_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_micros(20);

    fn spinning(length: Duration, mode: Mode) -> Spin {
        Spin::new(mode).with_length(length)
    }

    #[test]
    fn the_search_ends_after_its_length() {
        let mut spin = spinning(LENGTH, Mode::Adaptive);
        let now = Instant::now();
        assert!(!spin.goes_on(now));
        spin.worked(now, Signs { raised: 0, received: 8 }, || 0);
        assert!(spin.goes_on(now + LENGTH / 2) && !spin.goes_on(now + LENGTH));
        let mut never = spinning(Duration::ZERO, Mode::Adaptive);
        never.worked(now, Signs { raised: 0, received: 8 }, || 0);
        assert!(!never.goes_on(now));
    }

    #[cfg(not(loom))]
    impl transport::policy::trial::Trial for Spin {
        fn costs(mode: Mode) -> Vec<Cost> {
            let (now, mut costs) = (Instant::now(), Vec::new());
            for length in [Duration::ZERO, LENGTH] {
                let mut spin = spinning(length, mode);
                for raised in 0..100 {
                    spin.worked(now, Signs { raised, received: 8 }, || 0);
                    costs.push(Cost::Spins(1 + u32::from(spin.goes_on(now + length))));
                }
            }
            costs
        }
    }

    #[test]
    fn a_mode_decides_whatever_the_signs_are() {
        let now = Instant::now();
        let searches = |mode| {
            let mut spin = spinning(LENGTH, mode);
            let works = 0..100;
            works
                .filter(|raised| {
                    spin.slept();
                    spin.worked(now, Signs { raised: raised % 2, received: 0 }, || 0);
                    spin.goes_on(now)
                })
                .count()
        };
        assert_eq!((searches(Mode::Never), searches(Mode::Always)), (0, 100));
        assert!((25..75).contains(&searches(Mode::Random(1))));
    }

    #[test]
    fn the_engine_sleeps_at_once_where_the_processor_may_be_needed() {
        let now = Instant::now();
        let searches = |signs, slept, preemptions| {
            let mut spin = spinning(LENGTH, Mode::Adaptive);
            if slept {
                spin.slept();
            }
            spin.worked(now, signs, || preemptions);
            spin.goes_on(now)
        };
        assert!(searches(Signs { raised: 0, received: 8 }, true, 0));
        assert!(!searches(Signs { raised: 1, received: 8 }, false, 0), "an event was raised");
        assert!(!searches(Signs { raised: 0, received: 1 << 20 }, false, 0), "a stream");
        assert!(!searches(Signs { raised: 0, received: 8 }, true, 1), "a thread was displaced");
    }
}
