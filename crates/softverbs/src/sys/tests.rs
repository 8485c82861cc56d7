// SPDX-License-Identifier: BSD-3-Clause
//! The wrappers of system calls, and memory for the tests of others.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use super::memory::{modify_nothing, pages};
use super::*;

/// Anonymous memory of whole pages.
pub(crate) struct Mapping {
    addr: u64,
    len: usize,
    /// Ranges that are unmapped already, as offset and length. What another test has mapped there is its own.
    unmapped: Mutex<Vec<(usize, usize)>>,
}

impl Mapping {
    pub(crate) fn new(len: usize) -> Self {
        Self::anonymous(len, libc::MAP_PRIVATE)
    }

    /// Memory that children share.
    pub(crate) fn shared(len: usize) -> Self {
        Self::anonymous(len, libc::MAP_SHARED)
    }

    fn anonymous(len: usize, flags: libc::c_int) -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        Self { addr: addr as u64, len, unmapped: Mutex::default() }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// Unmaps some of its pages.
    pub(crate) fn unmap(&self, at: usize, len: usize) {
        assert!(at + len <= self.len);
        // SAFETY: the range is part of this mapping, to which there are no references.
        unsafe { libc::munmap((self.addr as *mut libc::c_void).byte_add(at), len) };
        self.unmapped.lock().unwrap().push((at, len));
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let unmapped = self.unmapped.get_mut().unwrap();
        for at in (0..self.len).step_by(page_size() as usize) {
            if unmapped.iter().all(|(from, len)| !(*from..from + len).contains(&at)) {
                // SAFETY: the page is part of this mapping, which is not used any more.
                unsafe { libc::munmap((self.addr as *mut libc::c_void).byte_add(at), page_size() as usize) };
            }
        }
    }
}

/// A byte of mapped memory, which others may write.
pub(crate) fn byte_at(addr: u64) -> u8 {
    // SAFETY: the test that calls this has mapped the address; the read is volatile.
    unsafe { (addr as *const u8).read_volatile() }
}

/// Memory that can be taken away while it is used, and come back.
pub(crate) struct Vanishing {
    map: Mapping,
    /// A file without a name, of the length of the mapping.
    file: OwnedFd,
    way: Way,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Unmapped,
    ReadOnly,
    Inaccessible,
    Truncated,
}

impl Vanishing {
    pub(crate) const ALL: [Way; 4] = [Way::Unmapped, Way::ReadOnly, Way::Inaccessible, Way::Truncated];

    pub(crate) fn new(len: usize, way: Way) -> Self {
        let file = memory_file(c"vanishing", 0).unwrap();
        let this = Self { map: Mapping::new(len), file, way };
        this.resize(len);
        this.come_back();
        this
    }

    pub(crate) fn addr(&self) -> u64 {
        self.map.addr()
    }

    fn resize(&self, len: usize) {
        rustix::fs::ftruncate(&self.file, len as u64).unwrap();
    }

    fn replace(&self, prot: i32, flags: i32, fd: RawFd) {
        let flags = flags | libc::MAP_FIXED;
        // SAFETY: the range is that of this mapping, to which there are no references.
        let addr =
            unsafe { libc::mmap(self.map.addr as *mut libc::c_void, self.map.len, prot, flags, fd, 0) };
        assert_eq!(addr as u64, self.map.addr);
    }

    fn protect(&self, prot: i32) {
        // SAFETY: the range is that of this mapping, to which there are no references.
        let ret = unsafe { libc::mprotect(self.map.addr as *mut libc::c_void, self.map.len, prot) };
        assert_eq!(ret, 0, "{}", io::Error::last_os_error());
    }

