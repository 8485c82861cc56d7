// SPDX-License-Identifier: BSD-3-Clause
//! Direct copies between two ends in one process: rights, revocation, mapped memory, words.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::fs::SealFlags;

use super::*;
use crate::link::shared::Shared;
use crate::memory::backing::tests::Memfd;
use crate::memory::{Change, Changed, Region, deregister, register, try_deregister};
use crate::progress::watch::PeerNotify;
use crate::socket::Socket;
use crate::sys::memory_file;
use transport::access::{Accessor, FLUSH_PERSISTENT, FileOffset, LOCAL_WRITE};

const PD: u32 = 1;
const RIGHTS: u32 = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE;

fn owned(fd: impl Into<OwnedFd>) -> Socket {
    Socket::noted(|| Ok(fd.into())).unwrap()
}

/// Both ends of a connection, in this process.
fn pair() -> (DirectCopy, DirectCopy) {
    let shared = Shared::create().unwrap();
    shared.show(0, Proof::own().unwrap());
    let theirs = Shared::adopt(owned(shared.file().try_clone().unwrap())).unwrap();
    theirs.show(1, Proof::own().unwrap());
    let (a, b) = UnixStream::pair().unwrap();
    let (a, b) = (Rings::new(shared, owned(a), true), Rings::new(theirs, owned(b), false));
    (DirectCopy::try_open(&Arc::new(a)).unwrap(), DirectCopy::try_open(&Arc::new(b)).unwrap())
}

/// Registered memory for one test.
struct Target {
    memory: Box<[u8]>,
    stag: u32,
}

impl Target {
    fn new(access: u32) -> Self {
        let mut memory = vec![0; 4096].into_boxed_slice();
        let region = Region { addr: memory.as_mut_ptr() as u64, len: 4096, access, pd: PD };
        Self { stag: register(region).unwrap(), memory }
    }

    fn access(&self, rights: u32, at: usize, len: usize) -> Access {
        Access { stag: self.stag, addr: self.memory.as_ptr() as u64 + at as u64, len, rights }
    }

    fn byte(&self, at: usize) -> u8 {
        // SAFETY: the byte is in `memory`, which is mapped; the read is volatile since the kernel may have
        // written to it.
        unsafe { self.memory.as_ptr().add(at).read_volatile() }
    }
}

/// Exports a key as the owner's receiving half does after a granted access.
fn grant(direct: &mut DirectCopy, access: Access) {
    let grant = memory::acquire(access, Accessor { pd: PD, qp: 1 }).unwrap();
    direct.export(access, &grant);
}

/// Whether a copy can be made now.
fn is_open(direct: &DirectCopy, remote: Access) -> bool {
    direct.owner.rings.is_settled() && direct.may_access(remote)
}

/// Whether all bytes were copied.
fn copy(direct: &mut DirectCopy, remote: Access, bytes: &mut [u8]) -> bool {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the only local range is `bytes`, which this function borrows exclusively.
    unsafe { direct.copy(&mut [nothing, piece], &[remote], remote.len, false) == remote.len }
}

#[test]
fn a_peer_copies_with_exported_keys_and_their_rights_only() {
    let (mut initiator, mut target) = pair();
    let region = Target::new(RIGHTS);
    let write = region.access(REMOTE_WRITE, 5, 100);
    assert!(
        !is_open(&initiator, write) && !copy(&mut initiator, write, &mut [1; 100]),
        "nothing is exported"
    );
    grant(&mut target, region.access(REMOTE_WRITE, 0, 1));
    assert!(is_open(&initiator, write) && copy(&mut initiator, write, &mut [1; 100]));
    assert_eq!([4, 5, 104, 105].map(|at| region.byte(at)), [0, 1, 1, 0]);
    let read = region.access(REMOTE_READ, 5, 100);
    assert!(!is_open(&initiator, read), "it has only written");
    grant(&mut target, read);
    let mut bytes = [0; 100];
    assert!(is_open(&initiator, read) && copy(&mut initiator, read, &mut bytes));
    assert!(is_open(&initiator, write), "it may both read and write now");
    // SAFETY: `bytes` is a live local array; the read is volatile since the kernel has written to it.
    assert_eq!(unsafe { (&raw const bytes).read_volatile() }, [1; 100]);
    assert!(!copy(&mut initiator, region.access(REMOTE_WRITE, 4000, 97), &mut [2; 97]), "out of bounds");
    assert!(!is_open(&target, read), "nothing is exported to the other end");
    deregister(region.stag);
    target.close();
    initiator.close();
}

