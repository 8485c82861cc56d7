// SPDX-License-Identifier: BSD-3-Clause
//! The memory of the process under test: regions of one array, and a copy that shows which bytes have
//! changed.

use std::ops::Range;

use crate::access::{Bind, Denied, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::testing::memory::Memory;

/// The length of the array.
pub const LEN: usize = 4096;
const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
/// What lets a peer change the bytes.
const CHANGES: u32 = REMOTE_WRITE | REMOTE_ATOMIC;
/// The region for receives and the sinks of reads.
pub(super) const LOCAL: usize = 1;
/// Registered, but not mapped: the kernel maps nothing at this page.
const GONE: usize = 6;
const GONE_ADDR: u64 = 4096;

/// Ranges in the array, rights, and whether they are in the protection domain of the connection. Some bytes
/// belong to no region.
const REGIONS: [(Range<usize>, u32, bool); 7] = [
    (0..512, 0, true),
    (512..1536, LOCAL_WRITE, true),
    (1600..2624, ALL, true),
    (2624..3136, REMOTE_READ, true),
    (3200..3648, ALL | FLUSH_PERSISTENT, true),
    (3648..4000, ALL, false),
    (0..64, ALL, true),
];

/// A table of memory regions, and the array, in which each word is its index at first.
pub trait Table: Memory {
    /// The address of the array.
    fn base(&self) -> u64;
    /// A word of the array.
    fn word(&self, index: usize) -> u64;
    /// Registers a region, in the protection domain of the connection if it is its `own`; returns its STag.
    fn register(&mut self, addr: u64, len: usize, access: u32, own: bool) -> u32;
    /// Deregisters the region with this STag.
    fn deregister(&mut self, stag: u32);
    /// Binds a window for the connection.
    fn bind(&mut self, window: Bind) -> Result<(), Denied>;
    /// Invalidates a window for the connection.
    fn invalidate(&mut self, stag: u32) -> Result<(), Denied>;
}

pub(super) struct Tracked<T: Table> {
    pub table: T,
    copy: Vec<u64>,
    stags: [Option<u32>; REGIONS.len()],
    /// The last STag of each region.
    known: [u32; REGIONS.len()],
}

impl<T: Table> Tracked<T> {
    pub(super) fn new(table: T) -> Self {
        let copy = (0..LEN / 8).map(|index| table.word(index)).collect();
        let mut this = Self { table, copy, stags: [None; 7], known: [0; 7] };
        for region in 0..REGIONS.len() {
            this.register(region);
        }
        this
    }

    fn addr(&self, region: usize) -> u64 {
        match region {
            GONE => GONE_ADDR,
            _ => self.table.base() + REGIONS[region].0.start as u64,
        }
    }

    fn register(&mut self, region: usize) {
        let (range, access, own) = REGIONS[region].clone();
        let stag = self.table.register(self.addr(region), range.len(), access, own);
        self.stags[region] = Some(stag);
        self.known[region] = stag;
    }

    /// Deregisters a region, or registers it again.
    pub(super) fn change(&mut self, region: usize) {
        let region = region % REGIONS.len();
        match self.stags[region].take() {
            Some(stag) => self.table.deregister(stag),
            None => self.register(region),
        }
    }

    /// Key and address in a region, near its start or anywhere; the key may be one that was deregistered.
    pub(super) fn place(&self, region: u8, at: u8) -> (u32, u64) {
        let index = usize::from(region & 0x0f) % REGIONS.len();
        let wrong = if region & 0x30 == 0x30 { 1 } else { 0 };
        let offset = if region & 0x40 != 0 { i64::from(at as i8) } else { i64::from(at) * 4 };
        (self.known[index] ^ wrong, self.addr(index).wrapping_add_signed(offset))
    }

    /// Which bytes of the array may be written where a work request names this range.
    pub(super) fn writable(&self, key: u32, addr: u64, len: usize) -> Option<Range<usize>> {
        let region =
            self.stags.iter().position(|stag| *stag == Some(key)).filter(|region| *region != GONE)?;
        let (range, access, own) = REGIONS[region].clone();
        let start = usize::try_from(addr.checked_sub(self.table.base())?).ok()?;
        let end = start.checked_add(len)?;
        // What lies outside is noticed by the segment that is to go there; those before it are placed.
        let part = start.max(range.start)..end.min(range.end);
        (!part.is_empty() && access & LOCAL_WRITE != 0 && own).then_some(part)
    }

    /// The ranges that the peer may write.
    fn open_to_the_peer(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let open = |region: &usize| REGIONS[*region].1 & CHANGES != 0 && REGIONS[*region].2;
        let regions = (0..GONE).filter(|region| self.stags[*region].is_some());
        regions.filter(open).map(|region| REGIONS[region].0.clone())
    }

    /// No byte has changed but in `granted`, and in what the peer may write while the connection is there.
    pub(super) fn check(&mut self, granted: Vec<Range<usize>>, connected: bool) {
        let open = self.open_to_the_peer().filter(|_| connected);
        let ranges: Vec<_> = granted.into_iter().chain(open).collect();
        for (i, copy) in self.copy.iter_mut().enumerate() {
            let now = self.table.word(i);
            let before = std::mem::replace(copy, now);
            if now == before {
                continue;
            }
            let changed = (now ^ before).to_ne_bytes();
            for at in (0..8).filter(|at| changed[*at] != 0).map(|at| i * 8 + at) {
                let permitted = ranges.iter().any(|range| range.contains(&at));
                assert!(permitted, "byte {at} has changed, which is not writable");
            }
        }
    }
}

impl<T: Table> Drop for Tracked<T> {
    fn drop(&mut self) {
        self.stags.iter().flatten().for_each(|stag| self.table.deregister(*stag));
    }
}
