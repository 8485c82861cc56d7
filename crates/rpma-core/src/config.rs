// SPDX-License-Identifier: BSD-3-Clause
//! The environment, read in one place.
//!
//! | variable | values | default | meaning |
//! |---|---|---|---|
//! | `RPMA_PROVIDER` | `auto`, `rdma-core`, `soft` | `auto` | the provider that `rpma_utils_get_ibv_context` selects |
//! | `RPMA_LOG` | a level, optionally `stderr`, `syslog` or a path, and optionally `json`, in any order, separated by commas | none | what is logged, and where, until the program changes it |
//! | `RPMA_METRICS` | `unix:PATH`, `file:PATH,SECONDS` | none | where the counters of the process are served; [`rpma_metrics`] reads it |
//! | `RPMA_NATIVE` | some of `atomic-write`, `flush`, `flush-visibility`, `flush-persistent`, separated by commas | none | the operations that the connections of a peer execute natively if the device supports them |

use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};

use crate::abi::rpma_log_level;
use crate::text::{Lossy, Text};

/// The provider that the user selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderChoice {
    /// An RDMA device if one serves the address, otherwise software.
    Auto,
    /// libibverbs and librdmacm only.
    RdmaCore,
    /// Software only.
    Soft,
}

/// The valid values, for messages.
const PROVIDER_VALUES: &str = "auto, rdma-core, soft";

/// A value as shown in messages, possibly truncated.
pub(crate) type Shown = Text<64>;

/// Operations that newer devices support natively; on others they are executed as reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeOps {
    /// The write of 8 bytes.
    pub atomic_write: bool,
    /// The flush to visibility.
    pub flush_visibility: bool,
    /// The flush to persistence.
    pub flush_persistent: bool,
}

/// The valid words, for messages.
pub(crate) const NATIVE_WORDS: &str = "atomic-write, flush, flush-visibility, flush-persistent";

/// Displays the operations as the words of `RPMA_NATIVE`.
impl fmt::Display for NativeOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { atomic_write, flush_visibility, flush_persistent } = *self;
        let words = [
            (atomic_write, "atomic-write"),
            (flush_visibility, "flush-visibility"),
            (flush_persistent, "flush-persistent"),
        ];
        let mut between = "";
        for (_, word) in words.into_iter().filter(|(is, _)| *is) {
            write!(f, "{between}{word}")?;
            between = ", ";
        }
        Ok(())
    }
}

/// The levels by their names in `RPMA_LOG`.
const LEVELS: [(&str, rpma_log_level); 7] = [
    ("off", rpma_log_level::RPMA_LOG_DISABLED),
    ("fatal", rpma_log_level::RPMA_LOG_LEVEL_FATAL),
    ("error", rpma_log_level::RPMA_LOG_LEVEL_ERROR),
    ("warning", rpma_log_level::RPMA_LOG_LEVEL_WARNING),
    ("notice", rpma_log_level::RPMA_LOG_LEVEL_NOTICE),
    ("info", rpma_log_level::RPMA_LOG_LEVEL_INFO),
    ("debug", rpma_log_level::RPMA_LOG_LEVEL_DEBUG),
];

/// The valid levels, for messages.
pub(crate) const LOG_LEVELS: &str = "off, fatal, error, warning, notice, info, debug";

/// The name of a level.
pub(crate) fn level_name(level: rpma_log_level) -> &'static str {
    LEVELS.into_iter().find(|(_, known)| *known == level).map_or("off", |(name, _)| name)
}

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogTo<'a> {
    Stderr,
    Syslog,
    /// The path of a file to which they are appended.
    File(&'a [u8]),
}

/// The parsed value of `RPMA_LOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSetting<'a> {
    pub level: rpma_log_level,
    pub to: LogTo<'a>,
    /// One JSON object per line; not used for syslog.
    pub json: bool,
}

/// Why a value of `RPMA_LOG` is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogError<'a> {
    /// No word is a level: the first word, and the level that was probably meant.
    UnknownLevel { word: &'a [u8], meant: Option<&'static str> },
    /// A second level, format or destination.
    Extra { word: &'a [u8] },
}

impl fmt::Display for LogError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LogError::UnknownLevel { word, meant: Some(meant) } => {
                write!(f, "unknown level \"{}\", did you mean \"{meant}\"? Levels: {LOG_LEVELS}", Lossy(word))
            }
            LogError::UnknownLevel { word, meant: None } => {
                write!(f, "unknown level \"{}\"; levels: {LOG_LEVELS}", Lossy(word))
            }
            LogError::Extra { word } => {
                write!(f, "unexpected \"{}\": only one level and one destination can be set", Lossy(word))
            }
        }
    }
}

