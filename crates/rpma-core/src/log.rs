// SPDX-License-Identifier: BSD-3-Clause
//! Logging: two thresholds, one sink, and the macros that the library logs with.
//!
//! All state is atomic, so any thread may log or change the settings at any time. Nothing is formatted unless
//! the level passes the main threshold. Logging preserves errno and allocates nothing, so that running out of
//! memory can be logged.

use std::ffi::{c_char, c_int};
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use rpma_log::text::Text;
use rpma_log::{Level, MESSAGE_SIZE, Place, SavedErrno, Subject};

use crate::abi::arg::{LogLevelArg, LogThresholdArg, rpma_log_function};
use crate::abi::{rpma_log_level, rpma_log_threshold};
use crate::cancel;
use crate::failure::{self, Fail};

/// `rpma_log_function` of the C interface.
type LogFunction = unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, *const c_char, ...);

/// Less than every level: set when the library is unloaded, so that nothing is logged after that.
const OFF: i32 = -2;

static MAIN: AtomicI32 = AtomicI32::new(rpma_log_level::RPMA_LOG_LEVEL_WARNING as i32);
static AUX: AtomicI32 = AtomicI32::new(rpma_log_level::RPMA_LOG_DISABLED as i32);

/// A built-in log function; the message ends with a newline.
pub type BuiltIn = fn(rpma_log_level, &Place<'_>, &Subject<'_>, &[u8]);

static BUILT_IN: OnceLock<BuiltIn> = OnceLock::new();

/// Installs the built-in function, when the library is loaded; before that nothing is logged. Only the first
/// call counts.
pub fn install(function: BuiltIn) {
    let _ = BUILT_IN.set(function);
}

/// The user's function, or null for the built-in one.
static FUNCTION: AtomicPtr<rpma_log_function> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the user's log function; NULL selects the built-in one.
pub fn set_function(function: *mut rpma_log_function) {
    FUNCTION.store(function, Ordering::SeqCst);
}

fn threshold(which: LogThresholdArg) -> Result<&'static AtomicI32, Fail> {
    const RPMA_MAIN: LogThresholdArg = rpma_log_threshold::RPMA_LOG_THRESHOLD as LogThresholdArg;
    const RPMA_AUX: LogThresholdArg = rpma_log_threshold::RPMA_LOG_THRESHOLD_AUX as LogThresholdArg;
    match which {
        RPMA_MAIN => Ok(&MAIN),
        RPMA_AUX => Ok(&AUX),
        _ => Err(Fail::Invalid("threshold is no enum rpma_log_threshold")),
    }
}

/// Sets one of the thresholds.
pub fn set_threshold(which: LogThresholdArg, level: LogLevelArg) -> Result<(), Fail> {
    let threshold = threshold(which)?;
    let lowest = rpma_log_level::RPMA_LOG_DISABLED as LogLevelArg;
    let highest = rpma_log_level::RPMA_LOG_LEVEL_DEBUG as LogLevelArg;
    if !(lowest..=highest).contains(&level) {
        return Err(Fail::Invalid("level is no enum rpma_log_level"));
    }
    threshold.store(level, Ordering::SeqCst);
    Ok(())
}

impl From<rpma_log_level> for Level {
    fn from(level: rpma_log_level) -> Self {
        use rpma_log_level::*;
        match level {
            RPMA_LOG_DISABLED => Self::Off,
            RPMA_LOG_LEVEL_FATAL => Self::Fatal,
            RPMA_LOG_LEVEL_ERROR => Self::Error,
            RPMA_LOG_LEVEL_WARNING => Self::Warning,
            RPMA_LOG_LEVEL_NOTICE => Self::Notice,
            RPMA_LOG_LEVEL_INFO => Self::Info,
            RPMA_LOG_LEVEL_DEBUG => Self::Debug,
        }
    }
}

impl From<Level> for rpma_log_level {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::RPMA_LOG_DISABLED,
            Level::Fatal => Self::RPMA_LOG_LEVEL_FATAL,
            Level::Error => Self::RPMA_LOG_LEVEL_ERROR,
            Level::Warning => Self::RPMA_LOG_LEVEL_WARNING,
            Level::Notice => Self::RPMA_LOG_LEVEL_NOTICE,
            Level::Info => Self::RPMA_LOG_LEVEL_INFO,
            Level::Debug => Self::RPMA_LOG_LEVEL_DEBUG,
        }
    }
}

/// Sets the main threshold.
pub fn set_main(level: rpma_log_level) {
    MAIN.store(level as i32, Ordering::SeqCst);
}

/// Sets both thresholds.
pub fn set_both(level: rpma_log_level) {
    set_main(level);
    AUX.store(level as i32, Ordering::SeqCst);
}

/// Reads one of the thresholds.
pub fn get_threshold(which: LogThresholdArg) -> Result<rpma_log_level, Fail> {
    Ok(match threshold(which)?.load(Ordering::SeqCst) {
        0 => rpma_log_level::RPMA_LOG_LEVEL_FATAL,
        1 => rpma_log_level::RPMA_LOG_LEVEL_ERROR,
        2 => rpma_log_level::RPMA_LOG_LEVEL_WARNING,
        3 => rpma_log_level::RPMA_LOG_LEVEL_NOTICE,
        4 => rpma_log_level::RPMA_LOG_LEVEL_INFO,
        5 => rpma_log_level::RPMA_LOG_LEVEL_DEBUG,
        _ => rpma_log_level::RPMA_LOG_DISABLED,
    })
}

