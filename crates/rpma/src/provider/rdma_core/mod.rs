// SPDX-License-Identifier: BSD-3-Clause
//! The provider for RDMA devices, including the kernel's soft-RoCE and soft-iWARP: libibverbs and librdmacm.

mod devices;
mod ext;
mod refused;

use super::{Api, Provider, control_path, hot, provider};
pub(super) use devices::{Missing, missing};

/// The rdma-core provider.
pub(super) fn api() -> Api {
    static RDMA_CORE: Provider = control_path!(provider calls
        name: "rdma-core",
        has_flush_access: false,
        pins_memory: true,
        likely_reason: refused::likely_reason,
        event_reason: |_, _| {},
        ending: |_, _, _| {},
        post_denied: hot::post_send,
        flushes_by: |_, _| (),
        not_counted: |_| (),
    );
    &RDMA_CORE
}

/// The calls of the list by name: functions of the libraries, and of `ext.rs` where the header has only
/// inline functions.
mod calls {
    pub(super) use super::ext::{ibv_advise_mr, ibv_query_device_ex};
    pub(super) use rdma_sys::{
        ibv_ack_cq_events, ibv_alloc_pd, ibv_create_comp_channel, ibv_create_cq, ibv_create_srq,
        ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_srq,
        ibv_get_cq_event, ibv_qp_to_qp_ex, ibv_reg_mr, rdma_accept, rdma_ack_cm_event, rdma_bind_addr,
        rdma_connect, rdma_create_event_channel, rdma_create_id, rdma_create_qp_ex,
        rdma_destroy_event_channel, rdma_destroy_id, rdma_destroy_qp, rdma_disconnect, rdma_freeaddrinfo,
        rdma_get_cm_event, rdma_getaddrinfo, rdma_listen, rdma_migrate_id, rdma_reject, rdma_resolve_addr,
        rdma_resolve_route,
    };
}
