// SPDX-License-Identifier: BSD-3-Clause
//! The progress: a bar on a terminal, otherwise nothing.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

use super::options::Case;

/// A bar on the standard error output, if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    /// The duration of a case in milliseconds.
    each: u64,
}

impl Progress {
    pub(super) fn new(cases: usize, each: Duration) -> Self {
        let each = u64::try_from(each.as_millis()).unwrap_or(u64::MAX).max(1);
        let bar = ProgressBar::new(each.saturating_mul(cases as u64));
        let style = ProgressStyle::with_template("{bar:40} {percent:>3}% {eta:>4} {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, each }
    }

    pub(super) fn begin(&self, case: &Case) {
        self.bar.set_message(format!("{} {}", case.operation.name(), case.size));
    }

    /// Reports the time since the beginning of the current case, after `done` completed cases.
    pub(super) fn tell(&self, done: usize, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(self.each);
        self.bar.set_position(self.each.saturating_mul(done as u64).saturating_add(time));
    }

    /// Runs `print` while the bar is hidden.
    pub(super) fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
