// SPDX-License-Identifier: BSD-3-Clause
//! Whether the engine sleeps, and which thread wakes it: the first one with work for it, with one system call
//! for each sleep.
//!
//! Each side has a full barrier between its write and its read of the other side's word. The engine announces
//! that it will sleep, then checks its lists once more. A thread with work puts it on a list, then checks
//! whether the engine sleeps. So at least one of them sees the other. Each change of the word is a
//! read-modify-write, so all of them have one order, including that of a thread that is late in waking an
//! earlier sleep.
//!
//! Two processes that share memory wake each other in the same way; the word is then in that memory, where
//! the peer may store any value.

use super::sync::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

#[repr(transparent)]
pub(crate) struct Wakeup {
    /// The engine is about to sleep, or sleeps: any value but [`AWAKE`].
    sleeping: AtomicU32,
}

impl Wakeup {
    pub(crate) fn new() -> Self {
        Self { sleeping: AtomicU32::new(AWAKE) }
    }

    /// The engine will sleep, unless it finds work on its lists after this.
    pub(crate) fn about_to_sleep(&self) {
        self.sleeping.swap(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The engine is awake and will check its lists.
    pub(crate) fn awake(&self) {
        self.sleeping.swap(AWAKE, Ordering::Relaxed);
    }

    /// The engine does not sleep.
    pub(crate) fn is_awake(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) == AWAKE
    }

    /// True if the caller must wake the engine. The work must be on its list already.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) != AWAKE && self.sleeping.swap(AWAKE, Ordering::AcqRel) != AWAKE
    }
}
