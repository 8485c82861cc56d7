// SPDX-License-Identifier: BSD-3-Clause
//! Events of connection management, as they wait in an event channel.

use rdma_sys::rdma_cm_event_type;

use super::listen::Request;

/// What has happened.
pub(crate) struct Event {
    /// The address of the id's C structure; for a connect request that of the listening id.
    pub id: usize,
    pub kind: rdma_cm_event_type::Type,
    /// 0 or a negative error number.
    pub status: i32,
    pub private_data: Vec<u8>,
    /// Reads the peer answers, and has open, at a time.
    pub responder_resources: u8,
    pub initiator_depth: u8,
    /// A connect request carries the connection.
    pub request: Option<Request>,
}

impl Event {
    /// An event with nothing but its kind and status.
    pub(crate) fn new(id: usize, kind: rdma_cm_event_type::Type, status: i32) -> Self {
        Self {
            id,
            kind,
            status,
            private_data: Vec::new(),
            responder_resources: 0,
            initiator_depth: 0,
            request: None,
        }
    }
}
