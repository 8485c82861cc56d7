// SPDX-License-Identifier: BSD-3-Clause
//! Whether the program will continue to serve its sockets itself, by polls or by sleeping on the completion
//! channel, so that the kernel need not wake the engine for them: after several signs in a row, and after
//! more of them for each wrong prediction. The longer it has done so, the longer it is trusted until the next
//! check, since a check takes the processor from a program that polls: some 5 us, in a virtual machine 40.
//!
//! Worst cost of a wrong prediction: what arrives waits for two ticks of the engine. These are an eighth of
//! the time for which the prediction was right, or 2 x [`TICK`] if that is longer, and never more than 2 x
//! [`LONGEST`]. Then up to [`MAX_TRUST`] more signs are needed.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// The shortest interval at which the engine checks the sockets that it leaves to a polling program: the
/// delay of the first message after the program has stopped polling.
pub(crate) const TICK: Duration = Duration::from_micros(200);
/// The longest one.
pub(crate) const LONGEST: Duration = Duration::from_micros(800);
/// The share of the time for which the program has served its sockets after which the engine checks again.
const TICK_SHARE: u32 = 16;
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
    /// Microseconds for which checks have found that the program serves the sockets.
    served: AtomicU32,
    decisions: Decisions<Self>,
}

impl Policy for Trust {
    /// Two ticks, at the longest interval: the first one still sees the last poll.
    const WORST: Cost = Cost::Delay(Duration::from_micros(1600));

    fn new(mode: Mode) -> Self {
        Self {
            streak: AtomicU32::new(0),
            needed: AtomicU32::new(MIN_TRUST),
            served: AtomicU32::new(0),
            decisions: Decisions::new(mode),
        }
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

    /// The program polled again before the tick. Returns when to check again.
    pub(crate) fn confirmed(&self) -> Duration {
        let needed = self.needed.load(Ordering::Relaxed);
        self.needed.store((needed / 2).max(MIN_TRUST), Ordering::Relaxed);
        let served = self.served.load(Ordering::Relaxed);
        let served = served.saturating_add(self.interval().as_micros() as u32);
        self.served.store(served, Ordering::Relaxed);
        match self.decisions.prescribed() {
            None => self.interval(),
            Some(true) => LONGEST,
            Some(false) => TICK,
        }
    }

    /// The interval between two checks: one of a few, so that those of all sets of sockets coincide.
    fn interval(&self) -> Duration {
        let share = Duration::from_micros(u64::from(self.served.load(Ordering::Relaxed) / TICK_SHARE));
        let mut interval = TICK;
        while interval * 2 <= share.min(LONGEST) {
            interval *= 2;
        }
        interval
    }

    /// The program does not serve its sockets any more.
    pub(crate) fn ended(&self) {
        self.served.store(0, Ordering::Relaxed);
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
        (0..20).for_each(|_| assert!(trust.confirmed() >= TICK));
        assert_eq!(signs(&trust), MIN_TRUST);
        (1..MIN_TRUST).for_each(|_| assert!(!trust.look()));
        trust.reset();
        assert_eq!(signs(&trust), MIN_TRUST, "signs in a row");
    }

    #[test]
    fn the_interval_is_a_share_of_the_time_that_was_served() {
        let trust = Trust::new(Mode::Adaptive);
        let (mut served, mut interval, mut ticks) = (TICK, trust.confirmed(), 1);
        while interval < LONGEST {
            assert!(interval == TICK || interval * TICK_SHARE <= served, "{interval:?} after {served:?}");
            served += interval;
            interval = trust.confirmed();
            ticks += 1;
        }
        assert!(ticks < 100, "{ticks} ticks in {served:?}");
        assert_eq!(trust.confirmed(), LONGEST);
        trust.ended();
        assert_eq!(trust.confirmed(), TICK);
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
