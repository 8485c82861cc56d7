// SPDX-License-Identifier: BSD-3-Clause
//! Per-process singletons that stay usable in a child after fork(2).
//!
//! A child has a copy of the parent's memory but only the thread that forked. A lock that another thread held
//! at that time stays locked forever in the child, and an initialization by another thread is never finished.
//! The child must be able to create objects nevertheless. Therefore no thread waits for a value that another
//! thread initializes: with [`once_cell::race`] each initializes it and the first value is kept. State that
//! needs a lock uses [`PerProcess`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Owned<T: 'static> {
    pid: u32,
    value: Mutex<Option<T>>,
    #[expect(
        dead_code,
        reason = "keeps the parent's value reachable, so that leak checkers do not report it"
    )]
    parents: Option<&'static Self>,
}

/// A lock that is unlocked, and its value empty, at the start of each process.
pub(crate) struct PerProcess<T: 'static> {
    /// Points to a box that is never freed, or is null.
    current: AtomicPtr<Owned<T>>,
}

impl<T: Send> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The lock of this process if [`PerProcess::get`] was called in it. It allocates nothing, and leaves the
    /// value of a parent alone.
    pub(crate) fn existing(&'static self) -> Option<&'static Mutex<Option<T>>> {
        // SAFETY: as in `get`: a non-null pointer in `current` is that of a box that is never freed.
        let owned: Option<&'static Owned<T>> = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        owned.filter(|owned| owned.pid == std::process::id()).map(|owned| &owned.value)
    }

    /// The lock of this process.
    pub(crate) fn get(&'static self) -> &'static Mutex<Option<T>> {
        let pid = std::process::id();
        let mut seen = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: a non-null pointer in `current` comes from `Box::into_raw` below and is never freed
            // once stored.
            let owned: Option<&'static Owned<T>> = unsafe { seen.as_ref() };
            if let Some(owned) = owned.filter(|owned| owned.pid == pid) {
                return &owned.value;
            }
            let new = Box::into_raw(Box::new(Owned { pid, value: Mutex::new(None), parents: owned }));
            match self.current.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // The parent's value stays: another thread of the parent may have been changing it, even
                    // if the copy of its lock is unlocked, for the kernel copies one page after the other.
                    // SAFETY: `new` comes from `Box::into_raw` and is in `current` now, so it is never freed.
                    return unsafe { &(*new).value };
                }
                Err(now) => {
                    // SAFETY: `new` comes from `Box::into_raw`, and no other thread has seen it: the exchange
                    // failed.
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
    use std::sync::Arc;

    use super::*;
    use crate::{fork, lock};

    #[test]
    fn a_child_has_an_unlocked_lock_even_if_the_parents_is_locked() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        *lock(VALUE.get()) = Some(7);
        let held = lock(VALUE.get());
        let child = fork::tests::in_child(|| VALUE.get().try_lock().is_ok_and(|value| value.is_none()));
        assert!(child);
        assert_eq!(*held, Some(7));
    }

    #[test]
    fn a_child_has_no_lock_until_it_uses_it() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        assert!(VALUE.existing().is_none());
        *lock(VALUE.get()) = Some(7);
        assert!(VALUE.existing().is_some_and(|value| *lock(value) == Some(7)));
        let child = fork::tests::in_child(|| {
            let before = VALUE.existing().is_none();
            before && lock(VALUE.get()).is_none() && VALUE.existing().is_some()
        });
        assert!(child);
    }

    #[test]
    fn a_child_does_not_drop_the_value_of_its_parent() {
        static VALUE: PerProcess<Arc<()>> = PerProcess::new();
        let value = Arc::new(());
        *lock(VALUE.get()) = Some(value.clone());
        assert!(fork::tests::in_child(|| lock(VALUE.get()).is_none() && Arc::strong_count(&value) == 2));
    }
}
