// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues, optionally with their own completion queue, and their configurations.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rdma_sys::ibv_srq;

use super::cq::Cq;
use super::peer::Domain;
use crate::alloc::{self, Slot};
use crate::error::{Result, first_error};
use crate::provider::handles::{SharedRecvQueue, provider_error};

/// The default number of entries of the receive queue and of its completion queue.
const DEFAULT_QUEUE_SIZE: u32 = 20;

/// A shared receive queue configuration.
// Every value is an atomic: one object may serve several threads.
pub struct SrqCfg {
    rq_size: AtomicU32,
    rcq_size: AtomicU32,
}

/// The configuration used if the caller passes none.
pub static DEFAULT: SrqCfg = SrqCfg::defaults();

impl SrqCfg {
    const fn defaults() -> Self {
        Self { rq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE), rcq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE) }
    }

    pub fn new() -> Result<Box<Self>> {
        alloc::boxed(Self::defaults())
    }

    pub fn set_rq_size(&self, size: u32) {
        self.rq_size.store(size, SeqCst);
    }

    pub fn rq_size(&self) -> u32 {
        self.rq_size.load(SeqCst)
    }

    /// 0 for no receive completion queue.
    pub fn set_rcq_size(&self, size: u32) {
        self.rcq_size.store(size, SeqCst);
    }

    pub fn rcq_size(&self) -> u32 {
        self.rcq_size.load(SeqCst)
    }
}

/// A shared receive queue, from which several connections take their receives.
pub struct Srq {
    rcq: Option<Box<Cq>>,
    queue: SharedRecvQueue,
}

impl Srq {
    /// # Safety
    /// The domain's peer must be alive and outlive the queue.
    pub unsafe fn new(domain: Domain, cfg: &SrqCfg) -> Result<Box<Self>> {
        alloc::ready()?;
        let Domain { api, ctx, pd, .. } = domain;
        let (rq_size, rcq_size) = (cfg.rq_size(), cfg.rcq_size());
        // SAFETY: the caller guarantees that the peer, and so `pd`, outlives the queue.
        let queue = unsafe { SharedRecvQueue::create(api, pd, rq_size) }
            .map_err(|failed| provider_error!(failed, "max_wr={rq_size}"))?;
        let rcq = match rcq_size {
            0 => None,
            // SAFETY: the caller guarantees that the peer outlives the queue, and the context outlives the
            // peer.
            size => Some(unsafe { Cq::new(api, ctx, size, None) }?),
        };
        Ok(Slot::new()?.fill(Self { rcq, queue }))
    }

    pub fn close(self) -> Result<()> {
        let Self { rcq, queue } = self;
        let rcq = rcq.map_or(Ok(()), |rcq| rcq.close());
        first_error([rcq, queue.close().map_err(|failed| provider_error!(failed, ""))])
    }

    #[inline]
    pub fn as_ptr(&self) -> *mut ibv_srq {
        self.queue.as_ptr()
    }

    pub fn rcq(&self) -> Option<&Cq> {
        self.rcq.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration() {
        let cfg = SrqCfg::new().unwrap();
        assert_eq!((cfg.rq_size(), cfg.rcq_size()), (20, 20));
        cfg.set_rq_size(0);
        cfg.set_rcq_size(u32::MAX);
        assert_eq!((cfg.rq_size(), cfg.rcq_size()), (0, u32::MAX));
    }
}
