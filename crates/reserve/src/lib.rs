// SPDX-License-Identifier: BSD-3-Clause
//! An allocator with an emergency reserve.
//!
//! `Box`, `Arc`, `format!` and the growth of a small collection cannot report a failure: they abort the
//! process, which a library must not do. So large allocations, and those of a size that a program or a peer
//! chooses, use functions that report a failure. All others use [`Reserve`]: the system's allocator and, once
//! that fails, small blocks of memory that was allocated before.
//!
//! The reserve is for operations in progress. A new operation first calls [`ready`], which fails if the
//! system is out of memory, or if the reserve is half empty and cannot be enlarged. Operations in progress
//! then need far less than the remaining half. The reserve is exhausted only if the system stays out of
//! memory while work that cannot be refused needs more than that, such as messages for thousands of
//! connections at a time; then the process aborts, as it would without a reserve.
//!
//! # How it works
//!
//! The reserve consists of up to [`SETS`] sets, mapped one by one as needed. A set has blocks of five sizes,
//! and a bit for each block that is set while the block is in use. Allocation sets a bit and freeing clears
//! it: there is no lock that could stay locked after a fork, and no list that could be corrupted. All sets
//! are in one range of addresses, so one comparison distinguishes their blocks from those of the system.
//! Nothing is mapped before the first [`ready`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The sizes of blocks, and the number of each in a set.
const CLASSES: [(usize, usize); 5] = [(64, 2048), (256, 512), (1024, 128), (4096, 32), (16384, 8)];
/// Bytes of the blocks of one size in a set: the same for all sizes, so that a division of an address yields
/// its class.
const CLASS_BYTES: usize = 128 * 1024;
const SET_BYTES: usize = CLASS_BYTES * CLASSES.len();
/// The maximum number of sets. More than one is needed only if long-lived objects are in the reserve. The
/// address range of all is mapped at once, which counts towards RLIMIT_AS.
pub const SETS: usize = 4;
const PAGE: usize = 4096;
/// The end of the address space, where no block is. As the address of the first set it makes every block one
/// of the system.
const NOWHERE: usize = usize::MAX - SETS * SET_BYTES;
/// The size of the block that [`ready`] allocates from the system and frees.
const PROBE: usize = 16 * 1024;

const fn words(class: usize) -> usize {
    CLASSES[class].1.div_ceil(64)
}

/// The first word of a class in the bits of a set.
const fn first_word(class: usize) -> usize {
    if class == 0 { 0 } else { first_word(class - 1) + words(class - 1) }
}

const WORDS: usize = first_word(CLASSES.len());

const _: () = {
    let mut class = 0;
    while class < CLASSES.len() {
        assert!(CLASSES[class].0 * CLASSES[class].1 == CLASS_BYTES);
        class += 1;
    }
};

/// The bits of a word that correspond to blocks.
const fn valid(class: usize) -> u64 {
    if CLASSES[class].1 >= 64 { u64::MAX } else { (1 << CLASSES[class].1) - 1 }
}

struct Pool {
    /// The address of the first set; [`NOWHERE`] if there is none.
    base: AtomicUsize,
    /// A bit for each set that is mapped.
    open: AtomicU64,
    /// A bit for each block, set while it is in use.
    used: [[AtomicU64; WORDS]; SETS],
    /// At least the number of blocks in use: incremented before the bit is set, decremented after it is
    /// cleared.
    in_use: AtomicUsize,
}

static POOL: Pool = Pool::new();

impl Pool {
    const fn new() -> Self {
        Self {
            base: AtomicUsize::new(NOWHERE),
            open: AtomicU64::new(0),
            used: [const { [const { AtomicU64::new(0) }; WORDS] }; SETS],
            in_use: AtomicUsize::new(0),
        }
    }

    fn owns(&self, block: *mut u8) -> bool {
        (block as usize).wrapping_sub(self.base.load(Ordering::Relaxed)) < SETS * SET_BYTES
    }

    /// A block of at least this size and alignment, or NULL. It is not cleared.
    #[cold]
    fn allocate(&self, layout: Layout) -> *mut u8 {
        let open = self.open.load(Ordering::Acquire);
        if layout.align() > PAGE {
            return null_mut();
        }
        self.in_use.fetch_add(1, Ordering::Relaxed);
        // Blocks are aligned to their size, up to a page.
        let fits = |class: &usize| CLASSES[*class].0 >= layout.size().max(layout.align());
        for class in (0..CLASSES.len()).filter(fits) {
            for set in (0..SETS).filter(|set| open & (1 << set) != 0) {
                if let Some(block) = self.take(set, class) {
                    return block;
                }
            }
        }
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        null_mut()
    }

