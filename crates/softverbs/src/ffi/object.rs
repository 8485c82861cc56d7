// SPDX-License-Identifier: BSD-3-Clause
//! The object behind a C structure: the structure that the program sees, followed in memory by the data of
//! softverbs.
//!
//! The program may read the C structure, and write some of its fields, at any time, so no reference to it is
//! ever created. The data behind it is accessible only through this module.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

/// A C structure `C` and the data `T` that belongs to it. If `C` is the beginning of an extended structure,
/// `E` is the latter.
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

    /// The data that belongs to the C structure at `c`.
    ///
    /// # Safety
    ///
    /// `c` must come from [`Self::create`] of the same type, and must not be freed while the result is in
    /// use.
    pub(crate) unsafe fn own<'a>(c: *mut C) -> &'a T {
        let object: *mut Self = c.cast();
        // SAFETY: the caller guarantees that `c` comes from `create` and has not been freed, so it is the
        // address of an object of this type: `c` is its first field, and the layout is that of C. Only the
        // field `own` is referenced, which programs do not access.
        unsafe { &(*object).own }
    }

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// `c` must come from [`Self::create`] of the same type. Neither `c` nor a result of [`Self::own`] for it
    /// may be used afterwards.
    pub(crate) unsafe fn free(c: *mut C) {
        // SAFETY: the caller guarantees that `c` comes from `create`, which has made it from a Box of this
        // type, and that it is not used afterwards.
        drop(unsafe { Box::from_raw(c.cast::<Self>()) });
    }
}
