// SPDX-License-Identifier: BSD-3-Clause
//! Waiting until a connection or a listener has something to do: by the reactor of a runtime, or by a thread.
//!
//! A waiting task registers a waker and drives the object once more. The reactor's wake-up drives the object
//! itself and wakes the tasks whose results are available: so operations that are not awaited make progress,
//! and a task that is not polled again delays no other one.

#[cfg(any(feature = "tokio", feature = "async-io"))]
mod reactor;
#[cfg(any(feature = "tokio", feature = "async-io"))]
mod watched;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

use crate::error::{Error, ErrorKind, Result};
#[cfg(any(feature = "tokio", feature = "async-io"))]
use crate::trace;

/// An object with descriptors that are readable when it has something to do.
pub(crate) trait Driven: Send + Sync + 'static {
    /// Makes all progress that is possible, and wakes the tasks whose results are available.
    fn drive(&self);
    /// Wakes all waiting tasks, so that they call [`watch`] again.
    fn wake_all(&self);
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
    fn registration(&self) -> &Registration;
}

/// How a reactor watches an object.
#[derive(Default)]
pub(crate) struct Registration {
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    reactor: watched::Registered,
    /// All descriptors in one, for programs with a loop of their own.
    joint: OnceLock<OwnedFd>,
}

impl Registration {
    /// One descriptor that is readable when one of the object's is.
    pub(crate) fn joint(&self, fds: &[BorrowedFd<'_>]) -> Result<BorrowedFd<'_>> {
        if let Some(joint) = self.joint.get() {
            return Ok(joint.as_fd());
        }
        let make = || {
            let joint = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for fd in fds {
                epoll::add(&joint, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            }
            Ok(joint)
        };
        let joint = make().map_err(|errno: rustix::io::Errno| {
            Error::new(ErrorKind::OutOfMemory, format_args!("no descriptor to wait for: {errno}"))
        })?;
        Ok(self.joint.get_or_init(|| joint).as_fd())
    }
}

/// Drives the object, and has the reactor of the current runtime do so from now on. Without a runtime nothing
/// watches it: the program does, by its descriptor. `waker` is woken at once if the runtime cannot watch it
/// because no descriptor is free.
pub(crate) fn watch<D: Driven>(object: &Arc<D>, waker: &Waker) {
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    watched::watch(object, waker);
    #[cfg(not(any(feature = "tokio", feature = "async-io")))]
    {
        let _ = waker;
        object.drive();
    }
}

/// Runs a call that may block: by a thread of the current runtime, if it has some, else by this one.
pub(crate) async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    if let Some(reactor) = reactor::Reactor::current() {
        return reactor.unblock(trace::in_span(call)).await;
    }
    Ok(call())
}

/// Polls on behalf of a task: one that always finds a result lets others run when its budget is used up.
pub(crate) fn in_budget<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    #[cfg(feature = "tokio")]
    {
        let unit = std::task::ready!(tokio::task::coop::poll_proceed(context));
        let polled = poll(context);
        if polled.is_ready() {
            unit.made_progress();
        }
        polled
    }
    #[cfg(not(feature = "tokio"))]
    poll(context)
}

/// Wakes a thread that waits for descriptors.
struct Unpark(OwnedFd);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // It fails only if it has been woken very often already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

fn not_waited(errno: rustix::io::Errno) -> Error {
    Error::new(ErrorKind::OutOfMemory, format_args!("waiting for a connection: {errno}"))
}

/// Waits until one of these descriptors is readable, or a signal arrives.
pub(crate) fn wait_for<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> Result<()> {
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(not_waited(errno)),
    }
}

/// Waits on this thread until `check`, which keeps the waker, has a result.
///
/// Each waiting thread watches the object's descriptors and one of its own, so that it does not matter which
/// of them drives the object.
pub(crate) fn block_on<D: Driven, T>(object: &D, mut check: impl FnMut(&Waker) -> Option<T>) -> Result<T> {
    let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(not_waited)?;
    let unpark = Arc::new(Unpark(own));
    let waker = Waker::from(unpark.clone());
    loop {
        if let Some(done) = check(&waker) {
            return Ok(done);
        }
        object.drive();
        if let Some(done) = check(&waker) {
            return Ok(done);
        }
        wait_for(object.fds().into_iter().chain([unpark.0.as_fd()]))?;
        let _ = rustix::io::read(&unpark.0, &mut [0; 8]);
    }
}
