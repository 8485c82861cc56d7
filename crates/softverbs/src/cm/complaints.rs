// SPDX-License-Identifier: BSD-3-Clause
//! What is logged about strangers: a few lines, then how many more there would have been.
//!
//! Whoever reaches the port can make connections that come to nothing, thousands a second; the log is not
//! theirs to fill.
#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::limits::{COMPLAINTS, COMPLAINTS_INTERVAL_S};
use crate::lock;
use crate::progress::engine::{Engine, Source};

#[derive(Default)]
struct Counts {
    printed: u32,
    held_back: u64,
    /// The end of an interval is scheduled.
    counting: bool,
}

/// A log of conditions that peers can bring about.
#[derive(Default)]
pub(super) struct Complaints {
    counts: Mutex<Counts>,
}

impl Complaints {
    /// Logs a warning, unless [`COMPLAINTS`] were logged in this interval; then it is counted, and the count
    /// logged at the interval's end.
    pub(super) fn warn(self: &Arc<Self>, engine: &Engine, what: Arguments<'_>) {
        let begins = {
            let mut counts = lock(&self.counts);
            if counts.printed == COMPLAINTS {
                counts.held_back += 1;
                return;
            }
            counts.printed += 1;
            !std::mem::replace(&mut counts.counting, true)
        };
        log::warn!("{what}");
        if begins {
            let source: Arc<dyn Source> = self.clone();
            engine.schedule(Duration::from_secs(COMPLAINTS_INTERVAL_S), &source).detach();
        }
    }

    /// Ends an interval: how many complaints were held back.
    fn end_interval(&self) -> u64 {
        std::mem::take(&mut *lock(&self.counts)).held_back
    }
}

impl Source for Complaints {
    /// No descriptor leads here.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        let held_back = self.end_interval();
        if held_back > 0 {
            log::warn!(
                "{held_back} more incoming connections were closed or refused within {COMPLAINTS_INTERVAL_S} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_complaints_are_logged_and_the_others_counted() {
        let (complaints, engine) = (Arc::new(Complaints::default()), Engine::get().unwrap());
        for _ in 0..3 {
            for i in 0..COMPLAINTS + 1000 {
                complaints.warn(&engine, format_args!("{i}"));
            }
            assert_eq!(lock(&complaints.counts).printed, COMPLAINTS);
            assert_eq!(complaints.end_interval(), 1000);
        }
        assert_eq!(complaints.end_interval(), 0);
    }
}
