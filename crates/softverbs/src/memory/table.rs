// SPDX-License-Identifier: BSD-3-Clause
//! The table of memory regions.
//!
//! There is one table per process. The upper 24 bits of an STag are the index of a slot, the lower 8 bits a key that changes whenever the
//! slot is reused. Accesses take no lock: [`acquire`] increments the count of grants of the slot, then checks that the slot is valid;
//! [`deregister`] clears the valid bit, then waits until the count is 0. Both use the one atomic `state`, so either the access finds the
//! slot invalid or the deregistration waits for it: after ibv_dereg_mr(3) has returned, no access to the memory is in progress.
//!
//! The other fields of a slot change only while it is invalid and every access that found it valid has ended, so relaxed loads suffice;
//! `state` orders them.
#![forbid(unsafe_code)]

use once_cell::sync::{Lazy, OnceCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::access::{Access, Denied, FLUSH_PERSISTENT};
use crate::limits::MAX_MR;
use crate::sys::Errno;

const VALID: u64 = 1 << 63;
const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << (24 - CHUNK_BITS);

/// A memory region: its range, access rights and protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub addr: u64,
    pub len: u64,
    pub access: u32,
    pub pd: u32,
}

#[derive(Default)]
struct Slot {
    /// `VALID` and the number of grants.
    state: AtomicU64,
    key: AtomicU32,
    access: AtomicU32,
    pd: AtomicU32,
    addr: AtomicU64,
    len: AtomicU64,
}

/// Permission to access a range of a region until dropped. Deregistration waits for it, so it must not be held while the thread blocks.
pub(crate) struct Grant {
    slot: &'static Slot,
}

impl Grant {
    /// The start and the length of the region, if a flush must make it durable.
    pub(crate) fn persistent(&self) -> Option<(u64, u64)> {
        let is = self.slot.access.load(Ordering::Relaxed) & FLUSH_PERSISTENT != 0;
        is.then(|| (self.slot.addr.load(Ordering::Relaxed), self.slot.len.load(Ordering::Relaxed)))
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.slot.state.fetch_sub(1, Ordering::Release);
    }
}

struct Free {
    /// Released slots, reused first in, first out, so that a stale STag stays invalid for a long time.
    slots: std::collections::VecDeque<u32>,
    /// The first slot that has never been used.
    next: u32,
}

struct Table {
    chunks: Vec<OnceCell<Box<[Slot]>>>,
    free: Mutex<Free>,
}

static TABLE: Lazy<Table> = Lazy::new(|| Table {
    chunks: std::iter::repeat_with(OnceCell::new).take(CHUNKS).collect(),
    free: Mutex::new(Free { slots: std::collections::VecDeque::new(), next: 1 }),
});

impl Table {
    fn slot(&'static self, index: u32) -> Option<&'static Slot> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?.get()?;
        chunk.get(index as usize & (CHUNK - 1))
    }

