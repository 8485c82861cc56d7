// SPDX-License-Identifier: BSD-3-Clause
//! Times of the command line.

use std::time::Duration;

/// Parses a number of seconds: at least `LEAST_MS` milliseconds, at most a day.
pub(crate) fn seconds<const LEAST_MS: u64>(text: &str) -> Result<Duration, String> {
    let least = LEAST_MS as f64 / 1e3;
    match text.parse() {
        Ok(seconds) if (least..=86400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("it must be a number from {least} to 86400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_limits() {
        assert_eq!(
            (seconds::<0>("0.25"), seconds::<0>("0")),
            (Ok(Duration::from_millis(250)), Ok(Duration::ZERO))
        );
        for text in ["", "-1", "nan", "inf", "86401", "1s"] {
            assert!(seconds::<0>(text).is_err(), "{text}");
        }
        assert!(seconds::<50>("0.05").is_ok());
        assert_eq!(seconds::<50>("0.049").unwrap_err(), "it must be a number from 0.05 to 86400");
    }
}
