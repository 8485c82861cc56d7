// SPDX-License-Identifier: BSD-3-Clause
//! The memory that the two ends of a connection on one host share: a file without a name (memfd_create(2)),
//! mapped by both.
//!
//! ```text
//! page 0     the words of ring 0 and of ring 1, and the export page of each end; each on a cache line of its own
//! pages 1, 2 the keys that the initiator exports, those of the responder
//! then       the bytes of ring 0 (from the initiator to the responder), the bytes of ring 1
//! ```
//!
//! The peer may write anything here at any time, also while it is read. So nothing here is believed: words
//! are atomics, their values are checked by [`super::ring`], and bytes are copied out before anybody looks at
//! them. Nor can an access fault: the size is sealed, the file is one of tmpfs, and a page that nobody has
//! written to yet is written through the kernel first ([`Shared::write`]), which reports that there is no
//! memory for it, and is read only after that. A peer that gives pages back (fallocate(2)) makes zeros of
//! them; only if the system then has no memory for new ones does that cost a signal. It may trace this
//! process, and could send one.
//!
//! Registered memory is copied to and from the rings by pwritev(2) and preadv(2) of the file: like a socket
//! call they report EFAULT for memory that is not mapped, most sandboxes permit them, and for 8 bytes, 4 KiB
//! and 64 KiB they take 540, 1030 and 6560 ns, where process_vm_writev(2) takes 1000, 1860 and 8040 ns. That
//! call, on this process itself, is used where the first two are not permitted: by a sandbox, or by a limit
//! on the size of files (RLIMIT_FSIZE). SIGXFSZ, which the kernel sends for a write beyond the limit, is
//! blocked during the call and consumed, except on threads of this library, which block all signals. That
//! costs two system calls of 100 to 250 ns; a look at the limit before each write would cost as much, and the
//! limit may change in between.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
};
use rustix::io::retry_on_intr;

use super::process::Proof;
use crate::cancel::whole;
use crate::fork;
use crate::progress::export::{ExportGate, ExportedKey, KeyInUse};
use crate::progress::wakeup::Wakeup;
use crate::socket::Socket;
use crate::sys::{Errno, again, check_len, errno, memory_file, page_size, to_errno, without_sigxfsz};

/// Bytes of a ring, a power of two. Programs rely on what TCP takes on one host while its target posts no
/// receives: more than 800 KiB.
pub(super) const SIZE: usize = 1 << 20;

/// The seals of the file: its size is what it is, and stays that.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

// The words and export pages of both ends are in the first page, and no page is smaller than this.
const _: () = assert!(2 * (size_of::<Words>() + size_of::<ExportPage>()) <= 4096);

/// Two cache lines, which some processors fetch together.
#[repr(C, align(128))]
struct Line<T>(T);

/// The words of a ring. They are total numbers of bytes.
#[repr(C)]
pub(super) struct Words {
    put: Line<[AtomicU64; 2]>,
    taken: Line<[AtomicU64; 2]>,
    reader: Line<Wakeup>,
    writer: Line<Wakeup>,
}

impl Words {
    /// Bytes that were put into the ring; changed by the writer.
    pub(super) fn put(&self) -> &AtomicU64 {
        &self.put.0[0]
    }

    /// How many of these were put there before the ring has last begun anew; changed by the writer, while the
    /// ring is empty.
    pub(super) fn base(&self) -> &AtomicU64 {
        &self.put.0[1]
    }

    /// Bytes that were taken out; changed by the reader.
    pub(super) fn taken(&self) -> &AtomicU64 {
        &self.taken.0[0]
    }

    /// Bytes that were taken out and acted on; changed by the reader.
    pub(super) fn acted(&self) -> &AtomicU64 {
        &self.taken.0[1]
    }

    /// The reader requests a notification of bytes.
    pub(super) fn reader(&self) -> &Wakeup {
        &self.reader.0
    }

    /// The writer requests a notification of room.
    pub(super) fn writer(&self) -> &Wakeup {
        &self.writer.0
    }
}

/// Keys that an end exports at a time.
pub(super) const EXPORTED_KEYS: usize = 64;

