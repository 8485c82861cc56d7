// SPDX-License-Identifier: BSD-3-Clause
//! A peer: a protection domain on a device.

use libc::ENOMEM;
use rdma_sys::{ibv_context, ibv_pd, ibv_transport_type};

use super::utils;
use crate::alloc;
use crate::error::{Error, Result};
use crate::provider::handles::{ProtDomain, provider_error};
use crate::provider::{self, Api};

/// A peer: a protection domain on a device, which everything else is made from.
pub struct Peer {
    pd: ProtDomain,
    odp: bool,
}

/// What objects made from a peer take along: values, so that they never look at the peer again.
#[derive(Clone, Copy)]
pub struct Domain {
    pub api: Api,
    pub ctx: *mut ibv_context,
    pub pd: *mut ibv_pd,
    /// Whether memory may be registered with on-demand paging.
    pub odp: bool,
}

impl Peer {
    /// # Safety
    /// `ctx` must be a live context and outlive the peer.
    pub unsafe fn new(ctx: *mut ibv_context) -> Result<Box<Peer>> {
        let api = provider::of_context(ctx)?;
        // SAFETY: the context is live by contract and of this provider.
        let (odp, pd) = unsafe { (utils::odp_capable(api, ctx)?, ProtDomain::alloc(api, ctx)) };
        let pd = pd.map_err(|failed| match failed.raw_errno() {
            Some(ENOMEM) => Error::NoMem,
            Some(0) => Error::Unknown,
            _ => provider_error!(failed, "context={ctx:p}"),
        })?;
        alloc::boxed(Peer { pd, odp })
    }

    pub fn domain(&self) -> Domain {
        Domain { api: self.pd.api(), ctx: self.pd.context(), pd: self.pd.as_ptr(), odp: self.odp }
    }

    pub fn close(self) -> Result<()> {
        self.pd.close().map_err(|failed| provider_error!(failed, ""))
    }
}

impl Domain {
    /// Whether the device speaks iWARP, where the target of a read must be open to remote writes.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: the peer's context is live, and its device, if it has one, lives as long.
        unsafe {
            let device = (*self.ctx).device;
            !device.is_null() && (*device).transport_type == ibv_transport_type::IBV_TRANSPORT_IWARP
        }
    }
}
