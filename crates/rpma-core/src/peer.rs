// SPDX-License-Identifier: BSD-3-Clause
//! Peers: a protection domain of a device.

use libc::ENOMEM;
use rdma_sys::{ibv_context, ibv_pd, ibv_transport_type};
use rpma_log::text::Lossy;

use super::device::Abilities;
use crate::alloc;
use crate::config::{self, NativeOps};
use crate::error::{Error, Result};
use crate::provider::handles::{ProtDomain, provider_error};
use crate::provider::metered;
use crate::provider::{self, Api};

/// A peer: a protection domain of a device, from which all other objects are created.
pub struct Peer {
    pd: ProtDomain,
    domain: Domain,
}

/// The values that objects created from a peer copy from it, so that they never access the peer again.
#[derive(Clone, Copy)]
pub struct Domain {
    pub api: Api,
    pub ctx: *mut ibv_context,
    pub pd: *mut ibv_pd,
    /// The capabilities of the device.
    pub abilities: Abilities,
    /// The operations that connections execute natively: enabled, and supported by the device.
    pub native: NativeOps,
}

impl Peer {
    /// # Safety
    /// `ctx` must be a live context and outlive the peer.
    pub unsafe fn new(ctx: *mut ibv_context) -> Result<Box<Self>> {
        let api = metered::chosen(provider::of_context(ctx)?);
        let wanted = config::native().map_err(|word| {
            log_error!(
                "invalid word \"{}\" in RPMA_NATIVE; valid words: {}",
                Lossy(word.as_bytes()),
                config::NATIVE_WORDS
            );
            Error::Provider
        })?;
        alloc::ready()?;
        // SAFETY: the caller guarantees a live `ctx` that outlives the peer, and `api` is its provider.
        let (abilities, pd) = unsafe { (Abilities::of(api, ctx)?, ProtDomain::alloc(api, ctx)) };
        let pd = pd.map_err(|failed| match failed.raw_errno() {
            Some(ENOMEM) => Error::NoMem,
            Some(0) => Error::Unknown,
            _ => provider_error!(failed, "context={ctx:p}"),
        })?;
        let (native, missing) = meet(wanted, abilities.native);
        if missing != NativeOps::default() {
            log_notice!(
                "the device does not support all operations of RPMA_NATIVE, default methods are used for: {}",
                missing
            );
        }
        let domain = Domain { api, ctx, pd: pd.as_ptr(), abilities, native };
        alloc::boxed(Self { pd, domain })
    }

    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    pub fn close(self) -> Result<()> {
        self.pd.close().map_err(|failed| provider_error!(failed, ""))
    }
}

impl Domain {
    /// Whether the device uses iWARP, where the destination of a read requires remote write access.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: the peer's context is live, and its device, if it has one, lives as long.
        unsafe {
            let device = (*self.ctx).device;
            !device.is_null() && (*device).transport_type == ibv_transport_type::IBV_TRANSPORT_IWARP
        }
    }
}

/// Splits the wanted operations into available and missing ones.
fn meet(wanted: NativeOps, there: NativeOps) -> (NativeOps, NativeOps) {
    let each = |op: fn(bool, bool) -> bool| NativeOps {
        atomic_write: op(wanted.atomic_write, there.atomic_write),
        flush_visibility: op(wanted.flush_visibility, there.flush_visibility),
        flush_persistent: op(wanted.flush_persistent, there.flush_persistent),
    };
    (each(|wanted, there| wanted && there), each(|wanted, there| wanted && !there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_needs_to_be_wanted_and_there() {
        let some = NativeOps { atomic_write: true, flush_visibility: true, flush_persistent: false };
        let none = NativeOps::default();
        assert_eq!(meet(none, some), (none, none));
        assert_eq!(meet(some, some), (some, none));
        assert_eq!(meet(some, none), (none, some));
        let there = NativeOps { atomic_write: true, flush_visibility: false, flush_persistent: true };
        let (both, missing) = meet(some, there);
        assert_eq!(both, NativeOps { atomic_write: true, ..none });
        assert_eq!(missing, NativeOps { flush_visibility: true, ..none });
        assert_eq!(some.to_string(), "atomic-write, flush-visibility");
    }
}