#[test]
fn several_ranges_are_copied_in_order_or_none_if_one_is_not_exported() {
    let (mut initiator, mut target) = pair();
    let region = Target::new(RIGHTS);
    grant(&mut target, region.access(REMOTE_WRITE, 0, 1));
    let mut copy = |remote: &[Access], len: usize| {
        let mut bytes: Vec<u8> = (1..=100).collect();
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        // SAFETY: the only local range is `bytes`, which outlives the call.
        unsafe { initiator.copy(&mut [nothing, piece], remote, len, false) }
    };
    let ranges = [(10, 5), (1000, 10), (8, 3)].map(|(at, len)| region.access(REMOTE_WRITE, at, len));
    assert_eq!(copy(&ranges, 18), 18);
    assert_eq!([8, 9, 10, 11, 14, 1000, 1009].map(|at| region.byte(at)), [16, 17, 18, 2, 5, 6, 15]);
    // Only a part of the last range.
    assert_eq!(copy(&ranges[..2], 12), 12);
    assert_eq!([1006, 1007].map(|at| region.byte(at)), [12, 13]);
    let outside = [region.access(REMOTE_WRITE, 0, 5), region.access(REMOTE_WRITE, 4095, 2)];
    assert_eq!(copy(&outside, 7), 0);
    assert_eq!(region.byte(0), 0, "nothing was copied");
    deregister(region.stag);
    target.close();
    initiator.close();
}

#[test]
fn reads_that_make_writes_durable_are_left_to_the_owner() {
    let (mut initiator, mut target) = pair();
    let region = Target::new(RIGHTS | FLUSH_PERSISTENT);
    grant(&mut target, region.access(REMOTE_WRITE, 0, 1));
    grant(&mut target, region.access(REMOTE_READ, 0, 1));
    assert!(copy(&mut initiator, region.access(REMOTE_WRITE, 0, 8), &mut [1; 8]));
    assert!(!copy(&mut initiator, region.access(REMOTE_READ, 0, 8), &mut [1; 8]), "a flush");
    deregister(region.stag);
    target.close();
    initiator.close();
}

#[test]
fn nothing_is_copied_before_the_peer_has_acted_on_the_ring() {
    let (initiator, mut target) = pair();
    let region = Target::new(RIGHTS);
    let write = region.access(REMOTE_WRITE, 0, 100);
    grant(&mut target, write);
    let rings = initiator.owner.rings.clone();
    assert!(rings.room(1, || false).unwrap() > 0);
    rings.put(10).unwrap();
    assert!(!is_open(&initiator, write), "the peer has not acted");
    let peer = target.owner.rings.clone();
    assert_eq!(peer.available(10, || false), Ok(10));
    peer.took(6).unwrap();
    peer.acted();
    assert!(!is_open(&initiator, write), "it has not acted on all of it");
    peer.took(4).unwrap();
    assert!(!is_open(&initiator, write), "it has taken the bytes but not acted on them");
    peer.acted();
    assert!(is_open(&initiator, write));
    deregister(region.stag);
    target.close();
    initiator.close();
}

/// Runs `withdraw` on a thread while the initiator uses a key, then releases the key. Returns whether
/// `withdraw` waited for that.
fn is_waited_for(initiator: &DirectCopy, held: u32, withdraw: impl FnOnce() + Send) -> bool {
    !is_done_within(Duration::from_millis(50), initiator, held, withdraw)
}

/// The same for a `withdraw` that should not wait, with enough time for a slow machine.
fn is_done_meanwhile(initiator: &DirectCopy, held: u32, withdraw: impl FnOnce() + Send) -> bool {
    is_done_within(Duration::from_secs(30), initiator, held, withdraw)
}

fn is_done_within(
    limit: Duration,
    initiator: &DirectCopy,
    held: u32,
    withdraw: impl FnOnce() + Send,
) -> bool {
    let hold = initiator.owner.rings.shared.export_page(initiator.owner.rings.ends().1).hold();
    hold.take(held);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            withdraw();
            done.store(true, Ordering::Release);
        });
        let began = Instant::now();
        while !done.load(Ordering::Acquire) && began.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_done = done.load(Ordering::Acquire);
        hold.release();
        is_done
    })
}

/// Copies to or from a memfd of the same process.
fn copy_backed(direct: &mut DirectCopy, remote: Access, own: &Memfd) -> usize {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let piece = libc::iovec { iov_base: own.addr() as *mut libc::c_void, iov_len: remote.len };
    // SAFETY: `own` is mapped, and no shorter than a page.
    unsafe { direct.copy(&mut [nothing, piece], &[remote], remote.len, true) }
}

