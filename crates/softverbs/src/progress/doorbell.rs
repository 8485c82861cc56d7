// SPDX-License-Identifier: BSD-3-Clause
//! Whether the engine sleeps, and who wakes it: one system call a sleep, by the first who has work for it.
//!
//! Two sides, each with a full barrier between its write and its look at the other's. The engine says that it
//! will sleep, then looks at its lists once more. Who has work puts it on a list, then looks whether the
//! engine sleeps. So one of them sees the other. Each change of the word is a read-modify-write, so that all
//! of them are in one order, also with that of a thread that wakes an earlier sleep late.
//!
//! Two processes that share memory wake one another in the same way: the word is then in that memory, and may
//! have any value.

use super::sync::{AtomicU32, Ordering, fence};

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

#[repr(transparent)]
pub(crate) struct Doorbell {
    /// The engine is about to sleep, or sleeps: any value but [`AWAKE`].
    sleeping: AtomicU32,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Self { sleeping: AtomicU32::new(AWAKE) }
    }

    /// The engine: it will sleep, unless a look at its lists after this finds something.
    pub(crate) fn about_to_sleep(&self) {
        self.sleeping.swap(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The engine: it sleeps no more, and will look at its lists.
    pub(crate) fn awake(&self) {
        self.sleeping.swap(AWAKE, Ordering::Relaxed);
    }

    /// The engine does not sleep.
    pub(crate) fn is_awake(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) == AWAKE
    }

    /// True when the caller must wake the engine. What it is to find must be on its list already.
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) != AWAKE && self.sleeping.swap(AWAKE, Ordering::AcqRel) != AWAKE
    }
}
