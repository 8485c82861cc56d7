// SPDX-License-Identifier: BSD-3-Clause
//! The table of memory regions.
//!
//! There is one table per process. An STag is 32 bits from the system's random source, drawn for each
//! registration, so each guess of a peer hits one of `n` regions with a probability of `n` in 2^32, whatever
//! other STags the peer has. Memory holds no state from which later STags could be predicted.
//!
//! The lower bits of an STag are the index of its slot, so a lookup computes one address and compares. The
//! table has several levels of growing size. A level takes regions until half of its slots are in use, so
//! that a random index soon finds a free one; further regions go to the next level. A lookup examines one
//! slot of each level, usually only of the first one, which holds 2048 regions.
//!
//! Accesses take no lock: [`acquire`] increments the count of grants of the slot, then checks that the slot
//! is valid; [`try_deregister`] clears the valid bit, then waits until the count is 0. Both use the one
//! atomic `state`, so either the access finds the slot invalid or the deregistration waits for it: after
//! ibv_dereg_mr(3) has returned, no access to the memory is in progress.
//!
//! A region that is re-registered keeps its STag. During the change no access is denied that the old or the
//! new region permits: the new description is in a second slot, to which accesses are redirected while the
//! first one is invalid ([`change`]). Accesses never wait: a thread may hold one grant of a region while it
//! acquires another, and the re-registration waits for the first.
//!
//! Windows have a separate table, which an access consults if no region has its STag ([`window`]).
//!
//! The other fields of a slot change only while it is invalid and every access that found it valid has ended,
//! so relaxed loads suffice; `state` orders them. `stag` is also read to find the slot, before the slot is
//! known to be valid, and therefore compared again afterwards.
//!
//! Registration takes no lock, either, except of memory with a [`Backing`]. A lock that another thread holds
//! when the process forks would stay locked in the child, which could then register nothing. A registration
//! interrupted by a fork costs the child one slot.
#![forbid(unsafe_code)]

mod change;
mod window;

pub(crate) use change::{Change, Changed};
pub(crate) use window::{alloc_window, another_key, bind_window, free_window, invalidate};

use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use super::backing::{self, Backing};
use super::exporters;
use crate::limits::{MAX_MR, REVOKE_WAIT};
use crate::lock::wait_until;
use crate::probes;
use crate::sys::Errno;
use transport::access::{
    Access, Accessor, Denied, Exported, FIRST_SINK, FLUSH_PERSISTENT, REMOTE_ATOMIC, REMOTE_READ,
};

/// The slot has a region, which may be accessed.
const VALID: u64 = 1 << 63;
/// The slot is in use.
const CLAIMED: u64 = 1 << 62;
/// A [`Change`] of the region is in progress: if the slot is not valid, [`Slot::other`] has the STag of the
/// slot with the region.
const MOVING: u64 = 1 << 61;
/// The region has been withdrawn: all accesses are denied, and its slot stays in use until it is
/// deregistered.
const WITHDRAWN: u64 = 1 << 60;
/// [`lose_writes`] has found the slot invalid during a [`Change`]: the region is in two slots then, and it may
/// have missed it in both.
const LOST_MEANWHILE: u64 = 1 << 59;
/// The number of grants.
const GRANTS: u64 = LOST_MEANWHILE - 1;

/// In [`Slot::access`]: writes to this memory did not reach its medium, so every flush of the region must
/// fail. Remote rights are lower bits.
const WRITES_LOST: u32 = 1 << 31;

/// In [`Slot::access`]: the memory stays mapped, and writable if the region is, until the region is
/// deregistered ([`stays_mapped`]). A window has another flag, bit 30 (`TYPE_2`).
const STAYS_MAPPED: u32 = 1 << 28;

/// In [`Slot::access`]: the key was exported to a peer ([`super::exporters`]), so it must be revoked once the
/// slot is invalid.
const EXPORTED: u32 = 1 << 29;

