// SPDX-License-Identifier: BSD-3-Clause
//! Placements: order, failures, single stores, and memory that is unmapped at any time.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use super::super::table::{Region, register, register_at};
use super::super::{AtEnd, deregister, region_of};
use super::*;
use crate::sys::FETCH_BATCH;
use transport::access::LOCAL_WRITE;

fn access(stag: u32, addr: u64, len: usize) -> Access {
    Access { stag, addr, len, rights: LOCAL_WRITE }
}

/// Executes a batch; the kernel or this process stores the words.
fn carry_out(batch: &mut Batch, input: &[u8], words_by_kernel: bool) -> Result<(), usize> {
    let result = place_all(&batch.placements, Process::own(), input, words_by_kernel);
    batch.placements.clear();
    result
}

#[test]
fn eight_aligned_bytes_are_a_word() {
    let mut memory = [0u64; 8];
    let addr = memory.as_mut_ptr() as u64;
    let region = Region { addr, len: 64, access: LOCAL_WRITE, pd: 1 };
    // The alignment of the memory counts, not that of the iova.
    let (by_address, from_1) = (register(region).unwrap(), register_at(region, 1, None).unwrap());
    let mut batch = Batch::new().unwrap();
    let mut is_word = |access| {
        batch.add(access, 1, 0).unwrap();
        batch.placements.pop().unwrap().is_word()
    };
    for (at, len, expected) in [
        (0, 8, true),
        (8, 8, true),
        (4, 8, false),
        (7, 8, false),
        (0, 7, false),
        (0, 16, false),
        (4, 4, false),
    ] {
        assert_eq!(is_word(access(by_address, addr + at, len)), expected, "{len} bytes from byte {at} on");
        assert_eq!(is_word(access(from_1, 1 + at, len)), expected, "{len} bytes from byte {at} on");
    }
    deregister(by_address);
    deregister(from_1);
}

#[test]
fn a_batch_is_carried_out_once_and_then_empty() {
    let mut memory = vec![0u8; 24];
    let addr = memory.as_mut_ptr() as u64;
    let stag = region_of(&mut memory, LOCAL_WRITE);
    let mut batch = Batch::new().unwrap();
    let fetched = |at| {
        let mut got = [0; 3];
        fetch(Process::own(), access(stag, addr + at, 3), 1, &mut got).unwrap();
        got
    };
    batch.add(access(stag, addr + 1, 3), 1, 2).unwrap();
    assert_eq!((batch.carry_out(Process::own(), b"0123456"), fetched(1)), (Ok(()), *b"234"));
    assert_eq!((batch.carry_out(Process::own(), b"abcdefg"), fetched(1)), (Ok(()), *b"234"));
    deregister(stag);
}

#[test]
fn a_forbidden_call_is_distinguished_from_unmapped_memory() {
    assert!([libc::ENOSYS, libc::EPERM].into_iter().all(is_forbidden));
    assert!(![libc::EFAULT, libc::ENOMEM, libc::EINVAL, libc::ESRCH].into_iter().any(is_forbidden));
}

