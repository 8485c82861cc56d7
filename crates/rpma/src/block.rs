// SPDX-License-Identifier: BSD-3-Clause
//! The blocks of memory that buffers are parts of.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use rpma_core::abi::{
    RPMA_MR_USAGE_READ_DST, RPMA_MR_USAGE_RECV, RPMA_MR_USAGE_SEND, RPMA_MR_USAGE_WRITE_SRC,
};

use crate::error::Result;
use crate::peer::Peer;
use crate::region::{Region, Source};

/// What buffers are registered for: everything that the local side of an operation does, nothing that a peer
/// does.
const LOCAL: i32 = RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;

/// Memory for buffers, all zero.
pub(crate) fn memory(call: &str, peer: &Peer, len: usize) -> Result<Arc<Region>> {
    Ok(Arc::new(Region::new(call, peer, Source::New, len, LOCAL)?))
}

/// The bytes of a region that the parts of one buffer share. It returns to its pool with the last of them.
pub(crate) struct Block {
    pub region: Arc<Region>,
    pub offset: usize,
    pub len: usize,
    pub shelf: Option<Arc<Shelf>>,
}

impl Block {
    /// All of a region.
    pub(crate) fn of(region: Arc<Region>) -> Self {
        Self { offset: 0, len: region.len(), region, shelf: None }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Offset and length.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.offset, self.len)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.put(self.offset);
        }
    }
}

/// The blocks of a pool that are not in use.
pub(crate) struct Shelf {
    free: Mutex<Free>,
}

struct Free {
    offsets: Vec<usize>,
    waiting: Vec<Waker>,
}

impl Shelf {
    /// A shelf with the blocks at these offsets.
    pub(crate) fn new(offsets: Vec<usize>) -> Self {
        Self { free: Mutex::new(Free { offsets, waiting: Vec::new() }) }
    }

    fn put(&self, offset: usize) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.offsets.push(offset);
        let waiting = std::mem::take(&mut free.waiting);
        drop(free);
        for waker in waiting {
            waker.wake();
        }
    }

    /// A free block. Without one, `waker` is woken when a block is returned.
    pub(crate) fn get(&self, waker: Option<&Waker>) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = free.offsets.pop();
        if let (None, Some(waker)) = (offset, waker) {
            if !free.waiting.iter().any(|known| known.will_wake(waker)) {
                free.waiting.push(waker.clone());
            }
        }
        offset
    }
}
