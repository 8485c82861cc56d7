// SPDX-License-Identifier: BSD-3-Clause
//! When and where a result was measured.

use serde::{Deserialize, Serialize};
use std::fs;

/// The date, the measuring host and its kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Origin {
    /// In UTC, as in RFC 3339.
    pub(super) date: String,
    pub(super) host: String,
    /// The name, release and machine of the kernel.
    pub(super) kernel: String,
}

impl Origin {
    /// Now and here.
    pub(super) fn here() -> Self {
        let file = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
            text.trim().to_owned()
        };
        let kernel = format!("{} {} {}", file("ostype"), file("osrelease"), std::env::consts::ARCH);
        Self { date: date(), host: file("hostname"), kernel }
    }

    #[cfg(test)]
    pub(super) fn of_test() -> Self {
        Self {
            date: "2026-01-02T03:04:05Z".to_owned(),
            host: "here".to_owned(),
            kernel: "Linux 6".to_owned(),
        }
    }
}

fn date() -> String {
    // SAFETY: an all-zero tm is valid; the calls write only to it and to nothing else.
    let at = unsafe {
        let mut at: libc::tm = std::mem::zeroed();
        let now = libc::time(std::ptr::null_mut());
        libc::gmtime_r(&now, &mut at);
        at
    };
    let (year, month) = (at.tm_year + 1900, at.tm_mon + 1);
    let (day, hour, minute, second) = (at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_date_and_names() {
        let Origin { date, host, kernel } = Origin::here();
        let shape: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00Z");
        assert!(!host.is_empty() && kernel.starts_with("Linux "), "{host} {kernel}");
    }
}
