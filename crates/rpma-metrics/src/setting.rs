// SPDX-License-Identifier: BSD-3-Clause
//! The value of `RPMA_METRICS`: `unix:PATH`, or `file:PATH,SECONDS`. `rpma doctor` uses this parser, too.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// The valid values, for messages.
pub const EXPECTED: &str =
    "unix:PATH, unix: alone, or file:PATH,SECONDS with a number of seconds from 0.1 to 86400";

const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 86400.0;

/// How the counters are served.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// On this socket; None: on the default one, which `rpma top` finds.
    Unix(Option<PathBuf>),
    /// In this file, which is replaced at this interval.
    File(PathBuf, Duration),
}

unsafe extern "C" {
    /// Of the C library; not declared by the libc crate.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// The value of a variable. A program with more privileges than its caller ignores it: the caller could make
/// it write any file.
pub fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name is a C string. The value is a C string, too, which stays valid until the environment
    // changes; a program with several threads must not change it while others read it (environ(7)).
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value).to_bytes()
    };
    (!value.is_empty()).then(|| OsStr::from_bytes(value).to_owned())
}

/// Parses a value; None if it is invalid. `%p` in a path becomes the process ID.
pub fn parse(value: &OsStr, pid: impl Display) -> Option<Setting> {
    let (value, pid) = (value.as_bytes(), pid.to_string());
    let path = |bytes: &[u8]| {
        let mut path = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some(at) = rest.windows(2).position(|two| two == b"%p") {
            path.extend_from_slice(&rest[..at]);
            path.extend_from_slice(pid.as_bytes());
            rest = &rest[at + 2..];
        }
        path.extend_from_slice(rest);
        PathBuf::from(OsString::from_vec(path))
    };
    if let Some(name) = value.strip_prefix(b"unix:") {
        return Some(Setting::Unix((!name.is_empty()).then(|| path(name))));
    }
    let rest = value.strip_prefix(b"file:")?;
    // The path may contain commas.
    let comma = rest.iter().rposition(|byte| *byte == b',')?;
    let seconds: f64 = std::str::from_utf8(&rest[comma + 1..]).ok()?.parse().ok()?;
    let is_possible = comma > 0 && (SHORTEST..=LONGEST).contains(&seconds);
    is_possible.then(|| Setting::File(path(&rest[..comma]), Duration::from_secs_f64(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let unix = |path: &str| Some(Setting::Unix(Some(path.into())));
        let file = |path: &str, ms| Some(Setting::File(path.into(), Duration::from_millis(ms)));
        for (value, expected) in [
            ("unix:/run/a.sock", unix("/run/a.sock")),
            ("unix:a-%p-%p.sock", unix("a-42-42.sock")),
            ("unix:%", unix("%")),
            ("unix:", Some(Setting::Unix(None))),
            ("file:/run/a.prom,10", file("/run/a.prom", 10_000)),
            ("file:a,b%p,0.5", file("a,b42", 500)),
            ("file:a,86400", file("a", 86_400_000)),
            ("", None),
            ("unix", None),
            ("Unix:/run/a", None),
            ("/run/a.sock", None),
            ("file:/run/a.prom", None),
            ("file:/run/a.prom,", None),
            ("file:,1", None),
            ("file:a,0", None),
            ("file:a,0.05", None),
            ("file:a,-1", None),
            ("file:a,1s", None),
            ("file:a,nan", None),
            ("file:a,86401", None),
            ("http://localhost:9100", None),
        ] {
            assert_eq!(parse(OsStr::new(value), 42), expected, "{value}");
        }
    }
}