/// [`Slot::uses`] of a region that is being deregistered or re-registered: no window may be bound to it.
const SEALED: u32 = u32::MAX;

/// Slots come in chunks of this many: that of the first level is zeroed memory of the process, of which only
/// the pages in use cost anything; those of the others are allocated.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = if cfg!(miri) { 6 } else { 12 };

/// The bits of an STag that are the index of its slot, for each level. Miri visits each atomic behind a
/// reference that is made, and so all of a table in each call.
const LEVELS: [u32; 5] = if cfg!(miri) { [6, 7, 8, 9, 10] } else { [12, 15, 18, 21, 25] };

/// The first allocated chunk of a level; for the number of levels, the number of chunks.
const fn first_chunk(level: usize) -> usize {
    let (mut sum, mut at) = (0, 1);
    while at < level {
        sum += 1 << (LEVELS[at] - CHUNK_BITS);
        at += 1;
    }
    sum
}

const FIRST_CHUNK: [usize; LEVELS.len()] =
    [first_chunk(0), first_chunk(1), first_chunk(2), first_chunk(3), first_chunk(4)];
const CHUNKS: usize = first_chunk(LEVELS.len());

// The first level is one chunk.
const _: () = assert!(LEVELS[0] == CHUNK_BITS);

// No window has the STag of a sink, whatever its key is.
const _: () = assert!(FIRST_SINK % (1 << 8) == 0);

// The last level alone has room for all regions.
const _: () = assert!(cfg!(miri) || 1 << (LEVELS[LEVELS.len() - 1] - 1) >= MAX_MR);

/// Regions get STags from this one up to [`FIRST_SINK`]; windows those whose part without the key is at least
/// this. 0 and 1 have a special meaning on the wire.
const FIRST_STAG: u32 = 2;

/// A memory region: its memory, access rights and protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub addr: u64,
    pub len: u64,
    pub access: u32,
    pub pd: u32,
}

struct Slot {
    /// `VALID`, `CLAIMED` and the number of grants.
    state: AtomicU64,
    stag: AtomicU32,
    access: AtomicU32,
    pd: AtomicU32,
    /// The address of the first byte in accesses.
    iova: AtomicU64,
    len: AtomicU64,
    /// The memory address minus the address of the access, modulo 2^64: 0 unless the region has a separate
    /// iova.
    delta: AtomicU64,
    /// The address that is accessed minus that in the mapping of the program, modulo 2^64: 0 unless the
    /// memory has a [`Backing`]. Part of `delta`.
    shift: AtomicU64,
    /// While a region is re-registered, the STag of the slot with its new description; in that slot, the STag
    /// of the region. For a window, the number of the queue pair that bound it.
    other: AtomicU32,
    /// For a region, the number of windows bound to it, or `SEALED`. For a bound window, the STag of its
    /// region.
    uses: AtomicU32,
}

/// Permission to access a range of a region until dropped. Deregistration waits for it, so a thread must not
/// hold one while it blocks.
pub(crate) struct Grant {
    slot: &'static Slot,
    addr: u64,
}

impl Grant {
    /// The memory address of the range, in the mapping of the library if the memory has a [`Backing`].
    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// Address and length of the memory that the access must make durable, as the program has mapped it: the
    /// range of a flush, the whole region for a read. `access` is the access of the grant.
    pub(crate) fn persistent(&self, access: Access) -> Option<(u64, u64)> {
        if access.rights & FLUSH_PERSISTENT != 0 {
            let addr = self.addr.wrapping_sub(self.slot.shift.load(Ordering::Relaxed));
            return Some((addr, access.len as u64));
        }
        let is = self.slot.access.load(Ordering::Relaxed) & FLUSH_PERSISTENT != 0;
        is.then(|| self.slot.memory())
    }

