// SPDX-License-Identifier: BSD-3-Clause
//! Waiting until a connection or a listener has something to do: by the reactor of a runtime, or by a thread.
//!
//! A waiting task registers a waker and drives the object once more. The reactor's wake-up drives the object
//! itself and wakes the tasks whose results are available: so operations that are not awaited make progress,
//! and a task that is not polled again delays no other one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

use crate::error::{Error, ErrorKind, Result};

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
    #[cfg(feature = "tokio")]
    tokio: tokio_reactor::Registered,
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
    #[cfg(feature = "tokio")]
    tokio_reactor::watch(object, waker);
    #[cfg(not(feature = "tokio"))]
    {
        let _ = waker;
        object.drive();
    }
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

#[cfg(feature = "tokio")]
mod tokio_reactor {
    use super::*;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// The reactor that watches an object, if one does.
    #[derive(Default)]
    pub(crate) struct Registered(Mutex<Option<Arc<Watched>>>);

    struct Watched {
        fds: Vec<AsyncFd<OwnedFd>>,
        waker: Waker,
    }

    impl Registered {
        fn lock(&self) -> MutexGuard<'_, Option<Arc<Watched>>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn get(&self) -> Option<Arc<Watched>> {
            self.lock().clone()
        }

        /// Keeps a registration, unless another thread was faster; the one that is kept.
        fn keep(&self, new: Watched) -> Arc<Watched> {
            let new = Arc::new(new);
            self.lock().get_or_insert_with(|| new.clone()).clone()
        }

        /// Drops a registration whose runtime has ended.
        fn drop_ended(&self, ended: &Arc<Watched>) {
            let dropped = self.lock().take_if(|known| Arc::ptr_eq(known, ended));
            drop(dropped);
        }
    }

    /// Drives an object when the reactor wakes it.
    struct Driver<D>(Weak<D>);

    impl<D: Driven> Wake for Driver<D> {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            let Some(object) = self.0.upgrade() else { return };
            match object.registration().tokio.get() {
                Some(watched) => {
                    if !drive(&*object, &watched) {
                        // Those who wait in another runtime have its reactor watch the object from now on.
                        object.registration().tokio.drop_ended(&watched);
                        object.wake_all();
                    }
                }
                None => object.drive(),
            }
        }
    }

    /// Drives an object, and registers its waker for the next readiness. False if the runtime has ended.
    fn drive<D: Driven>(object: &D, watched: &Watched) -> bool {
        let mut context = Context::from_waker(&watched.waker);
        loop {
            // What becomes ready from here on is seen by the drive, or wakes again.
            let (mut was_ready, mut is_alive) = (false, true);
            for fd in &watched.fds {
                // Not from the budget of a task: without any left, this waker would be woken at once, by the
                // poll itself.
                let ready = tokio::task::coop::unconstrained(poll_fn(|context| fd.poll_read_ready(context)));
                match pin!(ready).poll(&mut context) {
                    Poll::Ready(Ok(mut guard)) => {
                        guard.clear_ready();
                        was_ready = true;
                    }
                    Poll::Ready(Err(_)) => is_alive = false,
                    Poll::Pending => {}
                }
            }
            object.drive();
            if !was_ready || !is_alive {
                return is_alive;
            }
        }
    }

    /// Registers the object with the reactor of the current runtime.
    fn register<D: Driven>(object: &Arc<D>) -> std::io::Result<Watched> {
        // Duplicates, so that the reactor never has a descriptor that was closed.
        let register = |fd: BorrowedFd<'_>| {
            let fd = fd.try_clone_to_owned()?;
            // SAFETY: the AsyncFd owns the descriptor, so it is open until that is dropped, and always the
            // same.
            let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
            registered.map_err(|error| error.into_parts().1)
        };
        let fds = object.fds().into_iter().map(register).collect::<std::io::Result<_>>()?;
        Ok(Watched { fds, waker: Waker::from(Arc::new(Driver(Arc::downgrade(object)))) })
    }

    pub(super) fn watch<D: Driven>(object: &Arc<D>, waker: &Waker) {
        let registered = &object.registration().tokio;
        if let Some(watched) = registered.get() {
            if drive(&**object, &watched) {
                return;
            }
            registered.drop_ended(&watched);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return object.drive();
        }
        match register(object) {
            Ok(watched) => {
                drive(&**object, &registered.keep(watched));
            }
            Err(_) => {
                // Without a free descriptor nothing watches it, so the task polls.
                object.drive();
                waker.wake_by_ref();
            }
        }
    }
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