    fn take(&self, set: usize, class: usize) -> Option<*mut u8> {
        let words = &self.used[set][first_word(class)..][..words(class)];
        for (i, word) in words.iter().enumerate() {
            loop {
                let free = !word.load(Ordering::Relaxed) & valid(class);
                if free == 0 {
                    break;
                }
                let bit = free.trailing_zeros() as usize;
                // Acquire: the thread that freed it has finished its accesses.
                if word.fetch_or(1 << bit, Ordering::Acquire) & (1 << bit) == 0 {
                    let at = set * SET_BYTES + class * CLASS_BYTES + (i * 64 + bit) * CLASSES[class].0;
                    let base = std::ptr::with_exposed_provenance_mut::<u8>(self.base.load(Ordering::Relaxed));
                    return Some(base.wrapping_add(at));
                }
            }
        }
        None
    }

    /// The set, class and index of a block of the reserve.
    fn place(&self, block: *mut u8) -> (usize, usize, usize) {
        let at = block as usize - self.base.load(Ordering::Relaxed);
        let (set, class) = (at / SET_BYTES, at % SET_BYTES / CLASS_BYTES);
        (set, class, at % CLASS_BYTES / CLASSES[class].0)
    }

    #[cold]
    fn free(&self, block: *mut u8) {
        let (set, class, index) = self.place(block);
        self.used[set][first_word(class) + index / 64].fetch_and(!(1 << (index % 64)), Ordering::Release);
        self.in_use.fetch_sub(1, Ordering::Release);
    }

    #[cold]
    fn size(&self, block: *mut u8) -> usize {
        CLASSES[self.place(block).1].0
    }

    /// Whether a set is mapped and no block is in use. That is nearly always true, and then nothing need be
    /// counted.
    #[inline]
    fn is_untouched(&self) -> bool {
        self.in_use.load(Ordering::Acquire) == 0 && self.open.load(Ordering::Acquire) != 0
    }

    /// Whether there are free blocks of each size: half as many as a set has.
    fn is_filled(&self) -> bool {
        let open = self.open.load(Ordering::Acquire);
        (0..CLASSES.len()).all(|class| {
            let mut used = 0;
            let mut there = 0;
            for set in (0..SETS).filter(|set| open & (1 << set) != 0) {
                let words = &self.used[set][first_word(class)..][..words(class)];
                used += words
                    .iter()
                    .map(|word| word.load(Ordering::Relaxed).count_ones() as usize)
                    .sum::<usize>();
                there += CLASSES[class].1;
            }
            there - used >= CLASSES[class].1 / 2
        })
    }

    /// Maps sets until there are enough free blocks; false if that is not possible. Several threads may do so
    /// at a time.
    #[cold]
    fn fill(&self) -> bool {
        while !self.is_filled() {
            let open = self.open.load(Ordering::Acquire);
            let Some(set) = (0..SETS).find(|set| open & (1 << set) == 0) else { return false };
            let Some(base) = self.base() else { return false };
            if !commit(base + set * SET_BYTES) {
                return false;
            }
            self.open.fetch_or(1 << set, Ordering::Release);
        }
        true
    }