#[test]
fn memory_of_sealed_files_is_mapped_by_the_initiator() {
    let (mut initiator, mut target) = pair();
    let page = crate::sys::page_size() as usize;
    let [memory, own] = [(); 2].map(|()| Memfd::new(2 * page, SealFlags::SHRINK));
    let stag = memory.register(page as u64 - 50, 100);
    let access = |rights, at, len| Access { stag, addr: memory.addr() + at as u64, len, rights };
    grant(&mut target, access(REMOTE_WRITE, page - 50, 1));
    let is_mapped = |direct: &DirectCopy| {
        let (version, exported) = direct.owner.rings.exported(stag).unwrap();
        match direct.imports.find(version, &exported) {
            Import::Unknown => None,
            Import::Unmappable => Some(false),
            Import::Mapped(_) => Some(true),
        }
    };
    assert_eq!(is_mapped(&initiator), None);
    assert!(copy(&mut initiator, access(REMOTE_WRITE, page - 4, 3), &mut [1; 3]), "by the kernel");
    assert_eq!(is_mapped(&initiator), None, "other memory than that of a file may fault");
    own.fill(9);
    assert_eq!(copy_backed(&mut initiator, access(REMOTE_WRITE, page - 3, 13), &own), 13);
    assert_eq!(is_mapped(&initiator), Some(true));
    assert_eq!([4, 3, 2, 1].map(|before| memory.byte(page - before)), [1, 9, 9, 9]);
    assert_eq!([0, 9, 10].map(|at| memory.byte(page + at)), [9, 9, 0]);
    assert_eq!(copy_backed(&mut initiator, access(REMOTE_WRITE, page + 40, 11), &own), 0, "out of bounds");
    assert_eq!(copy_backed(&mut initiator, access(REMOTE_READ, page, 8), &own), 0, "it has only written");
    grant(&mut target, access(REMOTE_READ, page, 1));
    assert_eq!(is_mapped(&initiator), None, "mapped again with other rights");
    memory.fill(5);
    assert_eq!(copy_backed(&mut initiator, access(REMOTE_READ, page, 8), &own), 8);
    assert_eq!([0, 7, 8].map(|at| own.byte(at)), [5, 5, 9]);
    // Several ranges and several pieces.
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let piece = |at: usize, len| libc::iovec { iov_base: (own.addr() as usize + at) as *mut _, iov_len: len };
    let remote = [access(REMOTE_WRITE, page - 20, 6), access(REMOTE_WRITE, page + 20, 6)];
    // SAFETY: the pieces are in `own`, which is mapped.
    let copied = unsafe {
        initiator.copy(&mut [nothing, piece(0, 2), piece(100, 5), piece(200, 3)], &remote, 10, true)
    };
    assert_eq!(copied, 10);
    assert_eq!([20, 19, 18, 15, 14].map(|before| memory.byte(page - before)), [5, 5, 9, 9, 5]);
    assert_eq!([20, 23, 24].map(|at| memory.byte(page + at)), [9, 9, 5]);
    let (version, exported) = initiator.owner.rings.exported(stag).unwrap();
    assert!(is_waited_for(&initiator, stag, || deregister(stag)));
    assert!(matches!(initiator.imports.find(version, &exported), Import::Mapped(_)), "not yet");
    initiator.forget_revoked();
    assert!(matches!(initiator.imports.find(version, &exported), Import::Unknown), "unmapped");
    assert_eq!(copy_backed(&mut initiator, access(REMOTE_WRITE, page, 8), &own), 0, "revoked");
    target.close();
    initiator.close();
}

/// A memfd with numbers, of which a region has `len` bytes from byte `at` on.
struct Words {
    memory: Memfd,
    stag: u32,
}

impl Words {
    fn new(at: u64, len: u64) -> Self {
        let memory = Memfd::new(crate::sys::page_size() as usize, SealFlags::SHRINK);
        Self { stag: memory.register(at, len), memory }
    }

    fn access(&self, rights: u32, at: u64) -> Access {
        Access { stag: self.stag, addr: self.memory.addr() + at, len: 8, rights }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at % 8 == 0 && at < crate::sys::page_size());
        // SAFETY: the word is aligned and in the mapping of the memfd, which lives as long as `self`. It is
        // used only as an atomic.
        unsafe { AtomicU64::from_ptr((self.memory.addr() + at) as *mut u64) }
    }
}

