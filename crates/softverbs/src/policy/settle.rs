// SPDX-License-Identifier: BSD-3-Clause
//! How long a thread that posts a write or a read waits until the peer has processed all bytes in the ring,
//! so that a direct copy is possible.
//!
//! Only the thread of the program waits, before it enters the connection. Worst cost of a wrong prediction:
//! [`BASE_WAIT`] and the time of the same bytes through the ring, 565 us for the longest copy. After waits
//! that did not help, up to [`MOST_SKIPPED`] requests do not wait.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// A copy of this many bytes is worth a wait.
const WORTH_A_WAIT: usize = 16 * 1024;
/// The longest such wait, to which the time of the same bytes through the ring at 2 GB/s is added: they would
/// follow the bytes that are in it.
pub(crate) const BASE_WAIT: Duration = Duration::from_micros(40);
const RING_BYTES_PER_NS: usize = 2;
/// Several small copies that were not made since the last wait are worth a shorter one: a stream of requests
/// through the ring would never leave it otherwise. Each counts as this many bytes.
const SMALL_COPY: usize = 1024;
const SMALL_COPY_WAIT: Duration = Duration::from_micros(5);
const MOST_SKIPPED: u32 = 31;

/// The outcome of earlier waits of a connection. Only predictions depend on it, so it needs no ordering among
/// threads.
pub(crate) struct Settling {
    /// Requests that will not wait for the peer, and how many these were the last time.
    skips: AtomicU32,
    skipped: AtomicU32,
    /// The bytes of requests that did not wait although the peer had not processed all bytes.
    missed: AtomicUsize,
    decisions: Decisions<Self>,
}

impl Policy for Settling {
    /// [`BASE_WAIT`] and 1 MiB through the ring.
    const WORST: Cost = Cost::Delay(Duration::from_micros(565));

    fn new(mode: Mode) -> Self {
        Self {
            skips: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            missed: AtomicUsize::new(0),
            decisions: Decisions::new(mode),
        }
    }
}

impl Settling {
    /// How long to wait before a request of `len` bytes, at most those of the longest copy, if the peer has
    /// not processed all bytes.
    pub(crate) fn longest_wait(&self, len: usize) -> Option<Duration> {
        let pays = self.decisions.prescribed().unwrap_or_else(|| self.pays(len));
        pays.then(|| match len {
            0..WORTH_A_WAIT => SMALL_COPY_WAIT,
            _ => BASE_WAIT + Duration::from_nanos((len / RING_BYTES_PER_NS) as u64),
        })
    }

    fn pays(&self, len: usize) -> bool {
        let missed = self.missed.load(Ordering::Relaxed).saturating_add(len.max(SMALL_COPY));
        let skips = self.skips.load(Ordering::Relaxed);
        if missed < WORTH_A_WAIT || skips > 0 {
            self.missed.store(missed, Ordering::Relaxed);
            self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
            return false;
        }
        self.missed.store(0, Ordering::Relaxed);
        true
    }

    pub(crate) fn has_waited(&self, in_vain: bool) {
        let skipped =
            if in_vain { (2 * self.skipped.load(Ordering::Relaxed) + 1).min(MOST_SKIPPED) } else { 0 };
        self.skipped.store(skipped, Ordering::Relaxed);
        self.skips.store(skipped, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_vain_makes_the_next_ones_rare() {
        let settling = Settling::new(Mode::Adaptive);
        let skips = |settling: &Settling| settling.skips.load(Ordering::Relaxed);
        for expected in [1, 3, 7, 15, MOST_SKIPPED, MOST_SKIPPED] {
            assert!(settling.longest_wait(WORTH_A_WAIT).is_some());
            settling.has_waited(true);
            assert_eq!(skips(&settling), expected);
            (0..expected).for_each(|_| assert_eq!(settling.longest_wait(WORTH_A_WAIT), None));
        }
        assert!(settling.longest_wait(WORTH_A_WAIT).is_some());
        settling.has_waited(false);
        assert!(
            settling.longest_wait(WORTH_A_WAIT).is_some(),
            "a wait that helped is followed by the next one"
        );
    }

    #[test]
    fn a_wait_has_a_limit_and_small_requests_seldom_wait() {
        let settling = Settling::new(Mode::Adaptive);
        assert!(settling.longest_wait(1 << 20).is_some());
        let waits: Vec<_> = (0..64).filter_map(|_| settling.longest_wait(8)).collect();
        assert_eq!(waits, [SMALL_COPY_WAIT; 4], "one in 16");
    }

    #[cfg(not(loom))]
    impl transport::policy::trial::Trial for Settling {
        fn costs(mode: Mode) -> Vec<Cost> {
            let settling = Self::new(mode);
            let wait = |len| {
                let longest = settling.longest_wait(len).unwrap_or_default();
                let of_ring = Duration::from_nanos(len as u64 / 2);
                assert!(longest <= BASE_WAIT + of_ring, "{longest:?} for {len} bytes, {mode:?}");
                settling.has_waited(true);
                Cost::Delay(longest)
            };
            [0, 8, SMALL_COPY, WORTH_A_WAIT, 1 << 20].repeat(20).into_iter().map(wait).collect()
        }
    }

    #[test]
    fn a_mode_decides_whatever_the_outcome_of_earlier_waits() {
        let waits = |mode| {
            let settling = Settling::new(mode);
            let requests = (0..100).map(|_| settling.longest_wait(8));
            requests.filter_map(|wait| wait.inspect(|_| settling.has_waited(true))).count()
        };
        assert_eq!((waits(Mode::Never), waits(Mode::Always)), (0, 100));
        assert!((25..75).contains(&waits(Mode::Random(1))));
    }
}
