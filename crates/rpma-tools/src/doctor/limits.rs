// SPDX-License-Identifier: BSD-3-Clause
//! The limit of memory that may be registered.

use super::devices::Devices;
use super::report::Report;
use crate::system::{System, memlock};

const CAP_IPC_LOCK: u32 = 14;
const FIX: &str = "ulimit -l unlimited";

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    if bytes == libc::RLIM_INFINITY {
        return "no limit".to_owned();
    }
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit && bytes % unit == 0) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

pub(super) fn check(system: &System, devices: &Devices, report: &mut Report) {
    let Some((soft, hard)) = memlock() else { return };
    of_memlock(soft, hard, system.has_capability(CAP_IPC_LOCK), !devices.all.is_empty(), report);
}

fn of_memlock(soft: u64, hard: u64, capable: Option<bool>, has_device: bool, report: &mut Report) {
    let text = if soft == libc::RLIM_INFINITY {
        size(soft)
    } else {
        format!("{} soft, {} hard", size(soft), size(hard))
    };
    if soft == libc::RLIM_INFINITY {
        report.ok("memlock", text);
    } else if capable == Some(true) {
        report.ok("memlock", format!("{text}, overridden by the capability CAP_IPC_LOCK"));
    } else if !has_device {
        report.ok("memlock", format!("{text}; not needed: the soft provider pins no memory"));
    } else {
        report.warn(
            "memlock",
            format!(
                "{text}: an adapter can register no more (systemd has LimitMEMLOCK, docker --ulimit memlock)"
            ),
            FIX,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::text_of;
    use super::*;

    #[test]
    fn a_limit_matters_to_an_adapter() {
        let say =
            |soft, capable, device| text_of(|report| of_memlock(soft, 1 << 23, capable, device, report));
        assert!(
            say(1 << 23, Some(false), true)
                .starts_with("warn  memlock     8 MiB soft, 8 MiB hard: an adapter")
        );
        assert!(say(1 << 23, None, true).contains("ulimit -l unlimited"));
        assert!(say(1 << 23, Some(true), true).starts_with("ok"));
        assert!(say(1 << 23, Some(false), false).starts_with("ok"));
        assert_eq!(say(libc::RLIM_INFINITY, Some(false), true), "ok    memlock     no limit\n");
    }

    #[test]
    fn sizes() {
        assert_eq!(
            (size(65536).as_str(), size(1 << 33).as_str(), size(1001).as_str()),
            ("64 KiB", "8 GiB", "1001 bytes")
        );
        assert!(memlock().is_some());
    }
}
