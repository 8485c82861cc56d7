// SPDX-License-Identifier: BSD-3-Clause
//! Mapped memory, registered with the device of a peer.

use std::ffi::c_void;
use std::fs::{self, File};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rpma_core::mr::MrLocal;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

use crate::error::{Error, ErrorKind, Result};
use crate::peer::{Peer, Provider};

/// What the memory of a region is.
pub(crate) enum Source<'a> {
    /// New memory, of zeros.
    New,
    File(&'a File, u64),
}

/// The memory of a memfd is allocated at once. For fewer bytes the available memory is not read, which takes
/// longer than the allocation.
const COMPARED_FROM: u64 = 1 << 20;

/// The available memory of the host in bytes: `MemAvailable` of `/proc/meminfo`.
fn available() -> Option<u64> {
    available_of(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_of(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether `len` bytes may be allocated at once: at most half of the available memory. If memory runs out,
/// the OOM killer ends processes, this one or others.
fn is_allocatable(len: u64, available: Option<u64>) -> bool {
    available.is_none_or(|available| len <= available / 2)
}

/// New memory that peers on the same host can map (librpma_providers(7), Memory): a memfd that cannot shrink.
/// The descriptor is needed until the memory is registered.
fn sealed(len: usize) -> rustix::io::Result<OwnedFd> {
    if len as u64 >= COMPARED_FROM && !is_allocatable(len as u64, available()) {
        return Err(rustix::io::Errno::NOMEM);
    }
    // Beyond the limit the kernel would send SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len as u64) {
        return Err(rustix::io::Errno::FBIG);
    }
    let file = memfd_create("rpma", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// A mapping of whole pages, unmapped when dropped.
struct Map {
    addr: NonNull<u8>,
    len: usize,
}

impl Map {
    /// `file`: a memfd, or what the source says.
    fn new(call: &str, source: Source<'_>, file: Option<&OwnedFd>, len: usize) -> Result<Self> {
        let failed = |errno: rustix::io::Errno| {
            let kind =
                if errno == rustix::io::Errno::NOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Invalid };
            Error::new(kind, format_args!("{call}: mmap of {len} bytes failed: {errno}"))
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new mappings, at addresses that the kernel chooses, replace none. The file may be changed
        // or truncated by others: `Region` gives no references to it, and a SIGBUS is no undefined behaviour.
        let addr = unsafe {
            match (source, file) {
                (Source::New, Some(file)) => mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0),
                (Source::New, None) => mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE),
                (Source::File(file, offset), _) => {
                    mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, offset)
                }
            }
        };
        let addr =
            NonNull::new(addr.map_err(failed)?.cast()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        Ok(Self { addr, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, which nothing uses any more. It fails only for a wrong
        // address.
        let _ = unsafe { munmap(self.addr.as_ptr().cast(), self.len) };
    }
}

/// Registered memory of a peer.
// The order of the fields is the order of tear-down.
pub(crate) struct Region {
    mr: ManuallyDrop<Box<MrLocal>>,
    map: Map,
    len: usize,
    peer: Peer,
}

// SAFETY: the registration is a verbs object, which all threads may use at once; the address is that of a
// mapping of its own. Who may access the bytes is up to the owner: `Buf` is alone with its part, `Exposed`
// uses atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps and registers `len` bytes for these uses (`RPMA_MR_USAGE_*`). `call`: that of the program, for
    /// errors.
    pub(crate) fn new(call: &str, peer: &Peer, source: Source<'_>, len: usize, usage: i32) -> Result<Self> {
        if len == 0 {
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("{call}: a memory region cannot be empty"),
            ));
        }
        // Without memfds, in a sandbox for example, other memory serves as well; an adapter needs none. The
        // kernel allocates it when it is used, and refuses more than the host has.
        let wanted = matches!(source, Source::New) && peer.provider() == Provider::Soft;
        let file = if wanted { sealed(len).ok() } else { None };
        let map = Map::new(call, source, file.as_ref(), len)?;
        // SAFETY: the region keeps the peer and the mapping, and deregisters before it releases them.
        let mr = unsafe { MrLocal::register(peer.domain(), map.addr.as_ptr().cast::<c_void>(), len, usage) };
        let mr =
            mr.map_err(|code| Error::of(format_args!("{call}: registering {len} bytes of memory"), code))?;
        Ok(Self { mr: ManuallyDrop::new(mr), map, len, peer: peer.clone() })
    }

    pub(crate) fn mr(&self) -> &MrLocal {
        &self.mr
    }

    /// The peer whose device it is registered with.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn addr(&self) -> NonNull<u8> {
        self.map.addr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Region {
    /// Deregisters the memory and unmaps it.
    ///
    /// # Errors
    /// The device may still access the memory: it stays mapped for the life of the process.
    pub(crate) fn close(self) -> Result<()> {
        let mut this = ManuallyDrop::new(self);
        let closed = this.deregister();
        // SAFETY: each taken once; `this` is never dropped.
        drop(unsafe { (ptr::read(&this.map), ptr::read(&this.peer)) });
        closed
    }

    /// Called once, at the end of this object.
    fn deregister(&mut self) -> Result<()> {
        // SAFETY: taken once, here; nothing uses the field after it.
        let mr = unsafe { ManuallyDrop::take(&mut self.mr) };
        mr.close().map_err(|code| {
            let kept = Map { addr: self.map.addr, len: 0 };
            std::mem::forget(std::mem::replace(&mut self.map, kept));
            Error::of("deregistering memory", code)
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A failure is not lost: the provider logs it, and the memory stays mapped.
        let _ = self.deregister();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_half_of_what_is_available_is_allocated_at_once() {
        for (len, available, expected) in [
            (50, Some(100), true),
            (51, Some(100), false),
            (1 << 45, Some(1 << 35), false),
            // Without /proc the available memory is unknown.
            (1 << 45, None, true),
        ] {
            assert_eq!(is_allocatable(len, available), expected, "{len} of {available:?}");
        }
    }

    #[test]
    fn what_is_available_is_in_kilobytes() {
        let meminfo = "MemTotal:       24684084 kB\nMemFree:  1 kB\nMemAvailable:   23886816 kB\n";
        assert_eq!(available_of(meminfo), Some(23_886_816 * 1024));
        for without in
            ["", "MemTotal: 5 kB\n", "MemAvailable: kB\n", "MemAvailable: 18446744073709551615 kB\n"]
        {
            assert_eq!(available_of(without), None, "{without}");
        }
    }
}
