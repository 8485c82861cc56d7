// SPDX-License-Identifier: BSD-3-Clause
//! Listening endpoints.

use std::ffi::{CStr, c_int};
use std::net::SocketAddr;

use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
use rpma_log::text::Lossy;

use super::conn::next_cm_event;
use super::conn_cfg::ConnCfg;
use super::conn_req::ConnReq;
use super::peer::Domain;
use crate::alloc;
use crate::error::{Error, Result};
use crate::provider::handles::{AddrInfo, CmEvent, CmId, EventChannel, Side, cm_event_name, provider_error};

/// An endpoint that listens for connection requests.
// The order of the fields is the order of tear-down.
pub struct Ep {
    id: CmId,
    events: EventChannel,
    domain: Domain,
}

/// A connection request whose event could not be acknowledged; it has been rejected.
pub struct Unacknowledged;

impl Ep {
    /// # Safety
    /// The domain's peer must be alive and outlive the endpoint.
    pub unsafe fn listen(domain: Domain, addr: &CStr, port: &CStr) -> Result<Box<Self>> {
        let (at_addr, at_port) = (Lossy(addr.to_bytes()), Lossy(port.to_bytes()));
        let failed = |failed| provider_error!(failed, "addr={at_addr}, port={at_port}");
        alloc::ready()?;
        let events = EventChannel::create(domain.api).map_err(|failed| provider_error!(failed, ""))?;
        // SAFETY: the channel is declared first, so it outlives the identifier; `addr` and `port` are C
        // strings.
        let (id, info) = unsafe {
            let id =
                CmId::create(domain.api, events.as_ptr()).map_err(|failed| provider_error!(failed, ""))?;
            let info =
                AddrInfo::get(domain.api, addr.as_ptr(), port.as_ptr(), Side::Passive).map_err(failed)?;
            (id, info)
        };
        id.bind(&info).map_err(failed)?;
        id.listen().map_err(failed)?;
        let ep = alloc::boxed(Self { id, events, domain })?;
        drop(info);
        log_notice!("listening on {at_addr}:{at_port}");
        Ok(ep)
    }

    pub fn close(self) -> Result<()> {
        let Self { id, events, .. } = self;
        let id = id.close().map_err(|failed| provider_error!(failed, ""));
        drop(events);
        id
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    pub fn fd(&self) -> c_int {
        self.events.fd()
    }

    /// Gets the next connection request.
    ///
    /// # Safety
    /// The endpoint's peer and the configured shared receive queue must be alive and outlive the request.
    pub unsafe fn next_conn_req(
        &self,
        cfg: &ConnCfg,
    ) -> Result<std::result::Result<Box<ConnReq>, Unacknowledged>> {
        // SAFETY: the caller guarantees that the peer and the configured shared receive queue outlive the
        // request.
        next_cm_event(&self.events, |event| unsafe { self.take_event(event, cfg) })
    }

    /// # Safety
    /// As for `next_conn_req`; the event must have just been taken from the channel.
    unsafe fn take_event(
        &self,
        event: CmEvent,
        cfg: &ConnCfg,
    ) -> Result<std::result::Result<Box<ConnReq>, Unacknowledged>> {
        if event.kind() != RDMA_CM_EVENT_CONNECT_REQUEST {
            log_error!("unexpected event {} on a listening endpoint", cm_event_name(event.kind()));
            return Err(Error::Inval);
        }
        // SAFETY: the event is a connection request, just taken from the channel; the caller guarantees that
        // the peer and the configured shared receive queue outlive the request.
        let mut req = unsafe { ConnReq::from_event(self.domain, &event, cfg) }?;
        if let Err(failed) = event.acknowledge() {
            provider_error!(failed, "");
            return Ok(Err(Unacknowledged));
        }
        req.leave_endpoint()?;
        Ok(Ok(req))
    }
}
