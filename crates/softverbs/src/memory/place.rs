// SPDX-License-Identifier: BSD-3-Clause
//! Copies to and from registered memory.
//!
//! A program may unmap registered memory at any time. That must end a connection, not the process, so the kernel copies, and reports EFAULT
//! where a plain copy would cause SIGSEGV: the socket calls transfer large payloads directly, and process_vm_writev(2) and
//! process_vm_readv(2) on this process copy small ones, many in one call.
//!
//! In two cases this process copies itself, after the kernel has checked the pages: an aligned 8-byte write, which must be a single store,
//! and every copy if a sandbox forbids those two calls. Then the memory must not be unmapped between the check and the copy.

use std::sync::atomic::{Ordering, fence};

use super::table::{Grant, acquire};
use crate::access::{Access, Denied, Unreachable};
use crate::limits::PLACE_BATCH;
use crate::sys::{self, Errno, Process};

/// Whether a copy through the kernel failed because the system call is not permitted, not because of the memory.
fn is_forbidden(e: Errno) -> bool {
    matches!(e, libc::ENOSYS | libc::EPERM)
}

/// A placement and its grant.
struct Placement {
    _grant: Grant,
    addr: u64,
    from: usize,
    len: usize,
}

impl Placement {
    fn is_word(&self) -> bool {
        self.len == 8 && self.addr % 8 == 0
    }
}

/// Placements that are executed together, in order.
#[derive(Default)]
pub(crate) struct Batch {
    placements: Vec<Placement>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { placements: Vec::with_capacity(PLACE_BATCH) }
    }

    /// Adds a placement of the `access.len` bytes of the input that start at `from`. Its grant is held until the batch is executed.
    pub(crate) fn add(&mut self, access: Access, pd: u32, from: usize) -> Result<(), Denied> {
        let grant = acquire(access, pd)?;
        self.placements.push(Placement { _grant: grant, addr: access.addr, from, len: access.len });
        Ok(())
    }

    /// Executes the placements. `Err(k)`: the memory of the k-th one (from 0) is not mapped, and no later one was executed.
    pub(crate) fn carry_out(&mut self, process: Process, input: &[u8]) -> Result<(), usize> {
        let result = self.place_all(process, input);
        self.placements.clear();
        result
    }

    fn place_all(&self, process: Process, input: &[u8]) -> Result<(), usize> {
        let mut next = 0;
        // The last page that the kernel has found writable, for consecutive words in it.
        let mut writable = None;
        while let Some(placement) = self.placements.get(next) {
            if placement.is_word() {
                self.store(placement, input, &mut writable).map_err(|()| next)?;
                next += 1;
                continue;
            }
            let run = self.placements[next..].iter().take_while(|p| !p.is_word()).count();
            self.copy(process, &self.placements[next..next + run], input).map_err(|k| next + k)?;
            next += run;
        }
        Ok(())
    }

    /// Places eight bytes at an aligned address with a single store, after all earlier placements.
    fn store(&self, placement: &Placement, input: &[u8], writable: &mut Option<u64>) -> Result<(), ()> {
        let Some(Ok(word)) = input.get(placement.from..placement.from + 8).map(<[u8; 8]>::try_from) else {
            return Err(());
        };
        let page = placement.addr & !(sys::page_size() - 1);
        if *writable != Some(page) {
            sys::make_writable(placement.addr).map_err(drop)?;
            *writable = Some(page);
        }
        fence(Ordering::Release);
        // SAFETY: the placement holds a grant to write these eight bytes, the kernel has found their page mapped and writable, and
        // `is_word` has checked the alignment. A volatile store of a machine word is a single store; no reference to the memory is created.
        unsafe { (placement.addr as *mut u64).write_volatile(u64::from_ne_bytes(word)) };
        Ok(())
    }

    /// Executes the other placements, up to [`PLACE_BATCH`] in a system call.
    fn copy(&self, process: Process, run: &[Placement], input: &[u8]) -> Result<(), usize> {
        let mut done = 0;
        for part in run.chunks(PLACE_BATCH) {
            let pieces = part.iter().map(|p| (input.get(p.from..p.from + p.len).unwrap_or(&[]), p.addr));
            // SAFETY: each placement holds a grant to write its range.
            match unsafe { sys::copy_to(process, pieces.clone()) } {
                Ok(copied) => {
                    let mut left = copied;
                    for (k, placement) in part.iter().enumerate() {
                        if left < placement.len {
                            return Err(done + k);
                        }
                        left -= placement.len;
                    }
                }
                Err(e) if is_forbidden(e) => {
                    for (k, (bytes, addr)) in pieces.enumerate() {
                        // SAFETY: the placement of these bytes holds a grant to write the range at `addr`.
                        unsafe { copy_plainly(bytes, addr) }.map_err(|()| done + k)?;
                    }
                }
                Err(_) => return Err(done),
            }
            done += part.len();
        }
        Ok(())
    }
}

