// SPDX-License-Identifier: BSD-3-Clause
//! pthread_cancel(3): a thread of the program is cancelled in this library only while it waits for an event.
//!
//! Cancelling unwinds the stack without running what Rust runs at the end of a scope: locks would stay locked, turns taken. So system calls
//! that are cancellation points are made with cancellation disabled ([`whole`]), and what a waiting thread owns is not on its stack
//! ([`waiting`]) but in a thread-local variable, which the end of the thread drops.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;

const DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

thread_local! {
    /// The state in which the program called.
    static PROGRAMS: Cell<libc::c_int> = const { Cell::new(DISABLE) };
    /// What the thread owns while it waits.
    static PARKED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

fn set(state: libc::c_int) -> libc::c_int {
    let mut before = DISABLE;
    // SAFETY: `state` is one that this function has given, or the constant; `before` is writable.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Makes a system call that is a cancellation point, and is none here.
pub(crate) fn whole<T>(call: impl FnOnce() -> T) -> T {
    let before = set(DISABLE);
    let result = call();
    // SAFETY: the state is the one before, and the former one is not asked for.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
    result
}

/// Not cancelled as long as this lives, except in [`waiting`].
pub(crate) struct Whole(libc::c_int, PhantomData<*const ()>);

impl Whole {
    pub(crate) fn new() -> Self {
        let before = set(DISABLE);
        PROGRAMS.set(before);
        Self(before, PhantomData)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Makes a system call that waits, in which the thread may be cancelled if the program permits it: then `keep` is dropped when the thread ends.
/// The callers own nothing else that must be dropped.
pub(crate) fn waiting<K: 'static, T>(keep: K, wait: impl FnOnce() -> T) -> (K, T) {
    let programs = PROGRAMS.get();
    let parked: Box<dyn Any> = Box::new(keep);
    PARKED.set(Some(parked));
    let before = set(programs);
    let result = wait();
    set(before);
    match PARKED.take().map(|parked| parked.downcast::<K>()) {
        Some(Ok(keep)) => (*keep, result),
        _ => unreachable!("what was parked above is taken only here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> libc::c_int {
        let now = set(DISABLE);
        set(now);
        now
    }

    #[test]
    fn a_thread_can_be_cancelled_only_while_it_waits() {
        let programs = state();
        assert_ne!(programs, DISABLE);
        assert_eq!(whole(state), DISABLE);
        {
            let _whole = Whole::new();
            assert_eq!(whole(state), DISABLE);
            assert_eq!(state(), DISABLE);
            assert_eq!(waiting("kept", state), ("kept", programs));
            assert_eq!(state(), DISABLE);
        }
        assert_eq!(state(), programs);
    }

    #[test]
    fn a_program_that_has_disabled_it_is_not_cancelled_at_all() {
        whole(|| {
            let _whole = Whole::new();
            assert_eq!(waiting((), state).1, DISABLE);
        });
    }
}