    pub(crate) fn vanish(&self) {
        match self.way {
            // Replaced at once, so that no other mapping is placed there.
            Way::Unmapped => {
                self.replace(libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
            }
            Way::ReadOnly => self.protect(libc::PROT_READ),
            Way::Inaccessible => self.protect(libc::PROT_NONE),
            Way::Truncated => self.resize(0),
        }
    }

    pub(crate) fn come_back(&self) {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        match self.way {
            Way::Unmapped => self.replace(both, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
            Way::ReadOnly | Way::Inaccessible => self.protect(both),
            Way::Truncated => {
                self.resize(self.map.len);
                self.replace(both, libc::MAP_SHARED, self.file.as_raw_fd());
            }
        }
    }
}

#[test]
fn both_ways_to_ask_for_a_writable_word_agree() {
    let page = page_size();
    let map = Mapping::new(2 * page as usize);
    map.unmap(page as usize, page as usize);
    for call in [make_writable, modify_nothing] {
        assert_eq!(call(map.addr() + 8), Ok(()));
        assert!(call(map.addr() + page).is_err());
    }
    // SAFETY: the page belongs to `map`, to which there are no references.
    unsafe { libc::mprotect(map.addr() as *mut libc::c_void, page as usize, libc::PROT_READ) };
    for call in [make_writable, modify_nothing] {
        assert!(call(map.addr()).is_err());
    }
}

#[test]
fn pages_cover_the_range() {
    let p = page_size();
    assert_eq!(pages(0, 1), (0, p));
    assert_eq!(pages(p - 1, 2), (0, 2 * p));
    assert_eq!(pages(p, p), (p, p));
}

#[test]
fn an_event_counter_gives_each_event_once() {
    let fd = event_counter().unwrap();
    event_raise(&fd);
    event_raise(&fd);
    event_take(&fd).unwrap();
    event_try_take(&fd);
    set_non_blocking(&fd);
    assert_eq!(event_take(&fd), Err(libc::EAGAIN));
}

#[test]
fn memory_that_is_not_there_is_an_error_and_not_a_signal() {
    assert!(!is_mapped(page_size(), page_size()));
    assert!(populate(page_size(), 1, true).is_err());
    let own = Process::own();
    // SAFETY: no memory is mapped at that address, so none can be overwritten.
    let copied = unsafe { copy_to(own, &[], [(&[1u8, 2, 3][..], page_size())].into_iter()) };
    assert_eq!(copied, Err(libc::EFAULT));
    assert_eq!(copy_from(own, &[(page_size(), 3)], &mut [0; 3], 0), Err(libc::EFAULT));
}

#[test]
fn pieces_are_copied_to_their_places_alone() {
    let (source, own) = ([1u8, 2, 3, 4, 5, 6], Process::own());
    let piece = |at: usize, len| (source[at..].as_ptr().addr() as u64, len);
    let mut into = [9; 16];
    copy_from(own, &[piece(4, 2), piece(0, 3), piece(3, 1)], &mut into[1..], 5).unwrap();
    assert_eq!(into, [9, 5, 6, 9, 9, 9, 1, 2, 3, 9, 9, 4, 9, 9, 9, 9]);
    let most = [piece(0, 1); FETCH_BATCH];
    copy_from(own, &most, &mut [0; 2 * FETCH_BATCH], 2).unwrap();
    assert_eq!(copy_from(own, &most, &mut [0; FETCH_BATCH], 2), Err(libc::EINVAL), "no room");
    assert_eq!(copy_from(own, &most, &mut [0; 2 * FETCH_BATCH], 0), Err(libc::EINVAL), "they overlap");
    assert_eq!(copy_from(own, &[piece(0, 1); FETCH_BATCH + 1], &mut into, 0), Err(libc::EINVAL), "too many");
}

#[test]
fn copies_in_order_are_complete_whatever_their_alignment() {
    let source: [u8; 64] = std::array::from_fn(|at| at as u8 + 1);
    for len in 0..=24 {
        for (from, to) in (0..64).map(|n| (n % 8, n / 8)) {
            let mut target = [0u8; 64];
            // SAFETY: both ranges are in live local arrays, without references to the target.
            unsafe { copy_in_order(source.as_ptr().add(from), target.as_mut_ptr().add(to), len) };
            assert_eq!(target[to..to + len], source[from..from + len], "{len} bytes from {from} to {to}");
            assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0));
        }
    }
}

/// `without_sigxfsz` consumes the SIGXFSZ that a call beyond the limit raises.
#[test]
fn a_call_beyond_the_limit_on_files_is_an_error_and_not_a_signal() {
    let result = without_sigxfsz(|| {
        // SAFETY: the signal is one for this thread, and is blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ) };
        Err::<(), _>(libc::EFBIG)
    });
    assert_eq!(result, Err(libc::EFBIG), "the signal was consumed, or it would have ended this process");
}
