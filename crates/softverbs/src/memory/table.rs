// SPDX-License-Identifier: BSD-3-Clause
//! The table of memory regions.
//!
//! There is one table per process. An STag is 32 bits from the system's random source, drawn for each registration, so each guess of a peer
//! hits one of `n` regions with a probability of `n` in 2^32, whatever other STags the peer has been given. Nothing about STags that will be
//! drawn later is in memory.
//!
//! The lower bits of an STag are the index of its slot, so a lookup computes one address and compares. The table has several levels of
//! growing size. A level takes regions until half of its slots are in use, so that a random index soon finds a free one; further regions go
//! to the next level. A lookup looks at one slot of each level, mostly of the first one only: it is enough for 2048 regions.
//!
//! Accesses take no lock: [`acquire`] increments the count of grants of the slot, then checks that the slot is valid; [`deregister`] clears
//! the valid bit, then waits until the count is 0. Both use the one atomic `state`, so either the access finds the slot invalid or the
//! deregistration waits for it: after ibv_dereg_mr(3) has returned, no access to the memory is in progress.
//!
//! The other fields of a slot change only while it is invalid and every access that found it valid has ended, so relaxed loads suffice;
//! `state` orders them. `stag` is also read to find the slot, before the slot is known to be valid, and therefore compared again afterwards.
//!
//! Registration takes no lock, either. A lock that another thread holds when the process forks would stay locked in the child, which could
//! then register nothing. A registration that a fork interrupts costs the child the slot, nothing else.
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::access::{Access, Denied, FLUSH_PERSISTENT};
use crate::limits::MAX_MR;
use crate::sys::Errno;

/// The slot has a region, which may be accessed.
const VALID: u64 = 1 << 63;
/// The slot is in use.
const CLAIMED: u64 = 1 << 62;
/// The number of grants.
const GRANTS: u64 = CLAIMED - 1;

/// In [`Slot::access`]: writes to this memory did not get to its medium, so no flush of the region is to say that they have. Remote rights
/// are lower bits.
const WRITES_LOST: u32 = 1 << 31;

/// Slots are allocated in chunks of this many.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 12;

/// The bits of an STag that are the index of its slot, for each level.
const LEVELS: [u32; 5] = [12, 15, 18, 21, 25];

/// The first chunk of a level; for the number of levels, the number of chunks.
const fn first_chunk(level: usize) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < level {
        sum += 1 << (LEVELS[at] - CHUNK_BITS);
        at += 1;
    }
    sum
}

const FIRST_CHUNK: [usize; LEVELS.len()] =
    [first_chunk(0), first_chunk(1), first_chunk(2), first_chunk(3), first_chunk(4)];
const CHUNKS: usize = first_chunk(LEVELS.len());

// The last level alone has room for all regions.
const _: () = assert!(1 << (LEVELS[LEVELS.len() - 1] - 1) >= MAX_MR);

/// STags from here on are given out. 0 and 1 have a meaning of their own on the wire.
const FIRST_STAG: u32 = 2;

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
    /// `VALID`, `CLAIMED` and the number of grants.
    state: AtomicU64,
    stag: AtomicU32,
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

    /// [`lose_writes`] has been called for memory of this region.
    pub(crate) fn writes_lost(&self) -> bool {
        self.slot.access.load(Ordering::Relaxed) & WRITES_LOST != 0
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.slot.state.fetch_sub(1, Ordering::Release);
    }
}

type Chunk = [Slot; CHUNK];

struct Table {
    /// The chunks of all levels, allocated on first use, by whoever comes first: nobody waits for another thread.
    chunks: [OnceBox<Chunk>; CHUNKS],
    /// The number of slots of each level that are in use or about to be.
    used: [AtomicU32; LEVELS.len()],
}

static TABLE: Table =
    Table { chunks: [const { OnceBox::new() }; CHUNKS], used: [const { AtomicU32::new(0) }; LEVELS.len()] };

/// The chunk of an STag on a level, and the slot in it.
#[inline(always)]
fn place(level: usize, stag: u32) -> (usize, usize) {
    let index = stag as usize & ((1 << LEVELS[level]) - 1);
    (FIRST_CHUNK[level] + (index >> CHUNK_BITS), index & (CHUNK - 1))
}

