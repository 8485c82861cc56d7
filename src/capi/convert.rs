// SPDX-License-Identifier: BSD-3-Clause
//! Conversion of C pointers to Rust references and of results to C ints.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

use rpma_core::alloc;
use rpma_core::cancel;
use rpma_core::error::{self, Error};
use rpma_core::failure::{self, Fail};

/// The result of the body of a function.
pub(super) type Result<T> = std::result::Result<T, Fail>;

/// Runs the body of an exported function that calls a provider's control path, with thread cancellation
/// disabled ([`rpma_core::cancel`]), and converts its result to the C return value.
#[inline(always)]
pub(super) fn whole_status<F: FnOnce() -> Result<()>>(body: F) -> c_int {
    cancel::whole(|| status(body))
}

/// Same for all other functions, which either make no system call that is a cancellation point or begin by
/// waiting for an event.
#[inline(always)]
pub(super) fn status<F: FnOnce() -> Result<()>>(body: F) -> c_int {
    match body() {
        Ok(()) => 0,
        // Not failures: a polling program gets these all the time.
        Err(Fail::Error(error @ (Error::NoCompletion | Error::NoEvent))) => error as c_int,
        // Tail calls: each returns the result of the function, which therefore saves nothing across the call.
        Err(Fail::Null(name)) => failure::note_null(name, std::any::type_name::<F>()),
        Err(Fail::Invalid(why)) => failure::note_invalid(why, std::any::type_name::<F>()),
        Err(Fail::Error(error)) => failure::note(error, std::any::type_name::<F>()),
    }
}

/// Checks a pointer that must not be NULL; `name` is the name of the argument.
#[inline(always)]
pub(super) fn not_null<T>(ptr: *const T, name: &'static str) -> Result<()> {
    if ptr.is_null() { Err(Fail::Null(name)) } else { Ok(()) }
}

/// Borrows an object that must not be NULL; `name` is the name of the argument.
///
/// # Safety
/// `ptr` must be NULL or point to an object that stays alive as long as the borrow is used.
#[inline(always)]
pub(super) unsafe fn given<'a, T>(ptr: *const T, name: &'static str) -> Result<&'a T> {
    // SAFETY: `ptr` is NULL, for which the result is None, or points to an object that outlives the borrow.
    unsafe { ptr.as_ref() }.ok_or(Fail::Null(name))
}

/// Borrows a string that must not be NULL.
///
/// # Safety
/// `ptr` must be NULL or a C string that does not change as long as the borrow is used.
pub(super) unsafe fn string<'a>(ptr: *const c_char, name: &'static str) -> Result<&'a CStr> {
    if ptr.is_null() {
        return Err(Fail::Null(name));
    }
    // SAFETY: `ptr` is not NULL, so it is a C string that does not change while it is borrowed.
    Ok(unsafe { CStr::from_ptr(ptr) })
}

/// An output parameter; it may be written, but is never read.
pub(super) struct Out<T>(NonNull<T>);

/// An output parameter that must not be NULL.
///
/// # Safety
/// `ptr` must be NULL or writable until the result is set.
#[inline(always)]
pub(super) unsafe fn out<T>(ptr: *mut T, name: &'static str) -> Result<Out<T>> {
    NonNull::new(ptr).map(Out).ok_or(Fail::Null(name))
}

impl<T> Out<T> {
    #[inline(always)]
    pub(super) fn set(&self, value: T) {
        // SAFETY: the caller of `out` guarantees that the pointer stays writable until the result is set.
        unsafe { self.0.as_ptr().write(value) }
    }

    #[inline(always)]
    pub(super) fn copy(&self, value: &T)
    where
        T: Copy,
    {
        // SAFETY: the caller of `out` guarantees that the pointer stays writable until the result is set.
        // `value` is in an object of the library, which the caller's output does not overlap.
        unsafe { self.0.as_ptr().copy_from_nonoverlapping(value, 1) }
    }
}

impl<T> Out<*mut T> {
    /// Passes ownership of an object, whose memory is from `alloc`, to the caller.
    pub(super) fn give(&self, object: Box<T>) {
        self.set(Box::into_raw(object));
    }

    /// Same as `give`, but sets the output to NULL on `Error::NoMem`.
    pub(super) fn give_or_null(&self, object: error::Result<Box<T>>) -> Result<()> {
        match object {
            Ok(object) => self.give(object),
            Err(error) => {
                if error == Error::NoMem {
                    self.set(std::ptr::null_mut());
                }
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// Takes ownership of an object back from the caller and sets the caller's pointer to NULL; None if it was
/// NULL already.
///
/// # Safety
/// `place` must be NULL, or hold NULL or an object that this library created and that is no longer in use.
pub(super) unsafe fn take<T>(place: *mut *mut T, name: &'static str) -> Result<Option<Box<T>>> {
    if place.is_null() {
        return Err(Fail::Null(name));
    }
    // SAFETY: `place` is not NULL, so it is readable and writable. An object that it holds was created by
    // `give` from a box, and nothing else uses it.
    unsafe {
        let object = place.replace(std::ptr::null_mut());
        Ok(if object.is_null() { None } else { Some(Box::from_raw(object)) })
    }
}

/// Deletes an object that the caller owns: closes it, frees its memory and sets the caller's pointer to NULL.
/// No effect if the pointer is already NULL.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub(super) unsafe fn delete<T>(
    place: *mut *mut T,
    name: &'static str,
    close: impl FnOnce(T) -> error::Result<()>,
) -> Result<()> {
    // SAFETY: the object in `place` was passed to the caller by `give`, so its memory is from `alloc`.
    Ok(unsafe { take(place, name)?.map_or(Ok(()), |object| alloc::end(object, close)) }?)
}

/// Closes an object that holds no provider resources.
pub(super) fn plain<T>(_: T) -> error::Result<()> {
    Ok(())
}
