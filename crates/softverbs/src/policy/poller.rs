// SPDX-License-Identifier: BSD-3-Clause
//! Whether the program will poll again and finish the work that its last poll has left. An engine that took
//! over would compete with it, for the connection and maybe for the processor.
//!
//! Worst cost of a wrong prediction: the work waits for two intervals, 400 us, after the last poll.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The interval after which the engine looks whether the program has polled: one that polls is back long
/// before.
pub(crate) const INTERVAL: Duration = Duration::from_micros(200);
/// Two of them: the last poll may be just behind the engine's look.
#[cfg(test)]
const WORST: Duration = Duration::from_micros(400);

/// The polls of a connection.
#[derive(Default)]
pub(crate) struct Poller {
    polls: AtomicU32,
    /// Of these the engine knows.
    known: AtomicU32,
}

impl Poller {
    /// A poll has driven the connection.
    pub(crate) fn polled(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the program has polled since the last call: then it will again.
    pub(crate) fn has_returned(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        self.known.swap(polls, Ordering::Relaxed) != polls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program polls until some moment, the engine looks after each interval. Returns for how long the work
    /// is left after the last poll.
    fn left_for(last_poll: Duration) -> Duration {
        let poller = Poller::default();
        let mut look = INTERVAL;
        let mut poll = Duration::ZERO;
        loop {
            while poll <= last_poll.min(look) {
                poller.polled();
                poll += Duration::from_micros(10);
            }
            if !poller.has_returned() {
                return look - last_poll;
            }
            look += INTERVAL;
        }
    }

    #[test]
    fn what_a_poll_has_left_waits_for_two_intervals_at_most() {
        for micros in 0..2_000 {
            let left = left_for(Duration::from_micros(micros));
            assert!(left <= WORST, "{left:?} after {micros} us");
        }
    }
}
