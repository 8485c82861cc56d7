// SPDX-License-Identifier: BSD-3-Clause
//! The shared receive queue of an identifier: rdma_create_srq(3) and rdma_destroy_srq(3).

use libc::c_int;
use rdma_sys::{
    ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask, ibv_srq_type, rdma_cm_id,
};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::finish;
use super::pd::default_pd;
use crate::ffi::unsupported;
use crate::ffi::verbs;
use crate::sys::{self, Errno};

/// Creates the shared receive queue of an identifier. The queue pair created afterwards uses it, and others
/// can. If `pd` is NULL, the protection domain is that of the identifier or the default one of the device.
/// The actual attributes are stored in `attr`. The caller destroys the queue with [`rdma_destroy_srq`].
///
/// Returns 0, or -1 and errno. EINVAL: `id` or `attr` is NULL, the identifier has no device yet or already
/// has a shared receive queue, the protection domain belongs to another device, or as for ibv_create_srq(3).
/// ENOMEM.
///
/// # Safety
///
/// As for rdma_create_srq(3).
pub unsafe fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int {
    if id.is_null() || attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: neither `id` nor `attr` is NULL, and the other requirements of `create` are those of
    // rdma_create_srq(3), which the caller meets.
    finish(unsafe { create(id, pd, attr) })
}

/// As [`rdma_create_srq`], with the extended attributes. Further errors: EINVAL if `attr` does not specify
/// the type (IBV_SRQ_INIT_ATTR_TYPE), EOPNOTSUPP if the type is not IBV_SRQT_BASIC, since iWARP has neither
/// XRC nor tag matching.
///
/// # Safety
///
/// As for rdma_create_srq_ex(3).
pub unsafe fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    const TYPE: u32 = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE.0;
    const PD: u32 = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD.0;
    let result = (|| {
        if id.is_null() || attr.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `attr` is not NULL, and rdma_create_srq_ex(3) requires that it points to an
        // ibv_srq_init_attr_ex; it holds only integers and addresses, and is copied.
        let given = unsafe { attr.read() };
        if given.comp_mask & TYPE == 0 {
            return Err(libc::EINVAL);
        }
        if given.srq_type != ibv_srq_type::IBV_SRQT_BASIC {
            return Err(unsupported(
                "a shared receive queue for XRC or tag matching, which iWARP does not have",
            ));
        }
        let mut init = ibv_srq_init_attr { srq_context: given.srq_context, attr: given.attr };
        let pd = if given.comp_mask & PD == 0 { null_mut() } else { given.pd };
        // SAFETY: `id` is not NULL, `init` is a local variable, and the other requirements of `create` are
        // those of rdma_create_srq_ex(3), which the caller meets.
        unsafe { create(id, pd, &mut init) }?;
        // SAFETY: `attr` is valid for writes, as rdma_create_srq_ex(3) returns the actual attributes in it.
        unsafe { addr_of_mut!((*attr).attr).write(init.attr) };
        Ok(())
    })();
    finish(result)
}

/// Creates the shared receive queue of an identifier; see [`rdma_create_srq`].
///
/// # Safety
///
/// As for rdma_create_srq(3); neither `id` nor `attr` is NULL.
unsafe fn create(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> Result<(), Errno> {
    // SAFETY: rdma_create_srq(3) requires that `id` is an identifier of softverbs that has not been destroyed
    // and that no other thread changes at the same time, so the structure can be copied; and that `pd` is
    // NULL or has not been deallocated. Its `context` never changes.
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

/// Destroys the shared receive queue of an identifier. Does nothing if it has none, or while a queue pair
/// uses it.
///
/// # Safety
///
/// As for rdma_destroy_srq(3).
pub unsafe fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: rdma_destroy_srq(3) requires that `id` is an identifier of softverbs that has not been
    // destroyed, and that its field `srq` is NULL or a shared receive queue that the program does not use
    // afterwards.
    unsafe {
        let srq = addr_of!((*id).srq).read();
        if !srq.is_null() && verbs::ibv_destroy_srq(srq) == 0 {
            addr_of_mut!((*id).srq).write(null_mut());
        }
    }
}
