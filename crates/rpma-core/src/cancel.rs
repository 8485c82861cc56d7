// SPDX-License-Identifier: BSD-3-Clause
//! pthread_cancel(3): a thread in this library can be cancelled only while it waits for an event, never in
//! the middle of another call.
//!
//! Cancellation unwinds a thread without running Rust's destructors, so whatever the thread owned would leak
//! and whatever it had locked would stay locked. There are three kinds of calls:
//!
//! * Those that call the control path of a provider, which may make system calls that are cancellation
//!   points, disable cancellation from beginning to end ([`whole`]).
//! * Those that wait for an event are cancellation points, as in the original library. They wait before they
//!   do anything else, when there is nothing to lose, and disable cancellation as soon as there is an event.
//! * The others, on the data path or within an object, make no system call that is a cancellation point.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Runs `body` with cancellation disabled.
#[inline(always)]
pub fn whole<T>(body: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::uninit();
    // SAFETY: `DISABLE` is PTHREAD_CANCEL_DISABLE, so the first call succeeds and has written `before`
    // (pthread_setcancelstate(3)); the second does not request the former state. It does not act upon a
    // request that arrived meanwhile, since it is not a cancellation point.
    unsafe {
        pthread_setcancelstate(DISABLE, before.as_mut_ptr());
        let result = body();
        pthread_setcancelstate(before.assume_init(), ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENABLE: c_int = 0;

    /// The cancellation state of this thread, found by disabling cancellation for a moment.
    fn state() -> c_int {
        let mut now = DISABLE;
        // SAFETY: `now` is writable, and holds the former state after the first call.
        unsafe {
            pthread_setcancelstate(DISABLE, &mut now);
            pthread_setcancelstate(now, ptr::null_mut());
        }
        now
    }

    #[test]
    fn the_state_is_that_of_the_program_afterwards() {
        assert_eq!(state(), ENABLE);
        whole(|| {
            assert_eq!(state(), DISABLE);
            // A nested call, made by a log function of the program.
            assert_eq!(whole(state), DISABLE);
            assert_eq!(state(), DISABLE);
        });
        assert_eq!(state(), ENABLE);
    }
}
