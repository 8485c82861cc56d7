// SPDX-License-Identifier: BSD-3-Clause
//! Registered memory of this side and of the other side.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::io;
use std::ptr;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use rustix::param::page_size;

use super::{Failed, Library, Peer};

/// The alignment of memory, in bytes.
const ALIGNMENT: usize = 4096;

/// The usage of a region: a bitwise OR of `RPMA_MR_USAGE_*`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage(c_int);

impl Usage {
    pub(crate) const READ_SOURCE: Self = Self(1);
    pub(crate) const READ_TARGET: Self = Self(2);
    pub(crate) const WRITE_SOURCE: Self = Self(4);
    pub(crate) const WRITE_TARGET: Self = Self(8);
    pub(crate) const FLUSH_VISIBILITY: Self = Self(16);
    pub(crate) const FLUSH_PERSISTENT: Self = Self(32);
    pub(crate) const SEND: Self = Self(64);
    pub(crate) const RECV: Self = Self(128);
}

impl std::ops::BitOr for Usage {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Memory that is released when the last region that uses it is gone.
struct Bytes {
    ptr: *mut u8,
    len: usize,
    origin: Origin,
}

enum Origin {
    Allocated(Layout),
    /// A shared mapping of this file. Whoever registers memory of a memfd needs a descriptor
    /// (librpma_providers(7)).
    #[expect(dead_code, reason = "keeps the descriptor open")]
    Mapped(File),
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: `origin` says whether the memory was allocated or mapped, and only this object has its
        // address.
        unsafe {
            match self.origin {
                Origin::Allocated(layout) => dealloc(self.ptr, layout),
                // It does not fail for a whole mapping.
                Origin::Mapped(_) => drop(munmap(self.ptr.cast(), self.len)),
            }
        }
    }
}

// SAFETY: only this object has the address of the bytes, and they are accessed only through a region.
unsafe impl Send for Bytes {}
// SAFETY: a shared reference permits only msync(2), and copies of bytes that a peer may change at the same
// time anyway.
unsafe impl Sync for Bytes {}

/// Registered memory of this process. Adapters and peers write to it, so no Rust reference to it is created.
pub(crate) struct Memory {
    peer: Peer,
    raw: *mut c_void,
    bytes: Arc<Bytes>,
}

// SAFETY: another thread than the one that created a region may use and deregister it (THREADS of librpma.h).
unsafe impl Send for Memory {}
// SAFETY: a shared reference permits only thread safe calls (THREADS of librpma.h), and the accesses that
// `Bytes` permits.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_mr_reg and is deregistered only here, before its bytes are
        // released.
        unsafe { (self.peer.0.library.functions.rpma_mr_dereg)(&mut self.raw) };
    }
}

impl Memory {
    /// rpma_mr_reg(3) of new memory, `len` bytes.
    pub(crate) fn new(peer: &Peer, len: usize, usage: Usage) -> Result<Self, Failed> {
        let layout = Layout::from_size_align(len.max(1), ALIGNMENT).map_err(|why| why.to_string())?;
        // SAFETY: the size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() {
            return Err(format!("{len} bytes of memory: {}", io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        Self::registered(peer, Bytes { ptr, len, origin: Origin::Allocated(layout) }.into(), len, usage)
    }

    /// rpma_mr_reg(3) of the first `len` bytes of a file, which must be at least as long.
    pub(crate) fn of_file(peer: &Peer, file: &File, len: usize, usage: Usage) -> Result<Self, Failed> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address.
        let ptr = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        let ptr = ptr.map_err(|why| format!("mmap: {why}"))?;
        let file = file.try_clone().map_err(|why| why.to_string())?;
        Self::registered(
            peer,
            Bytes { ptr: ptr.cast(), len, origin: Origin::Mapped(file) }.into(),
            len,
            usage,
        )
    }

    /// rpma_mr_reg(3) of a new memfd of `len` bytes that cannot shrink, which a peer on this host maps.
    pub(crate) fn of_memfd(peer: &Peer, len: usize, usage: Usage) -> Result<Self, Failed> {
        let failed = |why: rustix::io::Errno| format!("a memfd of {len} bytes: {why}");
        if let Some(available) = available().filter(|available| len as u64 > available / 2) {
            return Err(format!("a memfd of {len} bytes: more than half of the {available} bytes available"));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("rpma", flags).map_err(failed)?;
        fallocate(&file, FallocateFlags::empty(), 0, len as u64).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::SHRINK).map_err(failed)?;
        Self::of_file(peer, &file.into(), len, usage)
    }

    /// rpma_mr_reg(3) of the same bytes once more, for another usage.
    pub(crate) fn again(&self, usage: Usage) -> Result<Self, Failed> {
        self.part(self.bytes.len, usage)
    }

    /// rpma_mr_reg(3) of the first `len` of these bytes once more, for another usage.
    pub(crate) fn part(&self, len: usize, usage: Usage) -> Result<Self, Failed> {
        Self::registered(&self.peer, self.bytes.clone(), len.min(self.bytes.len), usage)
    }

    /// `len` is at most the length of the bytes.
    fn registered(peer: &Peer, bytes: Arc<Bytes>, len: usize, usage: Usage) -> Result<Self, Failed> {
        let library = peer.0.library;
        let mut raw = ptr::null_mut();
        // SAFETY: the peer is alive, the memory has at least `len` bytes and lives as long as the region, and
        // `raw` is writable.
        library.check(unsafe {
            (library.functions.rpma_mr_reg)(peer.0.raw, bytes.ptr.cast(), len, usage.0, &mut raw)
        })?;
        Ok(Self { peer: peer.clone(), raw, bytes })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len
    }

    /// Makes bytes durable with msync(2), if they are in a file.
    pub(crate) fn persist(&self, offset: usize, len: usize) -> io::Result<()> {
        let Origin::Mapped(_) = self.bytes.origin else { return Ok(()) };
        let begin = offset.min(self.bytes.len) / page_size() * page_size();
        let end = offset.saturating_add(len).min(self.bytes.len);
        // SAFETY: the range is in the mapping, which begins at a page boundary.
        Ok(unsafe { msync(self.bytes.ptr.add(begin).cast(), end - begin, MsyncFlags::SYNC) }?)
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Copies bytes to its beginning.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        self.put(0, bytes);
    }

    /// Copies bytes to it, except those that would lie past its end.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        let offset = offset.min(self.bytes.len);
        let len = bytes.len().min(self.bytes.len - offset);
        // SAFETY: both ranges have `len` bytes and do not overlap, as the region's memory is never borrowed.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.ptr.add(offset), len) };
    }