#[test]
fn words_of_sealed_files_are_accessed_by_the_initiator() {
    let (mut initiator, mut target) = pair();
    let words = Words::new(16, 100);
    let atomic = |at| words.access(REMOTE_ATOMIC, at);
    let write = |at| words.access(REMOTE_WRITE, at);
    assert_eq!(initiator.access_word(atomic(16), WordAccess::Add(1)), None, "nothing is exported");
    grant(&mut target, atomic(16));
    assert!(is_open(&initiator, atomic(16)));
    assert_eq!(initiator.access_word(write(16), WordAccess::Store(1)), None, "only atomic operations");
    assert_eq!(initiator.access_word(atomic(16), WordAccess::Add(5)), Some(0));
    assert_eq!(initiator.access_word(atomic(16), WordAccess::Add(u64::MAX)), Some(5));
    let swap = |compare| WordAccess::CompareSwap { compare, swap: 9 };
    assert_eq!(initiator.access_word(atomic(16), swap(5)), Some(4));
    assert_eq!(words.word(16).load(Ordering::Relaxed), 4);
    assert_eq!(initiator.access_word(atomic(16), swap(4)), Some(4));
    assert_eq!(words.word(16).load(Ordering::Relaxed), 9);
    grant(&mut target, write(16));
    assert!(initiator.access_word(write(24), WordAccess::Store(7)).is_some());
    assert_eq!(words.word(24).load(Ordering::Relaxed), 7);
    assert_eq!(initiator.access_word(atomic(104), WordAccess::Add(1)), Some(0), "the last one");
    for at in 17..24 {
        assert_eq!(initiator.access_word(atomic(at), WordAccess::Add(1)), None, "misaligned: {at}");
        assert_eq!(initiator.access_word(write(at), WordAccess::Store(1)), None, "misaligned: {at}");
    }
    for at in [8, 112, 4096] {
        assert_eq!(initiator.access_word(atomic(at), WordAccess::Add(1)), None, "out of bounds: {at}");
    }
    let read = words.access(REMOTE_READ, 16);
    grant(&mut target, read);
    assert_eq!(initiator.access_word(read, WordAccess::Add(1)), None, "not a right to change it");
    let other = Access { stag: words.stag ^ 1, ..atomic(16) };
    assert_eq!(initiator.access_word(other, WordAccess::Add(1)), None, "another key");
    assert_eq!(words.word(16).load(Ordering::Relaxed), 9);
    assert_eq!(words.word(24).load(Ordering::Relaxed), 7);
    assert!(is_waited_for(&initiator, words.stag, || deregister(words.stag)));
    assert!(!is_open(&initiator, atomic(16)));
    assert_eq!(initiator.access_word(atomic(16), WordAccess::Add(1)), None, "revoked");
    assert_eq!(words.word(16).load(Ordering::Relaxed), 9);
    target.close();
    initiator.close();
}

/// The memory of a program that is not in a memfd may vanish, which only the owner can handle.
#[test]
fn words_of_other_memory_are_left_to_the_owner() {
    let (mut initiator, mut target) = pair();
    let region = Target::new(RIGHTS | REMOTE_ATOMIC);
    let at = (8 - region.memory.as_ptr() as usize % 8) % 8;
    let access = |rights| region.access(rights, at, 8);
    grant(&mut target, access(REMOTE_ATOMIC));
    assert!(!is_open(&initiator, access(REMOTE_ATOMIC)), "the key is of no use to the peer");
    grant(&mut target, access(REMOTE_WRITE));
    assert!(is_open(&initiator, access(REMOTE_WRITE)));
    assert_eq!(initiator.access_word(access(REMOTE_WRITE), WordAccess::Store(1)), None);
    assert_eq!(initiator.access_word(access(REMOTE_ATOMIC), WordAccess::Add(1)), None);
    assert_eq!(region.byte(at), 0);
    deregister(region.stag);
    target.close();
    initiator.close();
}

#[test]
fn an_atomic_operation_does_not_wait_for_memory_that_cannot_be_mapped() {
    let (mut initiator, target) = pair();
    let (stag, rights) = (0x100, REMOTE_ATOMIC);
    let file = Some(FileOffset { descriptor: u32::MAX - 1, inode: 1, offset: 0 });
    target.owner.export(Exported { stag, rights, start: 8, len: 8, delta: 0, file });
    let access = Access { stag, addr: 8, len: 8, rights };
    assert!(is_open(&initiator, access), "not tried yet");
    assert_eq!(initiator.access_word(access, WordAccess::Add(1)), None);
    assert!(!is_open(&initiator, access));
    target.close();
    initiator.close();
}

