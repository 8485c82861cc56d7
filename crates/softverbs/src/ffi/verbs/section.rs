// SPDX-License-Identifier: BSD-3-Clause
//! What the calls between the first and the last one of an extended interface share (`ibv_wr_start` to
//! `ibv_wr_complete`, `ibv_start_poll` to `ibv_end_poll`). Threads of the program may begin at the same time,
//! so the first call waits until it has the section to itself.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that belongs to the thread that has entered.
#[derive(Default)]
pub(crate) struct Section<T> {
    entered: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only by the thread that has entered, and `entered` orders what one thread has
// done before what the next one does.
unsafe impl<T: Send> Sync for Section<T> {}

impl<T> Section<T> {
    /// Enters, when no other thread is inside: the program has promised that it leaves soon.
    pub(crate) fn enter(&self) {
        while self.entered.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Leaves.
    pub(crate) fn leave(&self) {
        self.entered.store(false, Ordering::Release);
    }

    /// The value.
    ///
    /// # Safety
    ///
    /// This thread must have entered and not left, and use no other result of this function meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn value(&self) -> &mut T {
        // SAFETY: this thread is the only one inside, and has no other reference to the value.
        unsafe { &mut *self.value.get() }
    }
}
