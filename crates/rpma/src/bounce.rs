// SPDX-License-Identifier: BSD-3-Clause
//! Registered copies of atomically written values, for queue pairs that cannot take a value inline.
//!
//! A ring with a place for every send request that can be outstanding. Requests of a queue pair complete in
//! order, so by the time a place comes round again, the request that used it has completed, or the queue is full
//! and the post fails. A place must not come round between being filled and being posted: both are done under the
//! lock. Connections whose queue pair takes inline data have no such ring and no such lock.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use rdma_sys::ibv_sge;

use super::mapping::Mapping;
use super::mr::MrLocal;
use super::peer::Domain;
use crate::abi::RPMA_MR_USAGE_WRITE_SRC;
use crate::error::{Error, Result, first_error};

/// Bytes of a value.
pub const SIZE: usize = 8;

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
    pub unsafe fn new(domain: Domain, max_send_wr: u32) -> Result<Bounce> {
        let places = (max_send_wr as usize).max(1);
        let size = places.checked_mul(SIZE).ok_or(Error::NoMem)?;
        let memory = Mapping::new(size)?;
        // SAFETY: the caller guarantees that the peer outlives this object; `memory` is a field declared after
        // `mr`, so it stays mapped as long as the region.
        let mr = unsafe { MrLocal::register(domain, memory.addr(), size, RPMA_MR_USAGE_WRITE_SRC) }?;
        Ok(Bounce { next: Mutex::new(0), places, mr, memory })
    }

    pub fn close(self) -> Result<()> {
        let Bounce { mr, memory, .. } = self;
        first_error([mr.close(), memory.close()])
    }

    /// Copies the value to the next place and posts from there; a failed post leaves the place free.
    ///
    /// # Safety
    /// `value` must be readable for [`SIZE`] bytes.
    #[cold]
    #[inline(never)]
    pub unsafe fn post(&self, value: *const u8, post: &dyn Fn(ibv_sge) -> Result<()>) -> Result<()> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *next * SIZE;
        // SAFETY: the caller guarantees SIZE readable bytes at `value`; the place is inside the mapping, and no
        // outstanding request reads it.
        unsafe { ptr::copy_nonoverlapping(value, self.memory.addr().cast::<u8>().add(offset), SIZE) };
        post(self.mr.range(offset, SIZE as u32))?;
        *next = (*next + 1) % self.places;
        Ok(())
    }
}
