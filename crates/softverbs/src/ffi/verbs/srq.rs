// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues.

use libc::c_int;
use rdma_sys::{ibv_pd, ibv_srq, ibv_srq_init_attr};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::null_with;
use super::pd::PdObject;
use crate::ffi::context::next_number;
use crate::ffi::object::Object;
use crate::limits::*;
use crate::srq::Srq;

pub(crate) type SrqObject = Object<ibv_srq, Arc<Srq>>;

/// Creates a shared receive queue and stores its actual number of scatter/gather entries, at least one, in `attr`. EINVAL: no receives or
/// more than 2^20, or more than 16 scatter/gather entries. ENOMEM.
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
    SrqObject::create(srq, queue)
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
    // SAFETY: the program does not use `srq` any more (ibv_destroy_srq(3)). Its protection domain cannot be deallocated before `users` is
    // decremented.
    unsafe {
        let pd = addr_of!((*srq).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        SrqObject::free(srq);
    }
    0
}