    /// Whether loads and stores of this process cannot fault, because the library itself has mapped the
    /// memory. Else the program may unmap it at any time, and the kernel has to copy.
    #[inline]
    pub(crate) fn is_backed(&self) -> bool {
        self.slot.shift.load(Ordering::Relaxed) != 0
            || self.slot.access.load(Ordering::Relaxed) & STAYS_MAPPED != 0
    }

    /// The description that a peer needs to access the region directly; it may be exported while the grant is
    /// held. `access` is the access of the grant. None if each access must go through the table: for windows,
    /// for reads that must find earlier writes durable, and for atomic operations in memory that the peer
    /// cannot map.
    pub(crate) fn export(&self, access: Access) -> Option<Exported> {
        let (slot, Access { stag, rights, .. }) = (self.slot, access);
        if rights & REMOTE_READ != 0 && slot.access.load(Ordering::Relaxed) & FLUSH_PERSISTENT != 0 {
            return None;
        }
        // No window has the STag of a region.
        TABLE.find(stag)?;
        let file = slot.backed().and_then(|first| backing::file_offset(stag, first));
        if rights == REMOTE_ATOMIC && file.is_none() {
            return None;
        }
        // A thread that invalidates the slot waits for this grant and then sees the flag.
        slot.access.fetch_or(EXPORTED, Ordering::Relaxed);
        let (start, len) = (slot.iova.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
        Some(Exported { stag, rights, start, len, delta: slot.delta.load(Ordering::Relaxed), file })
    }

    /// [`lose_writes`] has been called for memory of this region.
    pub(crate) fn writes_lost(&self) -> bool {
        self.slot.lost() != 0
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.slot.state.fetch_sub(1, Ordering::Release);
    }
}

type Chunk = [Slot; CHUNK];

/// The index of a slot is in the bits of its STag from bit `SHIFT` on. The lower ones are the key of a
/// window.
struct Table<const SHIFT: u32> {
    /// The only chunk of the first level.
    first: Chunk,
    /// The chunks of the other levels, each allocated by its first user without blocking others.
    chunks: [OnceBox<Chunk>; CHUNKS],
    /// The number of slots of each level that are in use or reserved.
    used: [AtomicU32; LEVELS.len()],
}

/// The regions.
static TABLE: Table<0> = Table::new();
/// The windows.
static WINDOWS: Table<8> = Table::new();

/// The chunk of an STag on a level, and the slot in it.
#[inline(always)]
fn place<const SHIFT: u32>(level: usize, stag: u32) -> (usize, usize) {
    let index = (stag >> SHIFT) as usize & ((1 << LEVELS[level]) - 1);
    (FIRST_CHUNK[level] + (index >> CHUNK_BITS), index & (CHUNK - 1))
}

impl<const SHIFT: u32> Table<SHIFT> {
    const fn new() -> Self {
        Self {
            first: [const { Slot::new() }; CHUNK],
            chunks: [const { OnceBox::new() }; CHUNKS],
            used: [const { AtomicU32::new(0) }; LEVELS.len()],
        }
    }