/// Directly, through the table of the owner as over the ring, and by the processor, all at once.
#[test]
fn accesses_to_a_word_are_atomic_with_respect_to_all_others() {
    /// So often this thread must find that others have changed the word since it did; on a busy machine they
    /// may run in turns for long.
    const MEETINGS: u32 = if cfg!(miri) { 20 } else { 20_000 };
    const MOST: Duration = Duration::from_secs(20);
    let words = Words::new(0, 64);
    let word = words.access(REMOTE_ATOMIC, 8);
    let mut ends: Vec<_> = (0..2).map(|_| pair()).collect();
    ends.iter_mut().for_each(|(_, target)| grant(target, word));
    let over = AtomicBool::new(false);
    let until_over = |mut once: Box<dyn FnMut() -> bool + Send + '_>| {
        let mut count = 0u64;
        while !over.load(Ordering::Relaxed) {
            count += u64::from(once());
        }
        count
    };
    let sum: u64 = std::thread::scope(|scope| {
        let mut initiators = ends.iter_mut().map(|(initiator, _)| initiator);
        let (adding, swapping) = (initiators.next().unwrap(), initiators.next().unwrap());
        let mut found = 0;
        let swap = move || {
            let swap = WordAccess::CompareSwap { compare: found, swap: found + 1 };
            let before = std::mem::replace(&mut found, swapping.access_word(word, swap).unwrap());
            before == found
        };
        let by_table = || memory::change(word, Accessor { pd: PD, qp: 1 }, &|value| value + 1).is_ok();
        let others: [Box<dyn FnMut() -> bool + Send + '_>; 3] = [
            Box::new(move || adding.access_word(word, WordAccess::Add(1)).is_some()),
            Box::new(swap),
            Box::new(by_table),
        ];
        let others = others.map(|once| scope.spawn(|| until_over(once)));
        let (mut meetings, mut own, began) = (0, 0, Instant::now());
        let mut last = words.word(8).load(Ordering::Relaxed);
        while meetings < MEETINGS && began.elapsed() < MOST {
            let now = words.word(8).fetch_add(1, Ordering::Relaxed);
            meetings += u32::from(now != last);
            (own, last) = (own + 1, now + 1);
        }
        over.store(true, Ordering::Relaxed);
        own + others.map(|other| other.join().unwrap()).iter().sum::<u64>()
    });
    assert_eq!(words.word(8).load(Ordering::Relaxed), sum);
    deregister(words.stag);
    for (initiator, target) in ends {
        target.close();
        initiator.close();
    }
}

/// Whoever sees the word of an atomic write also sees the write before it.
#[test]
fn an_atomic_write_is_seen_after_the_write_before_it_and_as_a_whole() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 100_000 };
    let (mut initiator, mut target) = pair();
    let words = Words::new(0, 1024);
    let own = Memfd::new(crate::sys::page_size() as usize, SealFlags::SHRINK);
    grant(&mut target, words.access(REMOTE_WRITE, 0));
    let data = Access { len: 512, ..words.access(REMOTE_WRITE, 64) };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while seen < ROUNDS {
                let now = words.word(8).load(Ordering::Acquire);
                // Both halves are the number of the round.
                assert_eq!(now >> 32, now & 0xffff_ffff, "torn: {now:#x}");
                seen = now & 0xffff_ffff;
                let there = [64, 512].map(|at| words.word(at).load(Ordering::Relaxed));
                assert!(there.iter().all(|word| *word >= seen), "{there:?} at round {seen}");
            }
        });
        for round in 1..=ROUNDS {
            for at in (0..512).step_by(8) {
                // SAFETY: the bytes are in the memfd, which is mapped, and nothing refers to them.
                unsafe { ((own.addr() + at) as *mut u64).write_volatile(round) };
            }
            assert_eq!(copy_backed(&mut initiator, data, &own), 512);
            let word = WordAccess::Store(round << 32 | round);
            assert!(initiator.access_word(words.access(REMOTE_WRITE, 8), word).is_some());
        }
        reader.join().unwrap();
    });
    deregister(words.stag);
    target.close();
    initiator.close();
}

/// A deregistration waits for an access to a word as for a copy: when it has returned, none follows.
#[test]
fn no_word_is_accessed_after_a_deregistration() {
    const ROUNDS: usize = if cfg!(miri) { 2 } else { 200 };
    let (mut initiator, mut target) = pair();
    for _ in 0..ROUNDS {
        let words = Words::new(0, 64);
        let word = words.access(REMOTE_ATOMIC, 8);
        grant(&mut target, word);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let adder = scope.spawn(|| {
                let mut added = 0;
                while !over.load(Ordering::Acquire) {
                    added += u64::from(initiator.access_word(word, WordAccess::Add(1)).is_some());
                }
                added
            });
            while words.word(8).load(Ordering::Relaxed) < 10 {
                std::hint::spin_loop();
            }
            deregister(words.stag);
            let last = words.word(8).load(Ordering::Relaxed);
            std::thread::yield_now();
            over.store(true, Ordering::Release);
            assert_eq!(adder.join().unwrap(), last);
            assert_eq!(words.word(8).load(Ordering::Relaxed), last);
        });
    }
    target.close();
    initiator.close();
}

