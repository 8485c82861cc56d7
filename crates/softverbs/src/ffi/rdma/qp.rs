// SPDX-License-Identifier: BSD-3-Clause
//! The queue pair of an identifier.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_qp_init_attr_ex, rdma_cm_id};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::finish;
use super::id::IdObject;
use crate::ffi::verbs;

/// Creates the queue pair of an identifier, as `create_qp` in [`crate::verbs`]. EINVAL also if the identifier has no device yet, or has a
/// queue pair.
///
/// # Safety
///
/// As for rdma_create_qp_ex(3).
pub unsafe fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_create_qp_ex(3)).
        let (own, verbs): (_, *mut ibv_context) =
            unsafe { (IdObject::own(id), addr_of!((*id).verbs).read()) };
        if verbs.is_null() || own.state().qp.is_some() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `attr` is as for rdma_create_qp_ex(3), `qp` has just been created, and `id` has not been destroyed.
        unsafe {
            let qp = verbs::create_qp(verbs, attr)?;
            own.state().qp = Some(verbs::QpObject::own(qp).qp.clone());
            addr_of_mut!((*id).qp).write(qp);
            addr_of_mut!((*id).pd).write(addr_of!((*qp).pd).read());
        }
        Ok(())
    })();
    finish(result)
}

/// Destroys the queue pair of an identifier, if it has one.
///
/// # Safety
///
/// As for rdma_destroy_qp(3).
pub unsafe fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed, and its queue pair is not used any more
    // (rdma_destroy_qp(3)). Its field `qp` is NULL or was set by rdma_create_qp_ex.
    unsafe {
        let qp = addr_of!((*id).qp).read();
        if qp.is_null() {
            return;
        }
        addr_of_mut!((*id).qp).write(null_mut());
        IdObject::own(id).state().qp = None;
        verbs::destroy_qp(qp);
    }
}
