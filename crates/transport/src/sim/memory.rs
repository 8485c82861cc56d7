// SPDX-License-Identifier: BSD-3-Clause
//! The memory of a simulated process: a few regions, each for one purpose.
//!
//! What is sent from and what is read have contents that are a function of the address, so a byte shows where
//! it came from. Bytes that are placed elsewhere are checked when they are placed.

use super::random::Draw;
use crate::access::{
    Access, FLUSH_GLOBAL, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE,
};
use crate::limits::MAX_INLINE;
use crate::testing::memory::{Memory, Region, Regions, State};
use crate::wr::{Entries, Local, SendWr, Sge};

pub(super) const SOURCE: usize = 0;
pub(super) const RECEIVES: usize = 1;
pub(super) const SINKS: usize = 2;
pub(super) const WRITABLE: usize = 3;
pub(super) const READABLE: usize = 4;
pub(super) const PERSISTENT: usize = 5;
/// Words for atomic operations.
pub(super) const COUNTERS: usize = 6;
pub(super) const REGIONS: usize = 7;

pub(super) const PERSISTENT_LEN: usize = 64;
pub(super) const WORDS: usize = 3;
/// Longer than several packets with the largest path MTU.
const LEN: usize = 0xa000;
/// From the beginning of a region to that of the next.
const STEP: u64 = 0x1_0000;
const RIGHTS: [u32; REGIONS] = [
    0,
    LOCAL_WRITE,
    LOCAL_WRITE,
    LOCAL_WRITE | REMOTE_WRITE,
    REMOTE_READ,
    LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | FLUSH_GLOBAL | FLUSH_PERSISTENT,
    LOCAL_WRITE | REMOTE_ATOMIC,
];

pub(super) fn len(region: usize) -> usize {
    match region {
        PERSISTENT => PERSISTENT_LEN,
        COUNTERS => 8 * WORDS,
        _ => LEN,
    }
}

pub(super) fn base(side: usize, region: usize) -> u64 {
    0x10_0000 * (side as u64 + 1) + STEP * region as u64
}

pub(super) fn stag(side: usize, region: usize) -> u32 {
    0x1000 * (side as u32 + 1) + region as u32
}

/// The STag of a window that the peer's request with this index may invalidate, once.
pub(super) fn window(side: usize, index: usize) -> u32 {
    0x5_0000 * (side as u32 + 1) + index as u32
}

/// The entries of a request; none if its bytes are inline, or it has none.
pub(super) fn entries(wr: &SendWr) -> Entries {
    match &wr.local {
        Local::Memory { addr, lkey } | Local::Atomic { addr, lkey, .. } => {
            Entries::from_iter([Sge::new(*addr, wr.len, *lkey)])
        }
        Local::Entries(entries) => {
            assert_eq!(wr.len, entries.iter().map(|entry| entry.len).sum());
            entries.iter().copied().collect()
        }
        Local::Inline(_) | Local::LongInline(_) | Local::Window { .. } | Local::Flush { .. } => {
            Entries::new()
        }
    }
}

/// The entry that has byte `at` of all, where that byte is, and how many bytes from there on are in the same
/// entry.
pub(super) fn entry_at(entries: &[Sge], mut at: usize) -> Option<(Sge, u64, usize)> {
    for entry in entries {
        let len = entry.len as usize;
        if at < len {
            return Some((*entry, entry.addr + at as u64, len - at));
        }
        at -= len;
    }
    None
}

/// The regions of a side.
pub(super) fn new(side: usize) -> Regions {
    let mut draw = Draw::new(side as u64);
    let contents: Vec<u8> = (0..LEN).map(|_| draw.below(256) as u8).collect();
    let mut bytes = vec![0; STEP as usize * REGIONS];
    let of_region = |region: usize| {
        bytes[region * STEP as usize..][..len(region)].copy_from_slice(&contents[..len(region)]);
        let (stag, addr) = (stag(side, region), base(side, region));
        Region { stag, addr, len: len(region), rights: RIGHTS[region], state: State::Mapped }
    };
    let table = (0..REGIONS).map(of_region).collect();
    Regions::new(base(side, 0), bytes, table)
}

/// Resets all regions but those that can be written and not be read.
pub(super) fn begin(memory: &mut Regions, side: usize) {
    memory.table.iter_mut().for_each(|region| region.state = State::Mapped);
    for region in [PERSISTENT, COUNTERS] {
        let all = Access { stag: stag(side, region), addr: base(side, region), len: len(region), rights: 0 };
        memory.store(all, &[0; LEN][..all.len]).expect("mapped");
    }
}

/// Byte `at` of a request of a side; `None` if it cannot be sent, since its entry is wrong.
pub(super) fn sent(memory: &Regions, side: usize, wr: &SendWr, at: usize) -> Option<u8> {
    let (entry, addr, _) = match &wr.local {
        Local::Inline(bytes) => return Some(bytes[at]),
        Local::LongInline(bytes) => {
            assert!(bytes.len() == wr.len as usize && bytes.len() <= MAX_INLINE);
            return Some(bytes[at]);
        }
        Local::Memory { .. } | Local::Entries(_) => entry_at(&entries(wr), at)?,
        Local::Window { .. } | Local::Atomic { .. } | Local::Flush { .. } => return None,
    };
    let start = base(side, SOURCE);
    let inside = entry.addr >= start && entry.addr + u64::from(entry.len) <= start + LEN as u64;
    let permitted = inside && entry.lkey() == stag(side, SOURCE);
    permitted.then(|| memory.at(addr, 1)[0])
}

/// Whether these are the bytes of a request of a side from byte `at` on.
pub(super) fn is_sent(memory: &Regions, side: usize, wr: &SendWr, mut at: usize, mut bytes: &[u8]) -> bool {
    if at + bytes.len() > wr.len as usize {
        return false;
    }
    if let Local::Inline(contents) = &wr.local {
        return contents[at..][..bytes.len()] == *bytes;
    }
    if let Local::LongInline(contents) = &wr.local {
        return contents[at..][..bytes.len()] == *bytes;
    }
    let entries = entries(wr);
    while !bytes.is_empty() {
        let Some((_, addr, len)) = entry_at(&entries, at) else { return false };
        let (here, rest) = bytes.split_at(len.min(bytes.len()));
        // Either the whole entry is permitted, or none of it is sent.
        if sent(memory, side, wr, at).is_none() || memory.at(addr, here.len()) != here {
            return false;
        }
        (at, bytes) = (at + here.len(), rest);
    }
    true
}
