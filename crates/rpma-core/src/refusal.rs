// SPDX-License-Identifier: BSD-3-Clause
//! The reason why memory registration failed: everything that a user needs to know, in one line.

use std::fmt;
use std::fs::File;
use std::io::Read;

use libc::{ENOMEM, rlim_t};

use super::access;
use crate::mapping::page_size;
use crate::provider::handles::Failed;

/// The known facts about a failed memory registration.
pub(crate) struct Refusal {
    pub failed: Failed,
    pub addr: usize,
    pub size: usize,
    /// The access flags of the last attempt.
    pub access: u32,
    /// Whether the device supports on-demand paging.
    pub odp: bool,
    /// The limit of locked memory; None if the provider locks no memory.
    pub locked: Option<Locked>,
}

/// The process's locked memory, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Locked {
    /// `RLIMIT_MEMLOCK`.
    limit: rlim_t,
    /// What devices have pinned already, if that is known.
    pinned: Option<u64>,
    page: u64,
    /// CAP_IPC_LOCK is among the effective capabilities.
    capable: bool,
}

impl Locked {
    /// The current values.
    pub(crate) fn now() -> Option<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // Not by rustix, which does not look at the result.
        // SAFETY: getrlimit writes only to a local object.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
        let page = page_size()? as u64;
        let mut room = [0; 4096];
        let len = File::open("/proc/self/status").and_then(|mut file| file.read(&mut room)).unwrap_or(0);
        let (pinned, capable) = of_status(&room[..len]);
        known.then_some(Self { limit: limit.rlim_cur, pinned, page, capable })
    }

    /// By how much the limit is too low for this memory; None if it is high enough.
    fn missing(&self, addr: usize, size: usize) -> Option<u64> {
        let first = addr as u64 / self.page;
        let last = (addr as u64).checked_add(size as u64 - 1)? / self.page;
        let needed = (last - first + 1).checked_mul(self.page)?.checked_add(self.pinned?)?;
        // The kernel counts whole pages.
        let limit = self.limit / self.page * self.page;
        needed.checked_sub(limit).filter(|missing| *missing != 0)
    }
}

