// SPDX-License-Identifier: BSD-3-Clause
//! A connect request, before and after the program fetches it.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::{Agent, random};
use crate::cm::protocol::{self, Params, Request};
use crate::qp::{ConnObserver, Qp};
use crate::sys::Errno;
use transport::roce::cm::{Accept, CommId, ConnParam, Route, SidrAnswer};
use transport::roce::wire::Psn;
use transport::roce::wire::cm::{Reason, ServiceId, SidrStatus, UDP_QKEY};

/// The delay of acknowledgements that is announced to the peer: 4.096 us * 2^15, as of rxe.
const TARGET_ACK_DELAY: u8 = 15;

/// A request that the program has not fetched. Dropping it rejects the request.
pub(super) struct Unfetched {
    agent: Arc<Agent>,
    exchange: CommId,
    /// `None`: fetched.
    addresses: Option<(SocketAddr, SocketAddr)>,
    /// `None`: it is for datagrams.
    param: Option<ConnParam>,
}

impl Unfetched {
    pub(super) fn new(
        agent: Arc<Agent>,
        exchange: CommId,
        route: Route,
        service: ServiceId,
        source_port: u16,
        param: Option<ConnParam>,
    ) -> Self {
        let port = service.port().map_or(0, |(_, port)| port);
        let local = SocketAddr::new(route.local, port);
        let peer = SocketAddr::new(route.remote, source_port);
        Self { agent, exchange, addresses: Some((local, peer)), param }
    }
}

impl protocol::Unfetched for Unfetched {
    fn key(&self) -> usize {
        self.exchange.0 as usize
    }

    fn fetch(mut self: Box<Self>) -> Box<dyn Request> {
        let exchange = self.exchange;
        self.agent.call(|state, _| state.manager.fetched(exchange));
        let none = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        let (local, peer) = self.addresses.take().unwrap_or((none, none));
        Box::new(Fetched { agent: self.agent.clone(), exchange, local, peer, param: self.param })
    }
}

impl Drop for Unfetched {
    fn drop(&mut self) {
        if self.addresses.is_some() {
            self.agent.destroy(self.exchange);
        }
    }
}

/// A request that the program has fetched. Its identifier destroys the exchange.
struct Fetched {
    agent: Arc<Agent>,
    exchange: CommId,
    local: SocketAddr,
    peer: SocketAddr,
    param: Option<ConnParam>,
}

impl Request for Fetched {
    fn exchange(&self) -> Option<CommId> {
        Some(self.exchange)
    }

    fn local(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The RTU or the first packet of the peer.
    fn is_awaited(&self) -> bool {
        self.param.is_some()
    }

    /// EINVAL: the private data is too long, or the peer has withdrawn its request. Errors of the transitions
    /// of the queue pair.
    fn accept(
        self: Box<Self>,
        _observer: Weak<dyn ConnObserver>,
        qp: Option<&Qp>,
        params: &Params,
    ) -> Result<(), Errno> {
        let Some(param) = self.param else { return self.answer(params) };
        let depth = |wanted: u16, most: u8| u8::try_from(wanted).unwrap_or(u8::MAX).min(most);
        let call = Accept {
            qpn: qp.map_or(params.qp_num, |qp| qp.num),
            srq: qp.map_or(params.srq, |qp| qp.srq.is_some()),
            starting_psn: Psn::new(random() & 0xff_ffff),
            responder_resources: depth(params.ird, param.responder_resources),
            initiator_depth: depth(params.ord, param.initiator_depth),
            rnr_retry_count: params.rnr_retry,
            target_ack_delay: TARGET_ACK_DELAY,
            private_data: &params.private_data,
        };
        if let Some(qp) = qp {
            let terms = self.agent.change(|state, _| state.manager.terms_for(self.exchange, &call));
            self.agent.connect(self.exchange, qp, &terms.ok_or(libc::EINVAL)?)?;
        }
        self.agent.call(|state, now| state.manager.accept(self.exchange, &call, now))
    }

    fn reject(&self, private_data: &[u8]) {
        // It fails if the peer has withdrawn its request.
        if !self.agent.is_own() {
            return;
        }
        let _ = self.agent.call(|state, now| {
            state.ids.remove(&self.exchange);
            if self.param.is_some() {
                return state.manager.reject(self.exchange, Reason::CONSUMER, private_data, now);
            }
            let answer = SidrAnswer::Refused { status: SidrStatus::REJECTED, private_data };
            state.manager.answer(self.exchange, &answer, now)
        });
    }
}

impl Fetched {
    /// Answers with the queue pair for datagrams. EINVAL: the private data is too long, or the program has
    /// not specified a queue pair.
    fn answer(&self, params: &Params) -> Result<(), Errno> {
        let answer =
            SidrAnswer::Valid { qpn: params.qp_num, qkey: UDP_QKEY, private_data: &params.private_data };
        self.agent.call(|state, now| state.manager.answer(self.exchange, &answer, now))
    }
}
