// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs.

use rdma_sys::{ibv_context, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_type};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cq::CqObject;
use super::pd::PdObject;
use super::srq::SrqObject;
use crate::ffi::context::next_number;
use crate::ffi::object::Object;
use crate::limits::*;
use crate::qp::{Attributes, Qp};
use crate::sys::Errno;

pub(crate) type QpObject = Object<ibv_qp, Arc<Qp>>;

/// Creates a queue pair for an identifier. EINVAL: the type is not RC, a completion queue or the protection domain is missing, the shared
/// receive queue belongs to another protection domain, or a capability exceeds [`MAX_QP_WR`], [`MAX_SGE`] or [`MAX_INLINE`]. The
/// max_inline_data of the queue pair is stored in `attr`.
///
/// # Safety
///
/// `attr` must be as for rdma_create_qp_ex(3), with objects of softverbs.
pub(crate) unsafe fn create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    const MASK_PD: u32 = 1;
    // SAFETY: `attr` points to an ibv_qp_init_attr_ex (rdma_create_qp_ex(3)), which holds only integers and addresses; it is copied.
    let given = unsafe { attr.read() };
    let cap = given.cap;
    let refused = given.qp_type != ibv_qp_type::IBV_QPT_RC
        || given.comp_mask & MASK_PD == 0
        || given.pd.is_null()
        || given.send_cq.is_null()
        || given.recv_cq.is_null()
        || cap.max_send_wr > MAX_QP_WR
        || cap.max_recv_wr > MAX_QP_WR
        || cap.max_send_sge > MAX_SGE
        || cap.max_recv_sge > MAX_SGE
        || cap.max_inline_data as usize > MAX_INLINE;
    if refused {
        return Err(libc::EINVAL);
    }
    // SAFETY: the three objects are objects of softverbs that have not been destroyed (rdma_create_qp_ex(3)); none is NULL.
    let (pd, send_cq, recv_cq) =
        unsafe { (PdObject::own(given.pd), CqObject::own(given.send_cq), CqObject::own(given.recv_cq)) };
    // SAFETY: `srq` is NULL or a shared receive queue of softverbs that has not been destroyed (rdma_create_qp_ex(3)).
    let srq = (!given.srq.is_null()).then(|| unsafe { SrqObject::own(given.srq) }.clone());
    if srq.as_ref().is_some_and(|srq| srq.pd != pd.number) {
        return Err(libc::EINVAL);
    }
    let num = next_number();
    let inner = Qp::new(Attributes {
        num,
        pd: pd.number,
        send_cq: send_cq.queue.clone(),
        recv_cq: recv_cq.queue.clone(),
        srq,
        max_send_wr: cap.max_send_wr,
        max_recv_wr: if given.srq.is_null() { cap.max_recv_wr } else { 0 },
        signal_all: given.sq_sig_all != 0,
    })?;
    pd.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: all-zero is a valid ibv_qp.
    let mut qp: ibv_qp = unsafe { std::mem::zeroed() };
    qp.context = context;
    qp.qp_context = given.qp_context;
    qp.pd = given.pd;
    qp.send_cq = given.send_cq;
    qp.recv_cq = given.recv_cq;
    qp.srq = given.srq;
    qp.handle = num;
    qp.qp_num = num;
    qp.qp_type = given.qp_type;
    qp.state = rdma_sys::ibv_qp_state::IBV_QPS_INIT;
    // SAFETY: `attr` is writable: rdma_create_qp_ex(3) returns the actual capabilities in it.
    unsafe { addr_of_mut!((*attr).cap.max_inline_data).write(MAX_INLINE as u32) };
    log::debug!("queue pair {num} created");
    Ok(QpObject::create(qp, inner))
}

/// Destroys a queue pair. Its outstanding work requests do not complete any more, and its connection is closed.
///
/// # Safety
///
/// `qp` must come from [`create_qp`] and not be used afterwards.
pub(crate) unsafe fn destroy_qp(qp: *mut ibv_qp) {
    // SAFETY: `qp` was returned by `create_qp` and is not used afterwards. Its protection domain cannot be deallocated before `users` is
    // decremented.
    unsafe {
        QpObject::own(qp).destroy();
        let pd = addr_of!((*qp).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        QpObject::free(qp);
    }
}
