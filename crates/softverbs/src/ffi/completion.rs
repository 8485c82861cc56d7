// SPDX-License-Identifier: BSD-3-Clause
//! Conversion of a completion to the fields of a work completion (`ibv_wc`).
//!
//! Used by poll_cq, which fills in a whole structure, and by extended completion queues, which return one
//! field at a time.

use libc::c_uint;
use rdma_sys::{ibv_wc, ibv_wc_flags};
use std::ptr::addr_of_mut;

use transport::wr::{Completion, Extra};

const WC_GRH: c_uint = ibv_wc_flags::IBV_WC_GRH.0;
const WC_WITH_IMM: c_uint = ibv_wc_flags::IBV_WC_WITH_IMM.0;
const WC_WITH_INV: c_uint = ibv_wc_flags::IBV_WC_WITH_INV.0;

/// The value of the union `imm_data`/`invalidated_rkey` of a work completion: immediate data in network byte
/// order, or the invalidated rkey as a number.
pub(super) fn imm_of(c: &Completion) -> u32 {
    match c.extra {
        Extra::Nothing => 0,
        Extra::Imm(bytes) => u32::from_ne_bytes(bytes),
        // The rkey is a number in host byte order, unlike immediate data.
        Extra::Invalidated(bytes) => u32::from_be_bytes(bytes),
    }
}

/// The `wc_flags` of a work completion.
pub(super) fn wc_flags_of(c: &Completion) -> c_uint {
    let header = if c.sender.is_some() { WC_GRH } else { 0 };
    header
        | match c.extra {
            Extra::Nothing => 0,
            Extra::Imm(_) => WC_WITH_IMM,
            Extra::Invalidated(_) => WC_WITH_INV,
        }
}

/// The `src_qp` of a work completion: 0 if it is not that of a datagram.
pub(super) fn src_qp_of(c: &Completion) -> u32 {
    c.sender.map_or(0, |sender| sender.qp)
}

/// The `sl` of a work completion. RoCE has no service levels: for a datagram it is the type of the packet, as
/// mlx5 has it. UCX 1.13 takes the length of the IP header from that.
pub(super) fn sl_of(c: &Completion) -> u8 {
    const IPV6: u8 = 1;
    const IPV4: u8 = 2;
    c.sender.map_or(0, |sender| if sender.is_ipv4 { IPV4 } else { IPV6 })
}

/// Stores a completion in a work completion of the program; all fields are written.
///
/// # Safety
///
/// `wc` must be valid for writes of an `ibv_wc`.
pub(super) unsafe fn write_wc(wc: *mut ibv_wc, c: &Completion) {
    let imm = imm_of(c);
    // SAFETY: the caller guarantees that `wc` is valid for writes. The fields may be uninitialised, so they
    // are written without being read and without a reference.
    unsafe {
        addr_of_mut!((*wc).wr_id).write(c.wr_id);
        addr_of_mut!((*wc).status).write(c.status);
        addr_of_mut!((*wc).opcode).write(c.opcode);
        addr_of_mut!((*wc).vendor_err).write(0);
        addr_of_mut!((*wc).byte_len).write(c.byte_len);
        addr_of_mut!((*wc).__bindgen_anon_1.imm_data).write(imm);
        addr_of_mut!((*wc).qp_num).write(c.qp_num);
        addr_of_mut!((*wc).src_qp).write(src_qp_of(c));
        addr_of_mut!((*wc).wc_flags).write(wc_flags_of(c));
        addr_of_mut!((*wc).pkey_index).write(0);
        addr_of_mut!((*wc).slid).write(0);
        addr_of_mut!((*wc).sl).write(sl_of(c));
        addr_of_mut!((*wc).dlid_path_bits).write(0);
    }
}
