// SPDX-License-Identifier: BSD-3-Clause
//! The device list (ibv_get_device_list(3)): the devices of the real library, then `soft0`.
//!
//! A list is an array of this library, and keeps the list of the real library, which owns its devices, until
//! the program frees it.

use libc::c_int;
use rdma_sys::ibv_device;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// A list that the program has not freed: its address, its length including the NULL at the end, and the list
/// of the real library, or NULL.
struct List {
    list: usize,
    length: usize,
    real: usize,
}

static LISTS: Mutex<Vec<List>> = Mutex::new(Vec::new());

/// The lists that the program has not freed.
fn lists() -> std::sync::MutexGuard<'static, Vec<List>> {
    LISTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `soft0` is the only device to list (SOFTVERBS_ONLY, set by `rpma run --only`).
fn only_soft0() -> bool {
    softverbs::config::variable("SOFTVERBS_ONLY").is_some_and(|value| !value.is_empty() && value != "0")
}

/// The list of the real library, which may be NULL, and the devices in it.
fn real_devices() -> (*mut *mut ibv_device, Vec<*mut ibv_device>) {
    if only_soft0() {
        return (null_mut(), Vec::new());
    }
    let mut count: c_int = 0;
    let list = real!("IBVERBS_1.1" ibv_get_device_list(&raw mut count => *mut c_int) -> *mut *mut ibv_device);
    let count = if list.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    // SAFETY: `count` is 0 if the list is NULL; otherwise ibv_get_device_list(3) has returned a list of
    // `count` devices, and `i` is below `count`.
    let devices = (0..count).map(|i| unsafe { list.add(i).read() }).collect();
    (list, devices)
}

/// Returns a list of the devices of the host, `soft0` last, followed by NULL, and stores their number in
/// `num_devices` unless that is NULL. The caller frees the list with [`ibv_free_device_list`]. Never fails:
/// if the real library reports an error, the list has `soft0` only.
///
/// # Safety
///
/// As for ibv_get_device_list(3).
pub(crate) unsafe fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let (real, mut devices) = real_devices();
    devices.push(softverbs::device());
    if !num_devices.is_null() {
        // SAFETY: `num_devices` is not NULL, so ibv_get_device_list(3) requires that it is valid for writes
        // of an integer.
        unsafe { num_devices.write(devices.len() as c_int) };
    }
    devices.push(null_mut());
    let length = devices.len();
    let list: *mut *mut ibv_device = Box::into_raw(devices.into_boxed_slice()).cast();
    lists().push(List { list: list as usize, length, real: real as usize });
    list
}

/// Frees a list returned by [`ibv_get_device_list`]. Any other list is passed to the real library.
///
/// # Safety
///
/// As for ibv_free_device_list(3).
pub(crate) unsafe fn ibv_free_device_list(list: *mut *mut ibv_device) {
    let known = {
        let mut lists = lists();
        let at = lists.iter().position(|known| known.list == list as usize);
        at.map(|at| lists.swap_remove(at))
    };
    let real = match known {
        Some(known) => {
            // SAFETY: `ibv_get_device_list` has made the list from a boxed slice of this length. It was still
            // recorded and has just been removed, so no other call frees it.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, known.length)) });
            known.real as *mut *mut ibv_device
        }
        None => list,
    };
    if !real.is_null() {
        real!("IBVERBS_1.1" ibv_free_device_list(real => *mut *mut ibv_device) -> ());
    }
}
