// SPDX-License-Identifier: BSD-3-Clause
//! Enhanced connection establishment, which vendors of InfiniBand adapters negotiate in fields that the MPA
//! frames of iWARP do not have.

use libc::c_int;
use rdma_sys::{ibv_ece, rdma_cm_id};
use std::ptr::addr_of;

use super::finish;

/// Takes the options of this side, which are not sent. EINVAL: the identifier has a queue pair, or there is
/// no vendor, or `comp_mask` is not 0.
///
/// # Safety
///
/// As for rdma_set_local_ece(3).
pub unsafe fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    if id.is_null() || ece.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `id` has not been destroyed, and `ece` points to an ibv_ece, which is copied
    // (rdma_set_local_ece(3)).
    let (given, qp) = unsafe { (ece.read(), addr_of!((*id).qp).read()) };
    let fits = qp.is_null() && given.vendor_id != 0 && given.comp_mask == 0;
    finish(if fits { Ok(()) } else { Err(libc::EINVAL) })
}

/// Returns the options of the peer: none. EINVAL: the identifier has a queue pair.
///
/// # Safety
///
/// As for rdma_get_remote_ece(3).
pub unsafe fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    if id.is_null() || ece.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `id` has not been destroyed (rdma_get_remote_ece(3)).
    if unsafe { !addr_of!((*id).qp).read().is_null() } {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `ece` is valid for writes (rdma_get_remote_ece(3)).
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}
