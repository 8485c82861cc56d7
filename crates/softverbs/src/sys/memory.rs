// SPDX-License-Identifier: BSD-3-Clause
//! Memory that the program may take away at any time.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};

use once_cell::race::OnceNonZeroUsize;

use super::{Errno, again, check, check_len, errno, owned};

/// The page size.
pub(crate) fn page_size() -> u64 {
    static PAGE: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let query = || NonZeroUsize::new(rustix::param::page_size());
    PAGE.get_or_init(|| query().unwrap_or(const { NonZeroUsize::new(4096).unwrap() })).get() as u64
}

/// The start and the length of the pages that contain `len` bytes at `addr`.
pub(super) fn pages(addr: u64, len: u64) -> (u64, u64) {
    let mask = page_size() - 1;
    let start = addr & !mask;
    let end = addr.saturating_add(len).saturating_add(mask) & !mask;
    (start, end.saturating_sub(start))
}

/// Faults in the pages of a range for reading or for writing. EFAULT or ENOMEM if the memory is not mapped or
/// lacks the protection; EINVAL if the kernel (before 5.14) or the mapping (device memory) does not support
/// the request.
pub(crate) fn populate(addr: u64, len: u64, write: bool) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: MADV_POPULATE_* does not change the content of memory, and fails for a range that is not
    // mapped.
    check(again(|| unsafe { libc::madvise(start as *mut libc::c_void, len as usize, advice) })).map(drop)
}

/// Tells the kernel that a range will be used soon, without faulting it in.
pub(crate) fn will_need(addr: u64, len: u64) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    // SAFETY: MADV_WILLNEED does not change the content of memory.
    check(again(|| unsafe { libc::madvise(start as *mut libc::c_void, len as usize, libc::MADV_WILLNEED) }))
        .map(drop)
}

/// Whether every page of a range is mapped.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    let (start, len) = pages(addr, len);
    // SAFETY: on Linux MS_ASYNC only walks the mappings and fails with ENOMEM at an unmapped page.
    unsafe { libc::msync(start as *mut libc::c_void, len as usize, libc::MS_ASYNC) == 0 }
}

/// Writes the modified pages of a range back to the file that is mapped there, and returns when they are
/// durable. For memory without a file it only walks the mappings.
pub(crate) fn make_durable(addr: u64, len: u64) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    // SAFETY: MS_SYNC does not change the content of memory.
    check(again(|| unsafe { libc::msync(start as *mut libc::c_void, len as usize, libc::MS_SYNC) })).map(drop)
}

/// Checks that the eight bytes at an aligned address are writable, and faults them in. EFAULT or ENOMEM if
/// they are not.
pub(crate) fn make_writable(addr: u64) -> Result<(), Errno> {
    match populate(addr, 8, true) {
        Err(libc::EINVAL) => modify_nothing(addr),
        result => result,
    }
}

/// [`make_writable`] for a kernel (before 5.14) or a mapping without MADV_POPULATE_WRITE: an atomic "or" with
/// 0 by futex(2).
pub(super) fn modify_nothing(addr: u64) -> Result<(), Errno> {
    // FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)
    const OR_NOTHING: u32 = 2 << 28;
    let here = 0u32;
    // SAFETY: the first address is that of `here`, on which no thread waits. At the second one the kernel
    // stores the value that it has read, atomically, and fails with EFAULT if there is no writable memory.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const here,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0usize,
            addr as *mut u32,
            OR_NOTHING,
        )
    };
    if ret < 0 { Err(errno()) } else { Ok(()) }
}

/// Copies with loads and stores of this process, so that the last bytes are stored last, up to 8 of them by
/// one store: programs poll them. 2, 4 or 8 bytes are one load, and one store if the target is aligned.
///
/// # Safety
///
/// Both ranges must be mapped with the protection that the copy needs until it returns, must not overlap in
/// the address space, and there must be no reference to bytes of the target. Others may write to both
/// meanwhile: any bytes may be copied.
pub(crate) unsafe fn copy_in_order(from: *const u8, to: *mut u8, len: usize) {
    /// The largest store, as a power of two.
    const WORD: u32 = 3;
    let Some(size) = len.checked_ilog2() else { return };
    let end = to.wrapping_add(len) as usize;
    let last = match len {
        2 | 4 | 8 => len,
        _ => 1 << end.trailing_zeros().min(size).min(WORD),
    };
    let first = len - last;
    // SAFETY: both parts are in the ranges of the caller.
    unsafe {
        if first > 0 {
            std::ptr::copy_nonoverlapping(from, to, first);
        }
        fence(Ordering::Release);
        let (from, to) = (from.add(first), to.add(first));
        match last {
            8 => move_word::<u64>(from, to),
            4 => move_word::<u32>(from, to),
            2 => move_word::<u16>(from, to),
            _ => move_word::<u8>(from, to),
        }
    }
}

