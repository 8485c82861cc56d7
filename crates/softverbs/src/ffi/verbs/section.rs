// SPDX-License-Identifier: BSD-3-Clause
//! The critical section between the first and the last call of an extended interface: `ibv_wr_start` to
//! `ibv_wr_complete`, `ibv_start_poll` to `ibv_end_poll`.
//!
//! It guards the value that these calls share. The first call enters and waits until no other thread is
//! inside; the last one leaves. A guard object cannot be used, because the lock is held across calls of the C
//! interface.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::wait_until;

/// A value that only the thread inside the section accesses.
#[derive(Default)]
pub(crate) struct Section<T> {
    entered: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` requires its caller to be inside the section, so one thread at a time accesses the value.
// `enter` acquires what the previous thread's `leave` released.
unsafe impl<T: Send> Sync for Section<T> {}

impl<T> Section<T> {
    /// Enters the section; waits until no other thread is inside. The manual pages require programs to leave
    /// soon.
    pub(crate) fn enter(&self) {
        wait_until(|| !self.entered.swap(true, Ordering::Acquire));
    }

    /// Leaves the section.
    pub(crate) fn leave(&self) {
        self.entered.store(false, Ordering::Release);
    }

    /// The value of the section.
    ///
    /// # Safety
    ///
    /// This thread must be inside the section, and must not use another result of this function at the same
    /// time.
    #[expect(clippy::mut_from_ref, reason = "only the thread inside the section has a reference")]
    pub(crate) unsafe fn value(&self) -> &mut T {
        // SAFETY: the caller guarantees that this thread is inside, where no other thread can be, and that it
        // uses no other reference to the value.
        unsafe { &mut *self.value.get() }
    }
}