    /// The slot of a level that an STag has or would have; `None`: its chunk is not allocated.
    #[inline(always)]
    fn candidate(&'static self, level: usize, stag: u32) -> Option<&'static Slot> {
        let (chunk, at) = place::<SHIFT>(level, stag);
        let slots = if level == 0 { &self.first } else { self.chunks[chunk].get()? };
        Some(&slots[at])
    }

    #[inline(always)]
    fn find_on(&'static self, level: usize, stag: u32) -> Option<&'static Slot> {
        self.candidate(level, stag).filter(|slot| slot.stag.load(Ordering::Relaxed) == stag)
    }

    /// The slot of an STag. It may be invalid, and may be reused for another STag at any time.
    #[inline(always)]
    fn find(&'static self, stag: u32) -> Option<&'static Slot> {
        self.find_on(0, stag).or_else(|| self.find_beyond(stag))
    }

    /// As [`Self::find`], for a slot that is not on the first level.
    #[cold]
    fn find_beyond(&'static self, stag: u32) -> Option<&'static Slot> {
        (1..LEVELS.len()).find_map(|level| self.find_on(level, stag))
    }

    /// The slot of a level whose STag has the same index, possibly with another key.
    fn holder_on(&'static self, level: usize, stag: u32) -> Option<&'static Slot> {
        let has_index = |slot: &&Slot| slot.stag.load(Ordering::Relaxed) >> SHIFT == stag >> SHIFT;
        self.candidate(level, stag).filter(has_index)
    }

    fn holder(&'static self, stag: u32) -> Option<(usize, &'static Slot)> {
        (0..LEVELS.len()).find_map(|level| Some((level, self.holder_on(level, stag)?)))
    }

    fn slot(&'static self, level: usize, stag: u32) -> Result<&'static Slot, Errno> {
        if let Some(slot) = self.candidate(level, stag) {
            return Ok(slot);
        }
        let (chunk, at) = place::<SHIFT>(level, stag);
        let chunk = self.chunks[chunk].get_or_try_init(|| {
            let mut slots = Vec::new();
            slots.try_reserve_exact(CHUNK).map_err(|_| libc::ENOMEM)?;
            slots.extend(std::iter::repeat_with(Slot::new).take(CHUNK));
            slots.into_boxed_slice().try_into().map_err(|_| libc::ENOMEM)
        })?;
        Ok(&chunk[at])
    }

    fn slots(&'static self) -> impl Iterator<Item = &'static Slot> {
        self.first.iter().chain(self.chunks.iter().filter_map(OnceBox::get).flatten())
    }

    /// Reserves a slot on the first level that has room.
    fn reserve(&self) -> Result<usize, Errno> {
        let with_room = |&(level, bits): &(usize, &u32)| {
            if bits + SHIFT > u32::BITS {
                return false;
            }
            let room = |used: u32| (used < 1 << (bits - 1)).then_some(used + 1);
            self.used[level].fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
        };
        match LEVELS.iter().enumerate().find(with_room) {
            Some((level, _)) => Ok(level),
            None => {
                log::error!(
                    "all {} are in use",
                    if SHIFT == 0 { "memory region keys" } else { "memory windows" }
                );
                Err(libc::ENOMEM)
            }
        }
    }

    /// The slot of a region that has not been deregistered, and its level. Another thread that has drawn the
    /// same STag may briefly hold a slot with it on another level, which is neither valid nor withdrawn.
    fn region(&'static self, stag: u32) -> Option<(usize, &'static Slot)> {
        let levels = (0..LEVELS.len()).filter_map(|level| Some((level, self.find_on(level, stag)?)));
        let mut taken =
            levels.filter(|(_, slot)| slot.state.load(Ordering::Relaxed) & (VALID | WITHDRAWN | MOVING) != 0);
        taken.next()
    }

    /// Claims a free slot on the first level that has room. ENOMEM, EIO.
    fn take(&'static self) -> Result<(usize, &'static Slot, u32), Errno> {
        #[cfg(test)]
        if FULL.get() {
            return Err(libc::ENOMEM);
        }
        let level = self.reserve()?;
        let claimed = self.claim(level).inspect_err(|_| {
            self.used[level].fetch_sub(1, Ordering::Relaxed);
        });
        claimed.map(|(slot, stag)| (level, slot, stag))
    }

    /// Frees an invalidated slot and its reservation. Any remaining grant will be denied.
    fn give_back(&self, level: usize, slot: &Slot) {
        slot.release();
        self.used[level].fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a drawn STag may be used: with no key does it have a special meaning.
    fn may_give_out(stag: u32) -> bool {
        (FIRST_STAG << SHIFT..FIRST_SINK).contains(&stag)
    }

    /// Claims a free slot of a level under a new STag.
    fn claim(&'static self, level: usize) -> Result<(&'static Slot, u32), Errno> {
        loop {
            for stag in random()? {
                if !Self::may_give_out(stag) || self.holder(stag).is_some() {
                    continue;
                }
                let slot = self.slot(level, stag)?;
                if slot.state.compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    continue;
                }
                slot.stag.store(stag, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                // Another thread may have drawn the same STag at the same time, for another level or the
                // other table. At least one of the two threads sees that here.
                let mut others = (0..LEVELS.len()).filter(|&other| other != level);
                if others.all(|other| self.holder_on(other, stag).is_none()) && !Self::is_elsewhere(stag) {
                    return Ok((slot, stag));
                }
                slot.release();
            }
        }
    }

    /// Whether the other table has an STag that conflicts with the drawn one.
    fn is_elsewhere(stag: u32) -> bool {
        match SHIFT {
            0 => WINDOWS.holder(stag).is_some(),
            _ => (0..1 << SHIFT).any(|key| TABLE.find(stag >> SHIFT << SHIFT | key).is_some()),
        }
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            stag: AtomicU32::new(0),
            access: AtomicU32::new(0),
            pd: AtomicU32::new(0),
            iova: AtomicU64::new(0),
            len: AtomicU64::new(0),
            delta: AtomicU64::new(0),
            shift: AtomicU64::new(0),
            other: AtomicU32::new(0),
            uses: AtomicU32::new(0),
        }
    }

    /// The address and the length of the memory of the region, as the program has mapped it.
    fn memory(&self) -> (u64, u64) {
        let (iova, delta) = (self.iova.load(Ordering::Relaxed), self.delta.load(Ordering::Relaxed));
        let addr = iova.wrapping_add(delta).wrapping_sub(self.shift.load(Ordering::Relaxed));
        (addr, self.len.load(Ordering::Relaxed))
    }

    /// Stores the description of a region in a slot that no other thread uses. `backed`: the address of the
    /// memory in the mapping of the library.
    fn describe(&self, region: Region, iova: u64, backed: Option<u64>) {
        let accessed = backed.unwrap_or(region.addr);
        self.shift.store(accessed.wrapping_sub(region.addr), Ordering::Relaxed);
        // A program may set these bits: they are optional access flags of verbs, which have no effect here.
        self.access.store(region.access & !(STAYS_MAPPED | EXPORTED), Ordering::Relaxed);
        self.pd.store(region.pd, Ordering::Relaxed);
        self.iova.store(iova, Ordering::Relaxed);
        self.len.store(region.len, Ordering::Relaxed);
        self.delta.store(accessed.wrapping_sub(iova), Ordering::Relaxed);
    }

    /// Invalidates a slot and waits for accesses in progress.
    fn invalidate(&self) {
        self.state.fetch_and(!VALID, Ordering::AcqRel);
        self.wait_for_grants();
    }

    fn wait_for_grants(&self) {
        wait_until(|| self.state.load(Ordering::Acquire) & GRANTS == 0);
    }

    /// [`WRITES_LOST`] if the flag is set, else 0.
    fn lost(&self) -> u32 {
        self.access.load(Ordering::Relaxed) & WRITES_LOST
    }

    /// [`lose_writes`] for this slot, if it has a region. `meanwhile`: what to set in the state of a slot
    /// whose region is in another one.
    fn lose_writes(&'static self, start: u64, end: u64, meanwhile: u64) {
        // In one step: a change that began between two of them would be missed.
        let visit = |state: u64| match state & (VALID | MOVING) {
            // Do not write to the many slots without a region.
            0 => None,
            MOVING => (meanwhile != 0).then_some(state | meanwhile),
            _ => Some(state + 1),
        };
        let Ok(before) = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, visit) else { return };
        if before & VALID == 0 {
            // Accesses go there until the change ends.
            if let Some(second) = TABLE.find(self.other.load(Ordering::Acquire)) {
                second.lose_writes(start, end, 0);
            }
            return;
        }
        let _grant = Grant { slot: self, addr: 0 };
        let (addr, len) = self.memory();
        if addr < end && addr + len > start {
            self.access.fetch_or(WRITES_LOST, Ordering::Relaxed);
        }
    }

    /// Revokes the key wherever it is exported, and waits up to `wait` for copies that use it. EBUSY: a copy
    /// may still be in progress. The slot must be invalid; any remaining grant will be denied.
    fn revoke(&self, stag: u32, wait: Duration) -> Result<(), Errno> {
        match self.access.load(Ordering::Relaxed) & EXPORTED {
            0 => Ok(()),
            _ => exporters::revoke(stag, Instant::now() + wait),
        }
    }

    /// The address of the first byte in the mapping of the library, if the memory has a backing.
    fn backed(&self) -> Option<u64> {
        let (iova, delta) = (self.iova.load(Ordering::Relaxed), self.delta.load(Ordering::Relaxed));
        (self.shift.load(Ordering::Relaxed) != 0).then(|| iova.wrapping_add(delta))
    }

    /// Takes the backing of a region, if it has one.
    fn take_backing(&self, stag: u32) -> Option<Backing> {
        match self.shift.load(Ordering::Relaxed) {
            0 => None,
            _ => backing::remove(stag),
        }
    }

    /// Frees an invalidated slot. Any remaining grant will be denied.
    fn release(&self) {
        self.stag.store(0, Ordering::Relaxed);
        self.state.fetch_and(!CLAIMED, Ordering::Release);
    }
}

/// Two STags from the system's random source. None is kept for later: after a fork two processes would use
/// it. EIO if the system provides no random bytes.
fn random() -> Result<[u32; 2], Errno> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|_| libc::EIO)?;
    let both = u64::from_ne_bytes(bytes);
    Ok([both as u32, (both >> 32) as u32])
}

/// The memory of a region is the library's own, which unmaps it only after deregistering the region.
pub(crate) fn stays_mapped(stag: u32) {
    if let Some(slot) = TABLE.find(stag) {
        slot.access.fetch_or(STAYS_MAPPED, Ordering::Relaxed);
    }
}

/// Registers a region whose iova is its address.
#[cfg(any(test, fuzzing))]
pub(crate) fn register(region: Region) -> Result<u32, Errno> {
    register_at(region, region.addr, None)
}

/// Registers a region and returns its STag, which is both lkey and rkey. `iova` is the address of the first
/// byte in accesses; `iova + region.len` must not exceed 64 bits. With the `backing` of the memory, accesses
/// go there. ENOMEM if all STags are in use or memory for the table is short, EIO if the system provides no
/// random bytes.
pub(crate) fn register_at(region: Region, iova: u64, backing: Option<Backing>) -> Result<u32, Errno> {
    let (_, slot, stag) = TABLE.take()?;
    let backed = backing.and_then(|backing| backing::keep(stag, backing));
    slot.describe(region, iova, backed);
    slot.other.store(0, Ordering::Relaxed);
    slot.uses.store(0, Ordering::Relaxed);
    slot.state.fetch_or(VALID, Ordering::Release);
    probes::register(stag, region.addr, region.len, region.access);
    Ok(stag)
}

/// Deregisters a region without bound windows.
#[cfg(any(test, fuzzing))]
pub(crate) fn deregister(stag: u32) {
    assert_eq!(try_deregister(stag), Ok(()));
}

/// Deregisters a region and waits for accesses in progress. The STag must come from [`register_at`].
///
/// EBUSY without any effect: a window is bound to it, or a [`Change`] is in progress. EBUSY also if a peer
/// process uses the key for longer than [`REVOKE_WAIT`]: then all new accesses are denied, but that copy may
/// still be in progress, and the region stays withdrawn until the caller deregisters it again.
pub(crate) fn try_deregister(stag: u32) -> Result<(), Errno> {
    let Some((level, slot)) = TABLE.region(stag) else { return Ok(()) };
    let seal = slot.uses.compare_exchange(0, SEALED, Ordering::AcqRel, Ordering::Relaxed);
    seal.map_err(|_| libc::EBUSY)?;
    slot.invalidate();
    if let Err(e) = slot.revoke(stag, REVOKE_WAIT) {
        slot.state.fetch_or(WITHDRAWN, Ordering::Relaxed);
        slot.uses.store(0, Ordering::Release);
        return Err(e);
    }
    let before = slot.state.fetch_and(!WITHDRAWN, Ordering::Relaxed);
    drop(slot.take_backing(stag));
    if before & WITHDRAWN != 0 {
        // That of the old memory and that of the new one, if the region could not be replaced.
        while backing::remove(stag).is_some() {}
    }
    TABLE.give_back(level, slot);
    probes::deregister(stag);
    Ok(())
}

/// Marks each region that overlaps the range from `start` to `end` because writes there did not reach their
/// medium, and each whose re-registration it meets half done. The mark stays until the memory is registered
/// anew. Visits all regions, as media seldom fail.
pub(crate) fn lose_writes(start: u64, end: u64) {
    // Regions first: a window that is being bound inherits the mark of its region.
    TABLE.slots().for_each(|slot| slot.lose_writes(start, end, LOST_MEANWHILE));
    // Either this finds the window, or the thread that binds it finds the mark.
    fence(Ordering::SeqCst);
    WINDOWS.slots().for_each(|slot| slot.lose_writes(start, end, 0));
}

impl Grant {
    /// Checks an access to the region of a valid slot.
    #[inline(always)]
    fn check(mut self, access: Access, pd: u32) -> Result<Self, Denied> {
        let Access { addr, len, rights, .. } = access;
        let slot = self.slot;
        if slot.pd.load(Ordering::Relaxed) != pd {
            return Err(Denied::Pd);
        }
        if slot.access.load(Ordering::Relaxed) & rights != rights {
            return Err(Denied::Rights);
        }
        let end = addr.checked_add(len as u64).ok_or(Denied::Wrap)?;
        let start = slot.iova.load(Ordering::Relaxed);
        if addr < start || end > start + slot.len.load(Ordering::Relaxed) {
            return Err(Denied::Bounds);
        }
        self.addr = addr.wrapping_add(slot.delta.load(Ordering::Relaxed));
        Ok(self)
    }
}

/// The access with these rights to all bytes of a region or window. If it changes meanwhile, the access may
/// be denied, or cover the previous range of the region.
pub(crate) fn whole(stag: u32, rights: u32, by: impl Into<Accessor>) -> Result<Access, Denied> {
    let slot = TABLE.find(stag).or_else(|| WINDOWS.find(stag)).ok_or(Denied::Stag)?;
    let (addr, len) = (slot.iova.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
    let access = Access { stag, addr, len: len as usize, rights };
    acquire(access, by).map(|_| access)
}

/// Checks an access on behalf of a queue pair and grants it.
#[inline]
pub(crate) fn acquire(access: Access, by: impl Into<Accessor>) -> Result<Grant, Denied> {
    let by = by.into();
    let Some(slot) = TABLE.find(access.stag) else { return window::acquire(access, by) };
    acquire_in(slot, access, by.pd)
}

/// Checks and grants an access, given the slot that had its STag when it was looked up.
#[inline(always)]
fn acquire_in(slot: &'static Slot, access: Access, pd: u32) -> Result<Grant, Denied> {
    let before = slot.state.fetch_add(1, Ordering::Acquire);
    let grant = Grant { slot, addr: 0 };
    if before & VALID == 0 || slot.stag.load(Ordering::Relaxed) != access.stag {
        return change::acquire_moving(grant, before, access, pd);
    }
    grant.check(access, pd)
}

#[cfg(test)]
thread_local! {
    /// Whether this thread finds all slots in use.
    pub(crate) static FULL: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
mod tests;
