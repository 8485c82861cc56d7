// SPDX-License-Identifier: BSD-3-Clause
//! The memory of a simulated process: a few regions, each for one purpose.
//!
//! What is sent from and what is read have contents that are a function of the address, so a byte says where
//! it came from. Only the regions that stand for persistent memory and for counters hold what they were
//! changed to. The others need no bytes: the checker looks at each placement.

use super::random::Draw;
use crate::access::{
    Access, Denied, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Unreachable,
};
use crate::limits::MAX_INLINE;
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
const LEN: usize = 2048;
const RIGHTS: [u32; REGIONS] = [
    0,
    LOCAL_WRITE,
    LOCAL_WRITE,
    LOCAL_WRITE | REMOTE_WRITE,
    REMOTE_READ,
    LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | FLUSH_PERSISTENT,
    LOCAL_WRITE | REMOTE_ATOMIC,
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Region {
    #[default]
    There,
    /// Registered, but not mapped any more.
    Unmapped,
    Deregistered,
}

#[derive(Debug)]
pub(super) struct Memory {
    side: usize,
    contents: Vec<u8>,
    pub regions: [Region; REGIONS],
    pub persistent: [u8; PERSISTENT_LEN],
    counters: [u64; WORDS],
}

pub(super) fn len(region: usize) -> usize {
    match region {
        PERSISTENT => PERSISTENT_LEN,
        COUNTERS => 8 * WORDS,
        _ => LEN,
    }
}

pub(super) fn base(side: usize, region: usize) -> u64 {
    0x10_0000 * (side as u64 + 1) + 0x1000 * region as u64
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
        Local::Inline(_) | Local::LongInline(_) | Local::Window { .. } => Entries::new(),
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

impl Memory {
    pub(super) fn new(side: usize) -> Self {
        let mut draw = Draw::new(side as u64);
        let contents = (0..LEN).map(|_| draw.below(256) as u8).collect();
        Self {
            side,
            contents,
            regions: Default::default(),
            persistent: [0; PERSISTENT_LEN],
            counters: [0; WORDS],
        }
    }

    pub(super) fn begin(&mut self) {
        self.regions = Default::default();
        self.persistent = [0; PERSISTENT_LEN];
        self.counters = [0; WORDS];
    }

    /// The word at an address in bounds.
    pub(super) fn counter(&mut self, addr: u64) -> &mut u64 {
        &mut self.counters[(addr - base(self.side, COUNTERS)) as usize / 8]
    }

    /// Which region an STag means, whether it is registered or not.
    pub(super) fn region(&self, tag: u32) -> Option<usize> {
        (0..REGIONS).find(|region| stag(self.side, *region) == tag)
    }

    /// The checks of the table of memory regions, in its order.
    pub(super) fn check(&self, access: Access) -> Result<usize, Denied> {
        let region = self.region(access.stag).ok_or(Denied::Stag)?;
        if self.regions[region] == Region::Deregistered {
            return Err(Denied::Stag);
        }
        if access.rights & !RIGHTS[region] != 0 {
            return Err(Denied::Rights);
        }
        let end = access.addr.checked_add(access.len as u64).ok_or(Denied::Wrap)?;
        let start = base(self.side, region);
        if access.addr < start || end > start + len(region) as u64 {
            return Err(Denied::Bounds);
        }
        Ok(region)
    }

    /// Byte `at` of a request; `None` if it cannot be sent, since its entry is wrong.
    pub(super) fn sent(&self, wr: &SendWr, at: usize) -> Option<u8> {
        let (entry, addr, _) = match &wr.local {
            Local::Inline(bytes) => return Some(bytes[at]),
            Local::LongInline(bytes) => {
                assert!(bytes.len() == wr.len as usize && bytes.len() <= MAX_INLINE);
                return Some(bytes[at]);
            }
            Local::Memory { .. } | Local::Entries(_) => entry_at(&entries(wr), at)?,
            Local::Window { .. } | Local::Atomic { .. } => return None,
        };
        let start = base(self.side, SOURCE);
        let inside = entry.addr >= start && entry.addr + u64::from(entry.len) <= start + LEN as u64;
        let permitted = inside && entry.lkey() == stag(self.side, SOURCE);
        permitted.then(|| self.contents_at(SOURCE, addr, 1)[0])
    }

    /// The bytes of a range that can be read.
    pub(super) fn bytes(&self, access: Access) -> Result<&[u8], Unreachable> {
        let region = self.check(access).map_err(Unreachable::Denied)?;
        if self.regions[region] == Region::Unmapped {
            return Err(Unreachable::Fault);
        }
        Ok(self.contents_at(region, access.addr, access.len))
    }

    /// What is at an address that is in bounds.
    pub(super) fn contents_at(&self, region: usize, addr: u64, len: usize) -> &[u8] {
        let from = (addr - base(self.side, region)) as usize;
        let contents = if region == PERSISTENT { &self.persistent[..] } else { &self.contents };
        &contents[from..from + len]
    }
}
