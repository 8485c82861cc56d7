// SPDX-License-Identifier: BSD-3-Clause
//! Registered copies of atomically written values, for queue pairs without inline data.
//!
//! A ring with a slot for every send work request that can be outstanding. The work requests of a queue pair
//! complete in order, so when a slot is reused, the work request that used it has completed, or the send
//! queue is full and posting fails. A slot must not be reused between being filled and being posted, so both
//! are done under the lock. Connections whose queue pair supports inline data need neither the ring nor the
//! lock.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use rdma_sys::ibv_sge;

use super::mapping::Mapping;
use super::mr::MrLocal;
use super::peer::Domain;
use crate::abi::RPMA_MR_USAGE_WRITE_SRC;
use crate::error::{Error, Result, first_error};

/// The size of a value in bytes.
pub(crate) const SIZE: usize = 8;

/// The ring of one connection.
pub struct Bounce {
    next: Mutex<usize>,
    places: usize,
    mr: Box<MrLocal>,
    memory: Mapping,
}

impl Bounce {
    /// # Safety
    /// The domain's peer must be alive and outlive this object.
    pub unsafe fn new(domain: Domain, max_send_wr: u32) -> Result<Self> {
        let places = (max_send_wr as usize).max(1);
        let size = places.checked_mul(SIZE).ok_or(Error::NoMem)?;
        let memory = Mapping::new(size)?;
        // SAFETY: the caller guarantees that the peer outlives this object; `memory` is a field declared
        // after `mr`, so it stays mapped as long as the region.
        let mr = unsafe { MrLocal::register_own(&domain, memory.addr(), size, RPMA_MR_USAGE_WRITE_SRC) }?;
        Ok(Self { next: Mutex::new(0), places, mr, memory })
    }

    pub fn close(self) -> Result<()> {
        let Self { mr, memory, .. } = self;
        first_error([mr.close(), memory.close()])
    }

    /// Copies the value to the next slot and posts it from there; if posting fails, the slot stays free.
    ///
    /// # Safety
    /// `value` must be readable for [`SIZE`] bytes.
    pub unsafe fn post(&self, value: *const u8, post: impl FnOnce(ibv_sge) -> Result<()>) -> Result<()> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *next * SIZE;
        // SAFETY: the caller guarantees SIZE readable bytes at `value`; the slot is inside the mapping, and
        // no outstanding request reads it.
        unsafe { ptr::copy_nonoverlapping(value, self.memory.addr().cast::<u8>().add(offset), SIZE) };
        post(self.mr.range(offset, SIZE as u32))?;
        *next = (*next + 1) % self.places;
        Ok(())
    }
}
