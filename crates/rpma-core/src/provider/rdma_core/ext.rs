// SPDX-License-Identifier: BSD-3-Clause
//! The extended inline functions of `verbs.h` that are needed here; inline functions have no symbol to link
//! with.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

use libc::{EINVAL, ENOSYS, EOPNOTSUPP};
use rdma_sys::{ibv_context, ibv_device_attr_ex, ibv_pd, ibv_query_device_ex_input, ibv_sge, verbs_context};

/// The value of `abi_compat` in an extended context.
const EXTENDED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The extended context that contains `ctx`, if there is one and it includes the operation at `op_offset`.
///
/// # Safety
/// `ctx` must be a live context.
unsafe fn extended(ctx: *mut ibv_context, op_offset: usize) -> Option<*mut verbs_context> {
    // SAFETY: the caller guarantees a live `ctx`; the marker means that it is the last member of an extended
    // context, whose size field directly precedes it.
    unsafe {
        if (*ctx).abi_compat != EXTENDED {
            return None;
        }
        let extended = ctx.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        ((*extended).sz >= size_of::<verbs_context>() - op_offset).then_some(extended)
    }
}

/// `ibv_query_device_ex`: 0 or a positive errno. For a context without the operation, the plain query is
/// used.
///
/// # Safety
/// `ctx` must be a live context, `input` NULL or readable, `attr` writable.
pub(super) unsafe extern "C" fn ibv_query_device_ex(
    ctx: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller guarantees a live `ctx`, an `input` that is NULL or readable, and a writable `attr`;
    // the operation is read only if the extended context contains it.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return EINVAL;
        }
        let op = extended(ctx, offset_of!(verbs_context, query_device_ex)).and_then(|x| (*x).query_device_ex);
        if let Some(query_device_ex) = op {
            let ret = query_device_ex(ctx, input, attr, size_of::<ibv_device_attr_ex>());
            if ret != EOPNOTSUPP && ret != ENOSYS {
                return ret;
            }
        }
        attr.write_bytes(0, 1);
        (super::known().query_device)(ctx, &raw mut (*attr).orig_attr)
    }
}

/// `ibv_advise_mr`: 0 or a positive errno. The context is the protection domain's.
///
/// # Safety
/// `ctx` must be a live context, `pd` one of its protection domains, `sg_list` hold `num_sge` ranges.
pub(super) unsafe extern "C" fn ibv_advise_mr(
    ctx: *mut ibv_context,
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: the caller guarantees a live `ctx`, a `pd` of that context and `num_sge` ranges at `sg_list`;
    // the operation is read only if the extended context contains it.
    unsafe {
        match extended(ctx, offset_of!(verbs_context, advise_mr)).and_then(|x| (*x).advise_mr) {
            Some(advise_mr) => advise_mr(pd, advice, flags, sg_list, num_sge),
            None => EOPNOTSUPP,
        }
    }
}