/// Makes a system call of this thread fail with EPERM.
fn forbid(number: libc::c_long) {
    let (load, is, ret) =
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let line = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        line(load, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
        line(is, 1, number as u32),
        line(ret, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        line(ret, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter program, whose length `program` contains.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn forbidden_system_calls_are_replaced_by_plain_copies() {
    use libc::{SYS_get_robust_list, SYS_process_vm_readv, SYS_process_vm_writev, SYS_set_robust_list};
    for call in [SYS_process_vm_readv, SYS_process_vm_writev, SYS_set_robust_list, SYS_get_robust_list] {
        let in_a_sandbox = move || {
            forbid(call);
            let page = sys::page_size() as usize;
            let map = sys::tests::Mapping::new(2 * page);
            map.unmap(page, page);
            let region = Region { addr: map.addr(), len: 2 * page as u64, access: LOCAL_WRITE, pd: 1 };
            let stag = register(region).unwrap();
            let at = |offset: usize, len| access(stag, map.addr() + offset as u64, len);
            let fetched = |offset| {
                let mut got = [0; 8];
                fetch(Process::own(), at(offset, 8), 1, &mut got).map(|()| got)
            };
            let mut batch = Batch::new().unwrap();
            let input: Vec<u8> = (0..100).collect();
            // A word, other lengths, and then unmapped memory.
            for (offset, len, from) in [(8, 8, 10), (16, 3, 20), (19, 5, 30)] {
                batch.add(at(offset, len), 1, from).unwrap();
            }
            assert_eq!(batch.carry_out(Process::own(), &input), Ok(()));
            assert_eq!(fetched(8), Ok([10, 11, 12, 13, 14, 15, 16, 17]));
            assert_eq!(fetched(16), Ok([20, 21, 22, 30, 31, 32, 33, 34]));
            for len in [8, 7] {
                for offset in [24, 32, page, 40] {
                    batch.add(at(offset, len), 1, 40).unwrap();
                }
                assert_eq!(batch.carry_out(Process::own(), &input), Err(2));
                assert_eq!(fetched(32).map(|got| got[0]), Ok(40));
                assert_eq!(fetched(40), Ok([0; 8]));
            }
            assert_eq!(fetched(page), Err(Unreachable::Fault));
            deregister(stag);
        };
        std::thread::spawn(in_a_sandbox).join().unwrap();
    }
}

#[test]
fn a_batch_is_placed_in_order() {
    for words_by_kernel in [true, false] {
        let mut memory = vec![0u8; 10_000];
        let addr = memory.as_mut_ptr() as u64;
        let stag = region_of(&mut memory, LOCAL_WRITE);
        let input: Vec<u8> = (0..9_001u32).map(|i| (i % 251) as u8).collect();
        let word = (addr + 15) & !7;
        let mut batch = Batch::new().unwrap();
        batch.add(access(stag, addr + 3, 9_000), 1, 0).unwrap();
        batch.add(access(stag, word, 8), 1, 17).unwrap();
        batch.add(access(stag, word + 8, 8), 1, 100).unwrap();
        batch.add(access(stag, word + 1, 2), 1, 200).unwrap();
        batch.add(access(stag, word + 3, 2), 1, 300).unwrap();
        carry_out(&mut batch, &input, words_by_kernel).unwrap();
        let mut got = vec![0u8; 9_000];
        fetch(Process::own(), access(stag, addr + 3, 9_000), 1, &mut got).unwrap();
        let mut expected = input[..9_000].to_vec();
        let at = (word - addr - 3) as usize;
        expected[at..at + 8].copy_from_slice(&input[17..25]);
        expected[at + 8..at + 16].copy_from_slice(&input[100..108]);
        expected[at + 1..at + 3].copy_from_slice(&input[200..202]);
        expected[at + 3..at + 5].copy_from_slice(&input[300..302]);
        assert_eq!(got, expected);
        deregister(stag);
    }
}

/// Pieces of all lengths and distances in the input, so that sources are joined and not joined; more than fit
/// into one call.
#[test]
fn every_piece_gets_its_own_bytes() {
    let mut memory = vec![0u8; 200_000];
    let addr = (memory.as_mut_ptr() as u64 + 7) & !7;
    let stag = region_of(&mut memory, LOCAL_WRITE);
    let input: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let mut batch = Batch::new().unwrap();
    let (mut from, mut to) = (0, 0);
    let mut expected = vec![0u8; 190_000];
    for i in 0..5 * PLACE_BATCH {
        let len = [8, 8, 1, 40, 8, 0, 700, 8, 16][i % 9];
        from += [0, 20, 64, 65, 28, 3][i % 6];
        to = if len == 8 { (to + 7) & !7 } else { to + i % 3 };
        batch.add(access(stag, addr + to as u64, len), 1, from).unwrap();
        expected[to..to + len].copy_from_slice(&input[from..from + len]);
        from += len;
        to += len;
    }
    carry_out(&mut batch, &input, true).unwrap();
    let mut got = vec![0u8; expected.len()];
    fetch(Process::own(), access(stag, addr, got.len()), 1, &mut got).unwrap();
    assert!(got == expected);
    // More pieces than one system call takes.
    let pieces: Vec<_> = (0..=FETCH_BATCH).map(|n| access(stag, addr + n as u64 * 2, 1)).collect();
    assert_eq!(fetch_pieces(Process::own(), &pieces[1..], 1, &mut got, 1), Ok(()));
    assert_eq!(fetch_pieces(Process::own(), &pieces, 1, &mut got, 1), Err(Unreachable::Fault));
    deregister(stag);
}

#[test]
fn the_first_failed_placement_is_returned_and_no_later_one_is_executed() {
    let page = sys::page_size() as usize;
    // All alike; a word among other lengths; another length among words.
    for lens in [[16; 4], [8; 4], [16, 16, 8, 16], [8, 8, 16, 8]] {
        // Each source adjoins the one before, or is apart from it.
        for (words_by_kernel, step) in [(true, 16), (true, 30), (true, 200), (false, 30)] {
            let map = sys::tests::Mapping::new(3 * page);
            let region = Region { addr: map.addr(), len: 3 * page as u64, access: LOCAL_WRITE, pd: 1 };
            let stag = register(region).unwrap();
            let mut batch = Batch::new().unwrap();
            for (i, at) in [0, page, 2 * page, 64].into_iter().enumerate() {
                batch.add(access(stag, map.addr() + at as u64, lens[i]), 1, i * step).unwrap();
            }
            map.unmap(2 * page, page);
            assert_eq!(carry_out(&mut batch, &[7; 700], words_by_kernel), Err(2), "{lens:?} {step}");
            let mut got = [0; 8];
            fetch(Process::own(), access(stag, map.addr() + page as u64, 8), 1, &mut got).unwrap();
            assert_eq!(got, [7; 8]);
            fetch(Process::own(), access(stag, map.addr() + 64, 8), 1, &mut got).unwrap();
            assert_eq!(got, [0; 8]);
            let gone = access(stag, map.addr() + 2 * page as u64, 8);
            assert_eq!(fetch(Process::own(), gone, 1, &mut got), Err(Unreachable::Fault));
            deregister(stag);
        }
    }
}

#[test]
fn a_failed_placement_of_a_later_call_is_returned_too() {
    let page = sys::page_size() as usize;
    let map = sys::tests::Mapping::new(2 * page);
    map.unmap(page, page);
    let region = Region { addr: map.addr(), len: 2 * page as u64, access: LOCAL_WRITE, pd: 1 };
    let stag = register(region).unwrap();
    for gone in [0, PLACE_BATCH - 1, PLACE_BATCH, 2 * PLACE_BATCH + 3] {
        let mut batch = Batch::new().unwrap();
        for i in 0..3 * PLACE_BATCH {
            let at = if i == gone { page } else { 8 * i };
            batch.add(access(stag, map.addr() + at as u64, 5), 1, 0).unwrap();
        }
        assert_eq!(carry_out(&mut batch, b"12345", true), Err(gone));
    }
    deregister(stag);
}

/// A word of which each byte changes with the number, and both halves contain the number.
fn word_of(number: u32) -> u64 {
    let half = number.wrapping_mul(0x9e37_79b1);
    u64::from(half) | u64::from(!half) << 32
}

/// The number of a word; `None` if the word is torn.
fn number_of(word: u64) -> Option<u32> {
    let half = word as u32;
    (word >> 32 == u64::from(!half)).then(|| half.wrapping_mul(0xe8b2f51))
}

/// Loads a word like a program that spins on it.
fn look(memory: &AtomicU64) -> u64 {
    memory.load(Ordering::Acquire)
}

/// Another thread never sees a part of a word, nor a word before earlier placements of the same batch.
#[test]
fn a_word_is_seen_as_a_whole_and_after_what_precedes_it() {
    const LOOKS: u64 = 100_000_000;
    const CHANGES: u64 = 100_000;
    // On one processor, a thread sees one change in each time slice.
    const MOST: Duration = Duration::from_secs(30);
    const FRONT: usize = 40;
    for words_by_kernel in [true, false] {
        // The last word of a page before an unmapped one, and some bytes elsewhere.
        let page = sys::page_size() as usize;
        let map = sys::tests::Mapping::new(2 * page);
        map.unmap(page, page);
        let region = Region { addr: map.addr(), len: page as u64, access: LOCAL_WRITE, pd: 1 };
        let stag = register(region).unwrap();
        let (front, word) = (map.addr() + 512, map.addr() + page as u64 - 8);
        let over = AtomicBool::new(false);
        let (mut looks, mut changes, mut batches) = (0u64, 0u64, 0u32);
        std::thread::scope(|scope| {
            let _over = AtEnd(&over);
            scope.spawn(|| {
                let _over = AtEnd(&over);
                let mut batch = Batch::new().unwrap();
                while !over.load(Ordering::Relaxed) {
                    batches = batches.wrapping_add(1);
                    let mut input = [0; 60];
                    input[1..9].copy_from_slice(&u64::from(batches).to_ne_bytes());
                    input[51..59].copy_from_slice(&word_of(batches).to_ne_bytes());
                    batch.add(access(stag, front, FRONT), 1, 1).unwrap();
                    batch.add(access(stag, word, 8), 1, 51).unwrap();
                    carry_out(&mut batch, &input, words_by_kernel).unwrap();
                }
            });
            // SAFETY: both are aligned words of the mapping, which outlives the threads; they are read only
            // as atomics.
            let (front, word) =
                unsafe { (AtomicU64::from_ptr(front as *mut u64), AtomicU64::from_ptr(word as *mut u64)) };
            let mut last = 0;
            let mut wrong = None;
            let began = Instant::now();
            let is_enough = |looks: u64, changes: u64| {
                looks >= LOOKS && changes >= CHANGES || looks % 4096 == 0 && began.elapsed() > MOST
            };
            while wrong.is_none() && !over.load(Ordering::Relaxed) && !is_enough(looks, changes) {
                let seen = look(word);
                looks += 1;
                if seen != last {
                    let in_front = look(front);
                    wrong = match number_of(seen) {
                        None => Some(format!("{seen:#x} is torn")),
                        Some(number) if in_front < u64::from(number) => {
                            Some(format!("word {number} is there and {in_front} in front of it"))
                        }
                        Some(_) => None,
                    };
                    changes += 1;
                    last = seen;
                }
            }
            assert_eq!(wrong, None, "after {looks} looks, words by the kernel: {words_by_kernel}");
            assert!(changes > 100, "{changes} changes in {looks} looks");
        });
        println!(
            "words by the kernel {words_by_kernel}: {batches} batches, {changes} changes seen in {looks} looks"
        );
        deregister(stag);
    }
}

/// The memory of words is unmapped and mapped again while they are placed. A placement fails or succeeds; the
/// process survives.
#[test]
fn memory_may_be_unmapped_during_a_placement() {
    const EACH: Duration = Duration::from_millis(700);
    // On a busy machine it takes longer until both have been seen.
    const MOST: Duration = Duration::from_secs(30);
    assert!(can_store(), "a sandbox forbids the calls under test");
    let page = sys::page_size() as usize;
    for way in sys::tests::Vanishing::ALL {
        let map = sys::tests::Vanishing::new(4 * page, way);
        let region = Region { addr: map.addr(), len: 4 * page as u64, access: LOCAL_WRITE, pd: 1 };
        let stag = register(region).unwrap();
        let over = AtomicBool::new(false);
        let (mut placed, mut failed) = (0u32, 0u32);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    map.vanish();
                    std::thread::sleep(Duration::from_micros(20));
                    map.come_back();
                    std::thread::yield_now();
                }
            });
            let _over = AtEnd(&over);
            let began = Instant::now();
            let mut batch = Batch::new().unwrap();
            while began.elapsed() < EACH || (placed == 0 || failed == 0) && began.elapsed() < MOST {
                for i in 0..16 {
                    batch
                        .add(access(stag, map.addr() + i * 1024 % (4 * page as u64), 8), 1, 8 * i as usize)
                        .unwrap();
                }
                match batch.carry_out(Process::own(), &[7; 128]) {
                    Ok(()) => placed += 1,
                    Err(_) => failed += 1,
                }
            }
        });
        println!("{way:?}: {placed} batches placed, {failed} failed");
        assert!(placed > 0 && failed > 0, "{way:?}: {placed} placed, {failed} failed: this shows nothing");
        deregister(stag);
    }
}

