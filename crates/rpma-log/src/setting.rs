// SPDX-License-Identifier: BSD-3-Clause
//! The value of `RPMA_LOG`: a level, optionally `stderr`, `syslog` or a path, and optionally `json`, in any
//! order, separated by commas.

use std::fmt;

use crate::environment::value_of;
use crate::level::{self, Level, NAMES};
use crate::text::Lossy;

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// The standard error output.
    Stderr,
    /// syslog(3).
    Syslog,
    /// The path of a file to which they are appended.
    File(&'a [u8]),
}

/// The parsed value of `RPMA_LOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The least severe level that is logged.
    pub level: Level,
    /// Where its messages go.
    pub to: Destination<'a>,
    /// One JSON object per line; not used for syslog.
    pub json: bool,
}

/// Why a value of `RPMA_LOG` is invalid.
#[derive(Debug, PartialEq, Eq)]
pub enum Invalid<'a> {
    /// No word is a level.
    UnknownLevel {
        /// The first word.
        word: &'a [u8],
        /// The level that was probably meant.
        meant: Option<&'static str>,
    },
    /// A second level, format or destination.
    Extra {
        /// That word.
        word: &'a [u8],
    },
}

impl fmt::Display for Invalid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Invalid::UnknownLevel { word, meant: Some(meant) } => {
                write!(f, "unknown level \"{}\", did you mean \"{meant}\"? Levels: {NAMES}", Lossy(word))
            }
            Invalid::UnknownLevel { word, meant: None } => {
                write!(f, "unknown level \"{}\"; levels: {NAMES}", Lossy(word))
            }
            Invalid::Extra { word } => {
                write!(f, "unexpected \"{}\": only one level and one destination can be set", Lossy(word))
            }
        }
    }
}

/// Passes the value of `RPMA_LOG` to `then`, if it is set. A program with more privileges than its caller
/// ignores it, because otherwise the caller could make it append to any file.
pub fn with_setting(then: impl FnOnce(Result<Setting<'_>, Invalid<'_>>)) {
    value_of(c"RPMA_LOG", |value| {
        if !value.is_empty() {
            then(parse(value.to_bytes()));
        }
    });
}

/// Takes the level and `json` from either end; the rest is the destination. A path may contain commas, but no
/// word that could be another setting: otherwise the second word of `info,debug` or `info,stderr,/a` would
/// become a file name.
fn parse(value: &[u8]) -> Result<Setting<'_>, Invalid<'_>> {
    let (mut level, mut json, mut rest) = (None, false, Some(value));
    while let Some(left) = rest {
        let comma = |byte: &u8| *byte == b',';
        let front = match left.iter().position(comma) {
            Some(at) => (&left[..at], Some(&left[at + 1..])),
            None => (left, None),
        };
        let back = left.iter().rposition(comma).map(|at| (&left[at + 1..], Some(&left[..at])));
        let mut takes = |word: &[u8]| match Level::named(word) {
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
        return Err(Invalid::UnknownLevel { word: first, meant: level::nearest(first) });
    };
    let is_destination = |word: &[u8]| matches!(word, b"stderr" | b"syslog") || word.starts_with(b"/");
    let is_setting = |word: &[u8]| word == b"json" || Level::named(word).is_some();
    let extra = if is_setting(first) {
        Some(first)
    } else {
        // After a file name, any other word is part of the path.
        words.find(|word| is_setting(word) || is_destination(word) || matches!(first, b"stderr" | b"syslog"))
    };
    if let Some(word) = extra {
        return Err(Invalid::Extra { word });
    }
    let to = match to {
        b"" | b"stderr" => Destination::Stderr,
        b"syslog" => Destination::Syslog,
        path => Destination::File(path),
    };
    Ok(Setting { level, to, json })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_settings() {
        use Level::*;
        let setting = |level, to, json| Ok(Setting { level, to, json });
        for (value, expected) in [
            ("warning", setting(Warning, Destination::Stderr, false)),
            ("Debug", setting(Debug, Destination::Stderr, false)),
            ("off", setting(Off, Destination::Stderr, false)),
            ("info,json", setting(Info, Destination::Stderr, true)),
            ("info,stderr,json", setting(Info, Destination::Stderr, true)),
            ("error,syslog", setting(Error, Destination::Syslog, false)),
            ("notice,/a,b", setting(Notice, Destination::File(b"/a,b"), false)),
            ("notice,log,json", setting(Notice, Destination::File(b"log"), true)),
            ("notice,json,log", setting(Notice, Destination::File(b"log"), true)),
            ("json,notice,log", setting(Notice, Destination::File(b"log"), true)),
            ("json,log,notice", setting(Notice, Destination::File(b"log"), true)),
            ("log,json,notice", setting(Notice, Destination::File(b"log"), true)),
            ("/a,b,notice,json", setting(Notice, Destination::File(b"/a,b"), true)),
            ("syslog,error", setting(Error, Destination::Syslog, false)),
            ("json,info", setting(Info, Destination::Stderr, true)),
            ("json,warn,log", Err(Invalid::UnknownLevel { word: b"warn", meant: Some("warning") })),
            ("warn", Err(Invalid::UnknownLevel { word: b"warn", meant: Some("warning") })),
            ("err,json", Err(Invalid::UnknownLevel { word: b"err", meant: Some("error") })),
            ("3", Err(Invalid::UnknownLevel { word: b"3", meant: None })),
            ("info,debug", Err(Invalid::Extra { word: b"debug" })),
            ("info,json,json", Err(Invalid::Extra { word: b"json" })),
            ("info,stderr,syslog", Err(Invalid::Extra { word: b"syslog" })),
            ("info,stderr,/a", Err(Invalid::Extra { word: b"/a" })),
            ("stderr,log,info", Err(Invalid::Extra { word: b"log" })),
            ("info,/a,/b", Err(Invalid::Extra { word: b"/b" })),
            ("info,/a,debug,b", Err(Invalid::Extra { word: b"debug" })),
            ("log,info,json,debug", Err(Invalid::Extra { word: b"info" })),
            (",json", Err(Invalid::UnknownLevel { word: b"", meant: None })),
        ] {
            assert_eq!(parse(value.as_bytes()), expected, "{value}");
        }
    }
}
