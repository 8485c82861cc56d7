// SPDX-License-Identifier: BSD-3-Clause
//! The tasks that wait for a stream: one that reads and one that writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// What a task does.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Reader,
    Writer,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Reader => Self::Writer,
            Self::Writer => Self::Reader,
        }
    }
}

/// The last waker of each side. An operation has room for one: this object's wakes both.
#[derive(Default)]
pub(super) struct Wakers(Mutex<[Option<Waker>; 2]>);

impl Wakers {
    pub(super) fn register(&self, side: Side, waker: &Waker) {
        let known = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner)[side as usize];
        let replaced = if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            None
        } else {
            known.replace(waker.clone())
        };
        // Behind the lock: the drop of a waker may run code of a program.
        drop(replaced);
    }

    pub(super) fn wake_side(&self, side: Side) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner)[side as usize].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_side(Side::Reader);
        self.wake_side(Side::Writer);
    }
}
