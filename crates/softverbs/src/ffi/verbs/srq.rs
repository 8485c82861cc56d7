// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues.

use libc::c_int;
use rdma_sys::{ibv_event_type, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pd::PdObject;
use super::{events, null_with};
use crate::ffi::context::next_number;
use crate::ffi::object::Object;
use crate::limits::*;
use crate::srq::Srq;
use transport::limits::MAX_SGE;

pub(crate) type SrqObject = Object<ibv_srq, Arc<Srq>>;

/// Creates a shared receive queue and stores its actual number of scatter/gather entries, at least one, in
/// `attr`. EINVAL: no receives or more than 2^20, or more than 16 scatter/gather entries. ENOMEM.
///
/// # Safety
///
/// As for ibv_create_srq(3).
pub unsafe fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: `attr` points to an ibv_srq_init_attr (ibv_create_srq(3)).
    let (srq_context, max_wr, max_sge) = unsafe {
        (
            addr_of!((*attr).srq_context).read(),
            addr_of!((*attr).attr.max_wr).read(),
            addr_of!((*attr).attr.max_sge).read(),
        )
    };
    if max_wr == 0 || max_wr > MAX_SRQ_WR || max_sge as usize > MAX_SGE {
        return null_with(libc::EINVAL);
    }
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_create_srq(3)).
    let own = unsafe { PdObject::own(pd) };
    let max_sge = max_sge.max(1);
    let queue = match Srq::new(own.number, max_wr, max_sge) {
        Ok(queue) => Arc::new(queue),
        Err(e) => return null_with(e),
    };
    // SAFETY: `attr` is writable: ibv_create_srq(3) returns the actual values in it.
    unsafe { addr_of_mut!((*attr).attr.max_sge).write(max_sge) };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: all-zero is a valid ibv_srq.
    let mut srq: ibv_srq = unsafe { std::mem::zeroed() };
    // SAFETY: `pd` has not been deallocated, and its `context` never changes.
    srq.context = unsafe { addr_of!((*pd).context).read() };
    srq.srq_context = srq_context;
    srq.pd = pd;
    srq.handle = next_number();
    let limited = queue.clone();
    let srq = SrqObject::create(srq, queue);
    let handle = srq as usize;
    limited.on_limit(Arc::new(move || events::raise(ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED, handle)));
    srq
}

/// Destroys a shared receive queue. EBUSY while queue pairs use it.
///
/// # Safety
///
/// As for ibv_destroy_srq(3).
pub unsafe fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: `srq` was returned by ibv_create_srq and has not been destroyed (ibv_destroy_srq(3)).
    if !unsafe { SrqObject::own(srq) }.is_unused() {
        return libc::EBUSY;
    }
    events::withdraw(srq as usize);
    // SAFETY: the program does not use `srq` any more (ibv_destroy_srq(3)). Its protection domain cannot be
    // deallocated before `users` is decremented.
    unsafe {
        let pd = addr_of!((*srq).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        SrqObject::free(srq);
    }
    0
}

/// Returns the number of receives that the queue has room for, the entries of each, and the limit, which is 0
/// once its event was generated.
///
/// # Safety
///
/// As for ibv_query_srq(3).
pub unsafe fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: `srq` was returned by ibv_create_srq and has not been destroyed (ibv_query_srq(3)).
    let own = unsafe { SrqObject::own(srq) };
    let (max_wr, srq_limit) = own.limits();
    // SAFETY: `attr` is valid for writes (ibv_query_srq(3)).
    unsafe { attr.write(ibv_srq_attr { max_wr, max_sge: own.max_sge, srq_limit }) };
    0
}

/// Changes the number of receives that the queue has room for (IBV_SRQ_MAX_WR), and the limit
/// (IBV_SRQ_LIMIT): as soon as fewer receives are posted, IBV_EVENT_SRQ_LIMIT_REACHED is generated, once.
/// EINVAL: an unknown attribute, fewer receives than are posted or more than 2^20, or a limit above the
/// number of receives; then nothing is changed. ENOMEM.
///
/// # Safety
///
/// As for ibv_modify_srq(3).
pub unsafe fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    const MASK_MAX_WR: c_int = 1;
    const MASK_LIMIT: c_int = 2;
    if mask & !(MASK_MAX_WR | MASK_LIMIT) != 0 {
        return libc::EINVAL;
    }
    // SAFETY: `attr` points to an ibv_srq_attr (ibv_modify_srq(3)), which holds only integers; it is copied.
    // `srq` was returned by ibv_create_srq and has not been destroyed.
    let (given, own) = unsafe { (attr.read(), SrqObject::own(srq)) };
    let room = (mask & MASK_MAX_WR != 0).then_some(given.max_wr);
    let limit = (mask & MASK_LIMIT != 0).then_some(given.srq_limit);
    own.modify(room, limit).err().unwrap_or(0)
}