impl Table {
    #[inline(always)]
    fn find_on(&'static self, level: usize, stag: u32) -> Option<&'static Slot> {
        let (chunk, at) = place(level, stag);
        let slot = &self.chunks[chunk].get()?[at];
        (slot.stag.load(Ordering::Relaxed) == stag).then_some(slot)
    }

    /// The slot of an STag. It may not be valid, and may become that of another STag at any time.
    #[inline]
    fn find(&'static self, stag: u32) -> Option<&'static Slot> {
        (0..LEVELS.len()).find_map(|level| self.find_on(level, stag))
    }

    fn slot(&'static self, level: usize, stag: u32) -> Result<&'static Slot, Errno> {
        let (chunk, at) = place(level, stag);
        let chunk = self.chunks[chunk].get_or_try_init(|| {
            let mut slots = Vec::new();
            slots.try_reserve_exact(CHUNK).map_err(|_| libc::ENOMEM)?;
            slots.extend(std::iter::repeat_with(Slot::default).take(CHUNK));
            slots.into_boxed_slice().try_into().map_err(|_| libc::ENOMEM)
        })?;
        Ok(&chunk[at])
    }

    /// Reserves a slot on the first level that has room.
    fn reserve(&self) -> Result<usize, Errno> {
        let with_room = |&(level, bits): &(usize, &u32)| {
            let room = |used: u32| (used < 1 << (bits - 1)).then_some(used + 1);
            self.used[level].fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
        };
        match LEVELS.iter().enumerate().find(with_room) {
            Some((level, _)) => Ok(level),
            None => {
                log::error!("all {MAX_MR} memory region keys are in use");
                Err(libc::ENOMEM)
            }
        }
    }

    /// Claims a free slot of a level under a new STag.
    fn claim(&'static self, level: usize) -> Result<(&'static Slot, u32), Errno> {
        loop {
            for stag in random()? {
                if stag < FIRST_STAG || self.find(stag).is_some() {
                    continue;
                }
                let slot = self.slot(level, stag)?;
                if slot.state.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    continue;
                }
                slot.stag.store(stag, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                // Another thread may have drawn the same STag for another level at the same time. At least one of them sees it here.
                let mut others = (0..LEVELS.len()).filter(|&other| other != level);
                if others.all(|other| self.find_on(other, stag).is_none()) {
                    return Ok((slot, stag));
                }
                slot.release();
            }
        }
    }
}

impl Slot {
    /// Frees a slot that is invalid and has no grants but those that will be denied.
    fn release(&self) {
        self.stag.store(0, Ordering::Relaxed);
        self.state.fetch_and(!CLAIMED, Ordering::Release);
    }
}

/// Two STags from the system's random source. Nothing is kept for later: a fork would give it to two processes. EIO if the system provides
/// no random bytes.
fn random() -> Result<[u32; 2], Errno> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|_| libc::EIO)?;
    let both = u64::from_ne_bytes(bytes);
    Ok([both as u32, (both >> 32) as u32])
}

/// Registers a region and returns its STag, which is both lkey and rkey. ENOMEM if all STags are in use or memory for the table is short,
/// EIO if the system provides no random bytes.
pub(crate) fn register(region: Region) -> Result<u32, Errno> {
    let level = TABLE.reserve()?;
    let (slot, stag) = TABLE.claim(level).inspect_err(|_| {
        TABLE.used[level].fetch_sub(1, Ordering::Relaxed);
    })?;
    slot.access.store(region.access, Ordering::Relaxed);
    slot.pd.store(region.pd, Ordering::Relaxed);
    slot.addr.store(region.addr, Ordering::Relaxed);
    slot.len.store(region.len, Ordering::Relaxed);
    slot.state.fetch_or(VALID, Ordering::Release);
    Ok(stag)
}

/// Deregisters a region and waits for accesses in progress. The STag must come from [`register`].
pub(crate) fn deregister(stag: u32) {
    let levels = (0..LEVELS.len()).filter_map(|level| Some((level, TABLE.find_on(level, stag)?)));
    // For a moment another thread that has drawn the same STag may hold a slot under it on another level; that one is not valid.
    let mut valid = levels.filter(|(_, slot)| slot.state.load(Ordering::Relaxed) & VALID != 0);
    let Some((level, slot)) = valid.next() else { return };
    slot.state.fetch_and(!VALID, Ordering::AcqRel);
    while slot.state.load(Ordering::Acquire) & GRANTS != 0 {
        std::thread::yield_now();
    }
    slot.release();
    TABLE.used[level].fetch_sub(1, Ordering::Relaxed);
}

/// Notes for each region with memory from `start` to `end` that writes there did not get to their medium. It stays so until the memory is
/// registered anew. Looks at all regions, as media seldom fail.
pub(crate) fn lose_writes(start: u64, end: u64) {
    for slot in TABLE.chunks.iter().filter_map(OnceBox::get).flatten() {
        if slot.state.load(Ordering::Relaxed) & VALID == 0 {
            continue;
        }
        let before = slot.state.fetch_add(1, Ordering::Acquire);
        let _grant = Grant { slot };
        let addr = slot.addr.load(Ordering::Relaxed);
        if before & VALID != 0 && addr < end && addr + slot.len.load(Ordering::Relaxed) > start {
            slot.access.fetch_or(WRITES_LOST, Ordering::Relaxed);
        }
    }
}

/// Checks an access by protection domain `pd`, and permits it.
#[inline]
pub(crate) fn acquire(access: Access, pd: u32) -> Result<Grant, Denied> {
    let Access { stag, addr, len, rights } = access;
    let slot = TABLE.find(stag).ok_or(Denied::Stag)?;
    let before = slot.state.fetch_add(1, Ordering::Acquire);
    let grant = Grant { slot };
    if before & VALID == 0 || slot.stag.load(Ordering::Relaxed) != stag {
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
        assert_eq!(denied(stag, 7, 0x1000, 0x100, REMOTE_WRITE), None);
        assert_eq!(denied(stag ^ 1, 7, 0x1000, 1, 0), Some(Denied::Stag));
        assert_eq!(denied(0, 7, 0x1000, 1, 0), Some(Denied::Stag));
        assert_eq!(denied(stag ^ 1 << 31, 7, 0x1000, 1, 0), Some(Denied::Stag));
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
    fn lost_writes_are_those_of_every_region_with_the_memory_until_it_is_registered_anew() {
        let at = |addr, len| {
            register(Region { addr, len, access: REMOTE_WRITE | FLUSH_PERSISTENT, pd: 7 }).unwrap()
        };
        let lost = |stag, addr| {
            let access = Access { stag, addr, len: 1, rights: REMOTE_WRITE };
            acquire(access, 7).ok().unwrap().writes_lost()
        };
        // Addresses that no other test has registered.
        const BASE: u64 = 0x7000_0000;
        let (first, same, before, behind) =
            (at(BASE + 100, 100), at(BASE + 150, 100), at(BASE, 100), at(BASE + 200, 100));
        lose_writes(BASE + 100, BASE + 200);
        assert!(lost(first, BASE + 100) && lost(same, BASE + 150));
        assert!(!lost(before, BASE) && !lost(behind, BASE + 200));
        deregister(first);
        let anew = at(BASE + 100, 100);
        assert!(!lost(anew, BASE + 100));
        [anew, same, before, behind].into_iter().for_each(deregister);
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

    /// Each of the 32 bits is set in about half of the STags, and the distances between neighbours spread over the whole range.
    #[test]
    fn all_bits_of_an_stag_are_random() {
        const COUNT: usize = 4096;
        let mut stags: Vec<u32> = (0..COUNT).map(|_| register(region()).unwrap()).collect();
        for bit in 0..32 {
            let set = stags.iter().filter(|&stag| stag >> bit & 1 == 1).count();
            // 2048 expected, with a standard deviation of 32.
            assert!((1728..2368).contains(&set), "bit {bit} is set in {set} of {COUNT}");
        }
        let in_order = stags.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((1728..2368).contains(&in_order), "{in_order} STags are larger than the one before");
        for &stag in &stags {
            deregister(stag);
        }
        stags.sort_unstable();
        stags.dedup();
        assert_eq!(stags.len(), COUNT);
        let (low, high) = (stags[0], stags[COUNT - 1]);
        assert!(low < 1 << 25 && high > u32::MAX - (1 << 25), "the range is {low:#x} to {high:#x}");
    }

    #[test]
    fn a_hundred_thousand_regions_are_told_apart() {
        const COUNT: u64 = 100_000;
        let of = |i| Region { addr: 0x10_0000 * (i + 1), len: i + 1, ..region() };
        let stags: Vec<u32> = (0..COUNT).map(|i| register(of(i)).unwrap()).collect();
        let exact = |i: u64, stag, more: usize| {
            denied(stag, 7, of(i).addr, of(i).len as usize + more, LOCAL_WRITE | REMOTE_WRITE)
        };
        for (i, &stag) in (0..).zip(&stags) {
            assert_eq!(exact(i, stag, 0), None);
            assert_eq!(exact(i, stag, 1), Some(Denied::Bounds));
        }
        let (given_back, kept) = stags.split_at(stags.len() / 2);
        for &stag in given_back {
            deregister(stag);
        }
        for (i, &stag) in (0..).zip(&stags) {
            let expected = if i < given_back.len() as u64 { Some(Denied::Stag) } else { None };
            assert_eq!(exact(i, stag, 0), expected);
        }
        for &stag in kept {
            deregister(stag);
        }
        assert!(stags.iter().all(|&stag| TABLE.find(stag).is_none()), "all slots are free");
    }

    #[test]
    fn threads_register_and_deregister_at_the_same_time() {
        let threads: Vec<_> = (0..4u32)
            .map(|pd| {
                std::thread::spawn(move || {
                    for round in 0..2000u64 {
                        let own: Vec<_> = (0..4)
                            .map(|i| {
                                let addr = 0x1000 * (4 * round + i + 1);
                                (addr, register(Region { addr, pd, ..region() }).unwrap())
                            })
                            .collect();
                        for (addr, stag) in own {
                            assert_eq!(denied(stag, pd, addr, 0x100, LOCAL_WRITE), None);
                            deregister(stag);
                            assert_eq!(denied(stag, pd, addr, 0x100, LOCAL_WRITE), Some(Denied::Stag));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
