// SPDX-License-Identifier: BSD-3-Clause
//! The connection management event, as an event channel queues it. [`crate::rdma`] turns it into an
//! `rdma_cm_event`.

use rdma_sys::rdma_cm_event_type::{
    self, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};
use transport::cm::EventKind;
use transport::roce::cm::Route;

use super::protocol::Unfetched;

/// A queued event; its fields are those of `rdma_cm_event`.
pub(crate) struct Event {
    /// The address of the C structure of the identifier; in a connect request, of the listening identifier.
    pub id: usize,
    pub kind: rdma_cm_event_type::Type,
    /// 0, a negative errno, or the reason of a rejection.
    pub status: i32,
    pub private_data: Vec<u8>,
    /// The ORD of the remote peer.
    pub responder_resources: u8,
    /// The IRD of the remote peer.
    pub initiator_depth: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// The queue pair of the peer, and whether it has a shared receive queue.
    pub qp_num: u32,
    pub srq: bool,
    /// The pending connection of a connect request; dropping the event closes it.
    pub request: Option<Box<dyn Unfetched>>,
    /// Why a connection attempt failed.
    pub reason: Option<String>,
    /// Of an identifier for datagrams: `param.ud` instead of `param.conn`.
    pub datagrams: Option<Datagrams>,
}

/// The part of `rdma_ud_param` that is not in [`Event`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Datagrams {
    pub qkey: u32,
    /// `ah_attr`.
    pub path: Option<DatagramPath>,
    /// The context of a multicast group, the address in `private_data`.
    pub context: usize,
}

/// The path of datagrams to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramPath {
    pub route: Route,
    pub traffic_class: u8,
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
            retry_count: 0,
            rnr_retry_count: 0,
            qp_num: 0,
            srq: false,
            request: None,
            reason: None,
            datagrams: None,
        }
    }
}

/// The number of an event that changes the phase of an identifier.
pub(super) fn number(kind: EventKind) -> rdma_cm_event_type::Type {
    match kind {
        EventKind::Established => RDMA_CM_EVENT_ESTABLISHED,
        EventKind::Rejected => RDMA_CM_EVENT_REJECTED,
        EventKind::Unreachable => RDMA_CM_EVENT_UNREACHABLE,
        EventKind::ConnectError => RDMA_CM_EVENT_CONNECT_ERROR,
        EventKind::Disconnected => RDMA_CM_EVENT_DISCONNECTED,
    }
}

/// The event with this number, if it changes the phase of an identifier.
pub(super) fn kind(of: rdma_cm_event_type::Type) -> Option<EventKind> {
    EventKind::ALL.into_iter().find(|kind| number(*kind) == of)
}
