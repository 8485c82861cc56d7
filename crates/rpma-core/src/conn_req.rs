// SPDX-License-Identifier: BSD-3-Clause
//! Connection requests: outgoing ones that have not been sent, and incoming ones that have not been answered.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::ptr;

use rdma_sys::ibv_qp;
use rpma_log::text::Lossy;

use super::conn::{Conn, ConnParts, own_channel};
use super::conn_cfg::ConnCfg;
use super::peer::Domain;
use super::private_data::PrivateData;
use super::resources::Resources;
use crate::abi::rpma_conn_private_data;
use crate::alloc;
use crate::error::Result;
use crate::failure;
use crate::provider::handles::{AddrInfo, CmEvent, CmId, EventChannel, Side, provider_error};

/// A connection request: outgoing and not sent yet, or incoming and not answered yet.
// Dropping an incoming request rejects it.
pub struct ConnReq {
    res: Resources,
    /// The event channel of an incoming request, which must outlive the identifier.
    events: Option<EventChannel>,
    pdata: PrivateData,
    domain: Domain,
    passive: bool,
}

impl ConnReq {
    /// Creates a connection request to `addr`:`port`.
    ///
    /// # Safety
    /// The domain's peer and the configured shared receive queue must be alive and outlive the request.
    pub unsafe fn new(domain: Domain, addr: &CStr, port: &CStr, cfg: &ConnCfg) -> Result<Box<Self>> {
        alloc::ready()?;
        let timeout = cfg.timeout();
        let (to_addr, to_port) = (Lossy(addr.to_bytes()), Lossy(port.to_bytes()));
        let failed = |failed| provider_error!(failed, "addr={to_addr}, port={to_port}, timeout_ms={timeout}");
        // SAFETY: `addr` and `port` are C strings; an identifier may have no channel, which makes its calls
        // synchronous.
        let (info, id) = unsafe {
            let info =
                AddrInfo::get(domain.api, addr.as_ptr(), port.as_ptr(), Side::Active).map_err(failed)?;
            let id =
                CmId::create(domain.api, ptr::null_mut()).map_err(|failed| provider_error!(failed, ""))?;
            (info, id)
        };
        id.resolve_addr(&info, timeout).map_err(failed)?;
        id.resolve_route(timeout).map_err(failed)?;
        // SAFETY: the caller guarantees that the peer and the configured shared receive queue outlive the
        // request.
        let res = unsafe { Resources::new(domain, id, cfg) }?;
        let req =
            alloc::boxed(Self { res, events: None, pdata: PrivateData::none(), domain, passive: false })?;
        drop(info);
        log_notice!("connection request to {to_addr}:{to_port} created");
        Ok(req)
    }

    /// The connection request delivered by an event. On failure the request is rejected.
    ///
    /// # Safety
    /// The event must be a connection request of the domain's provider whose identifier has not been taken
    /// yet; the domain's peer and the configured shared receive queue must be alive and outlive the request.
    pub unsafe fn from_event(domain: Domain, event: &CmEvent, cfg: &ConnCfg) -> Result<Box<Self>> {
        // SAFETY: the caller guarantees a connection request whose identifier has not been taken yet, so this
        // request becomes its only owner, and that the peer and the shared receive queue outlive the request;
        // the private data are valid until the event is acknowledged.
        unsafe {
            let id = CmId::of_request(domain.api, event.id());
            alloc::ready()?;
            let res = Resources::new(domain, id, cfg)?;
            let pdata = PrivateData::copy(event.private_data())?;
            alloc::boxed(Self { res, events: None, pdata, domain, passive: true })
        }
    }

    /// Migrates the identifier from the event channel of the endpoint to one of its own: the endpoint may be
    /// closed before the request is answered, and an event that follows the accept immediately does not go to
    /// a thread that waits on the endpoint.
    pub fn leave_endpoint(&mut self) -> Result<()> {
        self.events = Some(own_channel(&self.res.id)?);
        Ok(())
    }

    pub fn close(self) -> Result<()> {
        let Self { res, events, .. } = self;
        let res = res.close();
        drop(events);
        res
    }

    pub fn queue_pair(&self) -> *mut ibv_qp {
        self.res.qp.as_ptr()
    }

    /// The address of the remote peer.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.res.id.peer().0
    }

    pub fn private_data(&self) -> &rpma_conn_private_data {
        self.pdata.view()
    }

    /// Sends an outgoing request or accepts an incoming one. The request is consumed in any case; an incoming
    /// one that is not accepted because the private data are invalid is rejected.
    ///
    /// # Safety
    /// The private data must be readable, and the domain's peer alive and outlive the connection.
    pub unsafe fn connect(self, pdata: Option<rpma_conn_private_data>) -> Result<Box<Conn>> {
        if pdata.is_some_and(|pdata| pdata.ptr.is_null() || pdata.len == 0) {
            return Err(failure::invalid(format_args!(
                "pdata has no bytes: its ptr is NULL or its len is 0"
            )));
        }
        let passive = self.passive;
        // SAFETY: the caller guarantees that the peer outlives the connection, and that the private data are
        // readable.
        unsafe {
            let mut conn = self.prepare()?;
            conn.begin(passive, pdata)?;
            Ok(conn)
        }
    }

    /// Whether it is an incoming one.
    pub fn is_incoming(&self) -> bool {
        self.passive
    }

    /// The connection of this request, which [`Conn::begin`] sends or accepts: receives can be posted before.
    ///
    /// # Safety
    /// The domain's peer must be alive and outlive the connection.
    pub unsafe fn prepare(self) -> Result<Box<Conn>> {
        alloc::ready()?;
        let Self { res, events, pdata, domain, .. } = self;
        // An incoming request is still unanswered: if this fails, it is rejected.
        // SAFETY: the caller guarantees that the peer outlives the connection.
        let parts = unsafe { ConnParts::new(domain, &res, events) }?;
        Ok(parts.assemble(res, pdata))
    }
}
