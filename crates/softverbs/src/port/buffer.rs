// SPDX-License-Identifier: BSD-3-Clause
//! Buffers of received packets.
//!
//! A call of recvmsg(2) returns up to 64 KiB of packets of one peer (UDP_GRO), often all for one queue pair.
//! Then the queue pair keeps the buffer until it has placed their payload, and the receiving thread takes
//! another one. Few bytes are copied instead: they must not keep a large buffer for long.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::pool::Pool;

/// Bytes of a buffer: the maximum of a UDP_GRO batch; a smaller one would truncate it.
const LEN: usize = 64 << 10;
/// From so many bytes on packets are not copied. So all that wait for a queue pair take no more than twice
/// their length.
const SHARED_LEN: usize = LEN / 2;
/// Maximum free buffers kept for reuse: what a thread receives from a socket at a time.
const FREE: usize = 32;

/// Free buffers.
type Free = Pool<LEN, FREE>;

/// A buffer, which returns to the pool when it is dropped.
struct Buffer {
    bytes: Vec<u8>,
    pool: Arc<Free>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.bytes));
    }
}

/// The buffer of the receiving thread.
pub(super) struct Receiving {
    pool: Arc<Free>,
    buffer: Option<Arc<Buffer>>,
}

impl Receiving {
    pub(super) fn new() -> Self {
        Self { pool: Arc::default(), buffer: None }
    }

    /// The bytes to receive into; `None` without memory.
    pub(super) fn bytes(&mut self) -> Option<&mut [u8]> {
        // A queue pair has the one before.
        if self.buffer.as_mut().is_none_or(|buffer| Arc::get_mut(buffer).is_none()) {
            let (bytes, pool) = (self.pool.get()?, self.pool.clone());
            self.buffer = Some(Arc::new(Buffer { bytes, pool }));
        }
        Some(&mut Arc::get_mut(self.buffer.as_mut()?)?.bytes)
    }

    /// What was received: the first `len` bytes.
    pub(super) fn received(&self, len: usize) -> Option<Received> {
        Some(Received { buffer: self.buffer.clone()?, len })
    }
}

/// Received bytes.
pub(super) struct Received {
    buffer: Arc<Buffer>,
    len: usize,
}

impl Received {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes[..self.len]
    }

    /// A part of them for a queue pair; `None` without memory.
    pub(super) fn part(&self, range: Range<usize>) -> Option<Bytes> {
        match range.len() >= SHARED_LEN {
            true => Some(Bytes(Kept::Shared(self.buffer.clone(), range))),
            false => Bytes::copy(&[], &self.bytes()[range]),
        }
    }
}

/// The bytes of packets that have arrived for a queue pair.
pub(crate) struct Bytes(Kept);

enum Kept {
    Own(Box<[u8]>),
    Shared(Arc<Buffer>, Range<usize>),
}

impl Bytes {
    /// A copy of a header and what follows it; `None`: out of memory.
    pub(crate) fn copy(header: &[u8], bytes: &[u8]) -> Option<Self> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(header.len() + bytes.len()).ok()?;
        copy.extend_from_slice(header);
        copy.extend_from_slice(bytes);
        Some(Self(Kept::Own(copy.into_boxed_slice())))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kept::Own(bytes.into_boxed_slice()))
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Kept::Own(bytes) => bytes,
            Kept::Shared(buffer, range) => &buffer.bytes[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(receiving: &mut Receiving, byte: u8, len: usize) -> Received {
        receiving.bytes().unwrap()[..len].fill(byte);
        receiving.received(len).unwrap()
    }

    #[test]
    fn what_a_queue_pair_keeps_is_not_overwritten() {
        let mut receiving = Receiving::new();
        let kept: Vec<_> = (0..100)
            .map(|byte| {
                let len = SHARED_LEN + 10 * usize::from(byte);
                received(&mut receiving, byte, len).part(7..len - usize::from(byte)).unwrap()
            })
            .collect();
        for (byte, kept) in (0..).zip(&kept) {
            assert!(kept.as_ref().iter().all(|kept| *kept == byte), "{byte}");
            assert_eq!(kept.as_ref().len(), SHARED_LEN + 9 * usize::from(byte) - 7);
        }
        drop(kept);
        assert_eq!(receiving.pool.count(), FREE, "the others are freed");
    }

    #[test]
    fn few_bytes_keep_no_buffer() {
        let mut receiving = Receiving::new();
        let first = receiving.bytes().unwrap().as_ptr();
        let few = received(&mut receiving, 1, LEN).part(0..SHARED_LEN - 1).unwrap();
        assert_eq!(receiving.bytes().unwrap().as_ptr(), first);
        let many = received(&mut receiving, 2, LEN).part(0..SHARED_LEN).unwrap();
        assert_ne!(receiving.bytes().unwrap().as_ptr(), first);
        assert!(few.as_ref().iter().all(|byte| *byte == 1) && many.as_ref().iter().all(|byte| *byte == 2));
        drop(many);
        receiving.buffer = None;
        assert_eq!(receiving.pool.count(), 2, "used again");
    }
}
