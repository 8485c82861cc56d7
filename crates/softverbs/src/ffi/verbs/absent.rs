// SPDX-License-Identifier: BSD-3-Clause
//! Verbs that the device does not support, because of its transport or because it has no kernel driver:
//! ECE, imported objects, device memory, dma-buf, XRC.
//!
//! Each function that creates or queries something fails with EOPNOTSUPP as its manual page defines (NULL and
//! errno, or an errno value), and logs the reason with each call. Since no object can be created, the
//! functions that destroy one do nothing.

use libc::{c_int, c_void};
use rdma_sys::{ibv_context, ibv_dm, ibv_mr, ibv_pd, ibv_qp, ibv_wr_opcode, ibv_xrcd, ibv_xrcd_init_attr};

use super::{null_with, transport};
use crate::ffi::unsupported;

const IMPORT: &str = "objects of the software device cannot be shared with other processes";

/// Enhanced connection establishment is not supported: returns EOPNOTSUPP, without a log line.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_query_ece(_: *mut ibv_qp, _: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

/// Enhanced connection establishment is not supported: returns EOPNOTSUPP, without a log line.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_set_ece(_: *mut ibv_qp, _: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

/// Returns 0, no guarantee: a program must not conclude from the arrival of a byte that the bytes before it
/// have arrived.
///
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: ibv_wr_opcode::Type, _: u32) -> c_int {
    0
}

/// Importing objects is not supported: returns NULL with errno EOPNOTSUPP.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_import_pd(_: *mut ibv_context, _: u32) -> *mut ibv_pd {
    null_with(unsupported(IMPORT))
}

/// Importing objects is not supported: returns NULL with errno EOPNOTSUPP.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_import_mr(_: *mut ibv_pd, _: u32) -> *mut ibv_mr {
    null_with(unsupported(IMPORT))
}

/// Device memory is not supported: returns NULL with errno EOPNOTSUPP.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_import_dm(_: *mut ibv_context, _: u32) -> *mut ibv_dm {
    null_with(unsupported("the software device has no device memory"))
}

/// Does nothing: there are no imported objects.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_unimport_pd(_: *mut ibv_pd) {}

/// Does nothing: there are no imported objects.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_unimport_mr(_: *mut ibv_mr) {}

/// Does nothing: there are no imported objects.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_unimport_dm(_: *mut ibv_dm) {}

/// The slot of the extended context that the inline function `ibv_open_xrcd` of `verbs.h` calls. XRC is not
/// supported: returns NULL with errno EOPNOTSUPP. Without the slot a program would fail without a log line.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub(crate) unsafe extern "C" fn open_xrcd_slot(
    _: *mut ibv_context,
    _: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    null_with(unsupported(&format!("an XRC domain: {}", transport().remedy())))
}

/// Regions of other devices are not supported: returns NULL with errno EOPNOTSUPP.
///
/// # Safety
///
/// Always safe to call: no argument is used.
pub unsafe fn ibv_reg_dmabuf_mr(_: *mut ibv_pd, _: u64, _: usize, _: u64, _: c_int, _: c_int) -> *mut ibv_mr {
    null_with(unsupported("the software device cannot access the memory of other devices"))
}
