// SPDX-License-Identifier: BSD-3-Clause
//! Shared mappings of files.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

use crate::fork;
use crate::sys::{Errno, check_len, errno, page_size};

/// Whether a file is a memfd with these seals and without huge pages.
pub(crate) fn is_sealed_memory(file: &impl AsFd, wanted: SealFlags) -> bool {
    // First, as a file of another file system may block other calls. Files with huge pages are in another
    // file system.
    let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(wanted));
    is_sealed && fstatfs(file).is_ok_and(|found| found.f_type == libc::TMPFS_MAGIC)
}

/// A shared mapping of a file, unmapped when it is dropped.
pub(crate) struct FileMapping {
    start: NonNull<u8>,
    len: usize,
    /// [`fork::generation`] of the process that has made it.
    generation: u32,
}

// SAFETY: the mapping belongs to this object and not to a thread, so it can be unmapped on any.
unsafe impl Send for FileMapping {}
// SAFETY: `&FileMapping` gives nothing but the address and the length.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps `len` bytes of a file from `offset` on, which must be a multiple of the page size; for reading,
    /// or for both. The errors of mmap(2).
    pub(crate) fn new(file: &impl AsFd, offset: u64, len: usize, writable: bool) -> Result<Self, Errno> {
        let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let (fd, offset) = (file.as_fd().as_raw_fd(), offset as libc::off_t);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, offset) };
        let start = NonNull::new(addr.cast::<u8>()).filter(|_| addr != libc::MAP_FAILED).ok_or_else(errno)?;
        Ok(Self { start, len, generation: fork::generation() })
    }

    /// Maps `len` bytes of a memfd from `offset` on, any offset, and returns the address of the first one,
    /// too. `None`: the file may shrink, is not a memfd without huge pages, has holes, or is shorter; or
    /// mmap(2) has failed. Accesses to the mapping cannot fault.
    pub(crate) fn of_sealed(
        file: &impl AsFd,
        offset: u64,
        len: u64,
        writable: bool,
    ) -> Option<(Self, NonNull<u8>)> {
        if !is_sealed_memory(file, SealFlags::SHRINK) {
            return None;
        }
        let found = fstat(file).ok()?;
        // Holes would be allocated by accesses of others: charged to them, and without an error. And a peer
        // could fill the address space of this process with them.
        let is_allocated = found.st_blocks.saturating_mul(512) >= found.st_size;
        if !is_allocated || offset.checked_add(len)? > u64::try_from(found.st_size).ok()? {
            return None;
        }
        let lead = offset % page_size();
        let whole = usize::try_from(lead.checked_add(len)?).ok()?;
        let mapping = Self::new(file, offset - lead, whole, writable).ok()?;
        // SAFETY: the first byte is in the mapping, `lead` bytes behind its start.
        let first = unsafe { mapping.start.add(lead as usize) };
        Some((mapping, first))
    }

    /// Leaves the mapping out of children after fork(2).
    pub(crate) fn keep_from_children(&self) -> Result<(), Errno> {
        let start = self.start.as_ptr().cast();
        // SAFETY: the range is this mapping; MADV_DONTFORK changes nothing in this process.
        check_len(unsafe { libc::madvise(start, self.len, libc::MADV_DONTFORK) } as isize).map(drop)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether this process is a child, forked after the mapping was made.
    pub(crate) fn is_left_behind(&self) -> bool {
        self.generation != fork::generation()
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // In a child another mapping may be at this address.
        if !self.is_left_behind() {
            // SAFETY: the mapping belongs to this object, and every reference into it borrows from the
            // object's owner.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}
