// SPDX-License-Identifier: BSD-3-Clause
//! Waits that Ctrl-C interrupts, so that the results so far can be printed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Instant;

/// Readable when SIGINT or SIGTERM is pending.
static SIGNALS: OnceLock<OwnedFd> = OnceLock::new();

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Ready,
    Timeout,
    /// By SIGINT or SIGTERM; each later wait ends in the same way.
    Interrupted,
}

/// From now on SIGINT and SIGTERM end a wait instead of the process. Existing threads must block them.
pub(crate) fn catch() -> io::Result<()> {
    // SAFETY: an all-zero sigset_t is valid, and sigemptyset empties it; the calls write only to it. Only
    // this function has the new descriptor.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // A second call keeps the first descriptor.
    let _ = SIGNALS.set(fd);
    Ok(())
}

/// Waits until one of the descriptors is readable, or until the given time. The signal stays pending, so that
/// later waits end at once as well.
pub(crate) fn wait(fds: &[RawFd], until: Option<Instant>) -> io::Result<Wake> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // poll(2) ignores a negative descriptor.
    let signals = SIGNALS.get().map_or(-1, AsRawFd::as_raw_fd);
    let mut polled: Vec<libc::pollfd> =
        std::iter::once(entry(signals)).chain(fds.iter().copied().map(entry)).collect();
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the pointer and length are those of a local array; the timeout is NULL or local; the mask
        // is NULL.
        let ready = unsafe {
            libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, std::ptr::null())
        };
        return match ready {
            0 => Ok(Wake::Timeout),
            1.. if polled[0].revents != 0 => Ok(Wake::Interrupted),
            1.. => Ok(Wake::Ready),
            _ => match io::Error::last_os_error() {
                why if why.kind() == io::ErrorKind::Interrupted => continue,
                why => Err(why),
            },
        };
    }
}

/// Whether Ctrl-C was pressed.
pub(crate) fn is_pending() -> bool {
    wait(&[], Some(Instant::now())).is_ok_and(|wake| wake == Wake::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn ready_or_too_late() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let soon = || Some(Instant::now() + Duration::from_millis(10));
        assert_eq!(wait(&[b.as_raw_fd()], soon()).unwrap(), Wake::Timeout);
        a.write_all(b"x").unwrap();
        assert_eq!(wait(&[b.as_raw_fd()], None).unwrap(), Wake::Ready);
        assert_eq!(wait(&[], soon()).unwrap(), Wake::Timeout);
    }
}
