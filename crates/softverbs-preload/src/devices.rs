// SPDX-License-Identifier: BSD-3-Clause
//! The list of devices: those of the real library, then `soft0`.

use libc::c_int;
use rdma_sys::ibv_device;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// A list that was given out: its address, its length with the NULL at the end, and the list of the real
/// library, or NULL.
struct Given {
    list: usize,
    length: usize,
    real: usize,
}

static GIVEN: Mutex<Vec<Given>> = Mutex::new(Vec::new());

fn given() -> std::sync::MutexGuard<'static, Vec<Given>> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `soft0` is to be the only device: `rpma run --only`.
fn only_soft0() -> bool {
    softverbs::config::variable("SOFTVERBS_ONLY").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Devices of the real library: its list, which may be NULL, and its devices.
fn real_devices() -> (*mut *mut ibv_device, Vec<*mut ibv_device>) {
    if only_soft0() {
        return (null_mut(), Vec::new());
    }
    let mut count: c_int = 0;
    let list = real!("IBVERBS_1.1" ibv_get_device_list(&raw mut count => *mut c_int) -> *mut *mut ibv_device);
    let count = if list.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    // SAFETY: the list is not NULL if there is an element, and it has `count` elements
    // (ibv_get_device_list(3)).
    let devices = (0..count).map(|i| unsafe { list.add(i).read() }).collect();
    (list, devices)
}

/// Returns the devices of the host, `soft0` at the end.
///
/// # Safety
///
/// As for ibv_get_device_list(3).
pub(crate) unsafe fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let (real, mut devices) = real_devices();
    devices.push(softverbs::device());
    if !num_devices.is_null() {
        // SAFETY: `num_devices` is not NULL, so it is valid for writes (ibv_get_device_list(3)).
        unsafe { num_devices.write(devices.len() as c_int) };
    }
    devices.push(null_mut());
    let length = devices.len();
    let list: *mut *mut ibv_device = Box::into_raw(devices.into_boxed_slice()).cast();
    given().push(Given { list: list as usize, length, real: real as usize });
    list
}

/// Frees a list that [`ibv_get_device_list`] has returned. Any other goes to the real library.
///
/// # Safety
///
/// As for ibv_free_device_list(3).
pub(crate) unsafe fn ibv_free_device_list(list: *mut *mut ibv_device) {
    let known = {
        let mut given = given();
        let at = given.iter().position(|given| given.list == list as usize);
        at.map(|at| given.swap_remove(at))
    };
    let real = match known {
        Some(known) => {
            // SAFETY: the list was made by `ibv_get_device_list` above from a boxed slice of this length, and
            // was freed by nobody else, as it was still noted.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, known.length)) });
            known.real as *mut *mut ibv_device
        }
        None => list,
    };
    if !real.is_null() {
        real!("IBVERBS_1.1" ibv_free_device_list(real => *mut *mut ibv_device) -> ());
    }
}