/// Copies one integer.
///
/// # Safety
///
/// As for [`copy_in_order`].
#[inline]
unsafe fn move_word<T>(from: *const u8, to: *mut u8) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    // SAFETY: the caller guarantees that both are mapped; any bytes are an integer. An aligned store is
    // volatile, and so a single one.
    unsafe {
        let value = from.read_unaligned();
        if to.is_aligned() { to.write_volatile(value) } else { to.write_unaligned(value) }
    }
}

/// Device and inode of the memfd that has a descriptor with this number, if it is sealed against shrinking.
/// By number, as the descriptor is the program's, which may close it meanwhile: rustix needs one that stays
/// open.
pub(crate) fn sealed_file(number: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the call changes nothing. It fails for files that are not in memory, without a call of their
    // file systems, which may block.
    let seals = unsafe { libc::fcntl(number, libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return None;
    }
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes the structure if it returns 0.
    unsafe {
        (libc::fstat(number, found.as_mut_ptr()) == 0).then(|| {
            let found = found.assume_init();
            (found.st_dev, found.st_ino)
        })
    }
}

/// A duplicate of the descriptor with a number, close-on-exec, by number as above. EBADF: there is none.
pub(crate) fn duplicate(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the call changes nothing but the table of descriptors.
    owned(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) })
}

/// The process ID of this process, for copies to and from its own memory. Not valid in a child after fork(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(libc::pid_t);

impl Process {
    pub(crate) fn own() -> Self {
        Self(std::process::id() as libc::pid_t)
    }

    /// Makes a call that copies from or to the memory of this process, which it finds by the ID. Returns the
    /// number of bytes.
    pub(crate) fn copy(self, call: impl Fn(libc::pid_t) -> isize) -> Result<usize, Errno> {
        match check_len(again(|| call(self.0))) {
            // The main thread has ended; the kernel finds the memory by the ID of any other thread.
            Err(libc::ESRCH) => {
                let thread = rustix::thread::gettid().as_raw_pid();
                check_len(again(|| call(thread)))
            }
            result => result,
        }
    }
}

