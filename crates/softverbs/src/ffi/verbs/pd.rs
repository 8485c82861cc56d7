// SPDX-License-Identifier: BSD-3-Clause
//! Protection domains.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_pd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::null_with;
use crate::ffi::context::{next_number, owns};
use crate::ffi::object::Object;

pub(crate) struct PdOwn {
    pub(crate) number: u32,
    pub(crate) users: AtomicU32,
}

pub(crate) type PdObject = Object<ibv_pd, PdOwn>;

/// Creates a protection domain. EINVAL if the context is not that of the software device.
///
/// # Safety
///
/// As for ibv_alloc_pd(3).
pub unsafe fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    if !owns(context) {
        return null_with(libc::EINVAL);
    }
    let number = next_number();
    PdObject::create(ibv_pd { context, handle: number }, PdOwn { number, users: AtomicU32::new(0) })
}

/// Deallocates a protection domain. EBUSY while it has memory regions, queue pairs or shared receive queues.
///
/// # Safety
///
/// As for ibv_dealloc_pd(3).
pub unsafe fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_dealloc_pd(3)).
    if unsafe { PdObject::own(pd) }.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: the program does not use `pd` any more (ibv_dealloc_pd(3)), and no object refers to it: `users`
    // is 0.
    unsafe { PdObject::free(pd) };
    0
}
