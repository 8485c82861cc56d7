// SPDX-License-Identifier: BSD-3-Clause
//! The table of exported librdmacm functions, by version node. They always call softverbs, to which every
//! identifier and event channel of the program belongs.
//!
//! `nodes.awk` generates the version script from the lines that begin with `exports!` and `fn`, so their form
//! is fixed.

use libc::{c_char, c_int, c_void, sockaddr};
use rdma_sys::*;

exports! { "RDMACM_1.0" from softverbs::rdma {
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    fn rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space::Type) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_resolve_addr(id: *mut rdma_cm_id, src: *mut sockaddr, dst: *mut sockaddr, timeout_ms: c_int) -> c_int;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int;
    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int;
    fn rdma_destroy_srq(id: *mut rdma_cm_id) -> ();
    fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int;
    fn rdma_destroy_qp(id: *mut rdma_cm_id) -> ();
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    fn rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo, res: *mut *mut rdma_addrinfo) -> c_int;
    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) -> ();
    fn rdma_create_ep(id: *mut *mut rdma_cm_id, res: *mut rdma_addrinfo, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    fn rdma_destroy_ep(id: *mut rdma_cm_id) -> ();
    fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int;
    fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize) -> c_int;
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type::Type) -> c_int;
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context;
    fn rdma_free_devices(list: *mut *mut ibv_context) -> ();
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16;
    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16;
    fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int;
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
} }

exports! { "RDMACM_1.0" from crate::channels {
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) -> ();
} }

exports! { "RDMACM_1.0" from crate::rsockets {
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
} }

exports! { "RDMACM_1.1" from softverbs::rdma {
    fn rdma_join_multicast_ex(id: *mut rdma_cm_id, attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int;
} }

exports! { "RDMACM_1.2" from softverbs::rdma {
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int;
} }

exports! { "RDMACM_1.3" from softverbs::rdma {
    fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
} }
