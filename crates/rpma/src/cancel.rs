// SPDX-License-Identifier: BSD-3-Clause
//! pthread_cancel(3): a thread is not cancelled in the middle of a call of this library, only while a call waits for an event.
//!
//! Cancelling unwinds a thread without running what Rust runs at the end of a scope, so whatever it owned or had locked would stay so. Calls
//! on the control path therefore disable cancellation ([`Whole`]), and the two calls that wait permit it again while they do
//! ([`permitted`]), as they are cancellation points in the original library. Calls on the data path make no system call that is a
//! cancellation point.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

thread_local! {
    /// The state in which the program called.
    static PROGRAMS: Cell<c_int> = const { Cell::new(DISABLE) };
}

fn set(state: c_int) -> c_int {
    let mut before = DISABLE;
    // SAFETY: `state` is one that this function has given, or the constant; `before` is writable.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Not cancelled as long as this lives.
pub struct Whole {
    before: c_int,
    /// That of a call within which this one is made, by a log function of the program.
    outer: c_int,
    /// Of one thread.
    thread: PhantomData<*const ()>,
}

impl Whole {
    pub fn new() -> Self {
        let before = set(DISABLE);
        Self { before, outer: PROGRAMS.replace(before), thread: PhantomData }
    }
}

impl Default for Whole {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        PROGRAMS.set(self.outer);
        // SAFETY: the state is the one before, and the former one is not asked for. A request that came meanwhile is not acted upon: this
        // is no cancellation point.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}

/// Runs a call that waits, in which the thread may be cancelled if the program permits it. The caller owns nothing that must be dropped.
pub fn permitted<T>(wait: impl FnOnce() -> T) -> T {
    let before = set(PROGRAMS.get());
    let result = wait();
    set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_that_of_the_program_while_a_call_waits_and_afterwards() {
        let state = || {
            let now = set(DISABLE);
            set(now);
            now
        };
        assert_ne!(state(), DISABLE);
        {
            let _whole = Whole::new();
            assert_eq!(state(), DISABLE);
            assert_ne!(permitted(state), DISABLE);
            assert_eq!(state(), DISABLE);
        }
        assert_ne!(state(), DISABLE);
        let programs = set(DISABLE);
        {
            let _whole = Whole::new();
            assert_eq!(permitted(state), DISABLE, "the program has disabled it");
        }
        assert_eq!(set(programs), DISABLE);
    }
}
