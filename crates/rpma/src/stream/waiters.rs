// SPDX-License-Identifier: BSD-3-Clause
//! The futures that wait for a stream of an acceptor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The wakers of all futures that wait. As a waker, it wakes all of them.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// The number of the next future.
    next: u64,
    /// By the number of the future: several of one task have wakers that are the same.
    wakers: Vec<(u64, Waker)>,
}

/// A future that waits until this is dropped.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    number: u64,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waiter(&self) -> Waiter<'_> {
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        Waiter { waiters: self, number }
    }

    pub(super) fn wake_all(&self) {
        let wakers = std::mem::take(&mut self.lock().wakers);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    #[cfg(all(test, feature = "soft"))]
    pub(super) fn count(&self) -> usize {
        self.lock().wakers.len()
    }
}

impl Waiter<'_> {
    /// `waker` is woken by the next wake-up, instead of an earlier one.
    pub(super) fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiters.lock();
        let replaced = match waiting.wakers.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                waiting.wakers.push((self.number, waker.clone()));
                None
            }
        };
        // Behind the lock: the drop of a waker may run code of a program.
        drop(waiting);
        drop(replaced);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        let at = waiting.wakers.iter().position(|(number, _)| *number == self.number);
        let removed = at.map(|at| waiting.wakers.swap_remove(at));
        drop(waiting);
        drop(removed);
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
