// SPDX-License-Identifier: BSD-3-Clause
//! The queue pair of an identifier.

use libc::c_int;
use rdma_sys::{
    ibv_cq, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, rdma_cm_id,
};
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::Arc;

use super::finish;
use super::handle::IdObject;
use super::pd::default_pd;
use super::queues::Made;
use crate::ffi::verbs;
use crate::lock;
use crate::qp::Qp;
use crate::sys::Errno;

const MASK_PD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;

/// The connection behind a queue pair.
///
/// # Safety
///
/// `qp` must be a queue pair of softverbs that has not been destroyed.
pub(super) unsafe fn connection_of(qp: *mut ibv_qp) -> Arc<Qp> {
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs that has not been destroyed.
    unsafe { verbs::QpObject::own(qp) }.qp.clone()
}

/// Creates the queue pair of an identifier, as `create_qp` in [`crate::verbs`]; its state is INIT, in which
/// it takes receives. What `attr` leaves open is completed, and stored in it:
///
/// - without a protection domain: that of the identifier, or the default one of the device;
/// - without a completion queue: that of the identifier, or a new one, with a channel, of as many entries as
///   the queue pair has requests of this kind. The new ones are stored in the identifier (`send_cq`,
///   `send_cq_channel`, `recv_cq`, `recv_cq_channel`), their context is the identifier, and
///   [`rdma_destroy_qp`] destroys them;
/// - without a shared receive queue: that of the identifier, if it has one.
///
/// EINVAL also if the identifier has no device yet or has a queue pair, if an object belongs to another
/// device, and if a completion queue is not the one that the identifier has. EMFILE, ENFILE, ENOMEM. After an
/// error `attr` and the identifier are as before.
///
/// # Safety
///
/// As for rdma_create_qp_ex(3).
pub unsafe fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    if id.is_null() || attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `attr` is as for rdma_create_qp_ex(3) and holds only integers and addresses; it is copied.
    let mut full = unsafe { attr.read() };
    // SAFETY: `id` and the objects in `full` are as for rdma_create_qp_ex(3); `attr` is writable.
    finish(unsafe { create(id, &mut full) }.map(|()| unsafe { attr.write(full) }))
}

/// As [`rdma_create_qp_ex`], with `pd` or, if that is NULL, the default protection domain.
///
/// # Safety
///
/// As for rdma_create_qp(3).
pub unsafe fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int {
    if id.is_null() || attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `attr` is as for rdma_create_qp(3) and holds only integers and addresses; it is copied.
    let mut full = verbs::extended(&unsafe { attr.read() }, pd);
    // SAFETY: `id` and the objects in `full` are as for rdma_create_qp(3).
    let result = unsafe { create(id, &mut full) };
    if result.is_ok() {
        // SAFETY: `attr` is writable: rdma_create_qp(3) returns the actual capabilities and properties in it.
        unsafe {
            addr_of_mut!((*attr).send_cq).write(full.send_cq);
            addr_of_mut!((*attr).recv_cq).write(full.recv_cq);
            addr_of_mut!((*attr).srq).write(full.srq);
            addr_of_mut!((*attr).cap).write(full.cap);
        }
    }
    finish(result)
}

/// The completion queue that the program gives, in the attributes or in the identifier; NULL if one has to be
/// made. EINVAL if these differ.
fn given_cq(attr: *mut ibv_cq, id: *mut ibv_cq) -> Result<*mut ibv_cq, Errno> {
    match (attr.is_null(), id.is_null()) {
        (true, _) => Ok(id),
        (false, true) => Ok(attr),
        (false, false) if attr == id => Ok(attr),
        (false, false) => Err(libc::EINVAL),
    }
}

/// Creates the queue pair of an identifier, and completes `attr`.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed, and `attr` as for
/// rdma_create_qp_ex(3).
unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: `id` has not been destroyed, and no other thread uses it at this time (rdma_create_qp(3)).
    let (own, verbs, c) = unsafe { (IdObject::own(id), addr_of!((*id).verbs).read(), id.read()) };
    if verbs.is_null() || !c.qp.is_null() || own.cm.qp().is_some() {
        return Err(libc::EINVAL);
    }
    if attr.comp_mask & MASK_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= MASK_PD;
        attr.pd = if c.pd.is_null() { default_pd() } else { c.pd };
    }
    attr.send_cq = given_cq(attr.send_cq, c.send_cq)?;
    attr.recv_cq = given_cq(attr.recv_cq, c.recv_cq)?;
    if attr.srq.is_null() {
        attr.srq = c.srq;
    }
    // SAFETY: the objects are as for rdma_create_qp_ex(3), and the protection domain is not NULL.
    if !unsafe { verbs::are_of(verbs, attr) } {
        return Err(libc::EINVAL);
    }
    let mut made = Made::default();
    // SAFETY: `verbs` is the context of `id`; the objects in `attr` are of softverbs, and `qp` has just been
    // created.
    let created = unsafe {
        (|| {
            if attr.send_cq.is_null() {
                attr.send_cq = made.send(verbs, id, attr.cap.max_send_wr)?;
            }
            if attr.recv_cq.is_null() {
                let shared = if attr.srq.is_null() { 0 } else { verbs::SrqObject::own(attr.srq).capacity() };
                attr.recv_cq = made.recv(verbs, id, attr.cap.max_recv_wr.max(shared))?;
            }
            verbs::create_qp(verbs, attr)
        })()
    };
    match created {
        Ok(qp) => {
            // SAFETY: `qp` has just been created and `id` has not been destroyed. The program does not read
            // these fields before this function has returned.
            unsafe {
                verbs::enter_init(qp);
                own.cm.set_qp(Some(connection_of(qp)));
                made.show(id);
                addr_of_mut!((*id).qp).write(qp);
                addr_of_mut!((*id).pd).write(attr.pd);
            }
            *lock(&own.made) = made;
            Ok(())
        }
        Err(e) => {
            // SAFETY: the program has not seen these queues, and `id` has not been destroyed; it had no
            // queues in their place.
            unsafe { made.destroy(id) };
            Err(e)
        }
    }
}

/// Destroys the queue pair of an identifier, if it has one, and the completion queues and channels that were
/// made for it.
///
/// # Safety
///
/// As for rdma_destroy_qp(3).
pub unsafe fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed, and its queue pair and the
    // queues made for it are not used any more (rdma_destroy_qp(3)). Its field `qp` is NULL or a queue pair
    // of softverbs.
    unsafe {
        let qp = addr_of!((*id).qp).read();
        if qp.is_null() {
            return;
        }
        let own = IdObject::own(id);
        addr_of_mut!((*id).qp).write(null_mut());
        own.cm.set_qp(None);
        verbs::destroy_qp(qp);
        let made = std::mem::take(&mut *lock(&own.made));
        made.destroy(id);
    }
}
