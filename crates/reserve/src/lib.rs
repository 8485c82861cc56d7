// SPDX-License-Identifier: BSD-3-Clause
//! An allocator that has something left when the system has not.
//!
//! `Box`, `Arc`, `format!` and the growth of a small collection cannot report a failure: they abort the
//! process. In a library that is somebody else's process. So what is large, or of a size that a program or a
//! peer chooses, is allocated with functions that do report it; for the rest there is [`Reserve`], which is
//! the system's allocator until that has nothing more, and then takes small blocks from memory that was set
//! aside before.
//!
//! The reserve is for what has begun. Whoever begins something asks [`ready`] first, which fails when the
//! system gives no memory, or when the reserve is half empty and cannot be enlarged. What has begun then
//! needs far less than the half that is left. It is exhausted only when the system stays out of memory while
//! work that nobody can refuse needs more than that, such as messages for thousands of connections at a time;
//! then the process is aborted, as without it.
//!
//! # How it works
//!
//! The reserve consists of up to [`SETS`] sets, mapped one by one where there is need. A set has blocks of
//! five sizes, and a bit for each block says whether it is in use. To allocate is to set a bit, to free is to
//! clear it: no lock that a fork could leave behind, no list that could be damaged. All sets lie in one range
//! of addresses, so one comparison tells such a block from one of the system's. Nothing is mapped before the
//! first [`ready`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Sizes of blocks, and of each the number in a set.
const CLASSES: [(usize, usize); 5] = [(64, 2048), (256, 512), (1024, 128), (4096, 32), (16384, 8)];
/// Bytes that the blocks of one size take in a set: the same for all, so that an address leads to its class
/// by a division.
const CLASS_BYTES: usize = 128 * 1024;
const SET_BYTES: usize = CLASS_BYTES * CLASSES.len();
/// Sets at most. Another one is needed only when what lives long has come from the reserve. Their addresses
/// are taken at once, which counts where a process may have a limited number of them.
pub const SETS: usize = 4;
const PAGE: usize = 4096;
/// The end of the address space, where no block is: as the address of the first set, it makes every block one
/// of the system's.
const NOWHERE: usize = usize::MAX - SETS * SET_BYTES;
/// The size of the block that [`ready`] asks the system for, and gives back.
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

/// The bits of a word that stand for blocks.
const fn valid(class: usize) -> u64 {
    if CLASSES[class].1 >= 64 { u64::MAX } else { (1 << CLASSES[class].1) - 1 }
}

struct Pool {
    /// The address of the first set; [`NOWHERE`] before there is one.
    base: AtomicUsize,
    /// A bit for each set that may be used.
    open: AtomicU64,
    /// A bit for each block: it is in use.
    used: [[AtomicU64; WORDS]; SETS],
    /// At least as many as there are blocks in use: counted before the bit is set, and until after it is
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

    /// A block of at least this size and alignment, or NULL. Its content is what was there before.
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
                // Whoever freed it has finished with it.
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

    /// Whether there is a set, and no block of any is in use. It is nearly always so, and then there is
    /// nothing to count.
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

    /// Maps what is missing until there are enough free blocks; false when that cannot be had. Several
    /// threads may do so at a time.
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

    /// The address of the first set. The range is only kept free at first: it takes no memory.
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
                // SAFETY: the mapping was made above, and nobody else knows of it.
                unsafe { libc::munmap(new, SETS * SET_BYTES) };
                Some(other)
            }
        }
    }
}

/// Gives a set its memory: not on first use, when there may be none left.
fn commit(set: usize) -> bool {
    let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(set);
    // SAFETY: the set is part of the range that `Pool::base` has mapped for nothing else. A thread that has
    // found the set open already may use its blocks meanwhile: neither call changes what is in them.
    unsafe {
        if libc::mprotect(at, SET_BYTES, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        // Kernels before 5.14 do not know this, and provide the pages on first use.
        // One that a signal has interrupted has provided some; the others come on first use.
        libc::madvise(at, SET_BYTES, libc::MADV_POPULATE_WRITE) == 0
            || matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL | libc::EINTR))
    }
}

/// There is no memory for something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Asks whether something may begin that allocates: the system still gives memory, and the reserve is full
/// enough for what cannot be refused later.
#[inline]
pub fn ready() -> Result<(), NoMemory> {
    let Ok(layout) = Layout::from_size_align(PROBE, 16) else { return Err(NoMemory) };
    // The optimiser may leave out a malloc() whose block is only freed, and take it for one that succeeds.
    let block = std::hint::black_box(try_allocate(layout));
    if block.is_null() {
        return Err(NoMemory);
    }
    // SAFETY: the block was just allocated by the system's allocator, with this layout.
    unsafe { System.dealloc(block, layout) };
    if POOL.is_untouched() || POOL.fill() { Ok(()) } else { Err(NoMemory) }
}

