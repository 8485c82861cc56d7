// SPDX-License-Identifier: BSD-3-Clause
//! Waiting until a connection or a listener has something to do: by the reactor of a runtime, or by a thread.
//!
//! Whoever waits leaves a waker and drives the object once more. The reactor's wake-up drives the object
//! itself and wakes those whose results are there: so operations that nobody awaits make progress, and a
//! waker that nobody polls again delays no other one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

use crate::error::{Error, ErrorKind, Result};

/// An object with descriptors that are readable when it has something to do.
pub(crate) trait Driven: Send + Sync + 'static {
    /// Does everything that there is to do, and wakes those whose results are there.
    fn drive(&self);
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
    fn registration(&self) -> &Registration;
}

/// How a reactor watches an object.
#[derive(Default)]
pub(crate) struct Registration {
    #[cfg(feature = "tokio")]
    tokio: OnceLock<tokio_reactor::Watched>,
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
/// watches it: the program does, by its descriptor.
pub(crate) fn watch<D: Driven>(object: &Arc<D>) {
    #[cfg(feature = "tokio")]
    tokio_reactor::watch(object);
    #[cfg(not(feature = "tokio"))]
    object.drive();
}

#[cfg(feature = "tokio")]
mod tokio_reactor {
    use super::*;
    use std::sync::Weak;
    use std::task::{Context, Poll};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(super) struct Watched {
        fds: Vec<AsyncFd<OwnedFd>>,
        waker: Waker,
    }

    /// Drives an object when the reactor wakes it.
    struct Driver<D>(Weak<D>);

    impl<D: Driven> Wake for Driver<D> {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            if let Some(object) = self.0.upgrade() {
                match object.registration().tokio.get() {
                    Some(watched) => drive(&*object, watched),
                    None => object.drive(),
                }
            }
        }
    }

    fn drive<D: Driven>(object: &D, watched: &Watched) {
        let mut context = Context::from_waker(&watched.waker);
        loop {
            // What becomes ready from here on is seen by the drive, or wakes again.
            let mut was_ready = false;
            for fd in &watched.fds {
                if let Poll::Ready(Ok(mut guard)) = fd.poll_read_ready(&mut context) {
                    guard.clear_ready();
                    was_ready = true;
                }
            }
            object.drive();
            if !was_ready {
                return;
            }
        }
    }

    pub(super) fn watch<D: Driven>(object: &Arc<D>) {
        let registration = object.registration();
        if registration.tokio.get().is_none() && tokio::runtime::Handle::try_current().is_ok() {
            // Duplicates, so that the reactor never has a descriptor that was closed.
            let register = |fd: BorrowedFd<'_>| {
                let fd = fd.try_clone_to_owned()?;
                // SAFETY: the AsyncFd owns the descriptor, so it is open until that is dropped, and always
                // the same.
                let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
                registered.map_err(|error| error.into_parts().1)
            };
            // Without a free descriptor nothing watches it; two threads may do this at once, and one is kept.
            let fds: std::io::Result<_> = object.fds().into_iter().map(register).collect();
            if let Ok(fds) = fds {
                let waker = Waker::from(Arc::new(Driver(Arc::downgrade(object))));
                let _ = registration.tokio.set(Watched { fds, waker });
            }
        }
        match registration.tokio.get() {
            Some(watched) => drive(&**object, watched),
            None => object.drive(),
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

/// Waits on this thread until `check`, which keeps the waker, has a result.
///
/// Each waiting thread watches the object's descriptors and one of its own, so that it does not matter which
/// of them drives the object.
pub(crate) fn block_on<D: Driven, T>(object: &D, mut check: impl FnMut(&Waker) -> Option<T>) -> Result<T> {
    let failed =
        |errno| Error::new(ErrorKind::OutOfMemory, format_args!("waiting for a connection: {errno}"));
    let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
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
        let mut fds: Vec<_> =
            object.fds().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.push(PollFd::new(&unpark.0, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let _ = rustix::io::read(&unpark.0, &mut [0; 8]);
    }
}
