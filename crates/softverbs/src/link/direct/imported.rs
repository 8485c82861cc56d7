// SPDX-License-Identifier: BSD-3-Clause
//! Memory of the peer that this process has mapped: the memfd behind a region ([`crate::memory::Backing`]).
//! Copies to and from it are loads and stores, and atomic operations are instructions of the processor, so
//! they are atomic with respect to those of the owner and of other initiators.
//!
//! The guarantees are those of other direct copies: the key is published before the export is checked, and
//! a deregistration waits until it is not in use. It then wakes this end if that waits for bytes of the ring.
//! The next copy or step of the connection unmaps the memory: until then the memory of the file is not free.
//!
//! The peer cannot cause an access outside of the mapping: ranges are checked against the description of the
//! key at the time of mapping, which is private to this process, and the seal keeps the file from shrinking.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use arrayvec::ArrayVec;
use rustix::fs::fstat;

use super::super::shared::EXPORTED_KEYS;
use super::within;
use crate::limits::MAX_IMPORTS;
use crate::mapped::FileMapping;
use crate::progress::export::Ledger;
use crate::socket::Socket;
use crate::sys::{Process, copy_in_order};
use transport::access::{Access, Exported, FileOffset, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use transport::direct::{MAX_TOGETHER, WordAccess};
use transport::wr::WORD;

/// Memory of the peer in the address space of this process.
pub(super) struct View {
    exported: Exported,
    first: *mut u8,
    _mapping: FileMapping,
    _counted: Counted,
}

// SAFETY: the address is that of the mapping, which belongs to this object and not to a thread.
unsafe impl Send for View {}

/// What is known of an exported key.
pub(super) enum Import<'a> {
    Unknown,
    Unmappable,
    Mapped(&'a View),
}

struct Entry {
    version: u64,
    exported: Exported,
    view: Option<View>,
}

/// The memory of exported keys, by the index of their entries.
#[derive(Default)]
pub(super) struct Imports {
    entries: Vec<Option<Entry>>,
}

impl Imports {
    pub(super) fn find(&self, version: u64, exported: &Exported) -> Import<'_> {
        let at = Ledger::<EXPORTED_KEYS>::place(exported.stag);
        match self.entries.get(at) {
            Some(Some(entry)) if entry.version == version && entry.exported == *exported => {
                entry.view.as_ref().map_or(Import::Unmappable, Import::Mapped)
            }
            _ => Import::Unknown,
        }
    }

    /// Maps the file of an exported key, and unmaps that of the key in its place.
    #[cold]
    pub(super) fn add(&mut self, version: u64, exported: Exported, file: Option<Socket>) {
        if self.entries.is_empty() {
            if self.entries.try_reserve_exact(EXPORTED_KEYS).is_err() {
                return;
            }
            self.entries.resize_with(EXPORTED_KEYS, || None);
        }
        let at = Ledger::<EXPORTED_KEYS>::place(exported.stag);
        self.entries[at] = None;
        let view = file.and_then(|file| map(&file, &exported));
        self.entries[at] = Some(Entry { version, exported, view });
    }

    /// Unmaps the memory of keys that are not exported any more: the peer's entry with an index has another
    /// version, or none.
    pub(super) fn forget_revoked(&mut self, version: impl Fn(usize) -> Option<u64>) {
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if entry.as_ref().is_some_and(|entry| version(at) != Some(entry.version)) {
                *entry = None;
            }
        }
    }
}

/// Maps the memory of a key. `None` if that is not possible, or this process has imported too much.
fn map(file: &Socket, exported: &Exported) -> Option<View> {
    let FileOffset { inode, offset, .. } = exported.file?;
    let writable = exported.rights & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    let counted = Counted::take()?;
    let (mapping, first) = FileMapping::of_sealed(file, offset, exported.len, writable)?;
    mapping.keep_from_children().ok()?;
    // The owner may have closed the descriptor, and got the number for another file.
    if fstat(file).ok()?.st_ino != inode {
        return None;
    }
    Some(View { exported: *exported, first: first.as_ptr(), _mapping: mapping, _counted: counted })
}

/// One of the [`MAX_IMPORTS`] mappings that this process may have.
struct Counted;

static IMPORTS: AtomicU32 = AtomicU32::new(0);

