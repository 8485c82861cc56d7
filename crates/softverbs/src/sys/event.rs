// SPDX-License-Identifier: BSD-3-Clause
//! Descriptors that wake a thread: eventfds, timers, epoll.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::{Errno, again, check, errno, owned, to_errno};
use crate::cancel::whole;

/// A wait was rounded up to milliseconds ([`Epoll::wait`] before Linux 5.11).
static IN_MILLISECONDS: AtomicBool = AtomicBool::new(false);

/// Whether a wait ends at its deadline, as far as is known.
pub(crate) fn waits_are_precise() -> bool {
    !IN_MILLISECONDS.load(Ordering::Relaxed)
}

/// An eventfd that counts events: each read takes one, and the descriptor is readable while any are left.
pub(crate) fn event_counter() -> Result<OwnedFd, Errno> {
    eventfd(libc::EFD_SEMAPHORE)
}

/// An eventfd that wakes a sleeping epoll; reading it clears it.
pub(crate) fn event_flag() -> Result<OwnedFd, Errno> {
    eventfd(libc::EFD_NONBLOCK)
}

/// By the function of the C library, which a program may replace; rustix calls the kernel by number.
fn eventfd(flags: libc::c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: eventfd takes no pointers.
    owned(unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) })
}

thread_local! {
    static RAISED: Cell<u32> = const { Cell::new(0) };
}

/// Number of events that this thread has raised: if it changes, the thread may have woken another one.
pub(crate) fn events_raised() -> u32 {
    RAISED.get()
}

/// A timer as a descriptor.
pub(crate) fn timer() -> Result<OwnedFd, Errno> {
    to_errno(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK))
}

/// Has a timer expire once, so long from now.
pub(crate) fn timer_start(fd: &OwnedFd, after: Duration) -> Result<(), Errno> {
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = Timespec {
        tv_sec: after.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: after.subsec_nanos().into(),
    };
    let time = Itimerspec { it_interval, it_value };
    to_errno(retry_on_intr(|| timerfd_settime(fd, TimerfdTimerFlags::empty(), &time))).map(drop)
}

/// Adds one to an eventfd. The counter cannot overflow in practice, so the write does not block.
pub(crate) fn event_raise(fd: &OwnedFd) {
    RAISED.set(RAISED.get().wrapping_add(1));
    let _ = whole(|| retry_on_intr(|| rustix::io::write(fd, &1u64.to_ne_bytes())));
}

/// Reads an eventfd; blocks unless the descriptor has O_NONBLOCK.
pub(crate) fn event_take(fd: &OwnedFd) -> Result<(), Errno> {
    to_errno(rustix::io::read(fd, &mut [0; size_of::<u64>()])).map(drop)
}

/// Reads an eventfd if its count is not zero. Never blocks, whatever the flags of the descriptor.
pub(crate) fn event_try_take(fd: &OwnedFd) {
    let mut count = 0u64;
    let iov = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
    // SAFETY: one iovec of eight writable bytes; offset -1 means "no position", as for read.
    whole(|| again(|| unsafe { libc::preadv2(fd.as_raw_fd(), &iov, 1, -1, libc::RWF_NOWAIT) }));
}

/// An epoll instance; each descriptor is registered with a 64-bit token. Descriptors are numbers here,
/// because the sockets are behind locks that must not be held in these calls.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self, Errno> {
        to_errno(epoll::create(epoll::CreateFlags::CLOEXEC)).map(Self)
    }

    fn ctl(&self, op: libc::c_int, fd: RawFd, events: u32, token: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` is a valid epoll_event for the duration of the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &mut event) }).map(drop)
    }

    pub(crate) fn add(&self, fd: RawFd, events: u32, token: u64) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    pub(crate) fn modify(&self, fd: RawFd, events: u32, token: u64) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        // An error means that the descriptor is not registered, which is the purpose of the call.
        let _ = self.ctl(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// The descriptor of the epoll instance, readable while a registered descriptor is ready.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Waits up to `timeout` (`None`: without limit) and returns the number of `events` filled in.
    pub(crate) fn wait(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> usize {
        let (fd, len) = (self.0.as_raw_fd(), events.len() as i32);
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
            let time = libc::timespec {
                tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            let no_mask: *const libc::sigset_t = std::ptr::null();
            // SAFETY: the kernel writes at most `len` entries, the length of the slice; `time` is a valid
            // timespec that outlives the call, and the signal mask is NULL.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    fd,
                    events.as_mut_ptr(),
                    len,
                    &raw const time,
                    no_mask,
                    8usize,
                )
            };
            if n >= 0 || errno() != libc::ENOSYS {
                return usize::try_from(n).unwrap_or(0);
            }
            IN_MILLISECONDS.store(true, Ordering::Relaxed);
        }
        // Before Linux 5.11: milliseconds, rounded up, so that the wait does not end before the deadline.
        let timeout = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: the kernel writes at most `len` entries, the length of the slice.
        let n = whole(|| unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), len, timeout) });
        usize::try_from(n).unwrap_or(0)
    }
}

/// Waits until one of the descriptors is ready, up to so many milliseconds (-1: without limit), and returns
/// how many are. EINTR.
pub(super) fn poll(fds: &mut [libc::pollfd], timeout_ms: libc::c_int) -> Result<usize, Errno> {
    // SAFETY: the pointer and the count are those of the slice, which is writable.
    let ready = check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) })?;
    Ok(ready as usize)
}

/// What of `events` a descriptor is ready for, and errors; 0 if that is nothing within `timeout`.
fn ready_for(fd: RawFd, events: libc::c_short, timeout: Duration) -> libc::c_short {
    let timeout = timeout.as_millis().try_into().unwrap_or(libc::c_int::MAX);
    let mut fds = [libc::pollfd { fd, events, revents: 0 }];
    whole(|| poll(&mut fds, timeout)).map_or(0, |_| fds[0].revents)
}

/// Whether a read of the descriptor, or a wait for it, would find something.
pub(crate) fn is_readable(fd: RawFd) -> bool {
    is_readable_within(fd, Duration::ZERO)
}

/// As [`is_readable`]; waits so long for that.
pub(crate) fn is_readable_within(fd: RawFd, timeout: Duration) -> bool {
    ready_for(fd, libc::POLLIN, timeout) & libc::POLLIN != 0
}

/// Whether a write to the descriptor would not block, and would not fail either as far as is known: a socket
/// is connected.
pub(crate) fn is_writable(fd: RawFd) -> bool {
    ready_for(fd, libc::POLLOUT, Duration::ZERO) == libc::POLLOUT
}

/// Whether a descriptor has O_NONBLOCK.
pub(crate) fn is_non_blocking(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Switches a descriptor to O_NONBLOCK, as programs do.
#[cfg(test)]
pub(crate) fn set_non_blocking(fd: impl AsFd) {
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).unwrap();
}
