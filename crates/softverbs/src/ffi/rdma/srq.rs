// SPDX-License-Identifier: BSD-3-Clause
//! The shared receive queue of an identifier.

use libc::c_int;
use rdma_sys::{ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_srq_type, rdma_cm_id};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::finish;
use super::pd::default_pd;
use crate::ffi::unsupported;
use crate::ffi::verbs;
use crate::sys::{self, Errno};

/// Creates the shared receive queue of an identifier, for the queue pair that is created on it afterwards and
/// for others. With `pd` NULL that of the identifier is used, or the default one of the device. The actual
/// attributes are stored in `attr`.
///
/// EINVAL: the identifier has no device yet, or has a shared receive queue, or the protection domain belongs
/// to another device, and as for ibv_create_srq(3). ENOMEM.
///
/// # Safety
///
/// As for rdma_create_srq(3).
pub unsafe fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int {
    if id.is_null() || attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `id`, `pd` and `attr` are as for rdma_create_srq(3).
    finish(unsafe { create(id, pd, attr) })
}

/// As [`rdma_create_srq`]; `attr` must name the type (IBV_SRQ_INIT_ATTR_TYPE), else EINVAL. EOPNOTSUPP for
/// other types than IBV_SRQT_BASIC: iWARP has neither XRC nor tag matching.
///
/// # Safety
///
/// As for rdma_create_srq_ex(3).
pub unsafe fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    const TYPE: u32 = 1;
    const PD: u32 = 1 << 1;
    let result = (|| {
        if id.is_null() || attr.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `attr` is as for rdma_create_srq_ex(3) and holds only integers and addresses; it is copied.
        let given = unsafe { attr.read() };
        if given.comp_mask & TYPE == 0 {
            return Err(libc::EINVAL);
        }
        if given.srq_type != ibv_srq_type::IBV_SRQT_BASIC {
            return Err(unsupported(
                "shared receive queues for XRC and for tag matching, which iWARP does not have",
            ));
        }
        let mut init = ibv_srq_init_attr { srq_context: given.srq_context, attr: given.attr };
        let pd = if given.comp_mask & PD == 0 { null_mut() } else { given.pd };
        // SAFETY: `id` and `pd` are as for rdma_create_srq_ex(3).
        unsafe { create(id, pd, &mut init) }?;
        // SAFETY: `attr` is writable: the actual attributes are returned in it.
        unsafe { addr_of_mut!((*attr).attr).write(init.attr) };
        Ok(())
    })();
    finish(result)
}

/// # Safety
///
/// As for rdma_create_srq(3); neither `id` nor `attr` is NULL.
unsafe fn create(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> Result<(), Errno> {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed and that no other thread uses at
    // this time, `pd` is NULL or has not been deallocated (rdma_create_srq(3)); its `context` never changes.
    unsafe {
        let c = id.read();
        if c.verbs.is_null() || !c.srq.is_null() {
            return Err(libc::EINVAL);
        }
        let pd = [pd, c.pd].into_iter().find(|pd| !pd.is_null()).unwrap_or_else(default_pd);
        if addr_of!((*pd).context).read() != c.verbs {
            return Err(libc::EINVAL);
        }
        let srq = verbs::ibv_create_srq(pd, attr);
        if srq.is_null() {
            return Err(sys::errno());
        }
        addr_of_mut!((*id).srq).write(srq);
        if c.pd.is_null() {
            addr_of_mut!((*id).pd).write(pd);
        }
    }
    Ok(())
}

/// Destroys the shared receive queue of an identifier, if it has one and no queue pair uses it.
///
/// # Safety
///
/// As for rdma_destroy_srq(3).
pub unsafe fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed. Its field `srq` is NULL or a
    // shared receive queue that the program does not use any more (rdma_destroy_srq(3)).
    unsafe {
        let srq = addr_of!((*id).srq).read();
        if !srq.is_null() && verbs::ibv_destroy_srq(srq) == 0 {
            addr_of_mut!((*id).srq).write(null_mut());
        }
    }
}
