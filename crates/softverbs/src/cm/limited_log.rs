// SPDX-License-Identifier: BSD-3-Clause
//! A rate-limited log of conditions that unknown peers can cause: a few lines in an interval, then how many
//! were suppressed.
//!
//! A peer that reaches the port can make thousands of failing connections a second, and must not fill the
//! log.
#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::limits::{LIMITED_LOG_INTERVAL_S, LIMITED_LOG_LINES};
use crate::lock;
use crate::progress::engine::Engine;
use crate::progress::source::Source;

#[derive(Default)]
struct Counts {
    printed: u32,
    held_back: u64,
    /// The end of an interval is scheduled.
    counting: bool,
}

/// A log of conditions that peers can bring about.
#[derive(Default)]
pub(super) struct LimitedLog {
    counts: Mutex<Counts>,
}

impl LimitedLog {
    /// Logs a warning, unless [`LIMITED_LOG_LINES`] were logged in this interval; then it is counted, and the
    /// count logged at the interval's end.
    pub(super) fn warn(self: &Arc<Self>, engine: &Engine, what: Arguments<'_>) {
        let begins = {
            let mut counts = lock(&self.counts);
            if counts.printed == LIMITED_LOG_LINES {
                counts.held_back += 1;
                return;
            }
            counts.printed += 1;
            !std::mem::replace(&mut counts.counting, true)
        };
        log::warn!("{what}");
        if begins {
            let source: Arc<dyn Source> = self.clone();
            engine.schedule(Duration::from_secs(LIMITED_LOG_INTERVAL_S), &source).detach();
        }
    }

    /// Ends an interval: how many lines were suppressed.
    fn end_interval(&self) -> u64 {
        std::mem::take(&mut *lock(&self.counts)).held_back
    }
}

impl Source for LimitedLog {
    /// No descriptor leads here.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        let held_back = self.end_interval();
        if held_back > 0 {
            log::warn!(
                "{held_back} more incoming connections were closed or refused within {LIMITED_LOG_INTERVAL_S} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_complaints_are_logged_and_the_others_counted() {
        let (limited_log, engine) = (Arc::new(LimitedLog::default()), Engine::get().unwrap());
        for _ in 0..3 {
            for i in 0..LIMITED_LOG_LINES + 1000 {
                limited_log.warn(&engine, format_args!("{i}"));
            }
            assert_eq!(lock(&limited_log.counts).printed, LIMITED_LOG_LINES);
            assert_eq!(limited_log.end_interval(), 1000);
        }
        assert_eq!(limited_log.end_interval(), 0);
    }
}
