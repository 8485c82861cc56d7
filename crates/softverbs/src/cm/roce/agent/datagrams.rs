// SPDX-License-Identifier: BSD-3-Clause
//! Identifiers for datagrams (RDMA_PS_UDP): a connect request is a SIDR_REQ, and the SIDR_REP contains the
//! service's queue pair number. There is no connection, so there are no disconnection events.
#![forbid(unsafe_code)]

use log::Level;
use rdma_sys::rdma_cm_event_type::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_UNREACHABLE,
};
use transport::roce::cm::{CommId, SidrReply, SidrRequest};
use transport::roce::wire::cm::SidrStatus;

use super::Agent;
use super::request::Unfetched;
use crate::cm::event::{DatagramPath, Datagrams, Event};
use crate::cm::id::Id;

impl Agent {
    /// Reports a request for the queue pair of a service, unless it is rejected.
    pub(super) fn sidr_request(&self, exchange: CommId, request: SidrRequest) {
        let (listener, peer) = (request.listener, request.route.remote);
        let Some(id) = self.listener_with_room(exchange, listener, peer) else { return };
        let mut event = Event::new(0, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        event.private_data = request.private_data.to_vec();
        event.datagrams = Some(Datagrams::default());
        let SidrRequest { route, service, source_port, .. } = request;
        event.request = self
            .this
            .upgrade()
            .map(|agent| Box::new(Unfetched::new(agent, exchange, route, service, source_port, None)) as _);
        id.notify(event);
    }
}

/// Reports the reply to the identifier that has requested it, as the kernel's rdma_cm does.
pub(super) fn report(id: &Id, reply: &SidrReply) {
    let status = reply.status;
    let mut event = match status {
        SidrStatus::VALID if reply.qkey == 0 => Event::new(0, RDMA_CM_EVENT_ADDR_ERROR, -libc::EINVAL),
        SidrStatus::VALID => Event::new(0, RDMA_CM_EVENT_ESTABLISHED, 0),
        _ => Event::new(0, RDMA_CM_EVENT_UNREACHABLE, i32::from(status.0)),
    };
    event.private_data = reply.private_data.to_vec();
    let mut datagrams = Datagrams::default();
    match event.kind {
        RDMA_CM_EVENT_ESTABLISHED => {
            event.qp_num = reply.qpn;
            datagrams.qkey = reply.qkey;
            let traffic_class = id.state().options.tos.unwrap_or(0);
            datagrams.path = Some(DatagramPath { route: reply.route, traffic_class });
        }
        RDMA_CM_EVENT_UNREACHABLE => event.reason = Some(explain(id, status)),
        _ => {}
    }
    event.datagrams = Some(datagrams);
    if event.kind == RDMA_CM_EVENT_ADDR_ERROR {
        id.notify(event);
    } else {
        id.raise(event);
    }
}

/// Logs and returns the reason why the reply has no queue pair.
fn explain(id: &Id, status: SidrStatus) -> String {
    let peer = id.state().dst.map(|dst| dst.to_string()).unwrap_or_default();
    let (level, why) = match status {
        SidrStatus::UNSUPPORTED => (
            Level::Warn,
            format!("{peer}: connect failed: no program listens for datagrams on this port of rdma_cm"),
        ),
        _ => (Level::Info, format!("{peer}: connect failed: SIDR_REP without a queue pair, status {status}")),
    };
    log::log!(level, peer:% = peer, operation = "connect"; "{why}");
    why
}
