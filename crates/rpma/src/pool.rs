// SPDX-License-Identifier: BSD-3-Clause
//! Pools of buffers.

#![forbid(unsafe_code)]

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::block::{Block, Shelf, memory};
use crate::buf::Buf;
use crate::error::{Error, ErrorKind, Result};
use crate::peer::Peer;
use crate::region::Region;

/// Buffers of one size, registered once: registering memory costs a system call or more, taking a buffer does
/// not.
///
/// A buffer returns to its pool when it is dropped, in all its parts. Its content is that of its last use.
/// The memory is deregistered and unmapped when the pool and all buffers are dropped.
#[derive(Clone)]
pub struct Pool {
    region: Arc<Region>,
    block: usize,
    shelf: Arc<Shelf>,
}

impl Peer {
    /// A pool of `count` buffers of `block` bytes each, of one registration.
    ///
    /// # Errors
    /// As for [`Self::buf`].
    pub fn pool(&self, block: usize, count: usize) -> Result<Pool> {
        Pool::new(self, block, count)
    }
}

impl Pool {
    /// `count` buffers of `block` bytes.
    pub(crate) fn new(peer: &Peer, block: usize, count: usize) -> Result<Self> {
        let Some(len) = block.checked_mul(count) else {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format_args!("Peer::pool: {count} buffers of {block} bytes"),
            ));
        };
        let region = memory("Peer::pool", peer, len)?;
        let offsets = (0..count).rev().map(|index| index * block).collect();
        let shelf = Arc::new(Shelf::new(offsets));
        Ok(Self { region, block, shelf })
    }

    fn get(&self, waker: Option<&Waker>) -> Option<Buf> {
        let offset = self.shelf.get(waker)?;
        let (region, shelf) = (self.region.clone(), Some(self.shelf.clone()));
        Some(Buf::of(Block { region, offset, len: self.block, shelf }))
    }

    /// A buffer, unless all are in use.
    pub fn try_take(&self) -> Option<Buf> {
        self.get(None)
    }

    /// A buffer, as soon as there is one. Any executor may run this future.
    pub async fn take(&self) -> Buf {
        poll_fn(|context| self.poll_take(context)).await
    }

    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<Buf> {
        self.get(Some(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool(buffers of {} bytes)", self.block)
    }
}
