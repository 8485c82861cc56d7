// SPDX-License-Identifier: BSD-3-Clause
//! Multicast, which is not supported: it needs datagrams, and iWARP is connection-oriented only (RFC 5040).
//!
//! Each function returns -1 with errno EOPNOTSUPP, and logs the reason.

use libc::{c_int, c_void, sockaddr};
use rdma_sys::{rdma_cm_id, rdma_cm_join_mc_attr_ex};

use super::finish;
use crate::ffi::unsupported;

fn refuse() -> c_int {
    finish(Err(unsupported("multicast, which iWARP does not have")))
}

/// Not supported: -1 and errno EOPNOTSUPP. The arguments are not used.
///
/// # Safety
///
/// As for rdma_join_multicast(3).
pub unsafe fn rdma_join_multicast(_: *mut rdma_cm_id, _: *mut sockaddr, _: *mut c_void) -> c_int {
    refuse()
}

/// Not supported: -1 and errno EOPNOTSUPP. The arguments are not used.
///
/// # Safety
///
/// As for rdma_join_multicast_ex(3).
pub unsafe fn rdma_join_multicast_ex(
    _: *mut rdma_cm_id,
    _: *mut rdma_cm_join_mc_attr_ex,
    _: *mut c_void,
) -> c_int {
    refuse()
}

/// Not supported: -1 and errno EOPNOTSUPP. The arguments are not used.
///
/// # Safety
///
/// As for rdma_leave_multicast(3).
pub unsafe fn rdma_leave_multicast(_: *mut rdma_cm_id, _: *mut sockaddr) -> c_int {
    refuse()
}
