// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues: creating, modifying, querying and destroying them.
//!
//! When fewer receives than the limit are posted, an asynchronous event is raised once, and the limit becomes
//! 0.

use libc::c_int;
use rdma_sys::{ibv_event_type, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr};
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

/// Creates a shared receive queue for `max_wr` receives (1 to 2^20) of up to `max_sge` scatter/gather entries
/// (0 to 16), which the caller destroys with [`ibv_destroy_srq`]. The actual `max_sge`, at least 1, is stored
/// in `attr`. NULL and errno: EINVAL (out of range), ENOMEM.
///
/// # Safety
///
/// As for ibv_create_srq(3).
pub unsafe fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: ibv_create_srq(3) requires that `attr` points to an ibv_srq_init_attr with these fields set.
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
    // SAFETY: ibv_create_srq(3) requires that `pd` was returned by ibv_alloc_pd and has not been deallocated.
    let own = unsafe { PdObject::own(pd) };
    let max_sge = max_sge.max(1);
    let queue = match Srq::new(own.number, max_wr, max_sge) {
        Ok(queue) => Arc::new(queue),
        Err(e) => return null_with(e),
    };
    // SAFETY: `attr` is valid for writes, as ibv_create_srq(3) returns the actual values in it.
    unsafe { addr_of_mut!((*attr).attr.max_sge).write(max_sge) };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: all-zero is a valid ibv_srq: it holds only integers and nullable pointers.
    let mut srq: ibv_srq = unsafe { std::mem::zeroed() };
    // SAFETY: ibv_create_srq(3) requires that `pd` has not been deallocated; its `context` never changes.
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

/// Destroys a shared receive queue; receives that were posted to it are dropped, and its asynchronous events
/// that were not fetched are discarded. Returns 0, or EBUSY while queue pairs use it.
///
/// # Safety
///
/// As for ibv_destroy_srq(3).
pub unsafe fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: ibv_destroy_srq(3) requires that `srq` was returned by ibv_create_srq and has not been
    // destroyed.
    if !unsafe { SrqObject::own(srq) }.is_unused() {
        return libc::EBUSY;
    }
    events::withdraw(srq as usize);
    // SAFETY: ibv_destroy_srq(3) requires that the program does not use `srq` afterwards, and no queue pair
    // uses it (checked above). It is counted in `users` of its protection domain, which therefore cannot be
    // deallocated before `users` is decremented here.
    unsafe {
        let pd = addr_of!((*srq).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        SrqObject::free(srq);
    }
    0
}

/// Stores the capacity of the queue in receives, the scatter/gather entries of each, and the limit, which is
/// 0 once its event was raised. Returns 0.
///
/// # Safety
///
/// As for ibv_query_srq(3).
pub unsafe fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: ibv_query_srq(3) requires that `srq` was returned by ibv_create_srq and has not been destroyed.
    let own = unsafe { SrqObject::own(srq) };
    let (max_wr, srq_limit) = own.limits();
    // SAFETY: ibv_query_srq(3) requires that `attr` is valid for writes.
    unsafe { attr.write(ibv_srq_attr { max_wr, max_sge: own.max_sge, srq_limit }) };
    0
}

/// Changes the capacity of the queue in receives (IBV_SRQ_MAX_WR), and the limit (IBV_SRQ_LIMIT): as soon as
/// fewer receives than that are posted, IBV_EVENT_SRQ_LIMIT_REACHED is raised, once. Returns 0 or an errno
/// value: EINVAL (an unknown attribute, a capacity below the number of posted receives or above 2^20, or a
/// limit above the capacity), ENOMEM. After an error nothing has changed.
///
/// # Safety
///
/// As for ibv_modify_srq(3).
pub unsafe fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    const MAX_WR: c_int = ibv_srq_attr_mask::IBV_SRQ_MAX_WR.0 as c_int;
    const LIMIT: c_int = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as c_int;
    if mask & !(MAX_WR | LIMIT) != 0 {
        return libc::EINVAL;
    }
    // SAFETY: ibv_modify_srq(3) requires that `attr` points to an ibv_srq_attr, which holds only integers and
    // is copied, and that `srq` was returned by ibv_create_srq and has not been destroyed.
    let (given, own) = unsafe { (attr.read(), SrqObject::own(srq)) };
    let room = (mask & MAX_WR != 0).then_some(given.max_wr);
    let limit = (mask & LIMIT != 0).then_some(given.srq_limit);
    own.modify(room, limit).err().unwrap_or(0)
}
