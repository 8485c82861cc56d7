// SPDX-License-Identifier: BSD-3-Clause
//! Messages of softverbs on stderr, for a program that has no log that they could go to.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = format!("softverbs: {}: {}\n", record.level().as_str().to_lowercase(), record.args());
            // One call, so that lines of several threads do not mix. A failure leaves nothing to be done.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// The level that the environment variable SOFTVERBS_LOG asks for: off, error, warn (the default), info,
/// debug or trace.
fn level() -> LevelFilter {
    let asked = softverbs::config::variable("SOFTVERBS_LOG");
    asked.and_then(|level| level.to_str()?.parse().ok()).unwrap_or(LevelFilter::Warn)
}

static CONNECTED: AtomicBool = AtomicBool::new(false);

/// Whether a function of softverbs was called.
pub(crate) fn has_begun() -> bool {
    CONNECTED.load(Ordering::Relaxed)
}

/// Prints a warning of this library, if SOFTVERBS_LOG permits.
pub(crate) fn warn(text: &str) {
    if level() >= LevelFilter::Warn {
        // A failure leaves nothing to be done.
        let _ = std::io::stderr().write_all(format!("softverbs: warn: {text}\n").as_bytes());
    }
}

/// Begins to use softverbs: connects its messages to stderr, and creates the descriptor for asynchronous
/// events, which programs expect in the context wherever they have it from. Only the first call does
/// anything.
pub(crate) fn begin() {
    if !CONNECTED.load(Ordering::Relaxed)
        && !CONNECTED.swap(true, Ordering::Relaxed)
        && log::set_logger(&Stderr).is_ok()
    {
        log::set_max_level(level());
        softverbs::verbs::with_async_events();
    }
}
