// SPDX-License-Identifier: BSD-3-Clause
//! Events of connection management, as they wait in an event channel.

use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param};

use super::listen::Request;
use crate::ffi::object::Object;
use crate::limits::MAX_PRIVATE_DATA_IN;

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

/// The C structure of an event, and the private data it points to.
pub(super) type EventObject = Object<rdma_cm_event, Vec<u8>>;

/// Makes the C structure. `id` and `listen_id` are what the program gets to see.
pub(super) fn to_c(event: Event, id: *mut rdma_cm_id, listen_id: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let mut private_data = event.private_data;
    // rdma_cm counts private data in 8 bits.
    private_data.truncate(MAX_PRIVATE_DATA_IN);
    // SAFETY: all-zero is a valid rdma_cm_event.
    let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
    c.id = id;
    c.listen_id = listen_id;
    c.event = event.kind;
    c.status = event.status;
    let len = private_data.len() as u8;
    c.param.conn = rdma_conn_param {
        private_data: if len == 0 { std::ptr::null() } else { private_data.as_ptr().cast() },
        private_data_len: len,
        responder_resources: event.responder_resources,
        initiator_depth: event.initiator_depth,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    };
    EventObject::create(c, private_data)
}
