// SPDX-License-Identifier: BSD-3-Clause
//! Opens the device: its context, and the descriptor of its asynchronous events.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_device};
use std::ptr::null_mut;

use super::{events, null_with};
use crate::ffi::context::{owns, owns_device};
use crate::ffi::soft0;
use crate::sys::set_errno;

/// Opens the device. There is one context in a process, which every call returns. NULL and EINVAL if the
/// device is not ours; EMFILE, ENFILE, ENOMEM: there is no descriptor for its asynchronous events.
///
/// # Safety
///
/// As for ibv_open_device(3).
pub unsafe fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    if !owns_device(device) {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    let context = soft0::context();
    // SAFETY: `context` is that of the software device.
    match unsafe { events::open(context) } {
        Ok(_) => context,
        Err(e) => null_with(e),
    }
}

/// Does nothing and returns 0: the context remains valid for all others that have opened the device. EINVAL
/// if it is not ours.
///
/// # Safety
///
/// As for ibv_close_device(3).
pub unsafe fn ibv_close_device(context: *mut ibv_context) -> c_int {
    if owns(context) { 0 } else { libc::EINVAL }
}

/// Creates the descriptor `async_fd` of the context, which is readable while an event is queued. Programs
/// that open the device by name have it from ibv_open_device(3); this is for those that get the context from
/// an identifier. Fails silently: then there are no events.
pub fn with_async_events() {
    // SAFETY: this is the context of the software device.
    let _ = unsafe { events::open(soft0::context()) };
}
