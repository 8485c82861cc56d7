// SPDX-License-Identifier: BSD-3-Clause
//! Objects that a program holds by the address of a C structure.
//!
//! The C structure comes first in memory, ours behind it. The program may read and, for some fields, write the C structure at any time,
//! so no reference is ever made to it; ours is reached only from here.

use std::cell::UnsafeCell;

/// A C structure `C` and what belongs to it.
#[repr(C)]
pub(crate) struct Object<C, T> {
    c: UnsafeCell<C>,
    own: T,
}

impl<C, T> Object<C, T> {
    /// Puts the pair on the heap and gives the address of the C structure, which stays valid until [`Self::free`].
    pub(crate) fn create(c: C, own: T) -> *mut C {
        Box::into_raw(Box::new(Self { c: UnsafeCell::new(c), own })).cast()
    }

    /// What belongs to the C structure at `c`.
    ///
    /// # Safety
    ///
    /// `c` must come from [`Self::create`] of the same type and not have been freed, and must not be freed while the result is used.
    pub(crate) unsafe fn own<'a>(c: *mut C) -> &'a T {
        let object: *mut Self = c.cast();
        // SAFETY: the C structure is the first field of a live object (the caller's promise); only the other field is referenced, and
        // nobody but us knows of it.
        unsafe { &(*object).own }
    }

    /// Takes the pair off the heap.
    ///
    /// # Safety
    ///
    /// As for [`Self::own`], and nobody may use `c` or anything obtained from it afterwards.
    pub(crate) unsafe fn free(c: *mut C) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(c.cast::<Self>()) });
    }
}
