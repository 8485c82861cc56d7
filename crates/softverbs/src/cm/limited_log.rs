// SPDX-License-Identifier: BSD-3-Clause
//! A rate-limited log for conditions that an unknown peer can cause.
//!
//! Any host that reaches the port can open thousands of failing connections per second, and must not fill the
//! log. At most [`LIMITED_LOG_LINES`] lines are logged per interval of [`LIMITED_LOG_INTERVAL_S`] seconds; a
//! timer of the engine ends the interval and logs how many lines were suppressed.
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
    suppressed: u64,
    /// An interval is running; its end is scheduled.
    counting: bool,
}

/// The rate limiter of one listener.
#[derive(Default)]
pub(super) struct LimitedLog {
    counts: Mutex<Counts>,
}

impl LimitedLog {
    /// Logs a warning, or only counts it if [`LIMITED_LOG_LINES`] were logged in this interval.
    pub(super) fn warn(self: &Arc<Self>, engine: &Engine, what: Arguments<'_>) {
        let begins = {
            let mut counts = lock(&self.counts);
            if counts.printed == LIMITED_LOG_LINES {
                counts.suppressed += 1;
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

    /// Ends an interval and returns how many lines were suppressed.
    fn end_interval(&self) -> u64 {
        std::mem::take(&mut *lock(&self.counts)).suppressed
    }
}

impl Source for LimitedLog {
    /// Never called: no descriptor is registered for this source.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        let suppressed = self.end_interval();
        if suppressed > 0 {
            log::warn!(
                "{suppressed} more incoming connections were closed or refused within {LIMITED_LOG_INTERVAL_S} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_limit_are_counted_not_logged() {
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
