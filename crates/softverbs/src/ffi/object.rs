// SPDX-License-Identifier: BSD-3-Clause
//! Objects that a program accesses by the address of a C structure.
//!
//! The C structure is followed in memory by the data of softverbs. The program may read the C structure, and
//! write some of its fields, at any time, so no reference to it is ever created; the data behind it are
//! accessible only through this module.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

/// A C structure `C` and the data `T` that belong to it. If the structure is the beginning of a longer one,
/// that is `E`.
#[repr(C)]
pub(crate) struct Object<C, T, E = C> {
    c: UnsafeCell<E>,
    own: T,
    begins: PhantomData<C>,
}

impl<C, T, E> Object<C, T, E> {
    /// Allocates an object and returns the address of its C structure, which is valid until [`Self::free`].
    pub(crate) fn create(c: E, own: T) -> *mut C {
        Box::into_raw(Box::new(Self { c: UnsafeCell::new(c), own, begins: PhantomData })).cast()
    }

    /// The data that belong to the C structure at `c`.
    ///
    /// # Safety
    ///
    /// `c` must come from [`Self::create`] of the same type, and must not be freed before the last use of the
    /// result.
    pub(crate) unsafe fn own<'a>(c: *mut C) -> &'a T {
        let object: *mut Self = c.cast();
        // SAFETY: `c` is the address of the first field of an object that has not been freed. Only the field
        // `own` is referenced, which programs do not access.
        unsafe { &(*object).own }
    }

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// `c` must come from [`Self::create`] of the same type, and neither `c` nor a result of [`Self::own`]
    /// for it may be used afterwards.
    pub(crate) unsafe fn free(c: *mut C) {
        // SAFETY: `c` is the address of the first field of an object that `create` has allocated as a Box,
        // and is not used afterwards.
        drop(unsafe { Box::from_raw(c.cast::<Self>()) });
    }
}
