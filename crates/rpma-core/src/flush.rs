// SPDX-License-Identifier: BSD-3-Clause
//! Flush by read-after-write: the target places data written earlier before it sends the response to a read
//! on the same connection. Each connection has its own eight bytes for the response.

use rdma_sys::ibv_sge;

use super::mapping::Mapping;
use super::mr::MrLocal;
use super::peer::Domain;
use crate::abi::RPMA_MR_USAGE_READ_DST;
use crate::error::{Result, first_error};

/// The number of bytes that a flush reads.
pub(crate) const SIZE: u32 = 8;

/// The local destination of a connection's flush reads.
pub struct Flush {
    mr: Box<MrLocal>,
    memory: Mapping,
}

impl Flush {
    /// # Safety
    /// The domain's peer must be alive and outlive this object.
    pub unsafe fn new(domain: Domain) -> Result<Self> {
        let memory = Mapping::new(SIZE as usize)?;
        // SAFETY: the caller guarantees that the peer outlives this object; `memory` is a field declared
        // after `mr`, so it stays mapped as long as the region.
        let mr =
            unsafe { MrLocal::register_own(&domain, memory.addr(), SIZE as usize, RPMA_MR_USAGE_READ_DST) }?;
        Ok(Self { mr, memory })
    }

    pub fn close(self) -> Result<()> {
        let Self { mr, memory } = self;
        first_error([mr.close(), memory.close()])
    }

    /// The destination of the read. Its content is never used, so concurrent flushes may share it.
    #[inline(always)]
    pub fn target(&self) -> ibv_sge {
        self.mr.range(0, SIZE)
    }
}
