// SPDX-License-Identifier: BSD-3-Clause
//! rsockets (rsocket(7)), which cannot be created. The real librdmacm implements them with the private part
//! of its identifiers, and would call the exported functions and get identifiers of softverbs, which have no
//! such part. The other functions of rsockets stay those of the real library: they also accept ordinary
//! descriptors, on which programs rely.

use libc::c_int;

/// Returns -1 with errno ENOTSUP, and logs a warning.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub(crate) unsafe fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    log::warn!("not supported: rsockets; use TCP sockets instead");
    // SAFETY: __errno_location returns the address of the calling thread's errno, which is valid as long as
    // the thread runs.
    unsafe { *libc::__errno_location() = libc::ENOTSUP };
    -1
}
