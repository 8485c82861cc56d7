// SPDX-License-Identifier: BSD-3-Clause
//! Opening and closing the device.
//!
//! The context exists once per process and stays valid, so opening adds the descriptor of asynchronous events
//! and closing does nothing. A child after fork(2) opens the device again to get events.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_device};
use std::ptr::null_mut;

use super::{events, null_with, transport};
use crate::ffi::context::{owns, owns_device};
use crate::ffi::soft0;
use crate::sys::set_errno;

/// Opens the device. Every call returns the same context, which stays valid until the process ends. NULL and
/// errno: EINVAL (`device` is not the software device), EMFILE, ENFILE or ENOMEM (the descriptor of
/// asynchronous events cannot be created).
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
    // SAFETY: `soft0::context` returns the context of the software device.
    match unsafe { events::open(context) } {
        Ok(_) => {
            transport().opened();
            context
        }
        Err(e) => null_with(e),
    }
}

/// Does nothing and returns 0: the context stays valid for everyone else who has opened the device. EINVAL:
/// `context` is not the context of the software device.
///
/// # Safety
///
/// As for ibv_close_device(3).
pub unsafe fn ibv_close_device(context: *mut ibv_context) -> c_int {
    if owns(context) { 0 } else { libc::EINVAL }
}

/// Creates the descriptor `async_fd` of the context, which is readable while an event is queued.
/// ibv_open_device(3) does this, too; a program that gets the context from an identifier needs this call.
/// After a failure, which is not reported, there are no asynchronous events.
pub fn with_async_events() {
    // SAFETY: `soft0::context` returns the context of the software device.
    let _ = unsafe { events::open(soft0::context()) };
}