/// Whether the kernel stores a word.
fn can_store() -> bool {
    let mut memory = 0u64;
    let addr = &raw mut memory as u64;
    // SAFETY: the eight bytes are those of `memory`, which is used by nothing else meanwhile.
    WordStore::new().is_some_and(|words| unsafe { words.store(addr, 7) }.is_ok())
}

#[test]
fn words_of_every_kind_are_stored() {
    let mut memory = [0u64; 1];
    let addr = memory.as_mut_ptr() as u64;
    let stag = register(Region { addr, len: 8, access: LOCAL_WRITE, pd: 1 }).unwrap();
    let high = [1 << 47, u64::MAX >> 1, 1 << 63, 0xffff_8000_0000_0000, u64::MAX - 4095];
    for word in [0, 1, 1 << 46, (1 << 47) - 1].into_iter().chain(high) {
        let words = WordStore::new().unwrap();
        // SAFETY: the eight bytes are those of `memory`, which is used by nothing else meanwhile.
        unsafe { words.store(addr, word).unwrap() };
        assert_eq!(std::mem::replace(&mut memory[0], 9), word, "{word:#x}");
        // SAFETY: no memory is mapped at that address, so none can be overwritten.
        assert_eq!(unsafe { words.store(sys::page_size(), word) }, Err(libc::EFAULT));
    }
    // Linux takes these pointers for errors.
    for word in [u64::MAX, u64::MAX - 1, u64::MAX - 4094] {
        // SAFETY: as above.
        assert_eq!(unsafe { WordStore::new().unwrap().store(addr, word) }, Err(libc::EPERM));
        store(access(stag, addr, 8), 1, word.to_ne_bytes()).unwrap();
        assert_eq!(std::mem::replace(&mut memory[0], 9), word, "{word:#x}");
    }
    deregister(stag);
}

