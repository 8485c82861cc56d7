// SPDX-License-Identifier: BSD-3-Clause
//! The errno of the program, which logging does not change.

use std::ffi::c_int;

/// The calling thread's errno, restored when dropped.
pub struct Saved(c_int);

impl Saved {
    /// Saves it.
    #[expect(clippy::new_without_default, reason = "it reads the state of the thread")]
    pub fn new() -> Self {
        // SAFETY: returns the address of the calling thread's errno, which always exists.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // SAFETY: returns the address of the calling thread's errno, which always exists.
        unsafe { *libc::__errno_location() = self.0 }
    }
}
