// SPDX-License-Identifier: BSD-3-Clause
//! When and where a result was measured.

use serde::{Deserialize, Serialize};
use std::time::SystemTime;

use crate::output::date;
use crate::system::System;

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
        let system = System::this();
        let file = |name: &str| system.read(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        let kernel = format!("{} {} {}", file("ostype"), file("osrelease"), std::env::consts::ARCH);
        Self { date: date(SystemTime::now()), host: file("hostname"), kernel }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_date_and_names() {
        let Origin { date, host, kernel } = Origin::here();
        assert!(
            date.starts_with("20") && !host.is_empty() && kernel.starts_with("Linux "),
            "{host} {kernel}"
        );
    }
}
