// SPDX-License-Identifier: BSD-3-Clause
//! The device: what it can do.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_device_attr_ex, ibv_query_device_ex_input};
use std::ptr::addr_of;

use crate::limits::*;
use crate::sys;

/// The function in the extended context that the inline `ibv_query_device_ex` of `verbs.h` calls.
///
/// # Safety
///
/// `attr` must be valid for writes of `size` bytes.
pub(crate) unsafe extern "C" fn query_device_slot(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let full = device_attributes();
    let size = size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: `attr` is valid for writes of `size` bytes, and `full` has at least as many after the `min` above.
    unsafe { std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), attr.cast(), size) };
    0
}

/// Returns the device attributes: limits, on-demand paging (memory is never pinned), no atomics. EINVAL if `input` has a comp_mask.
///
/// # Safety
///
/// As for ibv_query_device_ex(3).
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: `input` is NULL or points to an ibv_query_device_ex_input (ibv_query_device_ex(3)).
    if !input.is_null() && unsafe { addr_of!((*input).comp_mask).read() } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: `attr` points to an ibv_device_attr_ex (ibv_query_device_ex(3)).
    unsafe { query_device_slot(context, input, attr, size_of::<ibv_device_attr_ex>()) }
}

fn device_attributes() -> ibv_device_attr_ex {
    // SAFETY: all-zero is a valid ibv_device_attr_ex: nothing is supported.
    let mut attr: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let orig = &mut attr.orig_attr;
    for (to, from) in orig.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from as libc::c_char;
    }
    orig.max_mr_size = u64::MAX;
    orig.page_size_cap = sys::page_size();
    orig.max_qp = MAX_MR as c_int;
    orig.max_qp_wr = MAX_QP_WR as c_int;
    orig.max_sge = MAX_SGE as c_int;
    orig.max_sge_rd = MAX_SGE as c_int;
    orig.max_cq = MAX_MR as c_int;
    orig.max_cqe = MAX_CQE as c_int;
    orig.max_mr = MAX_MR as c_int;
    orig.max_pd = MAX_MR as c_int;
    orig.max_qp_rd_atom = c_int::from(MAX_READS);
    orig.max_qp_init_rd_atom = c_int::from(MAX_READS);
    orig.max_srq = MAX_MR as c_int;
    orig.max_srq_wr = MAX_SRQ_WR as c_int;
    orig.max_srq_sge = MAX_SGE as c_int;
    orig.phys_port_cnt = 1;
    attr.odp_caps.general_caps = 1;
    // SEND, RECV, WRITE, READ and SRQ_RECV, not ATOMIC.
    attr.odp_caps.per_transport_caps.rc_odp_caps = 0b10_1111;
    attr
}
