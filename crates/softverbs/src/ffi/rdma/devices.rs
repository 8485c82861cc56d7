// SPDX-License-Identifier: BSD-3-Clause
//! The list of devices.

use libc::c_int;
use rdma_sys::ibv_context;
use std::ptr::null_mut;

use crate::ffi::soft0;

type List = [*mut ibv_context; 2];

/// The devices that rdma_cm has: the software device. The list ends with NULL; its length is stored in
/// `num_devices` unless that is NULL.
///
/// # Safety
///
/// As for rdma_get_devices(3).
pub unsafe fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let list: List = [soft0::context(), null_mut()];
    if !num_devices.is_null() {
        // SAFETY: `num_devices` points to an integer for the result (rdma_get_devices(3)).
        unsafe { num_devices.write(1) };
    }
    Box::into_raw(Box::new(list)).cast()
}

/// Frees the result of [`rdma_get_devices`]; the devices remain open. Does nothing for NULL.
///
/// # Safety
///
/// As for rdma_free_devices(3).
pub unsafe fn rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: `list` was returned by `rdma_get_devices`, and is freed once (rdma_free_devices(3)).
        drop(unsafe { Box::from_raw(list.cast::<List>()) });
    }
}
