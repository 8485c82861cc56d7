// SPDX-License-Identifier: BSD-3-Clause
//! The system calls with which two processes on one host share memory, and with which the soft provider
//! places data: each call is tried. The rings are passed as a file descriptor, so Yama's ptrace_scope does
//! not matter for them; it does for direct copies to other memory than that of memfds. A system call filter
//! (seccomp) matters for both.

use std::env;
use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwritev;

use super::report::{Remedy, Report};
use crate::system::System;

/// Tries a file in memory that can be sealed, and written to with pwritev(2).
fn memory() -> io::Result<()> {
    const PAGE: u64 = 4096;
    let file = memfd_create(c"rpma doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, PAGE)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
    pwritev(&file, &[IoSlice::new(&[7])], 0)?;
    Ok(())
}

/// The private directory of this user for the Unix sockets of listeners; it is created if it does not exist.
fn directory() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let first = if user == 0 { "/run/softverbs".into() } else { format!("/run/user/{user}/softverbs") };
    let mut result = Ok(());
    for path in [first, format!("/tmp/softverbs-{user}")] {
        result = match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => fs::symlink_metadata(&path).and_then(|about| {
                let is_private = about.is_dir() && about.uid() == user && about.mode() & 0o077 == 0;
                if is_private { Ok(()) } else { Err(io::Error::other(format!("{path} belongs to others"))) }
            }),
        };
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Whether a process that may inspect this one can see its descriptors.
fn descriptors() -> io::Result<()> {
    fs::read_dir(format!("/proc/{}/fd", std::process::id())).map(drop)
}

/// Tries a copy within this process through the kernel.
fn copy() -> io::Result<()> {
    let (from, mut to) = (7u8, 0u8);
    let source = libc::iovec { iov_base: (&raw const from).cast_mut().cast(), iov_len: 1 };
    let target = libc::iovec { iov_base: (&raw mut to).cast(), iov_len: 1 };
    let process = std::process::id() as libc::pid_t;
    // SAFETY: both parts point to a byte of this function.
    match unsafe { libc::process_vm_readv(process, &target, 1, &source, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

const DIRECTORY: &str = "a private directory for Unix sockets";

fn attempts() -> [(&'static str, io::Result<()>); 3] {
    [("memfd_create and pwritev", memory()), (DIRECTORY, directory()), ("/proc/PID/fd", descriptors())]
}

pub(super) fn check(system: &System, report: &mut Report) {
    let filter = match system.status("Seccomp").as_deref() {
        Some("0") => "no seccomp filter",
        Some(_) => "a seccomp filter",
        None => "no information about seccomp",
    };
    let scope = system.read("/proc/sys/kernel/yama/ptrace_scope");
    let yama = scope.as_ref().map_or("no Yama".to_owned(), |scope| format!("Yama {scope}"));
    let around = format!("{filter}, {yama}");
    match copy() {
        Ok(()) => report.ok("placement", format!("process_vm_readv works ({around})")),
        Err(why) => report.warn(
            "placement",
            format!("process_vm_readv: {why} ({around}): the soft provider copies data itself, so unmapping registered memory can crash the process"),
            Remedy::hint("run the container with --cap-add=SYS_PTRACE"),
        ),
    }
    let setting = env::var("SOFTVERBS_LOCAL").unwrap_or_default();
    // On unless it is switched off (softverbs(7)).
    let is_on = setting != "0";
    let failed = attempts().into_iter().find_map(|(name, result)| Some((name, result.err()?)));
    match failed {
        Some((name, why)) if is_on => report.warn(
            "same-host",
            format!("{name}: {why} ({around}): connections on this host use TCP"),
            Remedy::hint(if name == DIRECTORY {
                "create the directory with mode 0700"
            } else {
                "run the container with --security-opt seccomp=PROFILE and a profile that permits these calls"
            }),
        ),
        Some((name, why)) => report.ok(
            "same-host",
            format!("connections on this host use TCP because of SOFTVERBS_LOCAL=0; shared memory is not possible: {name}: {why}"),
        ),
        None if is_on => {
            let limit = match scope.as_deref().map(str::trim) {
                None | Some("0") => String::new(),
                _ if setting == "ring" => String::new(),
                Some("3") => format!("; {yama}: they access only memory of sealed memfds directly"),
                Some(_) => format!("; {yama}: without CAP_SYS_PTRACE they access only memory of sealed memfds directly"),
            };
            report.ok("same-host", format!("two processes of one user on this host that may inspect each other can use shared memory instead of TCP or UDP{limit}"));
        }
        None => report.ok("same-host", "connections on this host use TCP because of SOFTVERBS_LOCAL=0"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::text_of;
    use super::*;
    use crate::system::Fake;

    #[test]
    fn what_is_tried_works_or_is_said() {
        let fake = Fake::new(
            "same-host",
            &[("/proc/self/status", "Seccomp:\t2\n"), ("/proc/sys/kernel/yama/ptrace_scope", "1\n")],
        );
        let text = text_of(|report| check(&fake.system, report));
        assert!(text.contains("a seccomp filter, Yama 1") && text.contains("same-host"), "{text}");
        assert_eq!(copy().is_ok(), text.starts_with("ok    placement"), "{text}");
        let works = attempts().into_iter().all(|(_, result)| result.is_ok());
        assert_eq!(works, text.contains("can use shared memory"), "{text}");
        assert_eq!(works, text.contains("; Yama 1: without CAP_SYS_PTRACE"), "{text}");
    }
}