/// Copies pieces to memory of this process through the kernel, in order, and returns how many bytes of them
/// were copied: fewer than all if the memory that follows is not mapped and writable. Copies at most the
/// first [`transport::host::PLACE_BATCH`] pieces. EFAULT if nothing was copied.
///
/// The kernel copies each piece as one, to the address itself, so a fault in it is handled like one of a
/// socket call. It looks up the pages of each contiguous source, which costs more than to copy some bytes:
/// what lies between two pieces of `buffer` that are close to one another is therefore copied as well, to
/// nowhere. A batch of 32 pieces of 8 bytes takes 1.9 us, with process_vm_writev(2), which looks up the pages
/// of each target, 5.5 us.
///
/// # Safety
///
/// The caller must hold grants to write all the ranges.
pub(crate) unsafe fn copy_to<'a>(
    process: Process,
    buffer: &[u8],
    pieces: impl Iterator<Item = (&'a [u8], u64)> + Clone,
) -> Result<usize, Errno> {
    const MOST: usize = transport::host::PLACE_BATCH;
    /// More than the header of an FPDU, and the padding and CRC of the one before.
    const NEAR: usize = 64;
    let mut nowhere = [const { MaybeUninit::<u8>::uninit() }; NEAR];
    let nowhere: *mut libc::c_void = nowhere.as_mut_ptr().cast();
    let mut targets = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * MOST];
    let mut sources = [const { MaybeUninit::<libc::iovec>::uninit() }; MOST];
    let mut gaps = [0u8; MOST];
    let (mut targets_used, mut sources_used) = (0, 0);
    let buffer = buffer.as_ptr_range();
    // The contiguous source under way.
    let mut source = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    for ((bytes, addr), gap_before) in pieces.clone().zip(&mut gaps) {
        let start = bytes.as_ptr();
        let end = source.iov_base.cast_const().cast::<u8>().wrapping_add(source.iov_len);
        let gap = (start as usize).wrapping_sub(end as usize);
        let in_buffer = buffer.start <= source.iov_base.cast() && start < buffer.end;
        if gap == 0 || (gap <= NEAR && in_buffer) {
            if gap > 0 {
                targets[targets_used].write(libc::iovec { iov_base: nowhere, iov_len: gap });
                targets_used += 1;
                *gap_before = gap as u8;
            }
            source.iov_len += gap + bytes.len();
        } else {
            source = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes.len() };
            sources_used += 1;
        }
        sources[sources_used - 1].write(source);
        targets[targets_used]
            .write(libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes.len() });
        targets_used += 1;
    }
    // SAFETY: the first `targets_used` and `sources_used` elements are initialized. The sources are slices,
    // and bytes between slices of one buffer; they are only read. The caller holds grants to write the
    // targets, or they are at most `NEAR` bytes of `nowhere`, which lives as long as this function runs. The
    // kernel checks that the memory is mapped.
    let mut left = process.copy(|id| unsafe {
        let (targets, sources) = (targets.as_ptr().cast(), sources.as_ptr().cast());
        libc::process_vm_readv(id, targets, targets_used as u64, sources, sources_used as u64, 0)
    })?;
    let mut copied = 0;
    for ((bytes, _), gap) in pieces.zip(gaps) {
        left = left.saturating_sub(gap.into());
        copied += left.min(bytes.len());
        left = left.saturating_sub(bytes.len());
    }
    Ok(copied)
}

/// Pieces of one [`copy_from`] at most.
pub(crate) const FETCH_BATCH: usize = 64;

/// Copies pieces of memory of this process, which have an address and a length, through the kernel: the n-th
/// one to byte `n * stride` of `into`. EFAULT if one of them is not mapped; then some may have been copied.
/// EINVAL if they have no room, overlap there, or are too many.
///
/// With process_vm_writev(2) the kernel looks up the pages of `into` alone: 64 pieces of 8 bytes take 2.5 us,
/// with process_vm_readv(2), which looks up those of each piece, 7.3 us. What is between the places is copied
/// onto itself.
pub(crate) fn copy_from(
    process: Process,
    pieces: &[(u64, usize)],
    into: &mut [u8],
    stride: usize,
) -> Result<(), Errno> {
    if pieces.len() > FETCH_BATCH {
        return Err(libc::EINVAL);
    }
    let mut sources = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * FETCH_BATCH];
    let mut used = 0;
    let start: *mut u8 = into.as_mut_ptr();
    let mut end = 0;
    for (n, &(addr, len)) in pieces.iter().enumerate() {
        let gap = (n * stride).checked_sub(end).ok_or(libc::EINVAL)?;
        let between = libc::iovec { iov_base: start.wrapping_add(end).cast(), iov_len: gap };
        for source in [between, libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len }] {
            if source.iov_len > 0 {
                sources[used].write(source);
                used += 1;
            }
        }
        end = n * stride + len;
    }
    if end > into.len() {
        return Err(libc::EINVAL);
    }
    let target = libc::iovec { iov_base: start.cast(), iov_len: end };
    // SAFETY: the first `used` elements are initialized. The kernel only reads the sources, and checks that
    // they are mapped; it writes to the first `end` bytes of `into`, which the caller has lent exclusively.
    let n = process.copy(|id| unsafe {
        libc::process_vm_writev(id, sources.as_ptr().cast(), used as u64, &target, 1, 0)
    })?;
    if n == end { Ok(()) } else { Err(libc::EFAULT) }
}

/// An empty file in memory (memfd_create(2)), whose name /proc/PID/fd shows. EMFILE, ENOMEM.
pub(crate) fn memory_file(name: &CStr, flags: libc::c_uint) -> Result<OwnedFd, Errno> {
    // SAFETY: the name is a C string.
    owned(unsafe { libc::memfd_create(name.as_ptr(), flags | libc::MFD_CLOEXEC) })
}