#[test]
fn a_peer_that_lies_about_its_file_gets_nothing_mapped() {
    let (mut initiator, target) = pair();
    let page = crate::sys::page_size();
    let own = Memfd::new(page as usize, SealFlags::SHRINK);
    let [sealed, unsealed] =
        [SealFlags::SHRINK, SealFlags::GROW].map(|seals| Memfd::new(page as usize, seals));
    let hole = memory_file(c"hole", libc::MFD_ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&hole, 1 << 46).unwrap();
    rustix::fs::fcntl_add_seals(&hole, SealFlags::SHRINK).unwrap();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let inodes = [sealed.inode(), rustix::fs::fstat(&hole).unwrap().st_ino];
    for (n, (descriptor, offset, len)) in [
        (own.descriptor(), 0, page),
        (sealed.descriptor(), 1, page),
        (sealed.descriptor(), u64::MAX, 2),
        (sealed.descriptor(), 0, u64::MAX),
        (sealed.descriptor(), page, 1),
        (unsealed.descriptor(), 0, page),
        (null.as_raw_fd() as u32, 0, page),
        (u32::MAX - 1, 0, page),
        (1 << 20, 0, page),
        (hole.as_raw_fd() as u32, 0, page),
        (hole.as_raw_fd() as u32, 0, 1 << 46),
    ]
    .into_iter()
    .enumerate()
    {
        let stag = 0x100 + n as u32;
        let inode = inodes[usize::from(descriptor == hole.as_raw_fd() as u32)];
        let file = Some(FileOffset { descriptor, inode, offset });
        // By the kernel, too, nothing is accessible there.
        target.owner.export(Exported { stag, rights: REMOTE_WRITE, start: 8, len, delta: 0, file });
        let (version, exported) = initiator.owner.rings.exported(stag).unwrap();
        assert_eq!(
            copy_backed(&mut initiator, Access { stag, addr: 8, len: 1, rights: REMOTE_WRITE }, &own),
            0
        );
        assert!(matches!(initiator.imports.find(version, &exported), Import::Unmappable), "case {n}");
    }
    target.close();
    initiator.close();
}

#[test]
fn a_deregistration_waits_for_the_copy_with_its_key_and_for_no_other() {
    let (mut initiator, mut target) = pair();
    let [one, third] = [Target::new(RIGHTS), Target::new(RIGHTS)];
    // A key with the same entry would take its place.
    let place = |region: &Target| Ledger::<EXPORTED_KEYS>::place(region.stag);
    let mut others = std::iter::repeat_with(|| Target::new(RIGHTS));
    let other = others.find(|other| place(other) != place(&one)).unwrap();
    let write = one.access(REMOTE_WRITE, 0, 100);
    for region in [&one, &other] {
        grant(&mut target, region.access(REMOTE_WRITE, 0, 100));
    }
    assert!(is_done_meanwhile(&initiator, one.stag, || deregister(third.stag)), "it was never exported");
    assert!(is_done_meanwhile(&initiator, one.stag, || deregister(other.stag)));
    assert!(is_open(&initiator, write));
    assert!(is_waited_for(&initiator, one.stag, || deregister(one.stag)));
    assert!(!is_open(&initiator, write) && !copy(&mut initiator, write, &mut [1; 100]));
    assert_eq!(one.byte(0), 0);
    target.close();
    initiator.close();
}

#[test]
fn a_key_is_revoked_even_if_another_has_its_entry() {
    let (mut initiator, mut target) = pair();
    let region = Target::new(RIGHTS);
    grant(&mut target, region.access(REMOTE_WRITE, 0, 100));
    // Another key with the same entry.
    let stag = region.stag.wrapping_add(EXPORTED_KEYS as u32);
    target.owner.export(Exported { stag, rights: REMOTE_WRITE, start: 0, len: 0, delta: 0, file: None });
    assert!(!copy(&mut initiator, region.access(REMOTE_WRITE, 0, 100), &mut [1; 100]));
    assert!(is_waited_for(&initiator, region.stag, || deregister(region.stag)));
    target.close();
    initiator.close();
}

