// SPDX-License-Identifier: BSD-3-Clause
//! The table of exported libibverbs functions: those that take an object, by version node.
//!
//! `nodes.awk` generates the version script from the lines that begin with `exports!` and `fn`, so their form
//! is fixed.

use libc::{c_char, c_int, c_uint, c_void};
use rdma_sys::*;
use softverbs::verbs::GidEntry;
use softverbs::{owns, owns_device};

use crate::whose::{ours, ours_in};

exports! { "IBVERBS_1.0" from softverbs::verbs, or the real library {
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel, if owns(context);
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int, if ours(channel);
} }

exports! { "IBVERBS_1.1" from softverbs::verbs, or the real library {
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char, if owns_device(device);
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64, if owns_device(device);
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context, if owns_device(device);
    fn ibv_close_device(context: *mut ibv_context) -> c_int, if owns(context);
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int, if owns(context);
    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int, if owns(context);
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int, if owns(context);
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int, if owns(context);
    fn ibv_ack_async_event(event: *mut ibv_async_event) -> (), if ours_in(event);
    fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) -> c_int, if owns(context);
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd, if owns(context);
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int, if ours(pd);
    fn ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq, if owns(context);
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int, if ours(cq);
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int, if ours(cq);
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int, if ours(channel);
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) -> (), if ours(cq);
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq, if ours(pd);
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int, if ours(srq);
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int, if ours(srq);
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int, if ours(srq);
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp, if ours(pd);
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int, if ours(qp);
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init_attr: *mut ibv_qp_init_attr) -> c_int, if ours(qp);
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int, if ours(qp);
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int, if ours(qp);
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int, if ours(qp);
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah, if ours(pd);
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int, if ours(ah);
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut c_void, grh: *mut c_void, port: u8) -> *mut ibv_ah, if ours(pd);
    fn ibv_init_ah_from_wc(context: *mut ibv_context, port: u8, wc: *mut c_void, grh: *mut c_void, attr: *mut ibv_ah_attr) -> c_int, if owns(context);
    fn ibv_resolve_eth_l2_from_gid(context: *mut ibv_context, attr: *mut ibv_ah_attr, mac: *mut u8, vid: *mut u16) -> c_int, if owns(context);
} }

// These also apply MADV_DONTFORK after ibv_fork_init(3).
exports! { "IBVERBS_1.1" from crate::regions, or the real library {
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr, if ours(pd);
    fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int, if ours(mr);
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int, if ours(mr);
} }

// The list has the devices of the real library and `soft0`.
exports! { "IBVERBS_1.1" from crate::devices {
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device) -> ();
} }

exports! { "IBVERBS_1.5" from softverbs::verbs, or the real library {
    fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int, if owns(context);
} }

exports! { "IBVERBS_1.6" from softverbs::verbs, or the real library {
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex, if ours(qp);
} }

exports! { "IBVERBS_1.7" from crate::regions, or the real library {
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr, if ours(pd);
} }

exports! { "IBVERBS_1.8" from crate::regions, or the real library {
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr, if ours(pd);
} }

exports! { "IBVERBS_1.9" from softverbs::verbs, or the real library {
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int, if owns_device(device);
} }

exports! { "IBVERBS_1.10" from softverbs::verbs, or the real library {
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut c_void) -> c_int, if ours(qp);
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut c_void) -> c_int, if ours(qp);
    fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd, if owns(context);
    fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr, if ours(pd);
    fn ibv_unimport_pd(pd: *mut ibv_pd) -> (), if ours(pd);
    fn ibv_unimport_mr(mr: *mut ibv_mr) -> (), if ours(mr);
} }

exports! { "IBVERBS_1.11" from softverbs::verbs, or the real library {
    fn _ibv_query_gid_ex(context: *mut ibv_context, port: u32, index: u32, entry: *mut GidEntry, flags: u32, size: usize) -> c_int, if owns(context);
    fn _ibv_query_gid_table(context: *mut ibv_context, entries: *mut GidEntry, max: usize, flags: u32, size: usize) -> isize, if owns(context);
} }

exports! { "IBVERBS_1.12" from softverbs::verbs, or the real library {
    fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr, if ours(pd);
} }

exports! { "IBVERBS_1.13" from softverbs::verbs, or the real library {
    fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm, if owns(context);
    fn ibv_unimport_dm(dm: *mut ibv_dm) -> (), if ours(dm);
} }

exports! { "IBVERBS_1.14" from softverbs::verbs, or the real library {
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode::Type, flags: u32) -> c_int, if ours(qp);
} }

exports! { "IBVERBS_PRIVATE_34" from softverbs::verbs, or the real library {
    fn ibv_query_gid_type(context: *mut ibv_context, port: u8, index: c_uint, kind: *mut c_uint) -> c_int, if owns(context);
} }
