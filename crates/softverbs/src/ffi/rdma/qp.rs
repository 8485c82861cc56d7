// SPDX-License-Identifier: BSD-3-Clause
//! The queue pair of an identifier: rdma_create_qp(3) and rdma_destroy_qp(3).
//!
//! A queue pair created here belongs to its identifier and starts in the state INIT, one for datagrams in
//! RTS. Completion queues that the program does not supply are created together with their channels, and
//! destroyed together with the queue pair.

use libc::c_int;
use rdma_sys::{
    ibv_cq, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, rdma_cm_id,
};
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::Arc;

use super::finish;
use super::handle::IdObject;
use super::pd::default_pd;
use super::queues::CreatedQueues;
use crate::ffi::verbs;
use crate::lock;
use crate::qp::Qp;
use crate::sys::Errno;

const MASK_PD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;

/// The internal queue pair behind the C structure.
///
/// # Safety
///
/// `qp` must be a queue pair of softverbs that has not been destroyed.
pub(super) unsafe fn connection_of(qp: *mut ibv_qp) -> Arc<Qp> {
    // SAFETY: this function requires that `qp` is a queue pair of softverbs that has not been destroyed.
    unsafe { verbs::QpObject::own(qp) }.qp.clone()
}

/// Creates the queue pair of an identifier, as ibv_create_qp(3) does, but in the state INIT, in which it
/// accepts receives; for datagrams (RDMA_PS_UDP) in the state RTS, with the Q_Key RDMA_UDP_QKEY. What `attr`
/// does not specify is supplemented, and stored in `attr`:
///
/// - no protection domain: that of the identifier, or the default one of the device;
/// - no completion queue: that of the identifier, or a new one with a channel, which has as many entries as
///   the queue pair has requests of this kind. New ones are stored in the identifier (`send_cq`,
///   `send_cq_channel`, `recv_cq`, `recv_cq_channel`), their context is the identifier, and
///   [`rdma_destroy_qp`] destroys them;
/// - no shared receive queue: that of the identifier, if it has one.
///
/// Returns 0, or -1 and errno. EINVAL: a NULL pointer, an identifier that has no device yet or already has a
/// queue pair, a type other than the one that its port space has (IBV_QPT_RC, for RDMA_PS_UDP IBV_QPT_UD), an
/// object of another device, a completion queue other than the identifier's, or as for ibv_create_qp(3).
/// EOPNOTSUPP as for ibv_create_qp(3). EMFILE, ENFILE, ENOMEM. After an error `attr` and the identifier are
/// unchanged.
///
/// # Safety
///
/// As for rdma_create_qp_ex(3).
pub unsafe fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    if id.is_null() || attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `attr` is not NULL, and rdma_create_qp_ex(3) requires that it points to an ibv_qp_init_attr_ex;
    // it holds only integers and addresses, and is copied.
    let mut full = unsafe { attr.read() };
    // SAFETY: the caller meets the requirements of rdma_create_qp_ex(3) for `id` and the objects in `full`,
    // which are those of `create`; and `attr` is valid for writes, as that page returns the actual attributes
    // in it.
    finish(unsafe { create(id, &mut full) }.map(|()| unsafe { attr.write(full) }))
}

/// As [`rdma_create_qp_ex`], with the protection domain `pd`; if that is NULL, with that of the identifier or
/// the default one. The completion queues, the shared receive queue and the capabilities are stored in
/// `attr`.
///
/// # Safety
///
/// As for rdma_create_qp(3).
pub unsafe fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int {
    if id.is_null() || attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `attr` is not NULL, and rdma_create_qp(3) requires that it points to an ibv_qp_init_attr; it
    // holds only integers and addresses, and is copied.
    let mut full = verbs::extended(&unsafe { attr.read() }, pd);
    // SAFETY: the caller meets the requirements of rdma_create_qp(3) for `id` and the objects in `full`,
    // which are those of `create`.
    let result = unsafe { create(id, &mut full) };
    if result.is_ok() {
        // SAFETY: `attr` is valid for writes, as rdma_create_qp(3) returns the actual attributes in it.
        unsafe {
            addr_of_mut!((*attr).send_cq).write(full.send_cq);
            addr_of_mut!((*attr).recv_cq).write(full.recv_cq);
            addr_of_mut!((*attr).srq).write(full.srq);
            addr_of_mut!((*attr).cap).write(full.cap);
        }
    }
    finish(result)
}

