// SPDX-License-Identifier: BSD-3-Clause
//! What iWARP, or a device without a kernel driver, does not have. Every function says so in the log, once
//! for each call.
//!
//! The results are those of the manual pages: NULL with errno, or an errno value. There are no objects that
//! the destroying functions could be given, so they answer EINVAL or do nothing.

use libc::{c_int, c_void};
use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_context, ibv_dm, ibv_gid, ibv_mr, ibv_pd, ibv_qp, ibv_wr_opcode};

use super::null_with;
use crate::ffi::unsupported;

const DATAGRAMS: &str = "iWARP has no datagrams, and so no address handles";
const MULTICAST: &str = "iWARP has no multicast";
const IMPORT: &str = "objects of the software device cannot be shared with other processes";

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_create_ah(_: *mut ibv_pd, _: *mut ibv_ah_attr) -> *mut ibv_ah {
    null_with(unsupported(DATAGRAMS))
}

/// EINVAL: there are no address handles.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_destroy_ah(_: *mut ibv_ah) -> c_int {
    libc::EINVAL
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_create_ah_from_wc(_: *mut ibv_pd, _: *mut c_void, _: *mut c_void, _: u8) -> *mut ibv_ah {
    null_with(unsupported(DATAGRAMS))
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_init_ah_from_wc(
    _: *mut ibv_context,
    _: u8,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut ibv_ah_attr,
) -> c_int {
    unsupported(DATAGRAMS)
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_resolve_eth_l2_from_gid(
    _: *mut ibv_context,
    _: *mut ibv_ah_attr,
    _: *mut u8,
    _: *mut u16,
) -> c_int {
    unsupported(DATAGRAMS)
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_attach_mcast(_: *mut ibv_qp, _: *const ibv_gid, _: u16) -> c_int {
    unsupported(MULTICAST)
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_detach_mcast(_: *mut ibv_qp, _: *const ibv_gid, _: u16) -> c_int {
    unsupported(MULTICAST)
}

/// EOPNOTSUPP: the device has no enhanced connection establishment.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_query_ece(_: *mut ibv_qp, _: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

/// EOPNOTSUPP: the device has no enhanced connection establishment.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_set_ece(_: *mut ibv_qp, _: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

/// 0: a program must not conclude from a byte of a message that those before it are there.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_query_qp_data_in_order(_: *mut ibv_qp, _: ibv_wr_opcode::Type, _: u32) -> c_int {
    0
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_import_pd(_: *mut ibv_context, _: u32) -> *mut ibv_pd {
    null_with(unsupported(IMPORT))
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_import_mr(_: *mut ibv_pd, _: u32) -> *mut ibv_mr {
    null_with(unsupported(IMPORT))
}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_import_dm(_: *mut ibv_context, _: u32) -> *mut ibv_dm {
    null_with(unsupported("the software device has no memory of its own"))
}

/// Does nothing: there are no imported objects.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_unimport_pd(_: *mut ibv_pd) {}

/// Does nothing: there are no imported objects.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_unimport_mr(_: *mut ibv_mr) {}

/// Does nothing: there are no imported objects.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_unimport_dm(_: *mut ibv_dm) {}

/// EOPNOTSUPP.
///
/// # Safety
///
/// None: no argument is looked at.
pub unsafe fn ibv_reg_dmabuf_mr(_: *mut ibv_pd, _: u64, _: usize, _: u64, _: c_int, _: c_int) -> *mut ibv_mr {
    null_with(unsupported("the software device cannot reach the memory of other devices"))
}
