// SPDX-License-Identifier: BSD-3-Clause
//! The memfd behind a region, if it is sealed against shrinking and all of it is allocated
//! (memfd_create(2), F_SEAL_SHRINK, posix_fallocate(3)).
//!
//! The library maps such memory once more. Accesses through this mapping cannot fault, whatever the program
//! does with its own one. So they are loads and stores, where accesses to other memory need the kernel
//! ([`super::place`]). A peer on this host can map the file, too ([`crate::link`]).
//!
//! If somebody punches holes into the file (fallocate(2)), the pages are allocated again by the next access;
//! only if there is no memory for them does that cause a signal.
//!
//! The kernel shows the mapping of an address, and the inode of its file, but has no call that opens it. So
//! the program must not close the descriptor before it registers the memory: it is searched among those of
//! the process (proc_pid_fd(5)).
#![forbid(unsafe_code)]

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, RawFd};

use once_cell::race::OnceNonZeroUsize;
use rustix::fs::{Dir, fstat};

use super::mapping::{Content, FilePart, content};
use crate::cancel::whole;
use crate::lock;
use crate::mapped::FileMapping;
use crate::process::PerProcess;
use crate::socket::Socket;
use crate::sys::{self, Errno, memory_file};
use transport::access::{FileOffset, LOCAL_WRITE};

/// More descriptors are not searched: the kernel copies, as with any other memory.
const MAX_SEARCHED: usize = 1024;

/// The memfd behind a region, and the mapping of the library.
pub(crate) struct Backing {
    file: Socket,
    part: FilePart,
    first: u64,
    _mapping: FileMapping,
}

/// The backings of the regions by STag.
static BACKINGS: PerProcess<Vec<(u32, Backing)>> = PerProcess::new();

/// Examines the range of a region with these access flags, and maps its backing if it has one. EFAULT: part
/// of it is not mapped and readable, or, if `write`, writable.
pub(crate) fn examine(start: u64, len: u64, access: u32, write: bool) -> Result<Option<Backing>, Errno> {
    whole(|| match content(start, len, write) {
        Content::Inaccessible => Err(libc::EFAULT),
        Content::Shared(part) => Ok(Backing::map(part, len, access)),
        Content::Other => Ok(None),
    })
}

impl Backing {
    /// Maps the memory of a region of `len` bytes, which starts in this part of a file, if it is such a
    /// memfd, for these access flags. `None` also if more than half of the descriptors of the process are in
    /// use.
    #[cold]
    fn map(part: FilePart, len: u64, access: u32) -> Option<Self> {
        if Some(part.device) != memfd_device() {
            return None;
        }
        let number = find(part)?;
        let file = Socket::noted(|| sys::duplicate(number)).ok()?;
        let found = fstat(&file).ok()?;
        // Another file may have got the number meanwhile.
        let is_it = (found.st_dev, found.st_ino) == (part.device, part.inode);
        if !is_it || !file.is_affordable() {
            return None;
        }
        // Remote write access requires local write access.
        let (mapping, first) = FileMapping::of_sealed(&file, part.offset, len, access & LOCAL_WRITE != 0)?;
        Some(Self { file, part, first: first.as_ptr() as u64, _mapping: mapping })
    }
}

/// Keeps the backing of a region until [`remove`], and returns the address of its first byte. `None`: out of
/// memory.
#[cold]
pub(super) fn keep(stag: u32, backing: Backing) -> Option<u64> {
    let addr = backing.first;
    let mut backings = lock(BACKINGS.get());
    let backings = backings.get_or_insert_default();
    backings.try_reserve(1).ok()?;
    backings.push((stag, backing));
    Some(addr)
}

/// Takes the backing of a region, which is unmapped when it is dropped. A child after fork(2) has none: it
/// keeps the mappings of its parent.
#[cold]
pub(super) fn remove(stag: u32) -> Option<Backing> {
    let mut backings = lock(BACKINGS.get());
    let backings = backings.as_mut()?;
    let at = backings.iter().position(|(of, _)| *of == stag)?;
    Some(backings.swap_remove(at).1)
}

/// Where the first byte of a region is in its file, for a peer on this host. `first`: its address in the
/// mapping of the library. `None`: the region has another backing by now, as it is being re-registered.
#[cold]
pub(super) fn file_offset(stag: u32, first: u64) -> Option<FileOffset> {
    let backings = lock(BACKINGS.get());
    let is_it = |(of, backing): &&(u32, Backing)| *of == stag && backing.first == first;
    let (_, Backing { file, part, .. }) = backings.as_ref()?.iter().find(is_it)?;
    let descriptor = u32::try_from(file.as_raw_fd()).ok()?;
    Some(FileOffset { descriptor, inode: part.inode, offset: part.offset })
}

/// The device number of the file system of all memfds without huge pages.
pub(crate) fn memfd_device() -> Option<u64> {
    static DEVICE: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let find = || {
        let file = Socket::noted(|| memory_file(c"softverbs", 0)).map_err(drop)?;
        let device = usize::try_from(fstat(&file).map_err(drop)?.st_dev).map_err(drop)?;
        NonZeroUsize::new(device).ok_or(())
    };
    DEVICE.get_or_try_init(find).ok().map(|device| device.get() as u64)
}

/// The number of a descriptor of a sealed memfd, which may be closed or reused at any time. `None`: there is
/// none among the first [`MAX_SEARCHED`].
fn find(part: FilePart) -> Option<RawFd> {
    let open = Dir::new(File::open("/proc/thread-self/fd").ok()?).ok()?;
    open.filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok())
        .take(MAX_SEARCHED)
        .find(|number| sys::sealed_file(*number) == Some((part.device, part.inode)))
}

#[cfg(test)]
pub(crate) mod tests;