/// The identity of an end, and which of its keys the other end copies with.
#[repr(C)]
pub(super) struct ExportPage {
    /// Two cache lines that change seldom: the address of its guard page and what is there
    /// ([`super::process`]), and whether it exports anything.
    proof: [AtomicU64; 3],
    gate: ExportGate,
    /// Written to by the other end.
    hold: Line<KeyInUse>,
}

impl ExportPage {
    /// 0 and anything, if there is none.
    pub(super) fn proof(&self) -> Proof {
        let [addr, a, b] = self.proof.each_ref().map(|word| word.load(Ordering::Relaxed));
        Proof { addr, nonce: [a, b] }
    }

    fn show(&self, proof: Proof) {
        let Proof { addr, nonce: [a, b] } = proof;
        self.proof.iter().zip([addr, a, b]).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    pub(super) fn gate(&self) -> &ExportGate {
        &self.gate
    }

    pub(super) fn hold(&self) -> &KeyInUse {
        &self.hold.0
    }
}

pub(super) struct Shared {
    start: NonNull<u8>,
    file: Socket,
    /// pwritev(2) and preadv(2) of the file are not permitted.
    no_writes: AtomicBool,
    no_reads: AtomicBool,
    /// [`fork::generation`] of the process that has mapped it.
    generation: u32,
}

// SAFETY: the mapping belongs to this object and not to a thread; what is done to it through `&Shared` is
// atomic, or a copy that expects others to write at the same time.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn header_len() -> usize {
    3 * page_size() as usize
}

fn total_len() -> usize {
    header_len() + 2 * SIZE
}

/// Whether a call on the file failed because it is not permitted to this process, and not because of the
/// memory.
fn is_refused(e: Errno) -> bool {
    matches!(e, libc::EFBIG | libc::EPERM | libc::EACCES | libc::ENOSYS)
}

/// Makes a call on the file or, once that was refused, another one for the same bytes.
fn copy(
    refused: &AtomicBool,
    call: impl FnOnce() -> Result<usize, Errno>,
    other: impl Fn() -> isize,
) -> Result<usize, Errno> {
    if !refused.load(Ordering::Relaxed) {
        match whole(call) {
            Err(e) if is_refused(e) => refused.store(true, Ordering::Relaxed),
            result => return result,
        }
    }
    check_len(again(other))
}

/// Allocates a page of the file. ENOSPC, ENOMEM.
fn allocate(file: &Socket, page: usize) -> Result<(), Errno> {
    let (at, len) = (page as u64 * page_size(), page_size());
    to_errno(retry_on_intr(|| fallocate(file, FallocateFlags::empty(), at, len)))
}

/// A range of the mapping, for process_vm_readv(2) and process_vm_writev(2).
fn range(start: NonNull<u8>, offset: usize, parts: &[libc::iovec]) -> libc::iovec {
    let iov_len = parts.iter().map(|part| part.iov_len).sum();
    libc::iovec { iov_base: start.as_ptr().wrapping_add(offset).cast(), iov_len }
}

impl Shared {
    /// New memory. EFBIG: the process must not make files as large (RLIMIT_FSIZE). EPERM, ENOSYS: nor copy to
    /// and from it. ENOMEM and what else memfd_create(2) reports.
    pub(super) fn create() -> Result<Self, Errno> {
        let file = Socket::noted(|| memory_file(c"softverbs", libc::MFD_ALLOW_SEALING))?;
        whole(|| without_sigxfsz(|| to_errno(ftruncate(&file, total_len() as u64))))?;
        // The page of the words is given memory here, because it is written to directly.
        allocate(&file, 0)?;
        to_errno(fcntl_add_seals(&file, SEALS))?;
        Self::map(file)
    }

    /// Memory that a peer has created. EINVAL if it is not what [`Shared::create`] creates. EPERM, ENOSYS:
    /// this process must not copy to and from it. ENOMEM.
    pub(super) fn adopt(file: Socket) -> Result<Self, Errno> {
        let (len, file_system) = (to_errno(fstat(&file))?.st_size, to_errno(fstatfs(&file))?.f_type);
        let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        // Huge pages are another file system.
        if !is_sealed || len != total_len() as libc::off_t || file_system != libc::TMPFS_MAGIC {
            return Err(libc::EINVAL);
        }
        // As in `create`: the peer may not have done it.
        allocate(&file, 0)?;
        Self::map(file)
    }