/// The thread's list of robust mutexes is restored after words were stored, and is not replaced while it has
/// a mutex.
#[test]
fn robust_mutexes_of_the_thread_are_kept() {
    let mut memory = [0u64; 2];
    let counted = || {
        let (mut list, mut len) = (0usize, 0usize);
        // SAFETY: the kernel stores an address and a length in the two variables.
        assert_eq!(unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len) }, 0);
        (list, len)
    };
    let before = counted();
    {
        let words = WordStore::new().unwrap();
        // SAFETY: the eight bytes are those of `memory`, which is used by nothing else meanwhile.
        unsafe { words.store(memory.as_mut_ptr() as u64, 5).unwrap() };
        assert_eq!(counted().0, 5);
    }
    assert_eq!((counted(), memory[0]), (before, 5));
    // SAFETY: the attributes and the mutex are initialized before they are used, and live until the mutex is
    // unlocked.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        let mut mutex: libc::pthread_mutex_t = std::mem::zeroed();
        assert_eq!(libc::pthread_mutexattr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST), 0);
        assert_eq!(libc::pthread_mutex_init(&mut mutex, &attributes), 0);
        assert_eq!(libc::pthread_mutex_lock(&mut mutex), 0);
        assert!(!can_store());
        assert_eq!(libc::pthread_mutex_unlock(&mut mutex), 0);
        assert!(can_store());
        libc::pthread_mutex_destroy(&mut mutex);
    }
}