/// Pinned bytes, and whether CAP_IPC_LOCK is effective, from the text of /proc/self/status.
fn of_status(text: &[u8]) -> (Option<u64>, bool) {
    const CAP_IPC_LOCK: u32 = 14;
    let value = |name: &[u8]| {
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok()?.split_whitespace().next()
    };
    let pinned = value(b"VmPin:").and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib.saturating_mul(1024));
    let capabilities = value(b"CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    (pinned, capabilities >> CAP_IPC_LOCK & 1 == 1)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { failed, addr, size, access, odp, locked } = self;
        write!(
            f,
            "{}(addr={addr:#x}, length={size}, access={access:#x}) failed: {}",
            failed.call, failed.why
        )?;
        f.write_str(match (odp, access::on_demand(*access)) {
            (_, true) => "; on-demand paging: tried",
            (true, false) => "; on-demand paging: not tried, only for memory that cannot be pinned",
            (false, false) => "; on-demand paging: not supported by the device",
        })?;
        let Some(locked) = locked else { return Ok(()) };
        if locked.limit == libc::RLIM_INFINITY {
            return f.write_str("; locked memory: no limit");
        }
        write!(f, "; locked memory: limit {} (ulimit -l)", locked.limit)?;
        if let Some(pinned) = locked.pinned {
            write!(f, ", {pinned} pinned")?;
        }
        match locked.missing(*addr, *size) {
            // When the limit is exceeded, a device reports only ENOMEM.
            Some(missing) if failed.raw_errno() == Some(ENOMEM) => {
                write!(f, ", the limit is {missing} bytes too low")?;
                f.write_str(if locked.capable { " unless CAP_IPC_LOCK overrides it" } else { "" })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Errno;
    use crate::provider::handles::Why;
    use libc::{EFAULT, EOPNOTSUPP};
    use std::ffi::c_int;

    const LOCKED: Locked = Locked { limit: 65536, pinned: Some(8192), page: 4096, capable: false };

    fn refusal(errno: c_int, locked: Option<Locked>) -> Refusal {
        let failed = Failed { call: "ibv_reg_mr", why: Why::Errno(Errno(errno)) };
        Refusal { failed, addr: 0x10000, size: 65536, access: 7, odp: false, locked }
    }

    fn text(errno: c_int, locked: Locked) -> String {
        refusal(errno, Some(locked)).to_string()
    }

    #[test]
    fn the_limit_is_reported_with_what_is_missing() {
        assert_eq!(
            text(ENOMEM, LOCKED),
            "ibv_reg_mr(addr=0x10000, length=65536, access=0x7) failed: Cannot allocate memory (errno 12); on-demand \
             paging: not supported by the device; locked memory: limit 65536 (ulimit -l), 8192 pinned, the limit is 8192 bytes too low"
        );
        let capable = text(ENOMEM, Locked { capable: true, ..LOCKED });
        assert!(
            capable.ends_with(", the limit is 8192 bytes too low unless CAP_IPC_LOCK overrides it"),
            "{capable}"
        );
    }

    #[test]
    fn whole_pages_count() {
        let missing = |addr, size, limit| Locked { limit, ..LOCKED }.missing(addr, size);
        assert_eq!(missing(0x10000, 57344, 65536), None);
        assert_eq!(missing(0x10000, 57345, 65536), Some(4096));
        assert_eq!(missing(0x10001, 57344, 65536), Some(4096));
        assert_eq!(missing(0x10000, 57344, 65535), Some(4096));
        assert_eq!(missing(0x10fff, 2, 8192), Some(8192));
        assert_eq!(missing(usize::MAX, 2, 8192), None);
    }

    #[test]
    fn the_limit_is_blamed_only_where_it_is_the_reason() {
        for (errno, locked) in [
            (EFAULT, LOCKED),
            (ENOMEM, Locked { limit: 1 << 30, ..LOCKED }),
            (ENOMEM, Locked { pinned: None, ..LOCKED }),
        ] {
            let text = text(errno, locked);
            assert!(text.contains("; locked memory: limit ") && !text.contains("too low"), "{text}");
        }
        let unlimited = text(ENOMEM, Locked { limit: libc::RLIM_INFINITY, ..LOCKED });
        assert!(unlimited.ends_with("; locked memory: no limit"), "{unlimited}");
        let unpinned = refusal(ENOMEM, None).to_string();
        assert!(unpinned.ends_with("; on-demand paging: not supported by the device"), "{unpinned}");
    }

    #[test]
    fn on_demand_paging_is_reported() {
        let message = |access, odp| Refusal { access, odp, ..refusal(EOPNOTSUPP, None) }.to_string();
        assert!(
            message(7, true).ends_with("on-demand paging: not tried, only for memory that cannot be pinned")
        );
        assert!(
            message(7 | 64, true).ends_with(
                "access=0x47) failed: Operation not supported (errno 95); on-demand paging: tried"
            )
        );
    }

    #[test]
    fn the_kernels_status() {
        let text =
            b"Name:\tx\nVmLck:\t       4 kB\nVmPin:\t      12 kB\nCapPrm:\t0\nCapEff:\t0000000000004000\n";
        assert_eq!(of_status(text), (Some(12288), true));
        assert_eq!(of_status(b"VmPin:\t       0 kB\nCapEff:\t00000000a80425fb\n"), (Some(0), false));
        assert_eq!(of_status(b""), (None, false));
        assert_eq!(of_status(b"VmPin:\tmany kB\nCapEff:\tzz\n"), (None, false));
    }

    #[test]
    fn this_process_has_a_status() {
        let locked = Locked::now().unwrap();
        assert!(locked.pinned.is_some() && locked.page >= 4096);
    }
}
