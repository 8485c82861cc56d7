// SPDX-License-Identifier: BSD-3-Clause
//! How far it is: a bar on a terminal, and nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

use super::options::Case;

/// On the standard error output; without a terminal there, nothing is printed.
pub(super) struct Progress {
    bar: ProgressBar,
    /// Milliseconds of a case.
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

    /// A time after the beginning of a case, of which so many are done.
    pub(super) fn tell(&self, done: usize, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(self.each);
        self.bar.set_position(self.each.saturating_mul(done as u64).saturating_add(time));
    }

    /// Prints without disturbing it.
    pub(super) fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
