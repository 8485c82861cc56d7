// SPDX-License-Identifier: BSD-3-Clause
//! The functions in the place of those that the installed libraries lack: each fails with ENOSYS, in the way
//! of its manual page.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libc::{EAI_SYSTEM, ENOSYS, sockaddr};
use rdma_sys::*;

use super::super::control_path;

/// The result of a function with this name that fails with ENOSYS.
trait Fails {
    fn fails(name: &str) -> Self;
}

impl Fails for () {
    fn fails(_: &str) {}
}

impl Fails for c_int {
    fn fails(name: &str) -> Self {
        set_errno();
        match name {
            "rdma_getaddrinfo" => EAI_SYSTEM,
            "ibv_get_cq_event" => -1,
            name if name.starts_with("ibv_") => ENOSYS,
            _ => -1,
        }
    }
}

impl<T> Fails for *mut T {
    fn fails(_: &str) -> Self {
        set_errno();
        null_mut()
    }
}

fn set_errno() {
    // SAFETY: returns the address of the calling thread's errno, which always exists.
    unsafe { *libc::__errno_location() = ENOSYS };
}

macro_rules! failing {
    ([] $( fn $call:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?; )*) => {
        $(
            #[allow(dead_code, reason = "ext.rs has two of them")]
            pub(super) unsafe extern "C" fn $call($(_: $ty),*) $(-> $ret)? {
                Fails::fails(stringify!($call))
            }
        )*
    };
}
control_path!(failing);

pub(super) unsafe extern "C" fn ibv_query_device(_: *mut ibv_context, _: *mut ibv_device_attr) -> c_int {
    Fails::fails("ibv_query_device")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fails_as_its_manual_page_says() {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        // SAFETY: none of these functions uses an argument.
        unsafe {
            assert_eq!(ibv_dealloc_pd(null_mut()), ENOSYS);
            assert_eq!((ibv_get_cq_event(null_mut(), null_mut(), null_mut()), errno()), (-1, Some(ENOSYS)));
            *libc::__errno_location() = 0;
            assert_eq!((rdma_listen(null_mut(), 0), errno()), (-1, Some(ENOSYS)));
            *libc::__errno_location() = 0;
            assert_eq!((ibv_alloc_pd(null_mut()), errno()), (null_mut(), Some(ENOSYS)));
        }
    }
}
