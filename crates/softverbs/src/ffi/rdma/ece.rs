// SPDX-License-Identifier: BSD-3-Clause
//! Enhanced connection establishment (ECE): vendor options that adapters negotiate during connection set-up.
//! MPA frames have no fields for them, so local options are accepted but not sent, and the peer never has
//! any.

use libc::c_int;
use rdma_sys::{ibv_ece, rdma_cm_id};
use std::ptr::addr_of;

use super::finish;

/// Accepts the local ECE options; they are not sent. Returns 0, or -1 and errno EINVAL: a NULL pointer, an
/// identifier that already has a queue pair, a `vendor_id` of 0, or a `comp_mask` other than 0.
///
/// # Safety
///
/// As for rdma_set_local_ece(3).
pub unsafe fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    if id.is_null() || ece.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: neither is NULL, and rdma_set_local_ece(3) requires that `id` has not been destroyed and that
    // `ece` points to an ibv_ece, which is copied.
    let (given, qp) = unsafe { (ece.read(), addr_of!((*id).qp).read()) };
    let fits = qp.is_null() && given.vendor_id != 0 && given.comp_mask == 0;
    finish(if fits { Ok(()) } else { Err(libc::EINVAL) })
}

/// Stores the ECE options of the peer: none, all fields 0. Returns 0, or -1 and errno EINVAL: a NULL pointer,
/// or an identifier that has a queue pair.
///
/// # Safety
///
/// As for rdma_get_remote_ece(3).
pub unsafe fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    if id.is_null() || ece.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `id` is not NULL, and rdma_get_remote_ece(3) requires that it has not been destroyed.
    if unsafe { !addr_of!((*id).qp).read().is_null() } {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `ece` is not NULL, and rdma_get_remote_ece(3) requires that it is valid for writes.
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}