/// Allocates from the system, never from the reserve: for whoever can report a failure. NULL when there is no
/// memory. The layout must have a size. The block may be freed by [`Reserve`].
pub fn try_allocate(layout: Layout) -> *mut u8 {
    assert!(layout.size() != 0);
    // SAFETY: the layout has a size, as asserted.
    unsafe { System.alloc(layout) }
}

/// Gives back what [`try_allocate`] has given.
///
/// # Safety
/// The block must be from [`try_allocate`], with this layout, and not be used afterwards.
#[inline]
pub unsafe fn free(block: *mut u8, layout: Layout) {
    // SAFETY: the caller guarantees a block that the system has allocated with this layout.
    unsafe { System.dealloc(block, layout) };
}

/// A slice of `len` values; `None` when there is no memory. For sizes that a program or a peer chooses.
pub fn try_filled<T>(len: usize, value: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).ok()?;
    values.extend(std::iter::repeat_with(value).take(len));
    Some(values.into_boxed_slice())
}

/// `len` bytes, all zero, from the system; `None` when there is no memory. Long ones take memory only where
/// they are used.
pub fn try_zeroed(len: usize) -> Option<Box<[u8]>> {
    if len == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: the layout has a size.
    #[cfg(not(miri))]
    let bytes = unsafe { System.alloc_zeroed(layout) };
    // SAFETY: the layout has a size. Miri tells its default allocator, which a Box gives back to, from the
    // system's.
    #[cfg(miri)]
    let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
    if bytes.is_null() {
        return None;
    }
    // SAFETY: `len` initialised bytes with the layout of the slice, from the system: `Reserve`, or the
    // default allocator, gives them back to it.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, len)) })
}

/// The system's allocator, and the reserve behind it.
pub struct Reserve;

// SAFETY: a block is the system's, or one of the reserve whose bit was clear and is set now: nobody else has
// it until it is freed. Each is given back to where it came from, which its address tells.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout has a size (GlobalAlloc::alloc).
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { POOL.allocate(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout has a size (GlobalAlloc::alloc_zeroed).
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = POOL.allocate(layout);
        if !block.is_null() {
            // SAFETY: a block of the reserve is writable and at least as long as the layout says.
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
        assert!(pool.allocate(layout(1, 1)).is_null(), "nothing before it is filled");
        assert!(pool.fill() && pool.is_filled());
        for (size, align) in [(1, 1), (64, 64), (65, 8), (500, 512), (4000, 4096), (16384, 16)] {
            let blocks = all(&pool, layout(size, align));
            assert!(!blocks.is_empty(), "{size}");
            let mut seen = HashSet::new();
            for &block in &blocks {
                assert!(pool.owns(block) && block as usize % align == 0 && pool.size(block) >= size);
                assert!(seen.insert(block as usize));
                // SAFETY: the block is as long as it was asked for, and this test's.
                unsafe { block.write_bytes(0x5a, size) };
            }
            assert!(!pool.is_filled());
            blocks.iter().for_each(|&block| pool.free(block));
            assert_eq!(all(&pool, layout(size, align)).len(), blocks.len(), "all come back");
            blocks.iter().for_each(|&block| pool.free(block));
        }
        assert!(pool.used.iter().flatten().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(pool.is_untouched());
        assert!(pool.allocate(layout(16385, 1)).is_null(), "too large");
        assert!(pool.allocate(layout(1, 8192)).is_null(), "aligned too much");
        assert!(pool.is_untouched());
        let block = pool.allocate(layout(1, 1));
        assert!(!pool.is_untouched() && pool.is_filled(), "one is in use");
        pool.free(block);
        assert!(pool.is_untouched());
    }

    #[test]
    fn it_grows_while_blocks_are_kept_and_ends() {
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
                            // SAFETY: the block is this thread's, if the pool is right.
                            unsafe { block.write_bytes(mark, size) };
                        }
                        for (block, size) in blocks {
                            // SAFETY: as above; it was written, so it is initialised.
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
        // SAFETY: the block has 60 bytes, then as many as `realloc` was asked for, and is freed once with its
        // last layout.
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
