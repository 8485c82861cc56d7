// SPDX-License-Identifier: BSD-3-Clause
//! rsockets, which the real librdmacm builds on the private part of its own identifiers: they would find
//! those of softverbs. So none can be created. All other functions of rsockets are left to the real library:
//! they also take plain descriptors, which programs rely on.

use libc::c_int;

/// Fails with ENOTSUP.
///
/// # Safety
///
/// None: no argument is looked at.
pub(crate) unsafe fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    log::warn!("not supported: rsockets; the program can use sockets instead");
    // SAFETY: the address of errno of this thread is valid.
    unsafe { *libc::__errno_location() = libc::ENOTSUP };
    -1
}
