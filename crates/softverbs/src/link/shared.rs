// SPDX-License-Identifier: BSD-3-Clause
//! The shared memory of a connection on one host: an anonymous file (memfd_create(2)) that both ends map.
//!
//! ```text
//! page 0     the words of both rings and the export page of each end, each in a separate cache line
//! pages 1, 2 the keys that the initiator exports, and those of the responder
//! then       the bytes of ring 0 (from the initiator to the responder), the bytes of ring 1
//! ```
//!
//! The peer may write anything here at any time, also during a read. So no content is trusted: words are
//! atomics whose values [`super::ring`] checks, and bytes are copied out before they are interpreted.
//! Accesses cannot fault, either: the size is sealed, the file is in tmpfs, and the first write to a page
//! goes through the kernel ([`Shared::write`]), which reports a lack of memory; the page is read only after
//! that. If a peer punches holes (fallocate(2)), their pages read as zeros; only if the system then has no
//! memory for new pages does an access cause a signal. A peer that may trace this process could send one
//! anyway.
//!
//! The kernel copies registered memory to and from the rings, and like a socket call reports EFAULT for
//! memory that is not mapped. All threads read with preadv(2) of the file. Threads of the library write with
//! pwritev(2); threads of the program write with process_vm_writev(2) to their own process: a pwritev(2)
//! beyond the limit on the size of files (RLIMIT_FSIZE) raises SIGXFSZ, which they would have to block before
//! the call and consume after it. Where a sandbox or the limit forbids one of the calls, the other one is
//! used.
//!
//! For 8 bytes, 4 KiB and 64 KiB pwritev(2) takes 270, 300 and 2880 ns; with the signal blocked 630, 600 and
//! 3140 ns; process_vm_writev(2) 450, 420 and 3020 ns. To read the limit before each pwritev(2) takes 150 ns,
//! but the limit may change in between.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate};
use rustix::io::retry_on_intr;

use super::process::Proof;
use crate::cancel::whole;
use crate::mapped::{FileMapping, is_sealed_memory};
use crate::progress::export::{ExportGate, ExportedKey, KeyInUse};
use crate::progress::wakeup::Wakeup;
use crate::socket::Socket;
use crate::sys::{
    Errno, Process, again, check_len, copy_in_order, is_library_thread, memory_file, page_size, to_errno,
    without_sigxfsz,
};
use rpma_metrics::Copied;
use transport::host::Served;

/// Bytes of a ring, a power of two. Programs rely on the amount that TCP buffers on one host while the target
/// posts no receives: more than 800 KiB.
pub(super) const SIZE: usize = 1 << 20;

/// The seals of the file: its size cannot change.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

// The words and export pages of both ends are in the first page, the keys of each end in another one, and no
// page is smaller than this.
const _: () = assert!(2 * (size_of::<Words>() + size_of::<ExportPage>()) <= 4096);
// The atomics of the models are larger.
const _: () = assert!(cfg!(all(test, loom)) || size_of::<[ExportedKey; EXPORTED_KEYS]>() <= 4096);

/// Two cache lines, which some processors fetch together.
#[repr(C, align(128))]
struct Line<T>(T);

/// The words of a ring: total numbers of bytes, and wakeups.
#[repr(C)]
pub(super) struct Words {
    put: Line<[AtomicU64; 2]>,
    taken: Line<[AtomicU64; 2]>,
    reader: Line<Wakeup>,
    writer: Line<Wakeup>,
}

impl Words {
    /// Bytes put into the ring; changed by the writer.
    pub(super) fn put(&self) -> &AtomicU64 {
        &self.put.0[0]
    }

    /// The value of `put` when the writer last restarted at the first byte; changed by the writer while the
    /// ring is empty.
    pub(super) fn base(&self) -> &AtomicU64 {
        &self.put.0[1]
    }

    /// Bytes taken out; changed by the reader.
    pub(super) fn taken(&self) -> &AtomicU64 {
        &self.taken.0[0]
    }

