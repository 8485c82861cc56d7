// SPDX-License-Identifier: BSD-3-Clause
//! The memory of the process under test: regions of one array in the real table, and a copy that shows which
//! bytes have changed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{self, Region};
use transport::access::{FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};

const LEN: usize = 4096;
const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
/// What lets a peer change the bytes.
const CHANGES: u32 = REMOTE_WRITE | REMOTE_ATOMIC;
/// The protection domain of the connection.
pub(super) const PD: u32 = 1;
/// The region for receives and the sinks of reads.
pub(super) const LOCAL: usize = 1;
/// Registered, but not mapped: the kernel lets nobody map this page.
const GONE: usize = 6;
const GONE_ADDR: u64 = 4096;

/// Ranges in the array, rights and protection domains. Some bytes belong to no region.
const REGIONS: [(Range<usize>, u32, u32); 7] = [
    (0..512, 0, PD),
    (512..1536, LOCAL_WRITE, PD),
    (1600..2624, ALL, PD),
    (2624..3136, REMOTE_READ, PD),
    (3200..3648, ALL | FLUSH_PERSISTENT, PD),
    (3648..4000, ALL, PD + 1),
    (0..64, ALL, PD),
];

pub(super) struct Memory {
    words: Box<[AtomicU64]>,
    copy: Vec<u64>,
    stags: [Option<u32>; REGIONS.len()],
    /// The last STag of each region.
    known: [u32; REGIONS.len()],
}

impl Memory {
    pub(super) fn new() -> Self {
        let words: Box<[AtomicU64]> = (0..LEN as u64 / 8).map(AtomicU64::new).collect();
        let copy = (0..LEN as u64 / 8).collect();
        let mut this = Self { words, copy, stags: [None; 7], known: [0; 7] };
        for region in 0..REGIONS.len() {
            this.register(region);
        }
        this
    }

    fn addr(&self, region: usize) -> u64 {
        match region {
            GONE => GONE_ADDR,
            _ => self.words.as_ptr() as u64 + REGIONS[region].0.start as u64,
        }
    }

    fn register(&mut self, region: usize) {
        let (range, access, pd) = REGIONS[region].clone();
        let region_of = Region { addr: self.addr(region), len: range.len() as u64, access, pd };
        let stag = memory::register(region_of).expect("room in the table");
        self.stags[region] = Some(stag);
        self.known[region] = stag;
    }

    /// Deregisters a region, or registers it again.
    pub(super) fn change(&mut self, region: usize) {
        let region = region % REGIONS.len();
        match self.stags[region].take() {
            Some(stag) => memory::deregister(stag),
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
        let (range, access, pd) = REGIONS[region].clone();
        let start = usize::try_from(addr.checked_sub(self.addr(0))?).ok()?;
        let end = start.checked_add(len)?;
        // What lies outside is noticed by the segment that is to go there; those before it are placed.
        let part = start.max(range.start)..end.min(range.end);
        (!part.is_empty() && access & LOCAL_WRITE != 0 && pd == PD).then_some(part)
    }

    /// The ranges that the peer may write.
    fn open_to_the_peer(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let open = |region: &usize| REGIONS[*region].1 & CHANGES != 0 && REGIONS[*region].2 == PD;
        let regions = (0..GONE).filter(|region| self.stags[*region].is_some());
        regions.filter(open).map(|region| REGIONS[region].0.clone())
    }

    /// No byte has changed but in `granted`, and in what the peer may write while the connection is there.
    pub(super) fn check(&mut self, granted: Vec<Range<usize>>, connected: bool) {
        let open = self.open_to_the_peer().filter(|_| connected);
        let ranges: Vec<_> = granted.into_iter().chain(open).collect();
        for (i, word) in self.words.iter().enumerate() {
            let now = word.load(Ordering::Relaxed);
            let before = std::mem::replace(&mut self.copy[i], now);
            if now == before {
                continue;
            }
            let changed = (now ^ before).to_ne_bytes();
            for at in (0..8).filter(|at| changed[*at] != 0).map(|at| i * 8 + at) {
                let permitted = ranges.iter().any(|range| range.contains(&at));
                assert!(permitted, "byte {at} has changed, which nobody may write");
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.stags.iter().flatten().for_each(|stag| memory::deregister(*stag));
    }
}
