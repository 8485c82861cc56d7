// SPDX-License-Identifier: BSD-3-Clause
//! Copies to and from registered memory.
//!
//! A program may unmap registered memory at any time. That must end a connection, not the process, so the
//! kernel copies, and reports EFAULT where a plain copy would cause SIGSEGV: the socket calls transfer large
//! payloads directly, and process_vm_readv(2) on this process copies small ones, many in one call. Memory
//! with a [`Backing`](super::Backing) is copied by loads and stores.
//!
//! # Eight aligned bytes
//!
//! A write of eight bytes to an aligned address must be a single store, and be seen after what was placed
//! before it. The kernel does this store, too ([`WordStore`]), with two calls a word and one at the end of a
//! run of words: 610 ns for one word.
//!
//! If the thread holds a robust mutex at that time, a sandbox forbids the calls, or the kernel would take the
//! word for an error, this process stores, immediately after the kernel has checked the page (410 ns). Every
//! copy is done like this if process_vm_readv(2) is forbidden. Then the memory must not be unmapped,
//! protected or truncated between the two, or the process gets SIGSEGV or SIGBUS.
//!
//! Rejected alternatives: a copy of eight bytes by process_vm_readv(2) or process_vm_writev(2) is not a
//! single store: since Linux 6.4 it is `rep movsb` on a processor with FSRM. That behaves like one store
//! unless the target is in the last 64 bytes of a page and the next page is not accessible; then it is eight
//! (measured on an Intel Xeon: 10^5 torn values in a second there, elsewhere none in 10^9 loads). futex(2)
//! stores four bytes. A process has only one handler for SIGSEGV and SIGBUS, which belongs to the program.
//! Restartable sequences (rseq(2)) do not cover faults.

use std::sync::atomic::{Ordering, fence};

use arrayvec::ArrayVec;

use super::table::{Grant, acquire};
use super::word::WordStore;
use crate::sys::{self, Errno, Process};
use transport::access::{Access, Accessor, Denied, Unchanged, Unreachable};
use transport::host::PLACE_BATCH;

/// Whether a copy through the kernel failed because the system call is not permitted, not because of the
/// memory.
fn is_forbidden(e: Errno) -> bool {
    matches!(e, libc::ENOSYS | libc::EPERM)
}

/// A placement and its grant.
struct Placement {
    grant: Grant,
    from: usize,
    len: usize,
}

impl Placement {
    fn is_word(&self) -> bool {
        self.len == 8 && self.grant.addr() % 8 == 0
    }

    fn way(&self) -> Way {
        match (self.grant.is_backed(), self.is_word()) {
            (true, _) => Way::Plain,
            (false, true) => Way::Word,
            (false, false) => Way::Kernel,
        }
    }
}

/// How a placement is executed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By stores of this process.
    Plain,
    /// By a single store, of the kernel if it can.
    Word,
    /// By a copy of the kernel.
    Kernel,
}

/// Placements that are executed together, in order.
#[derive(Default)]
pub(crate) struct Batch {
    placements: Vec<Placement>,
}

impl Batch {
    /// ENOMEM.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut placements = Vec::new();
        placements.try_reserve_exact(PLACE_BATCH).map_err(|_| libc::ENOMEM)?;
        Ok(Self { placements })
    }

    /// Adds a placement of the `access.len` bytes of the input that start at `from`. Its grant is held until
    /// the batch is executed.
    pub(crate) fn add(&mut self, access: Access, by: impl Into<Accessor>, from: usize) -> Result<(), Denied> {
        let grant = acquire(access, by)?;
        self.placements.push(Placement { grant, from, len: access.len });
        Ok(())
    }

    /// Executes the placements. `Err(k)`: the memory of the k-th one (from 0) is not mapped, and no later one
    /// was executed.
    pub(crate) fn carry_out(&mut self, process: Process, input: &[u8]) -> Result<(), usize> {
        let result = place_all(&self.placements, process, input, true);
        self.placements.clear();
        result
    }
}

/// Executes runs of placements that are made in one way, in order. `by_kernel`: the kernel stores words if it
/// can.
fn place_all(all: &[Placement], process: Process, input: &[u8], by_kernel: bool) -> Result<(), usize> {
    let mut done = 0;
    for run in all.chunk_by(|a, b| a.way() == b.way()) {
        let placed = match run[0].way() {
            Way::Plain => store_plainly(run, input),
            Way::Word => store_all(run, input, by_kernel),
            Way::Kernel => copy(process, run, input),
        };
        placed.map_err(|k| done + k)?;
        done += run.len();
    }
    Ok(())
}

/// Executes placements in memory with a backing.
fn store_plainly(run: &[Placement], input: &[u8]) -> Result<(), usize> {
    for (k, placement) in run.iter().enumerate() {
        let bytes = input.get(placement.from..placement.from + placement.len).ok_or(k)?;
        // SAFETY: the placement holds a grant to write the range, which the library has mapped. `bytes` is
        // memory of the connection, which is not in that mapping.
        unsafe { sys::copy_in_order(bytes.as_ptr(), placement.grant.addr() as *mut u8, bytes.len()) };
    }
    Ok(())
}

