// SPDX-License-Identifier: BSD-3-Clause
//! Whether a thread that polls an empty completion queue should yield: the thread that drives its connections
//! may need this processor.
//!
//! Worst cost of a wrong prediction: one system call in [`BUSY_POLLS`] empty polls.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// After this many consecutive empty polls, each of which found every connection driven by another thread,
/// the poller yields its processor to that thread.
const BUSY_POLLS: u32 = 8;
/// After this many consecutive empty polls for which nothing had arrived, the poller checks whether the
/// engine has work.
const IDLE_POLLS: u32 = 64;

/// The empty polls of a completion queue since the last decision.
pub(crate) struct Yielding {
    idle: AtomicU32,
    /// Empty polls before a decision, if nothing had arrived.
    idle_polls: u32,
    decisions: Decisions<Self>,
}

impl Policy for Yielding {
    const WORST: Cost = Cost::CallInPolls(BUSY_POLLS);

    fn new(mode: Mode) -> Self {
        let idle_polls = if mode == Mode::Adaptive { IDLE_POLLS } else { BUSY_POLLS };
        Self { idle: AtomicU32::new(0), idle_polls, decisions: Decisions::new(mode) }
    }
}

impl Yielding {
    /// The program has polled. `got`: there were completions; `stepped`: no other thread was driving a
    /// connection. Returns whether to yield now.
    pub(crate) fn polled(&self, got: bool, stepped: bool) -> bool {
        if got {
            if self.idle.load(Ordering::Relaxed) > 0 {
                self.idle.store(0, Ordering::Relaxed);
            }
            return false;
        }
        // Not in one read-modify-write: that two threads count one poll is harmless, and each poll would pay.
        let idle = self.idle.load(Ordering::Relaxed) + 1;
        self.idle.store(idle, Ordering::Relaxed);
        let is_due = idle >= if stepped { self.idle_polls } else { BUSY_POLLS };
        if !is_due || !self.decisions.prescribed().unwrap_or(true) {
            return false;
        }
        self.idle.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The empty polls up to each that yields; all of them if none does.
    #[cfg(not(loom))]
    fn runs(stepped: bool, mode: Mode) -> Vec<u32> {
        let yielding = Yielding::new(mode);
        let mut before = 0;
        let mut yields: Vec<u32> = (1..=800).filter(|_| yielding.polled(false, stepped)).collect();
        if yields.is_empty() {
            yields.push(800);
        }
        yields.into_iter().map(|poll| poll - std::mem::replace(&mut before, poll)).collect()
    }

    #[cfg(not(loom))]
    impl transport::policy::trial::Trial for Yielding {
        fn costs(mode: Mode) -> Vec<Cost> {
            [false, true].into_iter().flat_map(|stepped| runs(stepped, mode)).map(Cost::CallInPolls).collect()
        }
    }

    #[test]
    fn a_mode_decides_from_the_eighth_empty_poll_on() {
        let yields = |mode, stepped| {
            let yielding = Yielding::new(mode);
            (0..640).filter(|_| yielding.polled(false, stepped)).count()
        };
        assert_eq!((yields(Mode::Adaptive, false), yields(Mode::Adaptive, true)), (80, 10));
        for stepped in [false, true] {
            assert_eq!((yields(Mode::Never, stepped), yields(Mode::Always, stepped)), (0, 80));
            assert!((50..80).contains(&yields(Mode::Random(1), stepped)));
        }
    }

    #[test]
    fn a_program_with_completions_never_yields() {
        let yielding = Yielding::new(Mode::Adaptive);
        assert!(!(0..1_000).any(|poll| yielding.polled(poll % BUSY_POLLS == 0, false)));
    }
}
