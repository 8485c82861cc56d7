// SPDX-License-Identifier: BSD-3-Clause
//! Whether the next word of the peer that a request accesses is in memory that this side maps, so that the
//! post tries to access it directly before it queues the request.
//!
//! Worst cost of a wrong prediction: the post tries in vain, [`ATTEMPT`], after a wait for the peer if
//! [`super::settle`] predicts that it is worth one; or the request goes through the queue to the driver,
//! which asks the link and not this value.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// What an attempt takes, measured.
const ATTEMPT: Duration = Duration::from_nanos(125);

/// The words that a queue pair has accessed; shared by the threads that post and drive.
pub(crate) struct Words {
    /// The last one was in memory that this side maps.
    mapped: AtomicBool,
    decisions: Decisions<Self>,
}

impl Policy for Words {
    const WORST: Cost = Cost::Delay(ATTEMPT);

    fn new(mode: Mode) -> Self {
        Self { mapped: AtomicBool::new(false), decisions: Decisions::new(mode) }
    }
}

impl Words {
    /// Whether the next word is likely to be in memory that this side maps.
    #[inline]
    pub(crate) fn are_mapped(&self) -> bool {
        self.decisions.prescribed().unwrap_or_else(|| self.mapped.load(Ordering::Relaxed))
    }

    /// Where the word was that a request accesses.
    pub(crate) fn found(&self, mapped: bool) {
        self.mapped.store(mapped, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What each request waits for attempts in vain, if the words are in mapped memory or not as in `mapped`.
    fn in_vain(mapped: &[bool], mode: Mode) -> Vec<Duration> {
        let words = Words::new(mode);
        let request = |&mapped: &bool| {
            let tried = words.are_mapped();
            words.found(mapped);
            if tried && !mapped { ATTEMPT } else { Duration::ZERO }
        };
        mapped.iter().map(request).collect()
    }

    impl transport::policy::trial::Trial for Words {
        fn costs(mode: Mode) -> Vec<Cost> {
            let alternating: Vec<_> = (0..100).map(|i| i % 2 == 0).collect();
            let costs = [alternating, vec![false; 100]].map(|mapped| in_vain(&mapped, mode));
            costs.into_iter().flatten().map(Cost::Delay).collect()
        }
    }

    #[test]
    fn one_attempt_is_in_vain_after_a_change() {
        let mapped = [true, true, false, false, false, true, true];
        let lost = in_vain(&mapped, Mode::Adaptive).iter().filter(|wait| !wait.is_zero()).count();
        assert_eq!(lost, 1);
    }

    #[test]
    fn a_mode_decides_wherever_the_words_were() {
        let tried = |mode| {
            let words = Words::new(mode);
            words.found(true);
            (0..100).filter(|_| words.are_mapped()).count()
        };
        assert_eq!((tried(Mode::Never), tried(Mode::Always), tried(Mode::Adaptive)), (0, 100, 100));
        assert!((25..75).contains(&tried(Mode::Random(1))));
    }
}