    fn slot_or_new(&'static self, index: u32) -> &'static Slot {
        let chunk = self.chunks[(index >> CHUNK_BITS) as usize]
            .get_or_init(|| std::iter::repeat_with(Slot::default).take(CHUNK).collect());
        &chunk[index as usize & (CHUNK - 1)]
    }
}

/// Registers a region and returns its STag, which is both lkey and rkey. ENOMEM if all STags are in use, EIO if the system provides no
/// random bytes.
pub(crate) fn register(region: Region) -> Result<u32, Errno> {
    let mut random = [0u8; 1];
    getrandom::fill(&mut random).map_err(|_| libc::EIO)?;
    let index = {
        let mut free = crate::lock(&TABLE.free);
        let never_used = free.next <= MAX_MR;
        // A released slot is not reused until more slots have been released after it.
        let index = if free.slots.len() > 64 || !never_used { free.slots.pop_front() } else { None };
        match index {
            Some(index) => index,
            None if never_used => {
                free.next += 1;
                free.next - 1
            }
            None => {
                log::error!("all {MAX_MR} memory region keys are in use");
                return Err(libc::ENOMEM);
            }
        }
    };
    let slot = TABLE.slot_or_new(index);
    let key = slot.key.load(Ordering::Relaxed).wrapping_add(1 + u32::from(random[0] & 0x3f)) & 0xff;
    slot.key.store(key, Ordering::Relaxed);
    slot.access.store(region.access, Ordering::Relaxed);
    slot.pd.store(region.pd, Ordering::Relaxed);
    slot.addr.store(region.addr, Ordering::Relaxed);
    slot.len.store(region.len, Ordering::Relaxed);
    slot.state.fetch_or(VALID, Ordering::Release);
    Ok(index << 8 | key)
}

/// Deregisters a region and waits for accesses in progress. The STag must come from [`register`].
pub(crate) fn deregister(stag: u32) {
    let Some(slot) = TABLE.slot(stag >> 8) else { return };
    slot.state.fetch_and(!VALID, Ordering::AcqRel);
    while slot.state.load(Ordering::Acquire) != 0 {
        std::thread::yield_now();
    }
    crate::lock(&TABLE.free).slots.push_back(stag >> 8);
}

/// Checks an access by protection domain `pd`, and permits it.
#[inline]
pub(crate) fn acquire(access: Access, pd: u32) -> Result<Grant, Denied> {
    let Access { stag, addr, len, rights } = access;
    let slot = TABLE.slot(stag >> 8).ok_or(Denied::Stag)?;
    let before = slot.state.fetch_add(1, Ordering::Acquire);
    let grant = Grant { slot };
    if before & VALID == 0 || slot.key.load(Ordering::Relaxed) != stag & 0xff {
        return Err(Denied::Stag);
    }
    if slot.pd.load(Ordering::Relaxed) != pd {
        return Err(Denied::Pd);
    }
    if slot.access.load(Ordering::Relaxed) & rights != rights {
        return Err(Denied::Rights);
    }
    let end = addr.checked_add(len as u64).ok_or(Denied::Wrap)?;
    let start = slot.addr.load(Ordering::Relaxed);
    if addr < start || end > start + slot.len.load(Ordering::Relaxed) {
        return Err(Denied::Bounds);
    }
    Ok(grant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};

    fn region() -> Region {
        Region { addr: 0x1000, len: 0x100, access: LOCAL_WRITE | REMOTE_WRITE, pd: 7 }
    }

    fn denied(stag: u32, pd: u32, addr: u64, len: usize, rights: u32) -> Option<Denied> {
        acquire(Access { stag, addr, len, rights }, pd).err()
    }

    #[test]
    fn every_check_is_made() {
        let stag = register(region()).unwrap();
        assert!(stag > 0xff, "STags 0 and 1 are never given out");
        assert_eq!(denied(stag, 7, 0x1000, 0x100, REMOTE_WRITE), None);
        assert_eq!(denied(stag ^ 1, 7, 0x1000, 1, 0), Some(Denied::Stag));
        assert_eq!(denied(0xffff_ff00, 7, 0x1000, 1, 0), Some(Denied::Stag));
        assert_eq!(denied(stag, 8, 0x1000, 1, 0), Some(Denied::Pd));
        assert_eq!(denied(stag, 7, 0x1000, 1, REMOTE_READ), Some(Denied::Rights));
        assert_eq!(denied(stag, 7, 0x1000, 1, REMOTE_READ | REMOTE_WRITE), Some(Denied::Rights));
        assert_eq!(denied(stag, 7, 0xfff, 1, 0), Some(Denied::Bounds));
        assert_eq!(denied(stag, 7, 0x10ff, 2, 0), Some(Denied::Bounds));
        assert_eq!(denied(stag, 7, u64::MAX, 2, 0), Some(Denied::Wrap));
        deregister(stag);
        assert_eq!(denied(stag, 7, 0x1000, 1, 0), Some(Denied::Stag));
    }

    #[test]
    fn a_key_given_back_is_not_given_out_again_at_once() {
        let first = register(region()).unwrap();
        deregister(first);
        let second = register(region()).unwrap();
        assert_ne!(first, second);
        assert_eq!(denied(first, 7, 0x1000, 1, 0), Some(Denied::Stag));
        deregister(second);
    }

    #[test]
    fn deregistration_waits_for_a_grant() {
        let stag = register(region()).unwrap();
        let grant = acquire(Access { stag, addr: 0x1000, len: 1, rights: 0 }, 7).ok().unwrap();
        let done = std::sync::Arc::new(AtomicU32::new(0));
        let seen = done.clone();
        let thread = std::thread::spawn(move || {
            deregister(stag);
            seen.store(1, Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        drop(grant);
        thread.join().unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }
}
