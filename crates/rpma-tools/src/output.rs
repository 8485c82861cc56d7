// SPDX-License-Identifier: BSD-3-Clause
//! What is printed.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Prints a line, or lines, and flushes them at once, so that a reader of a pipe gets them immediately, and
/// nothing is lost if the process is killed.
pub(crate) fn print(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|why| format!("the output cannot be written: {why}"))
}

/// A text of another program or host, whose control characters must not reach the terminal: they are
/// replaced.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// The same for a text of several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    text.replace(|of: char| of.is_control() && of != '\n', "?")
}

/// A time in UTC, as in RFC 3339.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (mut days, of_day) = (seconds / 86400, seconds % 86400);
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for len in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("\x1b[2Ja\u{9b}b\nc"), "?[2Ja?b?c");
        assert_eq!(printable_lines("\x1b[2Ja\u{9b}b\nc"), "?[2Ja?b\nc");
    }

    #[test]
    fn dates() {
        let of = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(of(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(of(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
