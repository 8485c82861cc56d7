// SPDX-License-Identifier: BSD-3-Clause
//! From C pointers to Rust and from results to C ints.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

use rpma::error::{Error, Result};

/// Runs the body of a function and makes its result the C return value.
#[inline(always)]
pub fn status(body: impl FnOnce() -> Result<()>) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(error) => error as c_int,
    }
}

/// An object that must be given.
///
/// # Safety
/// `ptr` must be NULL or point to a live object, alive as long as the borrow is used.
#[inline(always)]
pub unsafe fn given<'a, T>(ptr: *const T) -> Result<&'a T> {
    // SAFETY: by contract.
    unsafe { ptr.as_ref() }.ok_or(Error::Inval)
}

/// A string that must be given.
///
/// # Safety
/// `ptr` must be NULL or a C string that does not change as long as the borrow is used.
pub unsafe fn string<'a>(ptr: *const c_char) -> Result<&'a CStr> {
    if ptr.is_null() {
        return Err(Error::Inval);
    }
    // SAFETY: by contract.
    Ok(unsafe { CStr::from_ptr(ptr) })
}

/// A place for a result; written or left alone, never read.
pub struct Out<T>(NonNull<T>);

/// A place for a result that must be given.
///
/// # Safety
/// `ptr` must be NULL or writable until the result is set.
#[inline(always)]
pub unsafe fn out<T>(ptr: *mut T) -> Result<Out<T>> {
    NonNull::new(ptr).map(Out).ok_or(Error::Inval)
}

impl<T> Out<T> {
    #[inline(always)]
    pub fn set(&self, value: T) {
        // SAFETY: writable, as whoever called `out` promised.
        unsafe { self.0.as_ptr().write(value) }
    }
}

impl<T> Out<*mut T> {
    /// Gives an object to the caller.
    pub fn give(&self, object: Box<T>) {
        self.set(Box::into_raw(object));
    }

    /// As `give`; a result for which there is no memory sets the place to NULL.
    pub fn give_or_null(&self, object: Result<Box<T>>) -> Result<()> {
        match object {
            Ok(object) => self.give(object),
            Err(error) => {
                if error == Error::NoMem {
                    self.set(std::ptr::null_mut());
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Takes an object back from the caller, whose pointer becomes NULL; none if it was NULL already.
///
/// # Safety
/// `place` must be NULL or hold NULL or an object that this library gave out and that nobody uses any more.
pub unsafe fn take<T>(place: *mut *mut T) -> Result<Option<Box<T>>> {
    if place.is_null() {
        return Err(Error::Inval);
    }
    // SAFETY: the place is readable and writable by contract, and every object that is given out comes from a box.
    unsafe {
        let object = place.replace(std::ptr::null_mut());
        Ok(if object.is_null() { None } else { Some(Box::from_raw(object)) })
    }
}