/// Whether a message of this level is logged.
#[inline]
pub fn enabled(level: rpma_log_level) -> bool {
    level as i32 <= MAIN.load(Ordering::Relaxed)
}

/// Whether a message of this level is logged or recorded: errors are recorded for `rpma_err_last` even if
/// they are not logged.
#[inline]
pub fn is_kept(level: rpma_log_level) -> bool {
    level as i32 <= rpma_log_level::RPMA_LOG_LEVEL_ERROR as i32 || enabled(level)
}

/// Whether the built-in function also prints a message of this level to stderr.
pub fn to_stderr(level: rpma_log_level) -> bool {
    level as i32 <= AUX.load(Ordering::Relaxed)
}

/// Disables logging permanently; for the unload path.
pub fn switch_off() {
    MAIN.store(OFF, Ordering::SeqCst);
}

/// Logs `format_args` at the given level, with the source location, the function and, with `about`, the
/// subject of the message. The values are moved into the cold closure that formats them, so that a function
/// that logs nothing does not spill them to memory.
macro_rules! log_at {
    ($level:ident, about $subject:expr; $($message:tt)+) => {{
        if $crate::log::is_kept($crate::abi::rpma_log_level::$level) {
            fn here() {}
            $crate::log::aside(move || {
                $crate::log::emit(
                    $crate::abi::rpma_log_level::$level,
                    &rpma_log::Place {
                        file: const { rpma_log::text::c_literal(concat!(file!(), "\0")) },
                        line: line!(),
                        function: rpma_log::text::function_of(std::any::type_name_of_val(&here)),
                    },
                    &$subject,
                    format_args!($($message)+),
                );
            });
        }
    }};
    ($level:ident, $($message:tt)+) => {
        log_at!($level, about rpma_log::Subject::default(); $($message)+)
    };
}

/// Calls `log` out of line, because most calls of the library log nothing.
#[cold]
#[inline(never)]
pub fn aside(log: impl FnOnce()) {
    log();
}

/// Logs an error.
macro_rules! log_error { ($($message:tt)+) => { log_at!(RPMA_LOG_LEVEL_ERROR, $($message)+) }; }
/// Logs a warning.
macro_rules! log_warning { ($($message:tt)+) => { log_at!(RPMA_LOG_LEVEL_WARNING, $($message)+) }; }
/// Logs a normal but significant event.
macro_rules! log_notice { ($($message:tt)+) => { log_at!(RPMA_LOG_LEVEL_NOTICE, $($message)+) }; }
/// Logs an informational message.
macro_rules! log_info { ($($message:tt)+) => { log_at!(RPMA_LOG_LEVEL_INFO, $($message)+) }; }
/// Logs debugging detail.
macro_rules! log_debug { ($($message:tt)+) => { log_at!(RPMA_LOG_LEVEL_DEBUG, $($message)+) }; }

/// Formats a message and passes it to the sink.
pub fn emit(level: rpma_log_level, place: &Place<'_>, subject: &Subject<'_>, message: fmt::Arguments<'_>) {
    let errno = SavedErrno::new();
    if level as i32 <= rpma_log_level::RPMA_LOG_LEVEL_ERROR as i32 {
        failure::reason(message);
        if !enabled(level) {
            return;
        }
    }
    let mut text = Text::<MESSAGE_SIZE>::new();
    // Writing to a Text never fails; if the Display of a value fails, the message is shorter.
    let _ = text.write_fmt(message);
    text.end_line();
    // syslog(3) or the program's function may contain a cancellation point, and the caller may hold locks.
    cancel::whole(|| deliver(level, place, subject, &text));
    drop(errno);
}

fn deliver(level: rpma_log_level, place: &Place<'_>, subject: &Subject<'_>, text: &Text<MESSAGE_SIZE>) {
    let function = FUNCTION.load(Ordering::SeqCst);
    if function.is_null() {
        if let Some(write) = BUILT_IN.get() {
            write(level, place, subject, text.as_bytes());
        }
        return;
    }
    let mut name = Text::<128>::new();
    let _ = name.write_str(place.function);
    // SAFETY: a non-null pointer was passed to rpma_log_set_function as a function of exactly this C type;
    // its contract requires that the function stays callable from any thread until it is replaced.
    let function = unsafe { std::mem::transmute::<*mut rpma_log_function, LogFunction>(function) };
    // SAFETY: `function` is callable from any thread, as rpma_log_set_function requires; the four strings are
    // terminated and outlive the call, and the format takes one string.
    unsafe {
        function(
            level as c_int,
            place.file.as_ptr(),
            place.line as c_int,
            name.as_c_str().as_ptr(),
            c"%s".as_ptr(),
            text.as_c_str().as_ptr(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_checked() {
        assert!(matches!(set_threshold(2, 0), Err(Fail::Invalid(_))));
        assert!(matches!(set_threshold(0, -2), Err(Fail::Invalid(_))));
        assert!(matches!(set_threshold(1, 6), Err(Fail::Invalid(_))));
        assert!(matches!(get_threshold(7), Err(Fail::Invalid(_))));
        assert_eq!(get_threshold(1), Ok(rpma_log_level::RPMA_LOG_DISABLED));
        assert_eq!(set_threshold(1, 3), Ok(()));
        assert_eq!(get_threshold(1), Ok(rpma_log_level::RPMA_LOG_LEVEL_NOTICE));
        assert_eq!(set_threshold(1, -1), Ok(()));
    }
}
