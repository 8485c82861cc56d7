// SPDX-License-Identifier: BSD-3-Clause
//! The layouts of the installed verbs headers that this crate relies on, asserted at compile time.
//!
//! The build must fail if a header moves a field or the declarations describe one incorrectly.

#![forbid(unsafe_code)]

use std::mem::{offset_of, size_of};

use rdma_sys::*;

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ibv_sge>() == 16);
    assert!(offset_of!(ibv_sge, addr) == 0);
    assert!(offset_of!(ibv_sge, length) == 8);
    assert!(offset_of!(ibv_sge, lkey) == 12);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(offset_of!(ibv_send_wr, wr_id) == 0);
    assert!(offset_of!(ibv_send_wr, next) == 8);
    assert!(offset_of!(ibv_send_wr, sg_list) == 16);
    assert!(offset_of!(ibv_send_wr, num_sge) == 24);
    assert!(offset_of!(ibv_send_wr, opcode) == 28);
    assert!(offset_of!(ibv_send_wr, send_flags) == 32);
    assert!(offset_of!(ibv_send_wr, __bindgen_anon_1) == 36);
    assert!(offset_of!(ibv_send_wr, wr) == 40);
    assert!(offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_1, remote_addr) == 0);
    assert!(offset_of!(ibv_send_wr__bindgen_ty_2__bindgen_ty_1, rkey) == 8);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ibv_recv_wr>() == 32);
    assert!(offset_of!(ibv_recv_wr, num_sge) == 24);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ibv_wc>() == 48);
    assert!(offset_of!(ibv_wc, wr_id) == 0);
    assert!(offset_of!(ibv_wc, status) == 8);
    assert!(offset_of!(ibv_wc, opcode) == 12);
    assert!(offset_of!(ibv_wc, vendor_err) == 16);
    assert!(offset_of!(ibv_wc, byte_len) == 20);
    assert!(offset_of!(ibv_wc, __bindgen_anon_1) == 24);
    assert!(offset_of!(ibv_wc, qp_num) == 28);
    assert!(offset_of!(ibv_wc, wc_flags) == 36);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(ibv_mr, addr) == 16);
    assert!(offset_of!(ibv_mr, length) == 24);
    assert!(offset_of!(ibv_mr, lkey) == 36);
    assert!(offset_of!(ibv_mr, rkey) == 40);
    assert!(offset_of!(ibv_qp, context) == 0);
    assert!(offset_of!(ibv_qp, qp_num) == 52);
    assert!(offset_of!(ibv_cq, context) == 0);
    assert!(offset_of!(ibv_srq, context) == 0);
    assert!(offset_of!(ibv_comp_channel, fd) == 8);
    assert!(offset_of!(rdma_event_channel, fd) == 0);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(ibv_context, device) == 0);
    assert!(offset_of!(ibv_context, ops) == 8);
    // 32 operations of 8 bytes each.
    assert!(size_of::<ibv_context_ops>() == 256);
    assert!(offset_of!(ibv_context, abi_compat) == 8 + 256 + 16 + size_of::<libc::pthread_mutex_t>());
    // The context ends the extended context: container_of needs nothing else.
    assert!(offset_of!(verbs_context, context) + size_of::<ibv_context>() == size_of::<verbs_context>());
    assert!(offset_of!(verbs_context, sz) + size_of::<usize>() == offset_of!(verbs_context, context));
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(rdma_cm_id, verbs) == 0);
    assert!(offset_of!(rdma_cm_id, qp) == 24);
    assert!(offset_of!(rdma_cm_event, id) == 0);
    assert!(offset_of!(rdma_cm_event, event) == 16);
    assert!(offset_of!(rdma_cm_event, status) == 20);
    assert!(offset_of!(rdma_cm_event, param) == 24);
    assert!(offset_of!(rdma_conn_param, private_data_len) == 8);
    assert!(offset_of!(rdma_conn_param, qp_num) == 16);
    assert!(offset_of!(rdma_addrinfo, ai_src_addr) == 24);
    assert!(offset_of!(rdma_addrinfo, ai_dst_addr) == 32);
};