    /// The address of the first set. The range is reserved at first and takes no memory.
    fn base(&self) -> Option<usize> {
        let known = self.base.load(Ordering::Acquire);
        if known != NOWHERE {
            return Some(known);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let new = unsafe { libc::mmap(null_mut(), SETS * SET_BYTES, libc::PROT_NONE, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            return None;
        }
        let new_base = new.expose_provenance();
        match self.base.compare_exchange(NOWHERE, new_base, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(new_base),
            Err(other) => {
                // SAFETY: the mapping was made above, and no pointer into it was given out.
                unsafe { libc::munmap(new, SETS * SET_BYTES) };
                Some(other)
            }
        }
    }
}

/// Allocates the memory of a set now: at its first use there may be none left.
fn commit(set: usize) -> bool {
    let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(set);
    // SAFETY: the set is part of the range that `Pool::base` has mapped for the reserve. Threads that already
    // use blocks of the set are not affected: neither call changes their contents.
    unsafe {
        if libc::mprotect(at, SET_BYTES, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        // Kernels before 5.14 lack this, and allocate the pages on first use. If a signal interrupts it, the
        // remaining pages are allocated on first use.
        libc::madvise(at, SET_BYTES, libc::MADV_POPULATE_WRITE) == 0
            || matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL | libc::EINTR))
    }
}

/// There is no memory for a new operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Checks whether an operation that allocates may begin: the system still has memory, and the reserve is full
/// enough for allocations that cannot fail later.
#[inline]
pub fn ready() -> Result<(), NoMemory> {
    let Ok(layout) = Layout::from_size_align(PROBE, 16) else { return Err(NoMemory) };
    // The optimiser may remove a malloc() whose block is only freed, and assume that it succeeds.
    let block = std::hint::black_box(try_allocate(layout));
    if block.is_null() {
        return Err(NoMemory);
    }
    // SAFETY: the block was just allocated by the system's allocator, with this layout.
    unsafe { System.dealloc(block, layout) };
    if POOL.is_untouched() || POOL.fill() { Ok(()) } else { Err(NoMemory) }
}

/// Allocates from the system, never from the reserve, for callers that can report a failure. NULL if there is
/// no memory. The size of the layout must not be 0. The block may be freed by [`Reserve`].
pub fn try_allocate(layout: Layout) -> *mut u8 {
    assert!(layout.size() != 0);
    // SAFETY: the size of the layout is not 0, as asserted.
    unsafe { System.alloc(layout) }
}

/// Frees a block of [`try_allocate`].
///
/// # Safety
/// The block must be from [`try_allocate`], with this layout, and not be used afterwards.
#[inline]
pub unsafe fn free(block: *mut u8, layout: Layout) {
    // SAFETY: the caller guarantees a block that the system has allocated with this layout.
    unsafe { System.dealloc(block, layout) };
}

/// A slice of `len` values; `None` if there is no memory. For sizes that a program or a peer chooses.
pub fn try_filled<T>(len: usize, value: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).ok()?;
    values.extend(std::iter::repeat_with(value).take(len));
    Some(values.into_boxed_slice())
}

/// An empty queue with memory for `capacity` values; `None` if there is no memory. For sizes that a program
/// or a peer chooses.
pub fn try_deque<T>(capacity: usize) -> Option<VecDeque<T>> {
    let mut values = VecDeque::new();
    values.try_reserve_exact(capacity).ok()?;
    Some(values)
}

/// `len` zero bytes from the system; `None` if there is no memory. Pages of long slices are allocated on
/// first use.
pub fn try_zeroed(len: usize) -> Option<Box<[u8]>> {
    if len == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: `len` is not 0, so neither is the size of the layout.
    #[cfg(not(miri))]
    let bytes = unsafe { System.alloc_zeroed(layout) };
    // SAFETY: the size of the layout is not 0. Miri distinguishes its default allocator, to which a Box
    // returns its memory, from the system's.
    #[cfg(miri)]
    let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
    if bytes.is_null() {
        return None;
    }
    // SAFETY: these are `len` initialised bytes with the layout of the slice, from the system, to which
    // `Reserve` or the default allocator returns them.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, len)) })
}

/// The system's allocator with the reserve as fallback.
pub struct Reserve;

