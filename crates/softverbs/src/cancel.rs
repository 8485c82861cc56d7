// SPDX-License-Identifier: BSD-3-Clause
//! pthread_cancel(3): a thread of the program is cancelled in this library only while it waits for an event.
//!
//! Cancelling unwinds the stack without running what Rust runs at the end of a scope: locks would stay
//! locked, turns taken. So system calls that are cancellation points are made with cancellation disabled
//! ([`whole`]), and what a waiting thread owns is not on its stack ([`waiting`]) but under a key of the
//! thread, whose destructor drops it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

const DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

thread_local! {
    /// The state in which the program called.
    static PROGRAMS: Cell<libc::c_int> = const { Cell::new(DISABLE) };
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

/// What a thread owns while it waits, and how that is dropped.
#[repr(C)]
struct Parked<K> {
    free: unsafe fn(*mut libc::c_void),
    keep: K,
}

/// # Safety
///
/// `parked` must come from Box::into_raw of a `Parked<K>`, and not be used afterwards.
unsafe fn free<K>(parked: *mut libc::c_void) {
    // SAFETY: the caller guarantees that the box is of this type, and nobody else's.
    drop(unsafe { Box::from_raw(parked.cast::<Parked<K>>()) });
}

extern "C" fn end_of_thread(parked: *mut libc::c_void) {
    // SAFETY: `parked` is a box of `waiting`, whose first field is the function for its type; the thread that
    // owned it does not run any more.
    unsafe { (*parked.cast::<unsafe fn(*mut libc::c_void)>())(parked) };
}

/// The key of the variable that has what the thread owns while it waits. A variable of Rust with a destructor
/// would do, but the C library aborts the process when it has no memory to note that; a key it refuses.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is writable, and the destructor accepts what `waiting` stores under it.
        (unsafe { libc::pthread_key_create(&mut key, Some(end_of_thread)) } == 0).then_some(key)
    })
}

/// Makes a system call that waits, in which the thread may be cancelled if the program permits it: then
/// `keep` is dropped when the thread ends. The callers own nothing else that must be dropped. Without memory
/// to remember `keep` by, the thread is not cancelled this time.
pub(crate) fn waiting<K: 'static, T>(keep: K, wait: impl FnOnce() -> T) -> (K, T) {
    if !std::mem::needs_drop::<K>() {
        let before = set(PROGRAMS.get());
        let result = wait();
        set(before);
        return (keep, result);
    }
    let parked = Box::into_raw(Box::new(Parked { free: free::<K>, keep }));
    // SAFETY: the value is for the destructor of the key, to which it belongs until it is taken back below.
    let is_kept = |key: &libc::pthread_key_t| unsafe { libc::pthread_setspecific(*key, parked.cast()) } == 0;
    let key = key().filter(is_kept);
    let before = set(if key.is_some() { PROGRAMS.get() } else { DISABLE });
    let result = wait();
    set(before);
    if let Some(key) = key {
        // SAFETY: the key exists. That a value is stored under it already needs no memory.
        unsafe { libc::pthread_setspecific(key, ptr::null()) };
    }
    // SAFETY: the box was made above; the key has it no more.
    (unsafe { Box::from_raw(parked) }.keep, result)
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
