// SPDX-License-Identifier: BSD-3-Clause
//! Helpers shared by the tests of memory regions: owned objects, and accesses like those of a peer.

use libc::{c_int, c_void};
use rdma_sys::{ibv_mr, ibv_pd};
use std::ptr::addr_of;

use super::pd::PdObject;
use super::{ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_mr_iova};
use crate::ffi::soft0::context;
use crate::memory::{Batch, fetch};
use crate::sys::{self, Process};
use transport::access::{Access, Denied, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Unreachable};

pub(super) const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;

/// A protection domain. Dropping it checks that no object uses it.
pub(super) struct Pd(pub(super) *mut ibv_pd);

impl Pd {
    pub(super) fn new() -> Self {
        // SAFETY: `context` is an open context: that of the software device.
        let pd = unsafe { ibv_alloc_pd(context()) };
        assert!(!pd.is_null());
        Self(pd)
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: `self.0` was returned by ibv_alloc_pd and is deallocated only when `self` is dropped.
        unsafe { PdObject::own(self.0) }.number
    }

    pub(super) fn register(&self, addr: u64, len: usize, iova: u64, access: u32) -> Result<Mr, i32> {
        // SAFETY: a test that registers a range keeps it mapped, or expects the access to fail, and accesses
        // it only as bytes.
        let mr = unsafe { ibv_reg_mr_iova(self.0, addr as *mut c_void, len, iova, access as c_int) };
        if mr.is_null() { Err(sys::errno()) } else { Ok(Mr(mr)) }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: `self.0` was returned by ibv_alloc_pd and is not used after `drop`.
        assert_eq!(unsafe { ibv_dealloc_pd(self.0) }, 0);
    }
}

/// A memory region. Dropping it checks that it can be deregistered.
pub(super) struct Mr(pub(super) *mut ibv_mr);

impl Mr {
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the region is deregistered only when `self` is dropped.
        unsafe { addr_of!((*self.0).lkey).read() }
    }

    pub(super) fn addr(&self) -> u64 {
        // SAFETY: the region is deregistered only when `self` is dropped.
        unsafe { addr_of!((*self.0).addr).read() as u64 }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: `self.0` was returned by a function that registers memory and is not used after `drop`.
        assert_eq!(unsafe { ibv_dereg_mr(self.0) }, 0);
    }
}

/// Places bytes like an RDMA Write of a peer.
pub(super) fn place(stag: u32, pd: u32, addr: u64, bytes: &[u8]) -> Result<(), Denied> {
    let mut batch = Batch::new().unwrap();
    batch.add(Access { stag, addr, len: bytes.len(), rights: REMOTE_WRITE }, pd, 0)?;
    batch.carry_out(Process::own(), bytes).unwrap();
    Ok(())
}

/// Reads bytes like an RDMA Read of a peer.
pub(super) fn read(stag: u32, pd: u32, addr: u64, len: usize) -> Result<Vec<u8>, Unreachable> {
    let mut bytes = vec![0; len];
    fetch(Process::own(), Access { stag, addr, len, rights: REMOTE_READ }, pd, &mut bytes)?;
    Ok(bytes)
}