    /// Bytes taken out and acted on; changed by the reader.
    pub(super) fn acted(&self) -> &AtomicU64 {
        &self.taken.0[1]
    }

    /// The reader's request for a notification of bytes.
    pub(super) fn reader(&self) -> &Wakeup {
        &self.reader.0
    }

    /// The writer's request for a notification of room.
    pub(super) fn writer(&self) -> &Wakeup {
        &self.writer.0
    }
}

/// The maximum number of keys that an end exports at a time.
pub(super) const EXPORTED_KEYS: usize = 64;

/// The identity of an end, and the one of its keys that the other end is using.
#[repr(C)]
pub(super) struct ExportPage {
    /// Two cache lines that change seldom: address and number of the guard page ([`super::process`]), and
    /// whether the end exports anything.
    proof: [AtomicU64; 3],
    gate: ExportGate,
    /// The number of changes of the exported keys that may concern mappings of the other end.
    changes: AtomicU32,
    /// Written to by the other end.
    hold: Line<InUse>,
}

/// What the other end writes while it copies: the counters are in the cache line that it writes to anyway.
#[repr(C)]
struct InUse {
    key: KeyInUse,
    /// Completed operations and bytes of its writes, then of its reads and of its atomic operations.
    copied: [AtomicU64; 6],
}

impl ExportPage {
    /// The proof of the end; its address is 0 if there is none.
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

    /// An exported key was replaced, or one with a file was revoked: the other end may have mapped it.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often the other end has called [`ExportPage::changed`].
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn hold(&self) -> &KeyInUse {
        &self.hold.0.key
    }

    /// What the other end has executed directly. It may have written any numbers.
    pub(super) fn copied(&self) -> Copied {
        let [write, write_bytes, read, read_bytes, atomic, atomic_bytes] =
            self.hold.0.copied.each_ref().map(|count| count.load(Ordering::Relaxed));
        Copied { write: (write, write_bytes), read: (read, read_bytes), atomic: (atomic, atomic_bytes) }
    }

    /// Counts what the other end has executed. Called by that end, by one thread at a time.
    pub(super) fn count(&self, operation: Served, completed: u64, bytes: u64) {
        let first = match operation {
            Served::Write => 0,
            Served::Read => 2,
            Served::Atomic => 4,
        };
        for (count, more) in self.hold.0.copied[first..].iter().zip([completed, bytes]) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }
}

pub(super) struct Shared {
    mapping: FileMapping,
    file: Socket,
    /// Whether pwritev(2) of the file is not permitted; likewise `no_reads` for preadv(2).
    no_writes: AtomicBool,
    no_reads: AtomicBool,
    /// Whether process_vm_writev(2) is not permitted.
    no_process_writes: AtomicBool,
    process: Process,
}

fn header_len() -> usize {
    3 * page_size() as usize
}

fn total_len() -> usize {
    header_len() + 2 * SIZE
}

/// Whether a copy through the kernel failed because this process is not permitted to make the call, not
/// because of the memory.
fn is_refused(e: Errno) -> bool {
    matches!(e, libc::EFBIG | libc::EPERM | libc::EACCES | libc::ENOSYS)
}

/// Makes a call on the file or, once that has been refused, another call that copies the same bytes.
fn copy(
    refused: &AtomicBool,
    call: impl FnOnce() -> Result<usize, Errno>,
    other: impl Fn() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    if !refused.load(Ordering::Relaxed) {
        match whole(call) {
            Err(e) if is_refused(e) => refused.store(true, Ordering::Relaxed),
            result => return result,
        }
    }
    other()
}

/// Allocates a page of the file. ENOSPC, ENOMEM.
fn allocate(file: &Socket, page: usize) -> Result<(), Errno> {
    let (at, len) = (page as u64 * page_size(), page_size());
    to_errno(retry_on_intr(|| fallocate(file, FallocateFlags::empty(), at, len)))
}

