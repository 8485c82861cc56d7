// SPDX-License-Identifier: BSD-3-Clause
//! Placing: order, failures, single stores, and memory that goes away at any moment.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use super::super::table::{Region, register};
use super::super::{deregister, region_of};
use super::*;
use crate::access::LOCAL_WRITE;

fn access(stag: u32, addr: u64, len: usize) -> Access {
    Access { stag, addr, len, rights: LOCAL_WRITE }
}

/// Carries a batch out with the words stored by the kernel, or by this process.
fn carry_out(batch: &mut Batch, input: &[u8], words_by_kernel: bool) -> Result<(), usize> {
    let result = place_all(&batch.placements, Process::own(), input, words_by_kernel);
    batch.placements.clear();
    result
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

/// Pieces of all lengths and distances in the input, so that sources are joined and not joined; more than one call takes.
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
    deregister(stag);
}

#[test]
fn the_placement_whose_memory_is_gone_is_named_and_none_behind_it_is_carried_out() {
    let page = sys::page_size() as usize;
    // All the same; a word among others; one among words.
    for lens in [[16; 4], [8; 4], [16, 16, 8, 16], [8, 8, 16, 8]] {
        // The source of each behind that of the one before, or apart from it.
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

/// A word of which each byte changes with the number, and both halves say which number it is.
fn word_of(number: u32) -> u64 {
    let half = number.wrapping_mul(0x9e37_79b1);
    u64::from(half) | u64::from(!half) << 32
}

/// The number of a word; `None` if it is not the word of any.
fn number_of(word: u64) -> Option<u32> {
    let half = word as u32;
    (word >> 32 == u64::from(!half)).then(|| half.wrapping_mul(0xe8b2f51))
}

/// Looks at memory like a program that spins on it.
fn look(memory: &AtomicU64) -> u64 {
    memory.load(Ordering::Acquire)
}

/// Another thread never sees a part of a word, nor a word before what was placed in front of it in the same batch.
#[test]
fn a_word_is_seen_as_a_whole_and_after_what_precedes_it() {
    const LOOKS: u64 = 100_000_000;
    const CHANGES: u64 = 100_000;
    const FRONT: usize = 40;
    for words_by_kernel in [true, false] {
        // The last word of a page, behind which nothing is mapped, and some bytes elsewhere.
        let page = sys::page_size() as usize;
        let map = sys::tests::Mapping::new(2 * page);
        map.unmap(page, page);
        let region = Region { addr: map.addr(), len: page as u64, access: LOCAL_WRITE, pd: 1 };
        let stag = register(region).unwrap();
        let (front, word) = (map.addr() + 512, map.addr() + page as u64 - 8);
        let over = AtomicBool::new(false);
        let (mut looks, mut changes, mut batches) = (0u64, 0u64, 0u32);
        std::thread::scope(|scope| {
            scope.spawn(|| {
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
            // SAFETY: both are aligned words of the mapping, which lives until the end; they are read only as atomics.
            let (front, word) =
                unsafe { (AtomicU64::from_ptr(front as *mut u64), AtomicU64::from_ptr(word as *mut u64)) };
            let mut last = 0;
            let mut wrong = None;
            while wrong.is_none() && (looks < LOOKS || changes < CHANGES) {
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
            over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None, "after {looks} looks, words by the kernel: {words_by_kernel}");
        });
        println!(
            "words by the kernel {words_by_kernel}: {batches} batches, {changes} changes seen in {looks} looks"
        );
        deregister(stag);
    }
}

/// The memory of words goes and comes back while they are placed. A placement fails or succeeds; the process lives.
#[test]
fn memory_may_go_away_at_the_moment_of_a_placement() {
    const EACH: Duration = Duration::from_millis(700);
    assert!(WordStore::new().is_some(), "a sandbox forbids what this is about");
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
            let until = Instant::now() + EACH;
            let mut batch = Batch::new().unwrap();
            while Instant::now() < until {
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
            over.store(true, Ordering::Relaxed);
        });
        println!("{way:?}: {placed} batches placed, {failed} failed");
        assert!(placed > 0 && failed > 0, "{way:?}: {placed} placed, {failed} failed: this shows nothing");
        deregister(stag);
    }
}

/// The thread's own list of robust mutexes is back after words were stored, and is left alone while there is a mutex in it.
#[test]
fn robust_mutexes_of_the_thread_are_left_alone() {
    let mut memory = [0u64; 2];
    let asked = || {
        let (mut list, mut len) = (0usize, 0usize);
        // SAFETY: the kernel stores an address and a length in the two variables.
        assert_eq!(unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len) }, 0);
        (list, len)
    };
    let before = asked();
    {
        let words = WordStore::new().unwrap();
        // SAFETY: these are eight bytes of `memory`.
        unsafe { words.store(memory.as_mut_ptr() as u64, 5).unwrap() };
        assert_eq!(asked().0, 5);
    }
    assert_eq!((asked(), memory[0]), (before, 5));
    // SAFETY: the attributes and the mutex are initialized before they are used, and live until the mutex is unlocked.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        let mut mutex: libc::pthread_mutex_t = std::mem::zeroed();
        assert_eq!(libc::pthread_mutexattr_init(&mut attributes), 0);
        assert_eq!(libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST), 0);
        assert_eq!(libc::pthread_mutex_init(&mut mutex, &attributes), 0);
        assert_eq!(libc::pthread_mutex_lock(&mut mutex), 0);
        assert!(WordStore::new().is_none());
        assert_eq!(libc::pthread_mutex_unlock(&mut mutex), 0);
        assert!(WordStore::new().is_some());
        libc::pthread_mutex_destroy(&mut mutex);
    }
}