    /// Returns a copy of its first bytes.
    pub(crate) fn first(&self, len: usize) -> Vec<u8> {
        let mut copy = vec![0; len.min(self.bytes.len)];
        self.get(0, &mut copy);
        copy
    }

    /// Copies bytes from it, up to its end.
    pub(crate) fn get(&self, offset: usize, bytes: &mut [u8]) {
        let offset = offset.min(self.bytes.len);
        let len = bytes.len().min(self.bytes.len - offset);
        // SAFETY: both ranges have `len` bytes and do not overlap, as the region's memory is never borrowed.
        unsafe { ptr::copy_nonoverlapping(self.bytes.ptr.add(offset), bytes.as_mut_ptr(), len) };
    }

    /// The descriptor with which the other side accesses it.
    pub(crate) fn descriptor(&self) -> Result<Vec<u8>, Failed> {
        let library = self.peer.0.library;
        let mut size = 0;
        // SAFETY: the region is alive; the buffer has the size that librpma returned.
        unsafe {
            library.check((library.functions.rpma_mr_get_descriptor_size)(self.raw, &mut size))?;
            let mut descriptor = vec![0u8; size];
            library.check((library.functions.rpma_mr_get_descriptor)(
                self.raw,
                descriptor.as_mut_ptr().cast(),
            ))?;
            Ok(descriptor)
        }
    }
}

/// The available memory of the host in bytes: `MemAvailable` of `/proc/meminfo`. The memory of a memfd is
/// allocated at once; if memory runs out, the OOM killer ends processes, this one or others.
fn available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Memory of the other side, created from its descriptor.
pub(crate) struct RemoteMemory {
    library: &'static Library,
    raw: *mut c_void,
}

// SAFETY: another thread than the one that created the object may use and delete it (THREADS of librpma.h).
unsafe impl Send for RemoteMemory {}

impl Drop for RemoteMemory {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_mr_remote_from_descriptor and is deleted only here.
        unsafe { (self.library.functions.rpma_mr_remote_delete)(&mut self.raw) };
    }
}

impl RemoteMemory {
    /// rpma_mr_remote_from_descriptor(3).
    pub(crate) fn new(library: &'static Library, descriptor: &[u8]) -> Result<Self, Failed> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer and length are those of the descriptor; `raw` is writable.
        let ret = unsafe {
            (library.functions.rpma_mr_remote_from_descriptor)(
                descriptor.as_ptr().cast(),
                descriptor.len(),
                &mut raw,
            )
        };
        library.check(ret)?;
        Ok(Self { library, raw })
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> Result<usize, Failed> {
        let mut size = 0;
        // SAFETY: the object is alive, and `size` is writable.
        let ret = unsafe { (self.library.functions.rpma_mr_remote_get_size)(self.raw, &mut size) };
        self.library.check(ret)?;
        Ok(size)
    }
}