impl Shared {
    /// Creates shared memory. EFBIG: the process may not create files of this size (RLIMIT_FSIZE). EPERM,
    /// ENOSYS: it may not copy to and from the file. ENOMEM and the other errors of memfd_create(2).
    pub(super) fn create() -> Result<Self, Errno> {
        let file = Socket::noted(|| memory_file(c"softverbs", libc::MFD_ALLOW_SEALING))?;
        whole(|| without_sigxfsz(|| to_errno(ftruncate(&file, total_len() as u64))))?;
        // Allocates the page of the words now, because it is accessed directly.
        allocate(&file, 0)?;
        to_errno(fcntl_add_seals(&file, SEALS))?;
        Self::map(file)
    }

    /// Maps memory that a peer has created. EINVAL if the file is not like one of [`Shared::create`]. EPERM,
    /// ENOSYS: this process may not copy to and from it. ENOMEM.
    pub(super) fn adopt(file: Socket) -> Result<Self, Errno> {
        if !is_sealed_memory(&file, SEALS) || to_errno(fstat(&file))?.st_size != total_len() as libc::off_t {
            return Err(libc::EINVAL);
        }
        // Allocates the page of the words, in case the peer has not.
        allocate(&file, 0)?;
        Self::map(file)
    }

    fn map(file: Socket) -> Result<Self, Errno> {
        let mapping = FileMapping::new(&file, 0, total_len(), true)?;
        mapping.keep_from_children()?;
        let [no_writes, no_reads, no_process_writes] = [const { AtomicBool::new(false) }; 3];
        let process = Process::own();
        let shared = Self { mapping, file, no_writes, no_reads, no_process_writes, process };
        shared.try_both_ways()?;
        Ok(shared)
    }

