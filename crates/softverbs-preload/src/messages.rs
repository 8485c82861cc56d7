// SPDX-License-Identifier: BSD-3-Clause
//! The log of softverbs in a preloaded program: lines on stderr, at the level of the environment variable
//! SOFTVERBS_LOG. A preloaded library has no log of the program that it could use.

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
            // One call per line, so that lines of several threads do not mix. An error cannot be reported
            // anywhere.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// The level in the environment variable SOFTVERBS_LOG: off, error, warn (the default), info, debug or trace.
/// Without it, that in RPMA_LOG of librpma.
fn level() -> LevelFilter {
    let value = |name| softverbs::config::variable(name);
    let level = match value("SOFTVERBS_LOG") {
        Some(own) => own.to_str().and_then(|level| level.parse().ok()),
        None => value("RPMA_LOG").and_then(|shared| level_of_librpma(shared.to_str()?)),
    };
    level.unwrap_or(LevelFilter::Warn)
}

/// The level in a value of RPMA_LOG, whose words are in any order, separated by commas. The destination and
/// the format apply to librpma only.
fn level_of_librpma(value: &str) -> Option<LevelFilter> {
    value.split(',').find_map(|word| match word.to_ascii_lowercase().as_str() {
        "off" => Some(LevelFilter::Off),
        "fatal" | "error" => Some(LevelFilter::Error),
        "warning" => Some(LevelFilter::Warn),
        "notice" | "info" => Some(LevelFilter::Info),
        "debug" => Some(LevelFilter::Debug),
        _ => None,
    })
}

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the program has called a function of softverbs.
pub(crate) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

/// Prints a warning of this library if SOFTVERBS_LOG permits. Works without [`begin`].
pub(crate) fn warn(text: &str) {
    if level() >= LevelFilter::Warn {
        // An error cannot be reported anywhere.
        let _ = std::io::stderr().write_all(format!("softverbs: warn: {text}\n").as_bytes());
    }
}

/// Initialises softverbs on the first call of one of its functions: installs the log, and creates the
/// descriptor of asynchronous events, which programs expect in the context however they have obtained it.
/// Later calls do nothing.
pub(crate) fn begin() {
    if !HAS_BEGUN.load(Ordering::Relaxed)
        && !HAS_BEGUN.swap(true, Ordering::Relaxed)
        && log::set_logger(&Stderr).is_ok()
    {
        log::set_max_level(level());
        softverbs::verbs::with_async_events();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_librpma_is_in_any_place() {
        for (value, level) in [
            ("info", Some(LevelFilter::Info)),
            ("Notice,json,/tmp/log", Some(LevelFilter::Info)),
            ("json,/tmp/log,warning", Some(LevelFilter::Warn)),
            ("off", Some(LevelFilter::Off)),
            ("stderr", None),
            ("", None),
        ] {
            assert_eq!(level_of_librpma(value), level, "{value}");
        }
    }
}