unsafe extern "C" {
    /// From the C library; not declared by the libc crate.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// Passes the value of `RPMA_LOG` to `then`, if it is set. A program with more privileges than its caller
/// ignores it, because otherwise the caller could make it append to any file.
pub(crate) fn with_log(then: impl FnOnce(Result<LogSetting<'_>, LogError<'_>>)) {
    // SAFETY: the name is a C string. The value stays valid until the environment changes, and nothing
    // changes it while the library is being loaded.
    let value = unsafe { secure_getenv(c"RPMA_LOG".as_ptr()) };
    if !value.is_null() {
        // SAFETY: a value from the environment is a C string.
        let value = unsafe { CStr::from_ptr(value) }.to_bytes();
        if !value.is_empty() {
            then(parse_log(value));
        }
    }
}

/// Takes the level and `json` from either end; the rest is the destination. A path may contain commas, but no
/// word that could be another setting: otherwise the second word of `info,debug` or `info,stderr,/a` would
/// become a file name.
fn parse_log(value: &[u8]) -> Result<LogSetting<'_>, LogError<'_>> {
    let (mut level, mut json, mut rest) = (None, false, Some(value));
    while let Some(left) = rest {
        let comma = |byte: &u8| *byte == b',';
        let front = match left.iter().position(comma) {
            Some(at) => (&left[..at], Some(&left[at + 1..])),
            None => (left, None),
        };
        let back = left.iter().rposition(comma).map(|at| (&left[at + 1..], Some(&left[..at])));
        let mut takes = |word: &[u8]| match level_of(word) {
            Some(found) if level.is_none() => {
                level = Some(found);
                true
            }
            _ => word == b"json" && !std::mem::replace(&mut json, true),
        };
        match [Some(front), back].into_iter().flatten().find(|(word, _)| takes(word)) {
            Some((_, others)) => rest = others,
            None => break,
        }
    }
    let to = rest.unwrap_or_default();
    let mut words = to.split(|byte| *byte == b',');
    let first = words.next().unwrap_or_default();
    let Some(level) = level else {
        return Err(LogError::UnknownLevel { word: first, meant: nearest(first) });
    };
    let is_destination = |word: &[u8]| matches!(word, b"stderr" | b"syslog") || word.starts_with(b"/");
    let is_setting = |word: &[u8]| word == b"json" || level_of(word).is_some();
    let extra = if is_setting(first) {
        Some(first)
    } else {
        // After a file name, any other word is part of the path.
        words.find(|word| is_setting(word) || is_destination(word) || matches!(first, b"stderr" | b"syslog"))
    };
    if let Some(word) = extra {
        return Err(LogError::Extra { word });
    }
    let to = match to {
        b"" | b"stderr" => LogTo::Stderr,
        b"syslog" => LogTo::Syslog,
        path => LogTo::File(path),
    };
    Ok(LogSetting { level, to, json })
}

/// The level with this name.
fn level_of(word: &[u8]) -> Option<rpma_log_level> {
    let found = LEVELS.into_iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    found.map(|(_, level)| level)
}

/// The level with the longest prefix in common with `word`.
fn nearest(word: &[u8]) -> Option<&'static str> {
    let common = |name: &str| name.bytes().zip(word).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    LEVELS.into_iter().map(|(name, _)| name).filter(|name| common(name) > 0).max_by_key(|name| common(name))
}

/// Passes the value of a variable to `parse`: an empty string if it is not set or if the program is
/// privileged (secure_getenv(3)).
fn value_of<T>(name: &CStr, parse: impl FnOnce(&CStr) -> T) -> T {
    // Not through std, which would allocate.
    // SAFETY: the name is a C string. The value stays valid until the environment changes, and a
    // multithreaded program must not change it while this library reads it.
    parse(unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() { c"" } else { CStr::from_ptr(value) }
    })
}

/// The value of `RPMA_PROVIDER`. An invalid one is logged.
pub fn provider() -> crate::error::Result<ProviderChoice> {
    value_of(c"RPMA_PROVIDER", parse_provider).map_err(|value| {
        log_error!(
            "invalid value \"{}\" of RPMA_PROVIDER; valid values: {PROVIDER_VALUES}",
            Lossy(value.as_bytes())
        );
        crate::error::Error::Provider
    })
}

/// The value of `RPMA_NATIVE`, or the invalid word in it.
pub(crate) fn native() -> Result<NativeOps, Shown> {
    value_of(c"RPMA_NATIVE", parse_native)
}

/// A text as shown in messages.
fn shown(text: &[u8]) -> Shown {
    let mut shown = Shown::new();
    // Writing to a Text never fails; what does not fit is truncated.
    let _ = write!(shown, "{}", Lossy(text));
    shown
}

fn parse_provider(value: &CStr) -> Result<ProviderChoice, Shown> {
    match value.to_bytes() {
        b"" | b"auto" => Ok(ProviderChoice::Auto),
        b"rdma-core" => Ok(ProviderChoice::RdmaCore),
        b"soft" => Ok(ProviderChoice::Soft),
        other => Err(shown(other)),
    }
}