    fn map(file: Socket) -> Result<Self, Errno> {
        let (prot, len) = (libc::PROT_READ | libc::PROT_WRITE, total_len());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let addr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let start = NonNull::new(addr.cast::<u8>()).filter(|_| addr != libc::MAP_FAILED).ok_or_else(errno)?;
        let (no_writes, no_reads) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Self { start, file, no_writes, no_reads, generation: fork::generation() };
        // SAFETY: the range is the mapping that was just made; the advice changes nothing in this process.
        check_len(unsafe { libc::madvise(addr, len, libc::MADV_DONTFORK) } as isize)?;
        shared.try_both_ways()?;
        Ok(shared)
    }

    /// Whether bytes can be copied to and from the rings, by one way or the other. Neither end has put
    /// anything there yet.
    fn try_both_ways(&self) -> Result<(), Errno> {
        let mut word = 0u64;
        let part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of_val(&word) };
        self.write(0, 0, &[part])?;
        // SAFETY: `word` belongs to this function.
        unsafe { self.read(0, 0, &[part]) }.map(drop)
    }

    /// The descriptor, to be passed to the peer.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Whether a fork has left the mapping behind, in the parent.
    pub(super) fn is_left_behind(&self) -> bool {
        self.generation != fork::generation()
    }

    /// The words of ring 0 or 1. The process must not have been forked since ([`Shared::is_left_behind`]).
    pub(super) fn words(&self, ring: usize) -> &Words {
        assert!(ring < 2);
        // SAFETY: the words lie in the first page of the mapping, which has memory and lives as long as
        // `self`; a page is aligned for them. They consist of atomics, for which any value is valid, and the
        // peer writes to them as an atomic, or else gets what it deserves.
        unsafe { &*self.start.as_ptr().cast::<Words>().add(ring) }
    }

    /// What concerns the keys of the initiator, 0, or of the responder, 1. As for [`Shared::words`].
    pub(super) fn export_page(&self, end: usize) -> &ExportPage {
        assert!(end < 2);
        // SAFETY: they lie in the first page, behind the words, whose size is a multiple of the alignment of
        // both. Else as in `words`.
        unsafe { &*self.start.as_ptr().add(2 * size_of::<Words>()).cast::<ExportPage>().add(end) }
    }

    /// Says who this end is: of the initiator, 0, or of the responder, 1.
    pub(super) fn show(&self, end: usize, proof: Proof) {
        self.export_page(end).show(proof);
    }

    /// Allocates the page of the keys that an end exports, before its first use. ENOSPC, ENOMEM.
    pub(super) fn prepare_exported_keys(&self, end: usize) -> Result<(), Errno> {
        allocate(&self.file, 1 + end)
    }

    /// The keys that an end exports. It must have called [`Shared::prepare_exported_keys`], which its gate
    /// shows.
    pub(super) fn exported_keys(&self, end: usize) -> &[ExportedKey; EXPORTED_KEYS] {
        let page = page_size() as usize;
        assert!(end < 2 && size_of::<[ExportedKey; EXPORTED_KEYS]>() <= page);
        // SAFETY: page 1 or 2 of the mapping, which lives as long as `self`; a page is aligned for them, and
        // has memory. Else as in `words`.
        unsafe { &*self.start.as_ptr().add(page * (1 + end)).cast() }
    }

    /// Where byte `at` of a ring, counted from where it has begun and modulo [`SIZE`], is in the file, and
    /// how many of `len` bytes from there on are contiguous.
    fn find(ring: usize, at: u64, len: usize) -> (usize, usize) {
        assert!(ring < 2 && len <= SIZE);
        let at = (at % SIZE as u64) as usize;
        (header_len() + ring * SIZE + at, len.min(SIZE - at))
    }

    /// How many of `len` bytes from byte `at` on lie behind one another.
    pub(super) fn contiguous(at: u64, len: usize) -> usize {
        Self::find(0, at, len).1
    }

    /// Copies `bytes` to a ring, from byte `at` on. These pages must have been written to by
    /// [`Shared::write`] before.
    pub(super) fn copy_in(&self, ring: usize, at: u64, bytes: &[u8]) {
        let (first, len) = Self::find(ring, at, bytes.len());
        let (before, behind) = bytes.split_at(len);
        let (start, _) = Self::find(ring, 0, 0);
        // SAFETY: both ranges lie in the mapping: `find` has checked that the length is at most that of a
        // ring. `bytes` is memory of this process that is not the mapping, to which there are no references
        // but to words.
        unsafe {
            std::ptr::copy_nonoverlapping(before.as_ptr(), self.start.as_ptr().add(first), before.len());
            std::ptr::copy_nonoverlapping(behind.as_ptr(), self.start.as_ptr().add(start), behind.len());
        }
    }

    /// Copies bytes out of a ring, from byte `at` on.
    pub(super) fn copy_out(&self, ring: usize, at: u64, into: &mut [u8]) {
        let (first, len) = Self::find(ring, at, into.len());
        let (before, behind) = into.split_at_mut(len);
        let (start, _) = Self::find(ring, 0, 0);
        // SAFETY: as in `copy_in`. The peer may write to the bytes meanwhile: then any bytes are copied, and
        // nobody expects others.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(first), before.as_mut_ptr(), before.len());
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(start), behind.as_mut_ptr(), behind.len());
        }
    }

    /// Writes the bytes of `parts` to a ring, from byte `at` on, and returns how many: fewer than all if the
    /// memory of a part cannot be read. EFAULT if that is the first byte; ENOSPC, ENOMEM. There must not be
    /// more than are [contiguous](Shared::contiguous).
    ///
    /// Safe for any address, as [`crate::sys::send_parts`] is.
    pub(super) fn write(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> Result<usize, Errno> {
        let (offset, _) = Self::find(ring, at, 0);
        let (fd, count) = (self.file.as_raw_fd(), parts.len() as libc::c_int);
        // SAFETY: pwritev only reads `parts`, the length of which is given; the memory behind them is read by
        // the kernel, which checks that it is mapped. The file is memory that nobody has references to.
        let call = || unsafe { libc::pwritev(fd, parts.as_ptr(), count, offset as libc::off_t) };
        copy(
            &self.no_writes,
            || without_sigxfsz(|| check_len(again(call))),
            || {
                let to = range(self.start, offset, parts);
                // SAFETY: as above; `to` is a range of the mapping, as [`Shared::find`] gives them.
                unsafe { libc::process_vm_writev(libc::getpid(), parts.as_ptr(), count as _, &to, 1, 0) }
            },
        )
    }

    /// Reads bytes of a ring, from byte `at` on, into memory. EFAULT if it is not writable. As for
    /// [`Shared::write`] they must be contiguous.
    ///
    /// # Safety
    ///
    /// The caller must hold a grant to write all of `parts`, or own them.
    pub(super) unsafe fn read(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> Result<usize, Errno> {
        let (offset, _) = Self::find(ring, at, 0);
        let (fd, count) = (self.file.as_raw_fd(), parts.len() as libc::c_int);
        // SAFETY: preadv only reads `parts`, the length of which is given; the caller may write to the memory
        // behind them, and the kernel checks that it is mapped.
        let call = || unsafe { libc::preadv(fd, parts.as_ptr(), count, offset as libc::off_t) };
        copy(
            &self.no_reads,
            || check_len(again(call)),
            || {
                let from = range(self.start, offset, parts);
                // SAFETY: as above; `from` is a range of the mapping, as [`Shared::find`] gives them.
                unsafe { libc::process_vm_readv(libc::getpid(), parts.as_ptr(), count as _, &from, 1, 0) }
            },
        )
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // In a child another mapping may have the range by now.
        if !self.is_left_behind() {
            // SAFETY: the mapping belongs to this object, which is gone after this.
            unsafe { libc::munmap(self.start.as_ptr().cast(), total_len()) };
        }
    }
}

#[cfg(test)]
mod tests;
