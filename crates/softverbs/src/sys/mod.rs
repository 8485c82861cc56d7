// SPDX-License-Identifier: BSD-3-Clause
//! The system calls of softverbs, each in a function with a contract that its callers can meet.
//!
//! Most are made by rustix, built to call the functions of the C library, which programs and sanitizers may
//! replace. Called here directly are those that rustix lacks, those whose memory the program may unmap or a
//! peer may change meanwhile, so that there must not be a slice of it, and those that rustix makes in another
//! way: eventfd by its number, ppoll for poll, mmap64 for mmap, posix_madvise for madvise, preadv64v2 for
//! preadv2, getrlimit64 without a look at the result, epoll_pwait2 without another way for kernels before
//! 5.11. Its memfd_create looks for the function with dlsym(3), which waits while another thread is in
//! dlopen(3); a constructor that runs there may wait for the engine.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

mod datagram;
mod event;
mod interface;
mod memory;
mod netlink;
mod socket;
#[cfg(test)]
pub(crate) mod tests;
mod thread;

pub(crate) use datagram::*;
pub(crate) use event::*;
pub(crate) use interface::*;
pub(crate) use memory::*;
pub(crate) use netlink::*;
pub(crate) use socket::*;
pub(crate) use thread::*;

/// A positive error number.
pub(crate) type Errno = i32;

/// The calling thread's `errno`.
pub(crate) fn errno() -> Errno {
    errno_of(&io::Error::last_os_error())
}

/// The number of an error that std reports.
pub(crate) fn errno_of(e: &io::Error) -> Errno {
    e.raw_os_error().unwrap_or(libc::EIO)
}

/// What cannot be done, and why, for the log.
pub(crate) fn failed(what: &str, e: Errno) -> String {
    format!("cannot {what}: {}", io::Error::from_raw_os_error(e))
}

/// A result of rustix, with the number of its error.
pub(crate) fn to_errno<T>(result: rustix::io::Result<T>) -> Result<T, Errno> {
    result.map_err(rustix::io::Errno::raw_os_error)
}

/// Stores `e` in the calling thread's `errno`, as a C function does before it returns NULL or -1.
pub(crate) fn set_errno(e: Errno) {
    // SAFETY: __errno_location returns the address of this thread's own errno, valid for the life of the
    // thread.
    unsafe { *libc::__errno_location() = e }
}

fn check(ret: libc::c_int) -> Result<libc::c_int, Errno> {
    if ret < 0 { Err(errno()) } else { Ok(ret) }
}

/// The length that a system call returns.
pub(crate) fn check_len(ret: isize) -> Result<usize, Errno> {
    usize::try_from(ret).map_err(|_| errno())
}

/// Makes a system call that does not wait for events, until no signal interrupts it.
#[inline(always)]
pub(crate) fn again<T: Default + PartialOrd>(mut call: impl FnMut() -> T) -> T {
    loop {
        let ret = call();
        if ret >= T::default() || errno() != libc::EINTR {
            return ret;
        }
    }
}

fn owned(fd: libc::c_int) -> Result<OwnedFd, Errno> {
    let fd = check(fd)?;
    // SAFETY: every caller passes a descriptor that the kernel has just created, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this process has more rights than the user who started it: a set-user-ID or set-group-ID program,
/// or one with file capabilities. secure_getenv(3) has no value in such a process.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: getauxval reads a vector that the kernel has made before the program started, and that does not
    // change.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The effective user of this process.
pub(crate) fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process may bind to ports below 1024: CAP_NET_BIND_SERVICE.
pub(crate) fn may_bind_any_port() -> bool {
    const NET_BIND_SERVICE: u64 = 1 << 10;
    let status =
        crate::cancel::whole(|| std::fs::read_to_string("/proc/thread-self/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & NET_BIND_SERVICE != 0)
}

/// How many descriptors this process may have open: RLIMIT_NOFILE.
pub(crate) fn max_descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// The lowest number that a new descriptor can have; `None` if there is none left.
pub(crate) fn lowest_descriptor() -> Option<usize> {
    event_flag().ok().and_then(|fd| usize::try_from(fd.as_raw_fd()).ok())
}
