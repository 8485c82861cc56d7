// SPDX-License-Identifier: BSD-3-Clause
//! Connection management events, as an event channel queues them.

use rdma_sys::rdma_cm_event_type;

use super::request::Unfetched;

/// An event.
pub(crate) struct Event {
    /// The address of the identifier's C structure; in a connect request that of the listening identifier.
    pub id: usize,
    pub kind: rdma_cm_event_type::Type,
    /// 0 or a negative errno.
    pub status: i32,
    pub private_data: Vec<u8>,
    /// The ORD of the remote peer.
    pub responder_resources: u8,
    /// The IRD of the remote peer.
    pub initiator_depth: u8,
    /// The connection, in a connect request.
    pub request: Option<Unfetched>,
    /// Why an attempt to connect has failed.
    pub reason: Option<String>,
}

impl Event {
    /// An event with a kind and a status only.
    pub(crate) fn new(id: usize, kind: rdma_cm_event_type::Type, status: i32) -> Self {
        Self {
            id,
            kind,
            status,
            private_data: Vec::new(),
            responder_resources: 0,
            initiator_depth: 0,
            request: None,
            reason: None,
        }
    }
}
