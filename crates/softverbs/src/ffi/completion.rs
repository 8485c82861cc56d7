// SPDX-License-Identifier: BSD-3-Clause
//! Completions as verbs have them.

use libc::c_uint;
use rdma_sys::{ibv_wc, ibv_wc_flags};
use std::ptr::addr_of_mut;

use transport::wr::{Completion, Extra};

const WC_WITH_IMM: c_uint = ibv_wc_flags::IBV_WC_WITH_IMM.0;
const WC_WITH_INV: c_uint = ibv_wc_flags::IBV_WC_WITH_INV.0;

/// Immediate data as verbs have it, or the rkey that was invalidated, which shares its place.
pub(super) fn imm_of(c: &Completion) -> u32 {
    match c.extra {
        Extra::Nothing => 0,
        Extra::Imm(bytes) => u32::from_ne_bytes(bytes),
        // In the same place of a work completion, but a number.
        Extra::Invalidated(bytes) => u32::from_be_bytes(bytes),
    }
}

pub(super) fn wc_flags_of(c: &Completion) -> c_uint {
    match c.extra {
        Extra::Nothing => 0,
        Extra::Imm(_) => WC_WITH_IMM,
        Extra::Invalidated(_) => WC_WITH_INV,
    }
}

/// Stores a completion in a work completion of the program.
///
/// # Safety
///
/// `wc` must be valid for writes of an `ibv_wc`.
pub(super) unsafe fn write_wc(wc: *mut ibv_wc, c: &Completion) {
    let imm = imm_of(c);
    // SAFETY: `wc` is valid for writes. The fields are written without reading them or creating references,
    // as they may be uninitialised.
    unsafe {
        addr_of_mut!((*wc).wr_id).write(c.wr_id);
        addr_of_mut!((*wc).status).write(c.status);
        addr_of_mut!((*wc).opcode).write(c.opcode);
        addr_of_mut!((*wc).vendor_err).write(0);
        addr_of_mut!((*wc).byte_len).write(c.byte_len);
        addr_of_mut!((*wc).__bindgen_anon_1.imm_data).write(imm);
        addr_of_mut!((*wc).qp_num).write(c.qp_num);
        addr_of_mut!((*wc).src_qp).write(0);
        addr_of_mut!((*wc).wc_flags).write(wc_flags_of(c));
        addr_of_mut!((*wc).pkey_index).write(0);
        addr_of_mut!((*wc).slid).write(0);
        addr_of_mut!((*wc).sl).write(0);
        addr_of_mut!((*wc).dlid_path_bits).write(0);
    }
}
