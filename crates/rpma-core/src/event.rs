// SPDX-License-Identifier: BSD-3-Clause
//! Connection events.

use rdma_sys::rdma_cm_event_type;

use crate::abi::rpma_conn_event;

/// The connection event for a connection manager event.
pub(crate) fn translate(event: rdma_cm_event_type::Type) -> Option<rpma_conn_event> {
    use rdma_cm_event_type::*;
    use rpma_conn_event::*;
    Some(match event {
        RDMA_CM_EVENT_ESTABLISHED => RPMA_CONN_ESTABLISHED,
        RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_DEVICE_REMOVAL => RPMA_CONN_LOST,
        RDMA_CM_EVENT_DISCONNECTED | RDMA_CM_EVENT_TIMEWAIT_EXIT => RPMA_CONN_CLOSED,
        RDMA_CM_EVENT_REJECTED => RPMA_CONN_REJECTED,
        RDMA_CM_EVENT_UNREACHABLE => RPMA_CONN_UNREACHABLE,
        _ => return None,
    })
}
