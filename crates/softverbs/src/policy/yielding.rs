// SPDX-License-Identifier: BSD-3-Clause
//! Whether a thread that polls an empty completion queue should yield: it may have the very processor that
//! the thread needs which works for it.
//!
//! Worst cost of a wrong prediction: one system call in [`BUSY_POLLS`] empty polls.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// Consecutive empty polls that found every connection being driven by another thread, after which the poller
/// yields its processor: that thread may need it.
const BUSY_POLLS: u32 = 8;
/// Consecutive empty polls for which nothing had arrived, after which the poller asks whether the engine has
/// something to do.
const IDLE_POLLS: u32 = 64;

/// The empty polls of a completion queue since the last time that it was decided.
#[derive(Default)]
pub(crate) struct Yielding {
    idle: AtomicU32,
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
        let idle = self.idle.fetch_add(1, Ordering::Relaxed) + 1;
        if idle < if stepped { IDLE_POLLS } else { BUSY_POLLS } {
            return false;
        }
        self.idle.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_in_eight_yields_at_most() {
        for stepped in [false, true] {
            let yielding = Yielding::default();
            let yields = (0..800).filter(|_| yielding.polled(false, stepped)).count();
            assert!((1..=100).contains(&yields), "{yields}");
        }
    }

    #[test]
    fn a_program_with_completions_never_yields() {
        let yielding = Yielding::default();
        assert!(!(0..1_000).any(|poll| yielding.polled(poll % BUSY_POLLS == 0, false)));
    }
}
