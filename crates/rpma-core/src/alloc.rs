// SPDX-License-Identifier: BSD-3-Clause
//! Fallible allocation of objects that C callers own: `Box::new` would abort instead of returning
//! RPMA_E_NOMEM.

use std::alloc::Layout;
use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// Allocated memory for one `T`, to be filled once nothing can fail any more.
pub struct Slot<T>(Box<MaybeUninit<T>>);

impl<T> Slot<T> {
    /// Allocates the memory, or returns `Error::NoMem`.
    pub fn new() -> Result<Self> {
        let layout = Layout::new::<T>();
        let room = reserve::try_allocate(layout).cast::<MaybeUninit<T>>();
        if room.is_null() {
            return Err(Error::NoMem);
        }
        // SAFETY: freshly allocated by the system allocator with T's layout, which the global allocator
        // accepts when it frees the box; MaybeUninit<T> may be uninitialised.
        Ok(Self(unsafe { Box::from_raw(room) }))
    }

    /// Moves the object into the memory.
    pub fn fill(mut self, value: T) -> Box<T> {
        self.0.write(value);
        // SAFETY: initialised by the line above; MaybeUninit<T> has the layout of T.
        unsafe { Box::from_raw(Box::into_raw(self.0).cast::<T>()) }
    }
}

/// Allocates and fills in one step.
pub fn boxed<T>(value: T) -> Result<Box<T>> {
    Ok(Slot::new()?.fill(value))
}

/// Closes an object and frees its memory with the system allocator, which allocated the memory of every
/// [`Slot`].
///
/// # Safety
/// The object must be from a [`Slot`].
#[inline(always)]
pub unsafe fn end<T, R>(object: Box<T>, close: impl FnOnce(T) -> R) -> R {
    let object = Box::into_raw(object);
    // SAFETY: the value is moved out of its memory once. The caller guarantees that the memory is from
    // `Slot::new`, so the system allocator allocated it with this layout.
    unsafe {
        let result = close(object.read());
        reserve::free(object.cast(), Layout::new::<T>());
        result
    }
}

/// Checks, before a new object is created, that there is enough memory for allocations that cannot report a
/// failure ([`reserve`]).
pub fn ready() -> Result<()> {
    reserve::ready().map_err(|_| Error::NoMem)
}