/// The completion queue that the program supplies, in the attributes or in the identifier; NULL if one must
/// be created. EINVAL: the two differ.
fn given_cq(attr: *mut ibv_cq, id: *mut ibv_cq) -> Result<*mut ibv_cq, Errno> {
    match (attr.is_null(), id.is_null()) {
        (true, _) => Ok(id),
        (false, true) => Ok(attr),
        (false, false) if attr == id => Ok(attr),
        (false, false) => Err(libc::EINVAL),
    }
}

/// Creates the queue pair of an identifier and supplements `attr`; see [`rdma_create_qp_ex`].
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed, and `attr` as for
/// rdma_create_qp_ex(3).
unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` has not been destroyed. rdma_create_qp(3) requires that no
    // other thread changes it at the same time, so the structure can be copied.
    let (own, verbs, c) = unsafe { (IdObject::own(id), addr_of!((*id).verbs).read(), id.read()) };
    if verbs.is_null() || !c.qp.is_null() || own.cm.qp().is_some() || attr.qp_type != c.qp_type {
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
    // SAFETY: rdma_create_qp_ex(3) requires that the objects have not been destroyed; the protection domain
    // is not NULL.
    if !unsafe { verbs::are_of(verbs, attr) } {
        return Err(libc::EINVAL);
    }
    let mut queues = CreatedQueues::default();
    // SAFETY: `verbs` is the context of `id`, and `are_of` has found that the objects in `attr` belong to it;
    // the caller guarantees that they have not been destroyed.
    let created = unsafe {
        (|| {
            if attr.send_cq.is_null() {
                attr.send_cq = queues.send(verbs, id, attr.cap.max_send_wr)?;
            }
            if attr.recv_cq.is_null() {
                let shared = if attr.srq.is_null() { 0 } else { verbs::SrqObject::own(attr.srq).capacity() };
                attr.recv_cq = queues.recv(verbs, id, attr.cap.max_recv_wr.max(shared))?;
            }
            let qp = verbs::create_qp(verbs, attr)?;
            match verbs::enter_init(qp) {
                Ok(()) => Ok(qp),
                Err(e) => {
                    verbs::destroy_qp(qp);
                    Err(e)
                }
            }
        })()
    };
    match created {
        Ok(qp) => {
            // SAFETY: `qp` has just been created, and the caller guarantees that `id` has not been destroyed.
            // The program reads these fields only after this function has returned.
            unsafe {
                own.cm.set_qp(Some(connection_of(qp)));
                queues.store(id);
                addr_of_mut!((*id).qp).write(qp);
                addr_of_mut!((*id).pd).write(attr.pd);
            }
            *lock(&own.queues) = queues;
            Ok(())
        }
        Err(e) => {
            // SAFETY: the program has not seen the new queues, so nothing uses them. `id` has not been
            // destroyed, and the fields that are set to NULL were NULL before.
            unsafe { queues.destroy(id) };
            Err(e)
        }
    }
}

/// Destroys the queue pair of an identifier, if it has one, and the completion queues and channels that were
/// created for it. A completion queue that another queue pair still uses is not destroyed. The connection is
/// closed.
///
/// # Safety
///
/// As for rdma_destroy_qp(3).
pub unsafe fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: rdma_destroy_qp(3) requires that `id` is an identifier of softverbs that has not been
    // destroyed, and that its queue pair and the queues created for it are not used afterwards. Its field
    // `qp` is NULL or a queue pair of softverbs.
    unsafe {
        let qp = addr_of!((*id).qp).read();
        if qp.is_null() {
            return;
        }
        let own = IdObject::own(id);
        addr_of_mut!((*id).qp).write(null_mut());
        own.cm.set_qp(None);
        verbs::destroy_qp(qp);
        let queues = std::mem::take(&mut *lock(&own.queues));
        queues.destroy(id);
    }
}
