// SPDX-License-Identifier: BSD-3-Clause
//! The configuration of connections. Every value is an atomic: one object may serve several threads.

#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, Ordering::SeqCst};

use super::srq::Srq;
use crate::abi::RPMA_DEFAULT_TIMEOUT_MS;
use crate::alloc;
use crate::error::Result;
use crate::failure::Fail;

/// The default number of entries of the completion, send and receive queues.
const DEFAULT_QUEUE_SIZE: u32 = 10;

/// A connection configuration.
pub struct ConnCfg {
    timeout_ms: AtomicI32,
    cq_size: AtomicU32,
    rcq_size: AtomicU32,
    sq_size: AtomicU32,
    rq_size: AtomicU32,
    /// A C `bool`: 0 or 1.
    shared_comp_channel: AtomicU8,
    /// Not owned; null if there is none.
    srq: AtomicPtr<Srq>,
}

/// The configuration used if the caller passes none.
pub static DEFAULT: ConnCfg = ConnCfg::defaults();

impl ConnCfg {
    const fn defaults() -> Self {
        Self {
            timeout_ms: AtomicI32::new(RPMA_DEFAULT_TIMEOUT_MS),
            cq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE),
            rcq_size: AtomicU32::new(0),
            sq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE),
            rq_size: AtomicU32::new(DEFAULT_QUEUE_SIZE),
            shared_comp_channel: AtomicU8::new(0),
            srq: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn new() -> Result<Box<Self>> {
        alloc::boxed(Self::defaults())
    }

    pub fn set_timeout(&self, timeout_ms: c_int) -> std::result::Result<(), Fail> {
        if timeout_ms < 0 {
            return Err(Fail::Invalid("timeout_ms is less than 0"));
        }
        self.timeout_ms.store(timeout_ms, SeqCst);
        Ok(())
    }

    pub fn timeout(&self) -> c_int {
        self.timeout_ms.load(SeqCst)
    }

    pub fn set_cq_size(&self, size: u32) {
        self.cq_size.store(size, SeqCst);
    }

    pub fn cq_size(&self) -> u32 {
        self.cq_size.load(SeqCst)
    }

    pub fn set_rcq_size(&self, size: u32) {
        self.rcq_size.store(size, SeqCst);
    }

    pub fn rcq_size(&self) -> u32 {
        self.rcq_size.load(SeqCst)
    }

    pub fn set_sq_size(&self, size: u32) {
        self.sq_size.store(size, SeqCst);
    }

    pub fn sq_size(&self) -> u32 {
        self.sq_size.load(SeqCst)
    }

    pub fn set_rq_size(&self, size: u32) {
        self.rq_size.store(size, SeqCst);
    }

    pub fn rq_size(&self) -> u32 {
        self.rq_size.load(SeqCst)
    }

    pub fn set_shared_comp_channel(&self, shared: bool) {
        self.shared_comp_channel.store(shared.into(), SeqCst);
    }

    /// The same as a C `bool`.
    pub fn shared_comp_channel_c(&self) -> u8 {
        self.shared_comp_channel.load(SeqCst)
    }

    pub fn shared_comp_channel(&self) -> bool {
        self.shared_comp_channel_c() != 0
    }

    pub fn set_srq(&self, srq: *mut Srq) {
        self.srq.store(srq, SeqCst);
    }

    pub fn srq(&self) -> *mut Srq {
        self.srq.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults() {
        let cfg = ConnCfg::new().unwrap();
        assert_eq!((cfg.timeout(), cfg.cq_size(), cfg.rcq_size()), (1000, 10, 0));
        assert_eq!((cfg.sq_size(), cfg.rq_size(), cfg.shared_comp_channel()), (10, 10, false));
        assert!(cfg.srq().is_null());
    }

    #[test]
    fn each_value_is_kept_apart() {
        let cfg = ConnCfg::new().unwrap();
        cfg.set_timeout(0).unwrap();
        cfg.set_cq_size(1);
        cfg.set_rcq_size(2);
        cfg.set_sq_size(u32::MAX);
        cfg.set_rq_size(0);
        cfg.set_shared_comp_channel(true);
        assert_eq!((cfg.timeout(), cfg.cq_size(), cfg.rcq_size()), (0, 1, 2));
        assert_eq!((cfg.sq_size(), cfg.rq_size(), cfg.shared_comp_channel()), (u32::MAX, 0, true));
    }

    #[test]
    fn a_negative_timeout_is_refused() {
        let cfg = ConnCfg::new().unwrap();
        assert_eq!(cfg.set_timeout(-1), Err(Fail::Invalid("timeout_ms is less than 0")));
        assert_eq!(cfg.timeout(), 1000);
    }
}
