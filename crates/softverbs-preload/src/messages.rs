// SPDX-License-Identifier: BSD-3-Clause
//! The log of softverbs in a preloaded program: lines on stderr, or where and as `RPMA_LOG` says. A preloaded
//! library has no log of the program that it could use.

use std::fmt::{Arguments, Write as _};
use std::io::{Error, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use log::{LevelFilter, Log, Metadata, Record};
use rpma_log::text::{Lossy, Text};
use rpma_log::{Destination, Level, Output, SavedErrno};

struct Lines {
    /// The least severe level that is logged.
    threshold: Level,
    /// The output that `RPMA_LOG` selects; `None`: plain lines on stderr.
    output: Option<Output>,
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        rpma_log::level_of(metadata, softverbs::NOTICE) <= self.threshold
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let errno = SavedErrno::new();
        softverbs::whole(|| match &self.output {
            Some(output) => write(output, record),
            None => print(&record.level().as_str().to_lowercase(), *record.args()),
        });
        drop(errno);
    }

    fn flush(&self) {}
}

fn write(output: &Output, record: &Record<'_>) {
    let level = rpma_log::level_of(record.metadata(), softverbs::NOTICE);
    let mut message = Text::<{ rpma_log::MESSAGE_SIZE }>::new();
    // Writing to a Text never fails; what does not fit is truncated.
    let _ = message.write_fmt(*record.args());
    rpma_log::with_record(record, |place, subject| {
        output.write(level, place, subject, message.as_bytes(), output.is_stderr());
    });
}

/// Prints a line on stderr.
fn print(level: &str, message: Arguments<'_>) {
    // One call per line, so that lines of several threads do not mix. An error cannot be reported anywhere.
    let _ = std::io::stderr().write_all(format!("softverbs: {level}: {message}\n").as_bytes());
}

impl Lines {
    /// As `RPMA_LOG` says, and what is wrong with its value: then, messages go to stderr.
    fn of_environment() -> (Self, Option<String>) {
        let mut lines = Self { threshold: Level::Warning, output: None };
        let mut mistake = None;
        rpma_log::with_setting(|setting| match setting {
            Ok(setting) => {
                let output = Output::syslog();
                if let (Err(errno), Destination::File(path)) = (output.apply(&setting), setting.to) {
                    let why = Error::from_raw_os_error(errno);
                    mistake = Some(format!("cannot open {}: {why}; logging to stderr", Lossy(path)));
                }
                lines = Self { threshold: setting.level, output: Some(output) };
            }
            Err(why) => mistake = Some(why.to_string()),
        });
        (lines, mistake)
    }
}

/// The level in the environment variable `SOFTVERBS_LOG`: off, error, warn (also for an invalid value), info,
/// debug or trace.
fn own_level() -> Option<LevelFilter> {
    let value = softverbs::config::variable("SOFTVERBS_LOG")?;
    Some(value.to_str().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::Warn))
}

/// The level of this crate, and the least severe one of the crate log that it includes.
fn levels(threshold: Level, own: Option<LevelFilter>) -> (Level, LevelFilter) {
    match own {
        Some(LevelFilter::Off) => (Level::Off, LevelFilter::Off),
        Some(LevelFilter::Error) => (Level::Error, LevelFilter::Error),
        Some(LevelFilter::Warn) => (Level::Warning, LevelFilter::Warn),
        Some(LevelFilter::Info) => (Level::Info, LevelFilter::Info),
        Some(more) => (Level::Debug, more),
        None => {
            let least = match threshold {
                Level::Off => LevelFilter::Off,
                Level::Fatal | Level::Error => LevelFilter::Error,
                Level::Warning => LevelFilter::Warn,
                Level::Notice | Level::Info => LevelFilter::Info,
                Level::Debug => LevelFilter::Debug,
            };
            (threshold, least)
        }
    }
}

/// Installs the log; later calls do nothing.
fn install() {
    // Not a `Once`: a child that is forked during the first call would block on it forever. Such a child logs
    // nothing.
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let (Lines { threshold, output }, mistake) = softverbs::whole(Lines::of_environment);
    let (threshold, least) = levels(threshold, own_level());
    if log::set_logger(Box::leak(Box::new(Lines { threshold, output }))).is_ok() {
        log::set_max_level(least);
    }
    if let Some(mistake) = mistake {
        log::warn!("RPMA_LOG: {mistake}");
    }
}

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the program has called a function of softverbs.
pub(crate) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

/// Logs a warning of this library. Works without [`begin`].
pub(crate) fn warn(text: &str) {
    install();
    log::warn!("{text}");
}

/// Initialises softverbs on the first call of one of its functions: installs the log, and creates the
/// descriptor of asynchronous events, which programs expect in the context however they have obtained it.
/// Later calls do nothing.
pub(crate) fn begin() {
    if !HAS_BEGUN.load(Ordering::Relaxed) && !HAS_BEGUN.swap(true, Ordering::Relaxed) {
        install();
        softverbs::verbs::with_async_events();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_level_comes_first() {
        assert_eq!(levels(Level::Notice, None), (Level::Notice, LevelFilter::Info));
        assert_eq!(levels(Level::Debug, Some(LevelFilter::Error)), (Level::Error, LevelFilter::Error));
        assert_eq!(levels(Level::Off, Some(LevelFilter::Trace)), (Level::Debug, LevelFilter::Trace));
        assert_eq!(levels(Level::Off, None), (Level::Off, LevelFilter::Off));
    }
}
