// SPDX-License-Identifier: BSD-3-Clause
//! Buffers: registered memory that one owner may read and write, and that an operation takes and returns.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::block::{Block, memory};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::peer::Peer;

/// Registered memory of this process: the source or destination of operations.
///
/// A `Buf` is the only way to its bytes, and dereferences to `[u8]`. An operation takes it and gives it back
/// with its result. It can be divided and put together again; the memory is deregistered and unmapped when
/// the last part is dropped, or returns to its [`Pool`](crate::Pool).
///
/// No peer can access it, with one exception: iWARP adapters (not software RDMA) need remote write access to
/// the destination of a read, and send its key to the peer of the read. So with such an adapter a hostile
/// peer can write, at any time, to the registration of a buffer that was the destination of a read from it:
/// that of the buffer, or of its whole pool. Programs that read from peers they do not trust use a pool for
/// each.
pub struct Buf {
    addr: NonNull<u8>,
    len: usize,
    home: Arc<Block>,
}

// SAFETY: a buffer is the only owner of its bytes, which belong to a mapping that `home` keeps.
unsafe impl Send for Buf {}
// SAFETY: as above; a shared reference permits reading alone.
unsafe impl Sync for Buf {}

impl Peer {
    /// A buffer of `len` bytes, all zero: mapped and registered for it alone.
    ///
    /// Software RDMA allocates the memory at once, and peers on this host map it. If it would take more than
    /// half of what the host has available (`MemAvailable` of `/proc/meminfo`), it is allocated when it is
    /// first used, and peers on this host do not map it, which makes operations slower.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if `len` is 0; [`ErrorKind::OutOfMemory`] if the kernel refuses it, as it does
    /// for more than the host has (unless `vm.overcommit_memory` is 1); [`ErrorKind::Provider`] if the
    /// device does not register it, for example because of the limit of locked memory (`ulimit -l`), which
    /// the text says.
    pub fn buf(&self, len: usize) -> Result<Buf> {
        Buf::new(self, len)
    }
}

impl Buf {
    /// A buffer of `len` bytes, all zero, with a registration of its own.
    pub(crate) fn new(peer: &Peer, len: usize) -> Result<Self> {
        Ok(Self::of(Block::of(memory("Peer::buf", peer, len)?)))
    }

    /// The buffer that is all of a block, whose only owner the caller is.
    pub(crate) fn of(block: Block) -> Self {
        let (offset, len) = block.range();
        // SAFETY: the block is inside its region.
        let addr = unsafe { block.region().addr().add(offset) };
        Self { addr, len, home: Arc::new(block) }
    }

    pub(crate) fn home(&self) -> &Block {
        &self.home
    }

    /// Where it begins in its region.
    pub(crate) fn offset(&self) -> usize {
        self.addr.as_ptr() as usize - self.home.region().addr().as_ptr() as usize
    }

    /// Takes the first `at` bytes out of this buffer, which keeps the rest.
    ///
    /// # Panics
    /// If `at` is more than the length.
    pub fn split_to(&mut self, at: usize) -> Self {
        let rest = self.split_off(at);
        std::mem::replace(self, rest)
    }

    /// Takes the bytes from `at` on out of this buffer, which keeps those before.
    ///
    /// # Panics
    /// If `at` is more than the length.
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split at {at} of a buffer of {} bytes", self.len);
        // SAFETY: inside this buffer, or its end.
        let addr = unsafe { self.addr.add(at) };
        let rest = Self { addr, len: self.len - at, home: self.home.clone() };
        self.len = at;
        rest
    }

    /// Puts a part back that lies directly behind this one in the same memory.
    ///
    /// # Errors
    /// `next` itself, if it lies elsewhere.
    pub fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        // SAFETY: the end of this buffer.
        let end = unsafe { self.addr.add(self.len) };
        if !Arc::ptr_eq(&self.home, &next.home) || end != next.addr {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped as long as `home` and were zero at first. This buffer alone owns them:
        // an operation that a device carries out has taken it.
        unsafe { std::slice::from_raw_parts(self.addr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the buffer is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.addr.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}
