// SPDX-License-Identifier: BSD-3-Clause
//! Whether the program will continue to serve its sockets itself, by polls or by sleeping on the completion
//! channel, so that the kernel need not wake the engine for them: after several signs in a row, and after
//! more of them for each wrong prediction.
//!
//! Worst cost of a wrong prediction: what arrives waits for two ticks of the engine, 2 x [`TICK`]; then up to
//! [`MAX_TRUST`] more signs are needed.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// The interval at which the engine checks the sockets that it leaves to a polling program: the delay of the
/// first message after the program has stopped polling.
pub(crate) const TICK: Duration = Duration::from_micros(200);
/// Consecutive polls that must have received bytes before the engine leaves the sockets to them. The number
/// doubles, up to [`MAX_TRUST`], when a tick finds data that no poll has read, and halves when it finds that
/// the program still polls.
pub(crate) const MIN_TRUST: u32 = 4;
const MAX_TRUST: u32 = 1024;

/// The signs of a set of sockets. Signs come from several threads, and one that is lost costs a later
/// decision, so they need no order.
pub(crate) struct Trust {
    /// Signs in a row, and how many are needed.
    streak: AtomicU32,
    needed: AtomicU32,
    decisions: Decisions<Self>,
}

impl Policy for Trust {
    /// Two ticks: the first one still sees the last poll.
    const WORST: Cost = Cost::Delay(Duration::from_micros(400));

    fn new(mode: Mode) -> Self {
        Self { streak: AtomicU32::new(0), needed: AtomicU32::new(MIN_TRUST), decisions: Decisions::new(mode) }
    }
}

impl Trust {
    /// A poll has moved bytes, or a sleep has ended. Returns whether that is enough.
    pub(crate) fn look(&self) -> bool {
        self.decisions.prescribed().unwrap_or_else(|| self.completes_streak())
    }

    fn completes_streak(&self) -> bool {
        let streak = self.streak.fetch_add(1, Ordering::Relaxed) + 1;
        let is_enough = streak >= self.needed.load(Ordering::Relaxed);
        if is_enough {
            self.streak.store(0, Ordering::Relaxed);
        }
        is_enough
    }

    /// A message has arrived that the program did not poll for.
    pub(crate) fn reset(&self) {
        self.streak.store(0, Ordering::Relaxed);
    }

    /// The program polled again before the tick.
    pub(crate) fn confirmed(&self) {
        let needed = self.needed.load(Ordering::Relaxed);
        self.needed.store((needed / 2).max(MIN_TRUST), Ordering::Relaxed);
    }

    /// The tick has found data that no poll had read.
    pub(crate) fn refuted(&self) {
        let needed = self.needed.load(Ordering::Relaxed);
        self.needed.store((needed * 2).min(MAX_TRUST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_doubles_the_signs_that_are_needed() {
        let trust = Trust::new(Mode::Adaptive);
        let signs = |trust: &Trust| (1..).find(|_| trust.look()).unwrap();
        assert_eq!(signs(&trust), MIN_TRUST);
        trust.refuted();
        assert_eq!(signs(&trust), 2 * MIN_TRUST);
        (0..20).for_each(|_| trust.refuted());
        assert_eq!(signs(&trust), MAX_TRUST);
        (0..20).for_each(|_| trust.confirmed());
        assert_eq!(signs(&trust), MIN_TRUST);
        (1..MIN_TRUST).for_each(|_| assert!(!trust.look()));
        trust.reset();
        assert_eq!(signs(&trust), MIN_TRUST, "signs in a row");
    }

    #[test]
    fn a_mode_decides_at_each_sign() {
        let looks = |mode| {
            let trust = Trust::new(mode);
            trust.refuted();
            (0..100).filter(|_| trust.look()).count()
        };
        assert_eq!((looks(Mode::Never), looks(Mode::Always)), (0, 100));
        assert!((25..75).contains(&looks(Mode::Random(1))));
    }
}
