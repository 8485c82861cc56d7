// SPDX-License-Identifier: BSD-3-Clause
//! pthread_cancel(3): a thread of the program is cancelled in this library only while it waits for an event.
//!
//! Cancellation unwinds the stack without running Rust destructors: locks would stay locked, turns taken. So
//! system calls that are cancellation points are made with cancellation disabled ([`whole`]), and a waiting
//! thread does not own values on its stack ([`waiting`]) but through a thread-specific key, whose destructor
//! drops them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

const DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

thread_local! {
    /// The thread's cancellation state when the program called.
    static PROGRAMS: Cell<libc::c_int> = const { Cell::new(DISABLE) };
}

fn set(state: libc::c_int) -> libc::c_int {
    let mut before = DISABLE;
    // Miri has neither this function nor cancellation.
    if !cfg!(miri) {
        // SAFETY: `state` is a former result of this function or a constant of pthread.h; `before` is
        // writable.
        unsafe { pthread_setcancelstate(state, &mut before) };
    }
    before
}

/// Makes a system call that would be a cancellation point with cancellation disabled.
pub fn whole<T>(call: impl FnOnce() -> T) -> T {
    let before = set(DISABLE);
    let result = call();
    set(before);
    result
}

/// Disables cancellation of the thread while it exists, except in [`waiting`].
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

/// A value that a thread owns while it waits, and the function that frees it.
#[repr(C)]
struct Parked<K> {
    free: unsafe fn(*mut libc::c_void),
    keep: K,
}

/// # Safety
///
/// `parked` must come from Box::into_raw of a `Parked<K>`, and not be used afterwards.
unsafe fn free<K>(parked: *mut libc::c_void) {
    // SAFETY: the caller guarantees that this is a `Parked<K>` of Box::into_raw that nothing else uses.
    drop(unsafe { Box::from_raw(parked.cast::<Parked<K>>()) });
}

extern "C" fn end_of_thread(parked: *mut libc::c_void) {
    // SAFETY: `waiting` stored a box whose first field (repr(C)) is the function for its type. The thread is
    // ending, so nothing else uses the box.
    unsafe { (*parked.cast::<unsafe fn(*mut libc::c_void)>())(parked) };
}

/// The thread-specific key of the value that a thread owns while it waits. A Rust thread-local with a
/// destructor would do, but the C library aborts the process if it has no memory to register the destructor;
/// for a key it returns an error.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is writable, and the destructor accepts what `waiting` stores under it.
        (unsafe { libc::pthread_key_create(&mut key, Some(end_of_thread)) } == 0).then_some(key)
    })
}

/// Makes a system call that waits and is a cancellation point if the program permits it. If the thread is
/// cancelled, its end drops `keep`. The callers must own nothing else that has to be dropped. If there is no
/// memory to store `keep`, the thread is not cancelled this time.
pub(crate) fn waiting<K: 'static, T>(keep: K, wait: impl FnOnce() -> T) -> (K, T) {
    if !std::mem::needs_drop::<K>() {
        let before = set(PROGRAMS.get());
        let result = wait();
        set(before);
        return (keep, result);
    }
    let parked = Box::into_raw(Box::new(Parked { free: free::<K>, keep }));
    // SAFETY: the key exists; its destructor accepts this box, and owns it until the key is cleared below.
    let is_kept = |key: &libc::pthread_key_t| unsafe { libc::pthread_setspecific(*key, parked.cast()) } == 0;
    let key = key().filter(is_kept);
    let before = set(if key.is_some() { PROGRAMS.get() } else { DISABLE });
    let result = wait();
    set(before);
    if let Some(key) = key {
        // SAFETY: the key exists. Clearing it cannot fail: memory for its value is allocated already.
        unsafe { libc::pthread_setspecific(key, ptr::null()) };
    }
    // SAFETY: the box was made above, and the key no longer refers to it.
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