/// Copies without the kernel.
///
/// # Safety
///
/// The caller must hold a grant to write the range.
unsafe fn copy_plainly(bytes: &[u8], addr: u64) -> Result<(), ()> {
    sys::populate(addr, bytes.len() as u64, true).map_err(drop)?;
    // SAFETY: the caller holds a grant to write the range, and the kernel has found it mapped and writable. `bytes` belongs to softverbs;
    // no region overlaps it, because programs do not know its address.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) };
    Ok(())
}

/// Copies bytes out of registered memory.
pub(crate) fn fetch(process: Process, access: Access, pd: u32, into: &mut [u8]) -> Result<(), Unreachable> {
    let _grant = acquire(access, pd).map_err(Unreachable::Denied)?;
    match sys::copy_from(process, access.addr, into) {
        Ok(()) => Ok(()),
        Err(e) if is_forbidden(e) => {
            sys::populate(access.addr, into.len() as u64, false).map_err(|_| Unreachable::Fault)?;
            // SAFETY: `_grant` permits reading the range, and the kernel has found it readable; `into` belongs to softverbs, so no region
            // overlaps it.
            unsafe {
                std::ptr::copy_nonoverlapping(access.addr as *const u8, into.as_mut_ptr(), into.len());
            }
            Ok(())
        }
        Err(_) => Err(Unreachable::Fault),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{deregister, region_of};
    use super::*;
    use crate::access::LOCAL_WRITE;

    fn access(stag: u32, addr: u64, len: usize) -> Access {
        Access { stag, addr, len, rights: LOCAL_WRITE }
    }

    #[test]
    fn a_batch_is_placed_in_order() {
        let mut memory = vec![0u8; 10_000];
        let addr = memory.as_mut_ptr() as u64;
        let stag = region_of(&mut memory, LOCAL_WRITE);
        let input: Vec<u8> = (0..9_001u32).map(|i| (i % 251) as u8).collect();
        let word = (addr + 15) & !7;
        let mut batch = Batch::new();
        batch.add(access(stag, addr + 3, 9_000), 1, 0).unwrap();
        batch.add(access(stag, word, 8), 1, 17).unwrap();
        batch.add(access(stag, word + 8, 8), 1, 100).unwrap();
        batch.add(access(stag, word + 1, 2), 1, 200).unwrap();
        batch.add(access(stag, word + 3, 2), 1, 300).unwrap();
        batch.carry_out(Process::own(), &input).unwrap();
        let mut got = vec![0u8; 9_000];
        fetch(Process::own(), access(stag, addr + 3, 9_000), 1, &mut got).unwrap();
        let mut expected = input[..9_000].to_vec();
        let at = (word - addr - 3) as usize;
        expected[at..at + 8].copy_from_slice(&input[17..25]);
        expected[at + 8..at + 16].copy_from_slice(&input[100..108]);
        expected[at + 1..at + 3].copy_from_slice(&input[200..202]);
        expected[at + 3..at + 5].copy_from_slice(&input[300..302]);
        assert_eq!(got, expected);
        deregister(stag);
    }

    #[test]
    fn the_placement_whose_memory_is_gone_is_named_and_none_behind_it_is_carried_out() {
        let page = sys::page_size() as usize;
        for (len, fails) in [(16, 2), (8, 2)] {
            let map = sys::tests::Mapping::new(3 * page);
            let region =
                super::super::Region { addr: map.addr(), len: 3 * page as u64, access: LOCAL_WRITE, pd: 1 };
            let stag = super::super::register(region).unwrap();
            let mut batch = Batch::new();
            for at in [0, page, 2 * page, 64] {
                batch.add(access(stag, map.addr() + at as u64, len), 1, 0).unwrap();
            }
            map.unmap(2 * page, page);
            assert_eq!(batch.carry_out(Process::own(), &[7; 16]), Err(fails));
            let mut got = [0; 8];
            fetch(Process::own(), access(stag, map.addr() + page as u64, 8), 1, &mut got).unwrap();
            assert_eq!(got, [7; 8]);
            fetch(Process::own(), access(stag, map.addr() + 64, 8), 1, &mut got).unwrap();
            assert_eq!(got, [0; 8]);
            let gone = access(stag, map.addr() + 2 * page as u64, 8);
            assert_eq!(fetch(Process::own(), gone, 1, &mut got), Err(Unreachable::Fault));
            deregister(stag);
        }
    }
}