/// As while its region is re-registered.
#[test]
fn a_key_has_no_rights_to_new_memory_that_were_exported_for_the_old() {
    let (initiator, target) = pair();
    let old = Exported { stag: 7, rights: REMOTE_WRITE, start: 0, len: 100, delta: 0x1000, file: None };
    let new = Exported { rights: REMOTE_READ, delta: 0x2000, ..old };
    let exported = || initiator.owner.rings.exported(7).unwrap().1;
    target.owner.export(old);
    target.owner.export(new);
    assert_eq!(exported(), new);
    target.owner.export(Exported { rights: REMOTE_WRITE, ..new });
    assert_eq!(exported(), Exported { rights: REMOTE_READ | REMOTE_WRITE, ..new });
    target.close();
    initiator.close();
}

/// A key of memory in a file, which no test copies with.
fn of_file(stag: u32) -> Exported {
    let file = Some(FileOffset { descriptor: 0, inode: 0, offset: 0 });
    Exported { stag, rights: REMOTE_WRITE, start: 0, len: 8, delta: 0, file }
}

#[test]
fn an_initiator_that_only_polled_during_many_revocations_is_woken_later() {
    let (initiator, target) = pair();
    let (reader, writer) = (initiator.owner.rings.clone(), target.owner.rings.clone());
    let set = crate::sys::Epoll::new().unwrap();
    set.add(reader.notify_socket().as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, 7).unwrap();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    for stag in 1..=1000 {
        target.owner.export(of_file(stag));
        assert!(target.owner.revoke(stag, Instant::now()));
    }
    if set.wait(&mut events, Some(Duration::ZERO)) == 1 {
        reader.silence();
    }
    reader.request_notify();
    assert!(writer.room(1, || false).unwrap() > 0);
    writer.put(1).unwrap();
    assert_eq!(set.wait(&mut events, Some(Duration::ZERO)), 1);
    target.close();
    initiator.close();
}

#[test]
fn memory_whose_entry_another_key_has_taken_is_unmapped_by_the_next_copy() {
    let (mut initiator, mut target) = pair();
    let page = crate::sys::page_size() as usize;
    let [memory, own] = [(); 2].map(|()| Memfd::new(page, SealFlags::SHRINK));
    let stag = memory.register(0, 100);
    let write = Access { stag, addr: memory.addr(), len: 8, rights: REMOTE_WRITE };
    grant(&mut target, write);
    assert_eq!(copy_backed(&mut initiator, write, &own), 8);
    let (version, exported) = initiator.owner.rings.exported(stag).unwrap();
    assert!(matches!(initiator.imports.find(version, &exported), Import::Mapped(_)));
    target.owner.export(of_file(stag.wrapping_add(EXPORTED_KEYS as u32)));
    deregister(stag);
    // With a key that has another entry, and is not exported.
    let other = Access { stag: stag.wrapping_add(1), ..write };
    assert_eq!(copy_backed(&mut initiator, other, &own), 0);
    assert!(matches!(initiator.imports.find(version, &exported), Import::Unknown), "unmapped");
    target.close();
    initiator.close();
}

#[test]
fn a_revocation_wakes_an_initiator_that_waits_and_is_news_to_one_that_polls() {
    let (mut initiator, target) = pair();
    let rings = initiator.owner.rings.clone();
    let notified = || crate::sys::recv(rings.notify_socket(), &mut [0; 8]).unwrap_or(0);
    for (stag, waits) in [(1, false), (2, true), (3, false)] {
        target.owner.export(of_file(stag));
        initiator.forget_revoked();
        assert!(!rings.has_news());
        if waits {
            rings.request_notify();
        }
        assert!(target.owner.revoke(stag, Instant::now()));
        assert_eq!(notified(), usize::from(waits));
        assert!(rings.has_news());
        initiator.forget_revoked();
        assert!(!rings.has_news());
    }
    target.owner.export(of_file(4));
    assert!(!rings.has_news(), "the entry was empty");
    target.owner.export(of_file(4 + EXPORTED_KEYS as u32));
    assert!(rings.has_news(), "it had another key");
    initiator.close();
    assert!(!rings.has_news(), "it has unmapped all");
    target.close();
}

#[test]
fn a_reregistered_region_is_exported_again() {
    let (mut initiator, mut target) = pair();
    let (mut region, elsewhere) = (Target::new(RIGHTS), vec![0u8; 4096].into_boxed_slice());
    let write = region.access(REMOTE_WRITE, 0, 100);
    grant(&mut target, write);
    let new = Region { addr: elsewhere.as_ptr() as u64, len: 4096, access: RIGHTS, pd: PD };
    let iova = write.addr;
    let change = || Change::begin(write.stag).unwrap().replace(new, iova, Changed::Memory(None)).unwrap();
    assert!(is_waited_for(&initiator, region.stag, change));
    assert!(!is_open(&initiator, write), "only the old region was exported");
    grant(&mut target, write);
    assert!(copy(&mut initiator, write, &mut [3; 100]));
    assert_eq!(region.byte(0), 0);
    region.memory = elsewhere;
    assert_eq!(region.byte(0), 3);
    let withdraw = || Change::begin(write.stag).unwrap().withdraw();
    assert!(is_done_meanwhile(&initiator, region.stag, withdraw), "the deregistration waits");
    assert!(!copy(&mut initiator, write, &mut [4; 100]));
    assert!(is_waited_for(&initiator, region.stag, || deregister(region.stag)));
    target.close();
    initiator.close();
}

