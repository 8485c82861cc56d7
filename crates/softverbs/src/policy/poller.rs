// SPDX-License-Identifier: BSD-3-Clause
//! Whether the program will poll again and finish the work that its last poll has left. An engine that took
//! over would compete with it, for the connection and maybe for the processor.
//!
//! Worst cost of a wrong prediction: the work waits for two intervals, 400 us, after the last poll.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// The interval after which the engine looks whether the program has polled: one that polls is back long
/// before.
pub(crate) const INTERVAL: Duration = Duration::from_micros(200);

/// The polls of a connection.
pub(crate) struct Poller {
    polls: AtomicU32,
    /// How many of them the engine has seen.
    known: AtomicU32,
    decisions: Decisions<Self>,
}

impl Policy for Poller {
    /// Two intervals: the last poll may be just behind the engine's look.
    const WORST: Cost = Cost::Delay(Duration::from_micros(400));

    fn new(mode: Mode) -> Self {
        Self { polls: AtomicU32::new(0), known: AtomicU32::new(0), decisions: Decisions::new(mode) }
    }
}

impl Poller {
    /// A poll has driven the connection.
    pub(crate) fn polled(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the program has polled since the last call, and so will again. In every mode it must have: the
    /// work would be left for ever otherwise.
    pub(crate) fn will_return(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        let has_polled = self.known.swap(polls, Ordering::Relaxed) != polls;
        has_polled && self.decisions.prescribed().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::MODES;
    use super::*;

    #[cfg(not(loom))]
    /// A program polls until some moment, the engine looks after each interval. Returns for how long the work
    /// is left after the last poll.
    fn left_for(last_poll: Duration, mode: Mode) -> Duration {
        let poller = Poller::new(mode);
        let mut look = INTERVAL;
        let mut poll = Duration::ZERO;
        loop {
            while poll <= last_poll.min(look) {
                poller.polled();
                poll += Duration::from_micros(10);
            }
            if !poller.will_return() && look >= last_poll {
                return look - last_poll;
            }
            look += INTERVAL;
        }
    }

    #[cfg(not(loom))]
    impl transport::policy::trial::Trial for Poller {
        fn costs(mode: Mode) -> Vec<Cost> {
            (0..2_000).map(|micros| Cost::Delay(left_for(Duration::from_micros(micros), mode))).collect()
        }
    }

    #[test]
    fn a_program_that_does_not_poll_never_returns() {
        for mode in MODES {
            let poller = Poller::new(mode);
            assert!(!(0..100).any(|_| poller.will_return()), "{mode:?}");
        }
    }

    #[test]
    fn the_mode_decides_whether_a_program_that_has_polled_returns() {
        let returns = |mode| {
            let poller = Poller::new(mode);
            let looks = 0..100;
            looks
                .filter(|_| {
                    poller.polled();
                    poller.will_return()
                })
                .count()
        };
        assert_eq!((returns(Mode::Adaptive), returns(Mode::Always), returns(Mode::Never)), (100, 100, 0));
        assert!((25..75).contains(&returns(Mode::Random(1))));
    }
}
