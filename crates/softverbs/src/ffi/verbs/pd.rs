// SPDX-License-Identifier: BSD-3-Clause
//! Protection domains.
//!
//! A protection domain is a number, which its regions, windows, queue pairs and shared receive queues carry,
//! and the count of these objects.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_pd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::null_with;
use crate::ffi::context::{next_number, owns};
use crate::ffi::object::Object;

/// The data behind the C structure of a protection domain.
pub(crate) struct PdOwn {
    pub(crate) number: u32,
    /// The objects that belong to it.
    pub(crate) users: AtomicU32,
}

pub(crate) type PdObject = Object<ibv_pd, PdOwn>;

/// Allocates a protection domain, which the caller deallocates with [`ibv_dealloc_pd`]. NULL and EINVAL:
/// `context` is not the context of the software device.
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

/// Deallocates a protection domain. Returns 0, or EBUSY while it has memory regions, memory windows, queue
/// pairs or shared receive queues.
///
/// # Safety
///
/// As for ibv_dealloc_pd(3).
pub unsafe fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: ibv_dealloc_pd(3) requires that `pd` was returned by ibv_alloc_pd and has not been deallocated.
    if unsafe { PdObject::own(pd) }.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: ibv_dealloc_pd(3) requires that the program does not use `pd` afterwards, and `users` is 0, so
    // no object refers to it.
    unsafe { PdObject::free(pd) };
    0
}
