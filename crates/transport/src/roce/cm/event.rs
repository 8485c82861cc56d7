// SPDX-License-Identifier: BSD-3-Clause
//! The outputs of connection management: messages to send, and events to report.

use super::terms::{
    CommId, ListenerId, REJECT_DATA_LEN, REPLY_DATA_LEN, REQUEST_DATA_LEN, Route, SIDR_REPLY_DATA_LEN,
    SIDR_REQUEST_DATA_LEN,
};
use crate::roce::wire::cm::{Mad, Reason, ServiceId, SidrStatus};

/// The next action of the driver.
#[allow(clippy::large_enum_variant, reason = "nearly all are messages, and each is taken at once")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a datagram to queue pair 1 of the peer.
    Send {
        /// Between which addresses.
        route: Route,
        /// The datagram.
        mad: Mad,
    },
    /// Report an event of an exchange.
    Event {
        /// The exchange; of a [`Event::Request`] or [`Event::SidrRequest`], the new one.
        id: CommId,
        /// The event.
        event: Event,
    },
}

/// An event of an exchange.
///
/// An active exchange reports one of `Response`, `Rejected` and `Unreachable`, and after `Response` it may
/// report `Rejected` until it is established. A passive one reports `Request`, and, once accepted, one of
/// `Established`, `Rejected`, `Unreachable` and `ConnectError`; before it is accepted, it may report
/// `Rejected`. An established exchange reports one `Disconnected`, and then `TimeWaitExit`. An exchange that
/// the program has destroyed reports nothing.
///
/// Of a resolution of a service id, the active side reports one of `SidrReply` and `Unreachable`, and the
/// passive side `SidrRequest` only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `RDMA_CM_EVENT_CONNECT_REQUEST`: the exchange waits for an answer of the program.
    Request(Box<Request>),
    /// `RDMA_CM_EVENT_CONNECT_RESPONSE`: the peer has accepted.
    Response(Box<Response>),
    /// `RDMA_CM_EVENT_ESTABLISHED` on the passive side.
    Established,
    /// `RDMA_CM_EVENT_REJECTED`; its status is the reason.
    Rejected {
        /// Why.
        reason: Reason,
        /// The private data of the REJ.
        private_data: Box<[u8; REJECT_DATA_LEN]>,
    },
    /// `RDMA_CM_EVENT_UNREACHABLE`, status -ETIMEDOUT: the peer has not answered.
    Unreachable,
    /// `RDMA_CM_EVENT_CONNECT_ERROR`: the program has disconnected before the connection was established.
    ConnectError,
    /// `RDMA_CM_EVENT_DISCONNECTED`.
    Disconnected,
    /// `RDMA_CM_EVENT_TIMEWAIT_EXIT`: the exchange has ended, and its queue pair number may be used again.
    TimeWaitExit,
    /// `RDMA_CM_EVENT_CONNECT_REQUEST` for datagrams: the resolution waits for an answer of the program.
    SidrRequest(Box<SidrRequest>),
    /// `RDMA_CM_EVENT_ESTABLISHED` for datagrams, or `RDMA_CM_EVENT_UNREACHABLE` with the status.
    SidrReply(Box<SidrReply>),
}

/// A request for the queue pair of a datagram service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRequest {
    /// The listener.
    pub listener: ListenerId,
    /// The addresses.
    pub route: Route,
    /// The service.
    pub service: ServiceId,
    /// The port of the peer.
    pub source_port: u16,
    /// The private data of the program, zero-filled.
    pub private_data: [u8; SIDR_REQUEST_DATA_LEN],
}

/// The answer to such a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrReply {
    /// The addresses.
    pub route: Route,
    /// Whether queue pair and Q_Key are valid.
    pub status: SidrStatus,
    /// The queue pair of the service.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
    /// The private data of the program, zero-filled.
    pub private_data: [u8; SIDR_REPLY_DATA_LEN],
}

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The listener.
    pub listener: ListenerId,
    /// The addresses.
    pub route: Route,
    /// The service.
    pub service: ServiceId,
    /// The port of the peer.
    pub source_port: u16,
    /// `rdma_conn_param` of the event.
    pub param: ConnParam,
    /// The private data of the program, zero-filled.
    pub private_data: [u8; REQUEST_DATA_LEN],
}

/// A reply that accepts a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// `rdma_conn_param` of the event.
    pub param: ConnParam,
    /// The private data of the program, zero-filled.
    pub private_data: [u8; REPLY_DATA_LEN],
}

/// `rdma_conn_param` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// The queue pair of the peer.
    pub qpn: u32,
    /// It has a shared receive queue.
    pub srq: bool,
    /// Reads and atomic operations that the peer may have outstanding: a limit for what this side accepts.
    pub responder_resources: u8,
    /// Reads and atomic operations that the peer accepts: a limit for what this side may have outstanding.
    pub initiator_depth: u8,
    /// The peer implements end-to-end flow control.
    pub flow_control: bool,
    /// Retry count of the connection; 0 in a reply, which has none.
    pub retry_count: u8,
    /// RNR retry count.
    pub rnr_retry_count: u8,
}
