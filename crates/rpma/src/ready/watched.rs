// SPDX-License-Identifier: BSD-3-Clause
//! Objects that a reactor watches.

#![forbid(unsafe_code)]

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::Driven;
use super::reactor::{Reactor, Readable};

/// The reactor that watches an object, if one does.
#[derive(Default)]
pub(super) struct Registered(Mutex<Option<Arc<Watched>>>);

struct Watched {
    fds: Vec<Readable>,
    waker: Waker,
}

impl Registered {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Watched>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Option<Arc<Watched>> {
        self.lock().clone()
    }

    /// Keeps a registration unless another thread has registered the object meanwhile, and returns the one
    /// that is kept.
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

/// Drives the object, and registers it with the reactor of the current runtime unless one watches it.
pub(super) fn watch<D: Driven>(object: &Arc<D>, waker: &Waker) {
    let registered = &object.registration().reactor;
    if let Some(watched) = registered.get() {
        if drive(&**object, &watched) {
            return;
        }
        registered.drop_ended(&watched);
    }
    let Some(reactor) = Reactor::current() else { return object.drive() };
    match register(object, reactor) {
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

fn register<D: Driven>(object: &Arc<D>, reactor: Reactor) -> io::Result<Watched> {
    // Duplicates, so that the reactor never has a descriptor that was closed.
    let register = |fd: std::os::fd::BorrowedFd<'_>| reactor.register(fd.try_clone_to_owned()?);
    let fds = object.fds().into_iter().map(register).collect::<io::Result<_>>()?;
    Ok(Watched { fds, waker: Waker::from(Arc::new(Driver(Arc::downgrade(object)))) })
}

/// Drives an object, and registers its waker for the next readiness. False if the runtime has ended.
fn drive<D: Driven>(object: &D, watched: &Watched) -> bool {
    let mut context = Context::from_waker(&watched.waker);
    loop {
        // What becomes ready from here on is seen by the drive, or wakes again.
        let (mut was_ready, mut is_alive) = (false, true);
        for fd in &watched.fds {
            match fd.poll(&mut context) {
                Poll::Ready(Ok(())) => was_ready = true,
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

/// Drives an object when the reactor wakes it.
struct Driver<D>(Weak<D>);

impl<D: Driven> Wake for Driver<D> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(object) = self.0.upgrade() else { return };
        let registered = &object.registration().reactor;
        match registered.get() {
            Some(watched) => {
                if !drive(&*object, &watched) {
                    // Those who wait in another runtime have its reactor watch the object from now on.
                    registered.drop_ended(&watched);
                    object.wake_all();
                }
            }
            None => object.drive(),
        }
    }
}