#[test]
fn the_end_of_a_connection_does_not_wait_for_a_copy_but_a_later_deregistration_does() {
    let (mut initiator, mut target) = pair();
    let [region, idle] = [Target::new(RIGHTS), Target::new(RIGHTS)];
    let write = region.access(REMOTE_WRITE, 0, 100);
    for region in [&region, &idle] {
        grant(&mut target, region.access(REMOTE_WRITE, 0, 100));
    }
    assert!(is_done_meanwhile(&initiator, region.stag, || target.close()));
    assert!(!is_open(&initiator, write) && !copy(&mut initiator, write, &mut [1; 100]));
    assert!(is_done_meanwhile(&initiator, region.stag, || deregister(idle.stag)));
    assert!(is_waited_for(&initiator, region.stag, || deregister(region.stag)));
    initiator.close();
}

#[test]
fn a_connection_that_ended_while_its_peer_used_a_key_is_released_after_the_copy() {
    let (initiator, mut target) = pair();
    let region = Target::new(RIGHTS);
    grant(&mut target, region.access(REMOTE_WRITE, 0, 100));
    let hold = initiator.owner.rings.shared.export_page(initiator.owner.rings.ends().1).hold();
    hold.take(region.stag);
    let owner = Arc::downgrade(&target.owner);
    target.close();
    assert!(owner.strong_count() > 0, "a deregistration would not find the copy");
    hold.release();
    let began = Instant::now();
    while owner.strong_count() > 0 && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(owner.strong_count(), 0, "it is released without another connection");
    deregister(region.stag);
    initiator.close();
}

#[test]
fn a_peer_that_never_finishes_is_reported_and_the_region_stays_withdrawn() {
    let (initiator, mut target) = pair();
    let region = Target::new(RIGHTS);
    let write = region.access(REMOTE_WRITE, 0, 100);
    grant(&mut target, write);
    let hold = initiator.owner.rings.shared.export_page(initiator.owner.rings.ends().1).hold();
    hold.take(region.stag);
    assert_eq!(try_deregister(region.stag), Err(libc::EBUSY));
    assert!(memory::acquire(write, Accessor { pd: PD, qp: 1 }).is_err(), "no other queue pair may access it");
    assert!(!is_open(&initiator, write));
    assert_eq!(Change::begin(region.stag).map(drop), Err(libc::EINVAL));
    hold.release();
    assert_eq!(try_deregister(region.stag), Ok(()));
    target.close();
    initiator.close();
}

#[test]
fn a_region_is_not_reregistered_while_a_peer_uses_its_old_memory() {
    let (initiator, mut target) = pair();
    let (region, elsewhere) = (Target::new(RIGHTS), vec![0u8; 4096].into_boxed_slice());
    let write = region.access(REMOTE_WRITE, 0, 100);
    grant(&mut target, write);
    let hold = initiator.owner.rings.shared.export_page(initiator.owner.rings.ends().1).hold();
    hold.take(region.stag);
    let new = Region { addr: elsewhere.as_ptr() as u64, len: 4096, access: RIGHTS, pd: PD };
    let mut change = Change::begin(write.stag).unwrap();
    assert_eq!(change.replace(new, write.addr, Changed::Memory(None)), Err(libc::EBUSY));
    change.withdraw();
    assert!(memory::acquire(write, Accessor { pd: PD, qp: 1 }).is_err());
    hold.release();
    deregister(region.stag);
    target.close();
    initiator.close();
}

#[test]
fn a_peer_without_a_proof_uses_the_rings() {
    let shared = Shared::create().unwrap();
    let (a, _b) = UnixStream::pair().unwrap();
    shared.show(0, Proof::own().unwrap());
    let rings = Arc::new(Rings::new(shared, owned(a), true));
    assert!(DirectCopy::try_open(&rings).is_err());
    let Proof { addr, nonce: [a, b] } = Proof::own().unwrap();
    rings.shared.show(1, Proof { addr, nonce: [a ^ 1, b] });
    assert!(DirectCopy::try_open(&rings).is_err());
}