impl Counted {
    fn take() -> Option<Self> {
        let one_more = |count| (count < MAX_IMPORTS).then_some(count + 1);
        IMPORTS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok().then_some(Self)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        IMPORTS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl View {
    /// The address of a range, if the key permits the access.
    fn find(&self, access: Access) -> Option<*mut u8> {
        self.exported.find(access)?;
        // Within the mapping: `find` has checked that the range is in the region.
        let at = usize::try_from(access.addr - self.exported.start).ok()?;
        Some(self.first.wrapping_add(at))
    }

    /// Accesses a word, after everything that this thread has stored before, and returns the previous number;
    /// of a store, the stored one. `None`: the key does not permit it, or it is misaligned.
    pub(super) fn access_word(&self, remote: Access, word: WordAccess) -> Option<u64> {
        let addr = self.find(remote)?.cast::<u64>();
        let is_writable = remote.rights & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
        if remote.len != WORD || !addr.is_aligned() || !is_writable {
            return None;
        }
        // SAFETY: the word is aligned and in the mapping, which lives as long as this object, is writable
        // since `find` has permitted one of these rights, and cannot fault since the file does not shrink. It
        // is used only as an atomic here, and no reference to it exists elsewhere. The peer, and other
        // connections of this process with a mapping of the same file, may copy to and from the same bytes
        // meanwhile with plain loads and stores (`copy_in_order`). Nothing in this process depends on what
        // they find: any bytes are a number, so a program whose requests overlap affects only that number.
        let there = unsafe { AtomicU64::from_ptr(addr) };
        let original = match word {
            WordAccess::Store(number) => {
                there.store(number, Ordering::Release);
                number
            }
            WordAccess::Add(number) => there.fetch_add(number, Ordering::SeqCst),
            WordAccess::CompareSwap { compare, swap } => there
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
        };
        if !matches!(word, WordAccess::Store(_)) {
            // Later plain accesses must not be earlier than the operation, which alone does not ensure that
            // on all processors.
            fence(Ordering::SeqCst);
        }
        Some(original)
    }

    /// As [`Self::copy`], with a system call; `local` may be unmapped.
    ///
    /// # Safety
    ///
    /// For a read the caller must hold grants to write `local`.
    pub(super) unsafe fn copy_by_kernel(
        &self,
        process: Process,
        local: &[libc::iovec],
        remote: &[Access],
        len: usize,
    ) -> usize {
        let mut ranges = ArrayVec::<_, MAX_TOGETHER>::new();
        let located = within(remote, len).all(|access| {
            let found = self.find(access).map(|addr| addr.cast::<libc::c_void>());
            found.is_some_and(|iov_base| {
                ranges.try_push(libc::iovec { iov_base, iov_len: access.len }).is_ok()
            })
        });
        if !located {
            return 0;
        }
        let (at, n) = (local.as_ptr(), local.len() as libc::c_ulong);
        let (there, m) = (ranges.as_ptr(), ranges.len() as libc::c_ulong);
        // SAFETY: the caller holds grants to write the local ranges of a read; those of a write are only
        // read. The other ranges are in the mapping, of which no reference exists, and which is writable if
        // `find` has permitted a write. The kernel checks that all of them are mapped.
        let copied = process.copy(|id| unsafe {
            match remote[0].rights & REMOTE_READ {
                0 => libc::process_vm_writev(id, at, n, there, m, 0),
                _ => libc::process_vm_readv(id, at, n, there, m, 0),
            }
        });
        copied.unwrap_or(0)
    }

    /// Copies between `local` and the first `len` bytes of `remote`, as [`super::DirectCopy::copy`] does.
    /// Nothing is copied if the key does not permit all of it.
    ///
    /// # Safety
    ///
    /// Loads from `local` must not fault; for a read the caller must hold grants to write it, and stores
    /// must not fault.
    #[inline(never)]
    pub(super) unsafe fn copy(&self, local: &[libc::iovec], remote: &[Access], len: usize) -> usize {
        if !within(remote, len).all(|access| self.find(access).is_some()) {
            return 0;
        }
        let mut local = local.iter().map(|piece| (piece.iov_base.cast::<u8>(), piece.iov_len));
        let (mut here, mut left) = (std::ptr::null_mut(), 0);
        let mut copied = 0;
        for access in within(remote, len) {
            let Some(mut there) = self.find(access) else { break };
            let mut rest = access.len;
            while rest > 0 {
                while left == 0 {
                    let Some(next) = local.next() else { return copied };
                    (here, left) = next;
                }
                let n = rest.min(left);
                let (from, to) = if access.rights & REMOTE_READ != 0 { (there, here) } else { (here, there) };
                // SAFETY: `there` is in the mapping, which cannot fault since the file does not shrink;
                // `here` is in `local`, for which the caller guarantees it.
                unsafe { copy_in_order(from, to, n) };
                (here, there) = (here.wrapping_add(n), there.wrapping_add(n));
                (left, rest) = (left - n, rest - n);
                copied += n;
            }
        }
        // A load that follows a read must not be earlier than the loads of the read.
        fence(Ordering::Acquire);
        copied
    }
}