fn parse_native(value: &CStr) -> Result<NativeOps, Shown> {
    let mut ops = NativeOps::default();
    if value.is_empty() {
        return Ok(ops);
    }
    for word in value.to_bytes().split(|byte| *byte == b',') {
        match word {
            b"atomic-write" => ops.atomic_write = true,
            b"flush-visibility" => ops.flush_visibility = true,
            b"flush-persistent" => ops.flush_persistent = true,
            b"flush" => (ops.flush_visibility, ops.flush_persistent) = (true, true),
            other => return Err(shown(other)),
        }
    }
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_values() {
        for (value, choice) in [
            (c"", ProviderChoice::Auto),
            (c"auto", ProviderChoice::Auto),
            (c"rdma-core", ProviderChoice::RdmaCore),
            (c"soft", ProviderChoice::Soft),
        ] {
            assert_eq!(parse_provider(value).ok(), Some(choice), "{value:?}");
        }
        for value in [c"Soft", c"verbs", c"soft "] {
            let shown = parse_provider(value).err().unwrap();
            assert_eq!(shown.as_bytes(), value.to_bytes());
        }
    }

    #[test]
    fn log_settings() {
        use rpma_log_level::*;
        let setting = |level, to, json| Ok(LogSetting { level, to, json });
        for (value, expected) in [
            ("warning", setting(RPMA_LOG_LEVEL_WARNING, LogTo::Stderr, false)),
            ("Debug", setting(RPMA_LOG_LEVEL_DEBUG, LogTo::Stderr, false)),
            ("off", setting(RPMA_LOG_DISABLED, LogTo::Stderr, false)),
            ("info,json", setting(RPMA_LOG_LEVEL_INFO, LogTo::Stderr, true)),
            ("info,stderr,json", setting(RPMA_LOG_LEVEL_INFO, LogTo::Stderr, true)),
            ("error,syslog", setting(RPMA_LOG_LEVEL_ERROR, LogTo::Syslog, false)),
            ("notice,/a,b", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"/a,b"), false)),
            ("notice,log,json", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"log"), true)),
            ("notice,json,log", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"log"), true)),
            ("json,notice,log", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"log"), true)),
            ("json,log,notice", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"log"), true)),
            ("log,json,notice", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"log"), true)),
            ("/a,b,notice,json", setting(RPMA_LOG_LEVEL_NOTICE, LogTo::File(b"/a,b"), true)),
            ("syslog,error", setting(RPMA_LOG_LEVEL_ERROR, LogTo::Syslog, false)),
            ("json,info", setting(RPMA_LOG_LEVEL_INFO, LogTo::Stderr, true)),
            ("json,warn,log", Err(LogError::UnknownLevel { word: b"warn", meant: Some("warning") })),
            ("warn", Err(LogError::UnknownLevel { word: b"warn", meant: Some("warning") })),
            ("err,json", Err(LogError::UnknownLevel { word: b"err", meant: Some("error") })),
            ("3", Err(LogError::UnknownLevel { word: b"3", meant: None })),
            ("info,debug", Err(LogError::Extra { word: b"debug" })),
            ("info,json,json", Err(LogError::Extra { word: b"json" })),
            ("info,stderr,syslog", Err(LogError::Extra { word: b"syslog" })),
            ("info,stderr,/a", Err(LogError::Extra { word: b"/a" })),
            ("stderr,log,info", Err(LogError::Extra { word: b"log" })),
            ("info,/a,/b", Err(LogError::Extra { word: b"/b" })),
            ("info,/a,debug,b", Err(LogError::Extra { word: b"debug" })),
            ("log,info,json,debug", Err(LogError::Extra { word: b"info" })),
            (",json", Err(LogError::UnknownLevel { word: b"", meant: None })),
        ] {
            assert_eq!(parse_log(value.as_bytes()), expected, "{value}");
        }
        let names: Vec<_> = LEVELS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.join(", "), LOG_LEVELS);
    }

    #[test]
    fn native_words() {
        let ops = |atomic_write, flush_visibility, flush_persistent| NativeOps {
            atomic_write,
            flush_visibility,
            flush_persistent,
        };
        for (value, expected) in [
            (c"", ops(false, false, false)),
            (c"atomic-write", ops(true, false, false)),
            (c"flush-visibility", ops(false, true, false)),
            (c"flush-persistent", ops(false, false, true)),
            (c"flush", ops(false, true, true)),
            (c"flush,atomic-write", ops(true, true, true)),
            (c"flush-visibility,flush-visibility,atomic-write", ops(true, true, false)),
        ] {
            assert_eq!(parse_native(value).ok(), Some(expected), "{value:?}");
        }
        for (value, word) in [
            (c"all", "all"),
            (c"flush,", ""),
            (c",flush", ""),
            (c"flush, atomic-write", " atomic-write"),
            (c"Flush", "Flush"),
            (c"1", "1"),
        ] {
            assert_eq!(parse_native(value).err().unwrap().as_bytes(), word.as_bytes(), "{value:?}");
        }
    }
}