/// Executes placements of words, each with a single store, after all earlier placements.
fn store_all(run: &[Placement], input: &[u8], by_kernel: bool) -> Result<(), usize> {
    let kernel = if by_kernel { WordStore::new() } else { None };
    for (k, placement) in run.iter().enumerate() {
        let Some(Ok(word)) = input.get(placement.from..placement.from + 8).map(<[u8; 8]>::try_from) else {
            return Err(k);
        };
        let word = u64::from_ne_bytes(word);
        fence(Ordering::Release);
        if let Some(kernel) = &kernel {
            // SAFETY: the placement holds a grant to write these eight bytes.
            match unsafe { kernel.store(placement.grant.addr(), word) } {
                Ok(()) => continue,
                Err(e) if is_forbidden(e) => {}
                Err(_) => return Err(k),
            }
        }
        // The store follows the check directly, so that the memory can be unmapped between them only within a
        // minimal time.
        sys::make_writable(placement.grant.addr()).map_err(|_| k)?;
        // SAFETY: the placement holds a grant to write these eight bytes, the kernel has found their page
        // mapped and writable, and `is_word` has checked the alignment. A volatile store of a machine word is
        // a single store; no reference to the memory is created.
        unsafe { (placement.grant.addr() as *mut u64).write_volatile(word) };
    }
    Ok(())
}

/// Executes placements of other lengths, up to [`PLACE_BATCH`] in a system call.
fn copy(process: Process, run: &[Placement], input: &[u8]) -> Result<(), usize> {
    let mut done = 0;
    for part in run.chunks(PLACE_BATCH) {
        let pieces = part.iter().map(|p| (input.get(p.from..p.from + p.len).unwrap_or(&[]), p.grant.addr()));
        // SAFETY: each placement holds a grant to write its range.
        match unsafe { sys::copy_to(process, input, pieces.clone()) } {
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

/// Copies with a plain copy of this process.
///
/// # Safety
///
/// The caller must hold a grant to write the range.
unsafe fn copy_plainly(bytes: &[u8], addr: u64) -> Result<(), ()> {
    sys::populate(addr, bytes.len() as u64, true).map_err(drop)?;
    // SAFETY: the caller holds a grant to write the range, and the kernel has found it mapped and writable. A
    // region of the whole address space contains `bytes`, too, so the two may overlap.
    unsafe { std::ptr::copy(bytes.as_ptr(), addr as *mut u8, bytes.len()) };
    Ok(())
}

/// Stores eight bytes, whose address must be aligned, with a single store.
pub(crate) fn store(access: Access, by: impl Into<Accessor>, word: [u8; 8]) -> Result<(), Unchanged> {
    let grant = acquire(access, by).map_err(Unchanged::Denied)?;
    let placement = Placement { grant, from: 0, len: access.len };
    if !placement.is_word() {
        return Err(Unchanged::Misaligned);
    }
    let placed = match placement.way() {
        Way::Plain => store_plainly(&[placement], &word),
        Way::Word | Way::Kernel => store_all(&[placement], &word, true),
    };
    placed.map_err(|_| Unchanged::Fault)
}

/// Copies bytes out of registered memory.
pub(crate) fn fetch(
    process: Process,
    access: Access,
    by: impl Into<Accessor>,
    into: &mut [u8],
) -> Result<(), Unreachable> {
    let access = Access { len: into.len(), ..access };
    fetch_pieces(process, &[access], by, into, 0)
}

/// As [`fetch`], the n-th of several pieces to byte `n * stride` of `into`: all or, with an error, any of
/// them. More than [`sys::FETCH_BATCH`] are a fault.
pub(crate) fn fetch_pieces(
    process: Process,
    pieces: &[Access],
    by: impl Into<Accessor>,
    into: &mut [u8],
    stride: usize,
) -> Result<(), Unreachable> {
    let by = by.into();
    let mut grants = ArrayVec::<Grant, { sys::FETCH_BATCH }>::new();
    let mut sources = ArrayVec::<(u64, usize), { sys::FETCH_BATCH }>::new();
    let mut rest = pieces;
    if pieces.len() > sys::FETCH_BATCH {
        return Err(Unreachable::Fault);
    }
    while let [first, others @ ..] = rest {
        // One grant for pieces that are contiguous.
        let mut whole = *first;
        let count = 1 + others.iter().take_while(|next| whole.append(**next)).count();
        let grant = acquire(whole, by).map_err(Unreachable::Denied)?;
        let mut addr = grant.addr();
        for piece in &rest[..count] {
            sources.push((addr, piece.len));
            addr += piece.len as u64;
        }
        grants.push(grant);
        rest = &rest[count..];
    }
    if grants.iter().all(Grant::is_backed) {
        for (n, (addr, len)) in sources.into_iter().enumerate() {
            let to = into.get_mut(n * stride..n * stride + len).ok_or(Unreachable::Fault)?;
            // SAFETY: a grant permits reading the piece, which the library has mapped. `into` is memory of
            // the connection, which is not in that mapping.
            unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, to.as_mut_ptr(), len) };
        }
        fence(Ordering::Acquire);
        return Ok(());
    }
    match sys::copy_from(process, &sources, into, stride) {
        Ok(()) => Ok(()),
        Err(e) if is_forbidden(e) => {
            for (n, (addr, len)) in sources.into_iter().enumerate() {
                let to = into.get_mut(n * stride..n * stride + len).ok_or(Unreachable::Fault)?;
                sys::populate(addr, len as u64, false).map_err(|_| Unreachable::Fault)?;
                // SAFETY: a grant permits reading the piece, and the kernel has found it readable. It may
                // overlap `into`, as a region of the whole address space does.
                unsafe { std::ptr::copy(addr as *const u8, to.as_mut_ptr(), len) };
            }
            Ok(())
        }
        Err(_) => Err(Unreachable::Fault),
    }
}

#[cfg(test)]
mod tests;
