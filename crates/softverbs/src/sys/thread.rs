// SPDX-License-Identifier: BSD-3-Clause
//! What the kernel knows of a thread: signals, processors, time slices.

use std::cell::Cell;
use std::num::NonZeroU64;

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::{Errno, check};

/// What a thread brings upon itself, and not while it waits. Programs that report a crash handle these, often
/// without SA_RESTART.
const OWN_FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Whether a read(2) would be restarted after any signal that the program handles, because all its handlers
/// have SA_RESTART. poll(2), which softverbs calls instead, is never restarted by the kernel.
pub(crate) fn handlers_restart() -> bool {
    let of_libc = 32..=33;
    (1..=64).filter(|signal| !of_libc.contains(signal) && !OWN_FAULTS.contains(signal)).all(|signal| {
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: with a NULL `act` the call only writes the current action to `action`.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } == 0;
        let handled = known && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

fn usage(whom: libc::c_int) -> libc::rusage {
    // SAFETY: an all-zero rusage is a valid object to fill, and the call is given just that.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whom, &mut usage);
        usage
    }
}

/// How often other threads of this process had to leave their processor to another thread.
pub(crate) fn preemptions() -> i64 {
    usage(libc::RUSAGE_SELF).ru_nivcsw - usage(libc::RUSAGE_THREAD).ru_nivcsw
}

/// How often this thread has slept. That it has yielded does not count.
#[cfg(test)]
pub(crate) fn sleeps() -> i64 {
    usage(libc::RUSAGE_THREAD).ru_nvcsw
}

/// Sets the CPU affinity of this thread to that of the process's main thread: the thread that created it may
/// be pinned.
pub(crate) fn run_where_the_process_may() {
    if let Ok(set) = sched_getaffinity(Some(getpid())) {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Requests the shortest time slices for a SCHED_OTHER thread (Linux 6.12; without effect before).
pub(crate) fn ask_for_short_slices() {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SHORTEST_NS: u64 = 100_000;
    let size = size_of::<Attr>() as u32;
    let mut attr = Attr::default();
    // SAFETY: the kernel writes at most `size` bytes to `attr`, and reads as many from it. Thread 0 is the
    // calling thread. Only the slice differs from the attributes that were read; if the kernel rejects them,
    // nothing changes.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) == 0 && attr.policy == 0 {
            attr.runtime = SHORTEST_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
    }
}

/// Requests that waits of this thread end at their deadline: by default the kernel adds up to 50 us.
pub(crate) fn ask_for_precise_waits() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

const NOW: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// While this exists, handlers of the program run in this thread only in [`Self::wait_readable`] and in
/// [`Self::run_handlers`], which then return EINTR, also for a signal that arrived before the call. Except
/// those of faults ([`OWN_FAULTS`]). A thread that is cancelled in a wait ends with its signals blocked.
pub(crate) struct BlockedSignals {
    /// The mask of the program.
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// Blocks all signals but those that the thread brings upon itself.
    pub(crate) fn new() -> Self {
        let mut most = no_signals();
        // SAFETY: the set is writable.
        unsafe { libc::sigfillset(&mut most) };
        for fault in OWN_FAULTS {
            // SAFETY: the set is initialised and writable.
            unsafe { libc::sigdelset(&mut most, fault) };
        }
        Self { before: mask(libc::SIG_BLOCK, &most) }
    }

    /// Waits until one of the descriptors is ready or a handler has run: EINTR.
    pub(crate) fn wait_readable(&self, fds: &mut [libc::pollfd]) -> Result<(), Errno> {
        self.poll(fds, std::ptr::null())
    }

    /// Runs the handlers of signals that have arrived: EINTR if there were any.
    pub(crate) fn run_handlers(&self) -> Result<(), Errno> {
        self.poll(&mut [], &NOW)
    }

    fn poll(&self, fds: &mut [libc::pollfd], timeout: *const libc::timespec) -> Result<(), Errno> {
        // SAFETY: the pointer and the count are those of the slice, which is writable; the callers pass NULL
        // or a valid timeout; the mask is valid.
        check(unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, &self.before) })
            .map(drop)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        mask(libc::SIG_SETMASK, &self.before);
    }
}

/// Runs `f` with all signals blocked in this thread, so that a thread that it creates never runs signal
/// handlers of the program.
pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    let mut all = no_signals();
    // SAFETY: the set is writable.
    unsafe { libc::sigfillset(&mut all) };
    let before = mask(libc::SIG_SETMASK, &all);
    let result = f();
    mask(libc::SIG_SETMASK, &before);
    result
}

thread_local! {
    /// This is a thread of the library, which blocks all signals for as long as it runs.
    static IS_LIBRARY_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one of the library. It was created within [`without_signals`].
pub(crate) fn mark_library_thread() {
    IS_LIBRARY_THREAD.set(true);
}

/// Whether this is a thread of the library, which blocks all signals for as long as it runs.
pub(crate) fn is_library_thread() -> bool {
    IS_LIBRARY_THREAD.get()
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: all-zero is a valid sigset_t: the empty one.
    unsafe { std::mem::zeroed() }
}

fn mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = no_signals();
    // SAFETY: both sets are valid, and the second one is writable.
    unsafe { libc::pthread_sigmask(how, set, &mut before) };
    before
}

/// Makes a system call that is not to end the program because of RLIMIT_FSIZE: it fails with EFBIG, and the
/// signal that the kernel sends to this thread then is taken back.
pub(crate) fn without_sigxfsz<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    if is_library_thread() {
        return call();
    }
    let mut signal = no_signals();
    // SAFETY: the set is initialised and writable.
    unsafe { libc::sigaddset(&mut signal, libc::SIGXFSZ) };
    let before = mask(libc::SIG_BLOCK, &signal);
    let result = call();
    if matches!(result, Err(libc::EFBIG)) {
        // SAFETY: the set and the time are valid; no information about the signal is requested.
        unsafe { libc::sigtimedwait(&signal, std::ptr::null_mut(), &NOW) };
    }
    mask(libc::SIG_SETMASK, &before);
    result
}
