// SPDX-License-Identifier: BSD-3-Clause
//! The list of RDMA devices that rdma_cm uses (rdma_get_devices(3)): the software device only.

use libc::c_int;
use rdma_sys::ibv_context;
use std::ptr::null_mut;

use crate::ffi::soft0;

/// The list: one context, and NULL at the end.
type List = [*mut ibv_context; 2];

/// Returns the contexts of the devices of rdma_cm: that of the software device. The list ends with NULL; the
/// number of devices, 1, is stored in `num_devices` unless that is NULL. The caller frees the list with
/// [`rdma_free_devices`]. Never fails.
///
/// # Safety
///
/// As for rdma_get_devices(3).
pub unsafe fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let list: List = [soft0::context(), null_mut()];
    if !num_devices.is_null() {
        // SAFETY: `num_devices` is not NULL, so rdma_get_devices(3) requires that it is valid for writes of
        // an integer.
        unsafe { num_devices.write(1) };
    }
    Box::into_raw(Box::new(list)).cast()
}

/// Frees a list returned by [`rdma_get_devices`]; the devices stay open. Does nothing for NULL.
///
/// # Safety
///
/// As for rdma_free_devices(3).
pub unsafe fn rdma_free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        // SAFETY: `list` is not NULL, so rdma_free_devices(3) requires that `rdma_get_devices` has returned
        // it, from a Box of this type, and that it is freed once.
        drop(unsafe { Box::from_raw(list.cast::<List>()) });
    }
}