    /// Checks that bytes can be copied to and from the rings, with either kind of call. Neither end has put
    /// anything there yet.
    fn try_both_ways(&self) -> Result<(), Errno> {
        let mut word = 0u64;
        let part = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of_val(&word) };
        // Not with process_vm_writev(2) first, which would map the page; then it counts as resident.
        self.write_to_file(0, 0, &[part])?;
        // SAFETY: the only part is `word`, a live local variable without references to it.
        unsafe { self.read(0, 0, &[part]) }.map(drop)
    }

    fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// The descriptor, to be passed to the peer.
    pub(super) fn file(&self) -> &Socket {
        &self.file
    }

    /// Whether this process is a child, forked after the mapping was made: children do not have it.
    pub(super) fn is_left_behind(&self) -> bool {
        self.mapping.is_left_behind()
    }

    /// The words of ring 0 or 1. Must not be called in a forked child ([`Shared::is_left_behind`]).
    pub(super) fn words(&self, ring: usize) -> &Words {
        assert!(ring < 2);
        // SAFETY: the words are in the first page of the mapping, which is allocated, aligned for them, and
        // lives as long as `self`. They consist of atomics, for which any value is valid. A peer that writes
        // them non-atomically can only cause other values.
        unsafe { &*self.start().as_ptr().cast::<Words>().add(ring) }
    }

    /// The export page of the initiator, 0, or of the responder, 1. Must not be called in a forked child.
    pub(super) fn export_page(&self, end: usize) -> &ExportPage {
        assert!(end < 2);
        // SAFETY: the export pages are in the first page, after the words, whose size is a multiple of their
        // alignment. That page is allocated and lives as long as `self`; they consist of atomics, for which
        // any value is valid.
        unsafe { &*self.start().as_ptr().add(2 * size_of::<Words>()).cast::<ExportPage>().add(end) }
    }

    /// Publishes the identity of this end: of the initiator, 0, or of the responder, 1.
    pub(super) fn show(&self, end: usize, proof: Proof) {
        self.export_page(end).show(proof);
    }

    /// Allocates the page of the keys that an end exports, before its first use. ENOSPC, ENOMEM.
    pub(super) fn prepare_exported_keys(&self, end: usize) -> Result<(), Errno> {
        allocate(&self.file, 1 + end)
    }

    /// The keys that an end exports. The end must have called [`Shared::prepare_exported_keys`]; an open gate
    /// shows that.
    pub(super) fn exported_keys(&self, end: usize) -> &[ExportedKey; EXPORTED_KEYS] {
        let page = page_size() as usize;
        assert!(end < 2);
        // SAFETY: page 1 or 2 of the mapping, which the caller has checked to be allocated; it is aligned for
        // the keys and lives as long as `self`. They consist of atomics, for which any value is valid.
        unsafe { &*self.start().as_ptr().add(page * (1 + end)).cast() }
    }

    /// The offset in the file of byte `at` of a ring, modulo [`SIZE`], and how many of `len` bytes from there
    /// on are contiguous.
    fn find(ring: usize, at: u64, len: usize) -> (usize, usize) {
        assert!(ring < 2 && len <= SIZE);
        let at = (at % SIZE as u64) as usize;
        (header_len() + ring * SIZE + at, len.min(SIZE - at))
    }

    /// The range of the mapping with as many bytes of a ring as `parts` have, from byte `at` on, for
    /// process_vm_readv(2) and process_vm_writev(2). The bytes must be [contiguous](Shared::contiguous).
    fn range(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> libc::iovec {
        let iov_len = parts.iter().map(|part| part.iov_len).sum();
        let (offset, contiguous) = Self::find(ring, at, iov_len);
        assert_eq!(contiguous, iov_len);
        libc::iovec { iov_base: self.start().as_ptr().wrapping_add(offset).cast(), iov_len }
    }

    /// How many of `len` bytes from byte `at` on are contiguous.
    pub(super) fn contiguous(at: u64, len: usize) -> usize {
        Self::find(0, at, len).1
    }

    /// Copies `bytes` to a ring, from byte `at` on. [`Shared::write`] must have written to these pages
    /// before.
    pub(super) fn copy_in(&self, ring: usize, at: u64, bytes: &[u8]) {
        // SAFETY: the bytes of a slice are mapped.
        unsafe { self.copy_from(ring, at, bytes.as_ptr(), bytes.len()) };
    }

    /// As [`Shared::copy_in`], from other memory.
    ///
    /// # Safety
    ///
    /// Loads of the `len` bytes at `from` must not fault. Others may write to them: any bytes may be copied.
    pub(super) unsafe fn copy_from(&self, ring: usize, at: u64, from: *const u8, len: usize) {
        let (first, before) = Self::find(ring, at, len);
        let (start, _) = Self::find(ring, 0, 0);
        // SAFETY: both ranges are in the mapping: `find` has checked that the length is at most that of a
        // ring. The source does not overlap it: neither slices nor registered memory do.
        unsafe {
            std::ptr::copy_nonoverlapping(from, self.start().as_ptr().add(first), before);
            std::ptr::copy_nonoverlapping(from.add(before), self.start().as_ptr().add(start), len - before);
        }
    }

    /// Has the processor load the cache line with byte `at` of a ring, without waiting for it; only on
    /// x86-64.
    #[inline]
    pub(super) fn prefetch(&self, ring: usize, at: u64) {
        let byte = self.start().as_ptr().wrapping_add(Self::find(ring, at, 0).0);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: an instruction of SSE, which x86-64 always has. It accesses nothing that the program
            // can observe, and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(byte.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = byte;
    }

    /// Copies bytes out of a ring, from byte `at` on.
    pub(super) fn copy_out(&self, ring: usize, at: u64, into: &mut [u8]) {
        // SAFETY: `into` is lent exclusively.
        unsafe { self.copy_to(ring, at, into.as_mut_ptr(), into.len()) };
    }

    /// As [`Shared::copy_out`], to other memory.
    ///
    /// # Safety
    ///
    /// The caller must hold a grant to write the `len` bytes at `to`, or own them, and stores must not fault.
    pub(super) unsafe fn copy_to(&self, ring: usize, at: u64, to: *mut u8, len: usize) {
        let (first, before) = Self::find(ring, at, len);
        let (start, _) = Self::find(ring, 0, 0);
        // SAFETY: both ranges are in the mapping, as `find` has checked, and do not overlap the target. If
        // the peer writes at the same time, any bytes are copied; the caller treats them as untrusted.
        unsafe {
            copy_in_order(self.start().as_ptr().add(first), to, before);
            copy_in_order(self.start().as_ptr().add(start), to.add(before), len - before);
        }
    }

    /// Writes the bytes of `parts` to a ring, from byte `at` on, and returns their number: fewer than all if
    /// the memory of a part is not readable. EFAULT if that is the first byte; ENOSPC, ENOMEM. The bytes must
    /// be [contiguous](Shared::contiguous).
    ///
    /// Safe for any address, as [`crate::sys::send_parts`] is. Must not be called in a forked child
    /// ([`Shared::is_left_behind`]), which would write to the ring of its parent; likewise [`Self::read`].
    pub(super) fn write(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> Result<usize, Errno> {
        if !is_library_thread() && !self.no_process_writes.load(Ordering::Relaxed) {
            match self.write_by_process(ring, at, parts) {
                Ok(len) => return Ok(len),
                Err(e) if is_refused(e) => self.no_process_writes.store(true, Ordering::Relaxed),
                // The cause is in the parts, or the system has no memory for a page of the ring: pwritev(2)
                // reports which.
                Err(_) => {}
            }
        }
        self.write_to_file(ring, at, parts)
    }

    /// As [`Self::write`], with process_vm_writev(2).
    fn write_by_process(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> Result<usize, Errno> {
        let (to, count) = (self.range(ring, at, parts), parts.len() as libc::c_ulong);
        self.process.copy(|id| {
            // SAFETY: `parts` has `count` elements, whose memory the kernel only reads; `to` is within a ring
            // of the mapping, without references to it.
            unsafe { libc::process_vm_writev(id, parts.as_ptr(), count, &to, 1, 0) }
        })
    }

    /// As [`Self::write`], with pwritev(2) unless that is refused.
    fn write_to_file(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> Result<usize, Errno> {
        let (fd, to) = (self.file.as_raw_fd(), self.range(ring, at, parts));
        let (offset, count) = (Self::find(ring, at, 0).0, parts.len() as libc::c_int);
        // SAFETY: `parts` has `count` elements; the kernel reads their memory and checks that it is mapped.
        // There are no references to the written range of the file.
        let call = || unsafe { libc::pwritev(fd, parts.as_ptr(), count, offset as libc::off_t) };
        let by_process = || self.write_by_process(ring, at, parts);
        let written = copy(&self.no_writes, || without_sigxfsz(|| check_len(again(call))), by_process)?;
        if written < to.iov_len {
            // The memory behind is not readable, or the limit on the size of files is there.
            return Ok(by_process().unwrap_or(written));
        }
        Ok(written)
    }

    /// Reads bytes of a ring, from byte `at` on, into memory. EFAULT if it is not writable. The bytes must be
    /// [contiguous](Shared::contiguous).
    ///
    /// # Safety
    ///
    /// The caller must hold a grant to write all of `parts`, or own them.
    pub(super) unsafe fn read(&self, ring: usize, at: u64, parts: &[libc::iovec]) -> Result<usize, Errno> {
        let (offset, _) = Self::find(ring, at, 0);
        let (fd, count) = (self.file.as_raw_fd(), parts.len() as libc::c_int);
        // SAFETY: `parts` has `count` elements; the caller may write to their memory, and the kernel checks
        // that it is mapped.
        let call = || unsafe { libc::preadv(fd, parts.as_ptr(), count, offset as libc::off_t) };
        copy(
            &self.no_reads,
            || check_len(again(call)),
            || {
                let from = self.range(ring, at, parts);
                self.process.copy(|id| {
                    // SAFETY: `parts` has `count` elements, to whose memory the caller may write; `from` is
                    // within a ring of the mapping, which is only read.
                    unsafe { libc::process_vm_readv(id, parts.as_ptr(), count as _, &from, 1, 0) }
                })
            },
        )
    }
}

#[cfg(test)]
mod tests;
