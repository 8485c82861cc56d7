// SPDX-License-Identifier: BSD-3-Clause
//! Variables of the environment, without allocation.

use std::ffi::{CStr, c_char};

unsafe extern "C" {
    /// From the C library; not declared by the libc crate.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// Passes the value of a variable to `parse`: an empty string if it is not set or if the program is
/// privileged (secure_getenv(3)).
pub fn value_of<T>(name: &CStr, parse: impl FnOnce(&CStr) -> T) -> T {
    // Not through std, which would allocate.
    // SAFETY: the name is a C string. setenv(3) is not thread-safe: a program may call it only while no other
    // thread reads the environment.
    parse(unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() { c"" } else { CStr::from_ptr(value) }
    })
}
