// SPDX-License-Identifier: BSD-3-Clause
//! What there is once in each process, after fork(2) as well.
//!
//! A child has a copy of the parent's memory and only the thread that forked. A lock that another thread held
//! at that moment stays locked in the child for ever, and what that thread was initializing is never
//! finished. A child must be able to create objects nevertheless. Therefore nothing in the process waits for
//! a value that another thread initializes: [`once_cell::race`] lets each initialize it and keeps the first
//! one. What needs a lock has a [`PerProcess`] one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Owned<T> {
    pid: u32,
    value: Mutex<Option<T>>,
}

/// A lock that is unlocked and empty at the start of each process.
pub(crate) struct PerProcess<T: 'static> {
    /// Points to a box that is never freed, or is null.
    current: AtomicPtr<Owned<T>>,
}

impl<T: Send> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The lock of this process.
    pub(crate) fn get(&'static self) -> &'static Mutex<Option<T>> {
        let pid = std::process::id();
        let mut seen = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: a pointer in `current` comes from `Box::into_raw` below and is never freed once it is
            // there.
            let owned: Option<&'static Owned<T>> = unsafe { seen.as_ref() };
            if let Some(owned) = owned.filter(|owned| owned.pid == pid) {
                return &owned.value;
            }
            let new = Box::into_raw(Box::new(Owned { pid, value: Mutex::new(None) }));
            match self.current.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // What the parent had is released, unless a thread that is not in this process was at it.
                    drop(owned.and_then(|parents| parents.value.try_lock().ok()?.take()));
                    // SAFETY: as above; `new` is in `current`.
                    return unsafe { &(*new).value };
                }
                Err(now) => {
                    // SAFETY: `new` comes from `Box::into_raw` and was not shared.
                    drop(unsafe { Box::from_raw(new) });
                    seen = now;
                }
            }
        }
    }
}

// SAFETY: the value behind the pointer is a pid, which never changes, and a Mutex, which is Sync if its
// content is Send.
unsafe impl<T: Send> Sync for PerProcess<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fork, lock};

    #[test]
    fn a_child_has_a_lock_of_its_own_even_if_the_parents_is_locked() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        *lock(VALUE.get()) = Some(7);
        let held = lock(VALUE.get());
        let child = fork::tests::in_child(|| VALUE.get().try_lock().is_ok_and(|value| value.is_none()));
        assert!(child);
        assert_eq!(*held, Some(7));
    }
}
