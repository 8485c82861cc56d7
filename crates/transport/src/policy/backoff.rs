// SPDX-License-Identifier: BSD-3-Clause
//! Whether a connect request that has found no listener is tried again, and when: by the initiator over
//! iWARP, whose TCP connection was refused, and by the host of the target over RoCE.
//!
//! Some programs, perftest for example, close a listener and open the next one on the same port while the
//! peer already connects. On an adapter a connect request takes long enough for that. So the prediction is
//! that a listener opens soon; each wait is twice the previous one.
//!
//! Worst cost of a wrong prediction: the request is rejected after all waits, [`WORST`]. If the prediction is
//! not made, the request is rejected at once, and the program has to connect again.
//!
//! [`WORST`]: Policy::WORST

use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// Tries after the first one.
pub const MOST_TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// The tries of one connect request.
#[derive(Debug)]
pub struct Backoff {
    tries: u32,
    decisions: Decisions<Self>,
}

impl Policy for Backoff {
    /// 2, 4, 8, 16 and 32 ms.
    const WORST: Cost = Cost::Delay(Duration::from_millis(62));

    fn new(mode: Mode) -> Self {
        Self { tries: 0, decisions: Decisions::new(mode) }
    }
}

impl Backoff {
    /// Tries so far, without the first one.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// There was no listener. Returns the time until the next try; `None`: reject the request.
    pub fn wait(&mut self) -> Option<Duration> {
        if self.tries == MOST_TRIES || !self.decisions.prescribed().unwrap_or(true) {
            return None;
        }
        self.tries += 1;
        Some(FIRST_WAIT * (1 << (self.tries - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::random_modes;
    use super::super::trial::Trial;
    use super::*;

    fn waits(mode: Mode) -> Vec<u64> {
        let mut backoff = Backoff::new(mode);
        std::iter::from_fn(|| backoff.wait()).map(|wait| wait.as_millis() as u64).collect()
    }

    impl Trial for Backoff {
        /// No listener opens.
        fn costs(mode: Mode) -> Vec<Cost> {
            vec![Cost::Delay(Duration::from_millis(waits(mode).iter().sum()))]
        }
    }

    #[test]
    fn each_wait_is_twice_the_previous_one() {
        assert_eq!(waits(Mode::Adaptive), [2, 4, 8, 16, 32]);
    }

    #[test]
    fn a_mode_decides_before_each_try() {
        assert_eq!(waits(Mode::Never), []);
        assert_eq!(waits(Mode::Always), [2, 4, 8, 16, 32]);
        let lengths: Vec<usize> = random_modes(5).map(|mode| waits(mode).len()).collect();
        // Bit n of the index is decision n.
        assert_eq!(lengths[0b00000..=0b00111], [0, 1, 0, 2, 0, 1, 0, 3]);
        assert_eq!(lengths[0b11111], 5);
    }
}