// SAFETY: a block is from the system, or from the reserve with its bit changed from clear to set, so nothing
// else has it until it is freed. Each is returned to its origin, which its address determines.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees a layout whose size is not 0 (GlobalAlloc::alloc).
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { POOL.allocate(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees a layout whose size is not 0 (GlobalAlloc::alloc_zeroed).
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = POOL.allocate(layout);
        if !block.is_null() {
            // SAFETY: a block of the reserve is writable and at least as long as the layout.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if POOL.owns(block) {
            POOL.free(block);
        } else {
            // SAFETY: the block was allocated here with this layout (GlobalAlloc::dealloc), and not from the
            // reserve, so by the system.
            unsafe { System.dealloc(block, layout) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !POOL.owns(block) {
            // SAFETY: the block was allocated here with this layout (GlobalAlloc::realloc), and not from the
            // reserve, so by the system.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        } else if size <= POOL.size(block) {
            return block;
        }
        // SAFETY: `size` is not 0 and, rounded up to the alignment, not above isize::MAX
        // (GlobalAlloc::realloc). The old block has `layout.size()` bytes, the new one at least `size`, and
        // they are different blocks; the old one is not used afterwards.
        unsafe {
            let layout_of_new = Layout::from_size_align_unchecked(size, layout.align());
            let new = self.alloc(layout_of_new);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn all(pool: &Pool, of: Layout) -> Vec<*mut u8> {
        std::iter::repeat_with(|| pool.allocate(of)).take_while(|block| !block.is_null()).collect()
    }

    #[test]
    fn blocks_are_aligned_writable_and_each_is_given_out_once() {
        let pool = Pool::new();
        assert!(pool.allocate(layout(1, 1)).is_null(), "there are no blocks before it is filled");
        assert!(pool.fill() && pool.is_filled());
        for (size, align) in [(1, 1), (64, 64), (65, 8), (500, 512), (4000, 4096), (16384, 16)] {
            let blocks = all(&pool, layout(size, align));
            assert!(!blocks.is_empty(), "{size}");
            let mut seen = HashSet::new();
            for &block in &blocks {
                assert!(pool.owns(block) && block as usize % align == 0 && pool.size(block) >= size);
                assert!(seen.insert(block as usize));
                // SAFETY: the block has at least `size` bytes, and only this test uses it.
                unsafe { block.write_bytes(0x5a, size) };
            }
            assert!(!pool.is_filled());
            blocks.iter().for_each(|&block| pool.free(block));
            assert_eq!(all(&pool, layout(size, align)).len(), blocks.len(), "all are available again");
            blocks.iter().for_each(|&block| pool.free(block));
        }
        assert!(pool.used.iter().flatten().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(pool.is_untouched());
        assert!(pool.allocate(layout(16385, 1)).is_null(), "too large");
        assert!(pool.allocate(layout(1, 8192)).is_null(), "too large an alignment");
        assert!(pool.is_untouched());
        let block = pool.allocate(layout(1, 1));
        assert!(!pool.is_untouched() && pool.is_filled(), "one block is in use");
        pool.free(block);
        assert!(pool.is_untouched());
    }

    #[test]
    fn it_grows_while_blocks_are_in_use_up_to_a_limit() {
        let pool = Pool::new();
        let mut kept = Vec::new();
        for set in 0..SETS {
            assert!(pool.fill(), "set {set}");
            assert_eq!(pool.open.load(Ordering::Relaxed).count_ones() as usize, set + 1);
            kept.extend(all(&pool, layout(16384, 16)));
            assert_eq!(kept.len(), (set + 1) * 8);
        }
        assert!(!pool.fill());
        kept.drain(..4).for_each(|block| pool.free(block));
        assert!(pool.fill(), "half a set is enough");
    }

    #[test]
    fn threads_do_not_get_the_same_block() {
        let pool: &Pool = Box::leak(Box::new(Pool::new()));
        let threads: Vec<_> = (1..=4u8)
            .map(|mark| {
                std::thread::spawn(move || {
                    assert!(pool.fill());
                    for _ in 0..2_000 {
                        let blocks = [60, 200, 1000].map(|size| (pool.allocate(layout(size, 8)), size));
                        for (block, size) in blocks {
                            // SAFETY: the block has at least `size` bytes and, if the pool is correct,
                            // belongs to this thread.
                            unsafe { block.write_bytes(mark, size) };
                        }
                        for (block, size) in blocks {
                            // SAFETY: the block belongs to this thread, and its `size` bytes were written
                            // above.
                            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
                            assert!(bytes.iter().all(|&byte| byte == mark));
                            pool.free(block);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(pool.used.iter().flatten().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_block_of_the_reserve_moves_to_the_system_when_it_grows() {
        assert_eq!(ready(), Ok(()));
        let block = POOL.allocate(layout(60, 8));
        // SAFETY: the block has 60 bytes, then the size passed to `realloc`, and is freed once with its last
        // layout.
        unsafe {
            block.write_bytes(7, 60);
            assert_eq!(Reserve.realloc(block, layout(60, 8), 64), block);
            let moved = Reserve.realloc(block, layout(64, 8), 100_000);
            assert!(!POOL.owns(moved));
            assert!(std::slice::from_raw_parts(moved, 60).iter().all(|&byte| byte == 7));
            Reserve.dealloc(moved, layout(100_000, 8));
        }
        assert_eq!(POOL.used[0][0].load(Ordering::Relaxed) & 1, 0);
    }
}
