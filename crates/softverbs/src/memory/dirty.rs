// SPDX-License-Identifier: BSD-3-Clause
//! What was written to memory that must become durable, until a flush has made it so.
#![forbid(unsafe_code)]

use super::table::{Grant, is_registered};
use crate::sys::{self, Errno};

/// What one connection has written to regions that a flush must make durable, and has not flushed yet.
#[derive(Default)]
pub(crate) struct DirtyRanges {
    ranges: Vec<Dirty>,
}

#[derive(Clone, Copy)]
pub(crate) struct Dirty {
    stag: u32,
    start: u64,
    end: u64,
}

impl Dirty {
    /// Returns when the range is durable. It may have been deregistered or unmapped since it was written; then there is nothing left
    /// to answer for, or the error says so.
    pub(crate) fn make_durable(&self) -> Result<(), Errno> {
        sys::make_durable(self.start, self.end - self.start).inspect_err(|&e| {
            let text = std::io::Error::from_raw_os_error(e);
            log::error!("cannot make {} bytes durable: {text}", self.end - self.start);
        })
    }
}

impl DirtyRanges {
    /// Ranges kept apart; beyond that, those of one region become one range.
    const MAX: usize = 16;

    /// Notes that `len` bytes at `addr` were written, if the region asks for durability.
    pub(crate) fn note(&mut self, grant: &Grant, addr: u64, len: u64) {
        if grant.is_persistent() {
            self.add(grant.stag(), addr, addr + len);
        }
    }

    fn add(&mut self, stag: u32, start: u64, end: u64) {
        let full = self.ranges.len() >= Self::MAX;
        for dirty in self.ranges.iter_mut().filter(|d| d.stag == stag) {
            let touches = start <= dirty.end && end >= dirty.start;
            if touches || full {
                dirty.start = dirty.start.min(start);
                dirty.end = dirty.end.max(end);
                return;
            }
        }
        if full {
            // Regions that are gone have nothing left to flush; a long connection may have seen many.
            self.ranges.retain(|dirty| is_registered(dirty.stag));
        }
        self.ranges.push(Dirty { stag, start, end });
    }

    /// Takes the ranges that were written to the region of `grant`, if it asks for durability.
    pub(crate) fn take(&mut self, grant: &Grant) -> Vec<Dirty> {
        let mut taken = Vec::new();
        if grant.is_persistent() {
            self.ranges.retain(|dirty| {
                let of_region = dirty.stag == grant.stag();
                if of_region {
                    taken.push(*dirty);
                }
                !of_region
            });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FLUSH_PERSISTENT, LOCAL_WRITE, deregister, grant_of};
    use super::*;

    #[test]
    fn dirty_ranges_merge_and_are_flushed_once() {
        let mut memory = vec![0u8; 64 * 1024];
        let addr = memory.as_mut_ptr() as u64;
        let (stag, grant) = grant_of(&mut memory, LOCAL_WRITE | FLUSH_PERSISTENT);
        let mut dirty = DirtyRanges::default();
        dirty.note(&grant, addr, 8);
        dirty.note(&grant, addr + 8, 8);
        assert_eq!(dirty.ranges.len(), 1);
        for i in 0..100 {
            dirty.note(&grant, addr + 100 + i * 16, 8);
        }
        assert!(dirty.ranges.len() <= DirtyRanges::MAX);
        dirty.ranges.extend([Dirty { stag: stag ^ 1, start: 0, end: 1 }; 100]);
        let (other, others_grant) = grant_of(&mut [0; 64], LOCAL_WRITE | FLUSH_PERSISTENT);
        dirty.note(&others_grant, addr, 8);
        assert!(dirty.ranges.len() <= DirtyRanges::MAX + 1, "regions that are gone are forgotten");
        let taken = dirty.take(&grant);
        assert!(!taken.is_empty() && taken.iter().all(|range| range.make_durable().is_ok()));
        assert!(dirty.take(&grant).is_empty());
        assert_eq!(dirty.ranges.len(), 1);
        drop(others_grant);
        deregister(other);
        drop(grant);
        deregister(stag);
    }
}
