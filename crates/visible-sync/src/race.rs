// SPDX-License-Identifier: BSD-3-Clause
//! The module `race` of once_cell, as far as it is used here: each thread may make the value, and the first
//! one stays.

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::null_mut;

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

pub struct OnceBox<T> {
    ptr: AtomicPtr<T>,
    owns: PhantomData<Option<Box<T>>>,
}

// SAFETY: as for once_cell's: the value is shared, and is sent to the thread that drops it.
unsafe impl<T: Sync + Send> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    pub const fn new() -> Self {
        Self { ptr: AtomicPtr::new(null_mut()), owns: PhantomData }
    }

    pub fn get(&self) -> Option<&T> {
        // SAFETY: NULL, or from `Box::into_raw` below and freed by drop only.
        unsafe { self.ptr.load(Ordering::Acquire).as_ref() }
    }

    pub fn set(&self, value: Box<T>) -> Result<(), Box<T>> {
        let new = Box::into_raw(value);
        match self.ptr.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            // SAFETY: `new` is from `Box::into_raw` and was not shared.
            Err(_) => Err(unsafe { Box::from_raw(new) }),
        }
    }

    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<Box<T>, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        drop(self.set(make()?));
        Ok(self.get().expect("set above"))
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> Box<T>) -> &T {
        let Ok(value) = self.get_or_try_init(|| Ok::<_, std::convert::Infallible>(make()));
        value
    }
}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let ptr = *self.ptr.get_mut();
        if !ptr.is_null() {
            // SAFETY: from `Box::into_raw`, and nobody borrows it any more.
            drop(unsafe { Box::from_raw(ptr) });
        }
    }
}

#[derive(Default)]
pub struct OnceNonZeroUsize(AtomicUsize);

impl OnceNonZeroUsize {
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub fn get(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.0.load(Ordering::Acquire))
    }

    pub fn set(&self, value: NonZeroUsize) -> Result<(), ()> {
        let set = self.0.compare_exchange(0, value.get(), Ordering::AcqRel, Ordering::Acquire);
        set.map(drop).map_err(drop)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> NonZeroUsize) -> NonZeroUsize {
        self.get().unwrap_or_else(|| {
            let made = make();
            let _ = self.set(made);
            self.get().unwrap_or(made)
        })
    }
}
