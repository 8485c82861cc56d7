// SPDX-License-Identifier: BSD-3-Clause
//! Exchanges: their results, concurrency with each other and with atomic instructions, and memory that is
//! unmapped at any time.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::super::table::{Region, register};
use super::super::{AtEnd, deregister, region_of};
use super::*;
use transport::access::{Denied, LOCAL_WRITE, REMOTE_ATOMIC};

const RIGHTS: u32 = LOCAL_WRITE | REMOTE_ATOMIC;

fn access(stag: u32, addr: u64) -> Access {
    Access { stag, addr, len: 8, rights: REMOTE_ATOMIC }
}

#[test]
fn an_exchange_returns_the_previous_value_and_checks_first() {
    let mut memory = vec![7u64, 8, 9, 10];
    let addr = memory.as_mut_ptr() as u64;
    // SAFETY: these are the 24 bytes of `memory`, which nothing else uses while the slice lives.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), 24) };
    let stag = region_of(bytes, RIGHTS);
    let bare = region_of(bytes, LOCAL_WRITE);
    assert_eq!(change(access(stag, addr + 8), 1, &|old| old + 100), Ok(8));
    assert_eq!(change(access(stag, addr + 8), 1, &|old| old), Ok(108));
    for at in 1..8 {
        assert_eq!(change(access(stag, addr + at), 1, &|_| 0), Err(Unchanged::Misaligned));
    }
    let denied = |access: Access, pd: u32| change(access, pd, &|_| 0).unwrap_err();
    assert_eq!(denied(access(bare, addr), 1), Unchanged::Denied(Denied::Rights));
    assert_eq!(denied(access(stag, addr), 2), Unchanged::Denied(Denied::Pd));
    assert_eq!(denied(access(stag, addr + 24), 1), Unchanged::Denied(Denied::Bounds));
    assert_eq!(denied(access(stag ^ 1, addr), 1), Unchanged::Denied(Denied::Stag));
    deregister(stag);
    deregister(bare);
    assert_eq!(memory, [7, 108, 9, 10]);
}

/// If a child is possible, it does the exchange: otherwise the tests below would show nothing.
#[test]
fn the_child_does_the_exchange() {
    let mut word = 5u64;
    let addr = &raw mut word as u64;
    let task =
        Task { addr, change: &|old| old * 3, stage: AtomicU32::new(NOT_RUN), original: AtomicU64::new(0) };
    assert_eq!(run_in_child(&task), Some(0));
    assert_eq!(task.stage.load(Ordering::Relaxed), DONE);
    assert_eq!(task.original.load(Ordering::Relaxed), 5);
    // SAFETY: `word` is a live local variable; the read is volatile since the child has changed it.
    assert_eq!(unsafe { (&raw const word).read_volatile() }, 15);
    // This thread has no child left to wait for; other tests have children, too.
    let options = libc::__WCLONE | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: with a null pointer waitpid(3) stores no status.
    let left = unsafe { libc::waitpid(-1, null_mut(), options) };
    // 0 would be a child that has not ended yet.
    assert_eq!((left, sys::errno()), (-1, libc::ECHILD), "a child is left");
}

#[test]
fn exchanges_are_atomic_with_each_other_and_with_atomic_instructions() {
    for by_child in [true, false] {
        let word = AtomicU64::new(0);
        let addr = word.as_ptr() as u64;
        let rounds = if by_child { 500 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        // SAFETY: the word is aligned, lives, and is only used as an atomic.
                        unsafe { exchange(addr, &|old| old + 1, by_child) }.unwrap();
                    }
                });
            }
            for _ in 0..100_000 {
                word.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), 100_000 + 2 * rounds, "by a child: {by_child}");
    }
}

#[test]
fn unmapped_memory_is_an_error() {
    let page = sys::page_size() as usize;
    for way in sys::tests::Vanishing::ALL {
        for by_child in [true, false] {
            let map = sys::tests::Vanishing::new(page, way);
            map.vanish();
            // SAFETY: nothing else uses this mapping.
            let result = unsafe { exchange(map.addr(), &|old| old + 1, by_child) };
            assert_eq!(result, Err(Unchanged::Fault), "{way:?}, by a child: {by_child}");
            map.come_back();
            // SAFETY: nothing else uses this mapping, which is writable again.
            assert_eq!(unsafe { exchange(map.addr(), &|old| old + 1, by_child) }, Ok(0));
        }
    }
}

/// A child killed by a signal would dump core, and kernels before 5.17 then end all processes that share its
/// memory.
#[test]
fn a_child_that_faults_exits_without_a_signal() {
    for way in sys::tests::Vanishing::ALL {
        let map = sys::tests::Vanishing::new(sys::page_size() as usize, way);
        map.vanish();
        let (stage, original) = (AtomicU32::new(NOT_RUN), AtomicU64::new(0));
        let task = Task { addr: map.addr(), change: &|old| old + 1, stage, original };
        assert_eq!(run_in_child(&task), Some(0), "{way:?}");
        assert_eq!(task.stage.load(Ordering::Relaxed), BEGUN, "{way:?}");
    }
}

/// The memory is unmapped and mapped again while it is changed. An exchange fails or succeeds; the process
/// survives.
#[test]
fn memory_may_be_unmapped_during_an_exchange() {
    const EACH: Duration = Duration::from_millis(700);
    // On a busy machine it takes longer until both have been seen.
    const MOST: Duration = Duration::from_secs(30);
    let page = sys::page_size() as usize;
    for way in sys::tests::Vanishing::ALL {
        let map = sys::tests::Vanishing::new(page, way);
        let stag = register(Region { addr: map.addr(), len: page as u64, access: RIGHTS, pd: 1 }).unwrap();
        let over = AtomicBool::new(false);
        let (mut changed, mut failed) = (0u32, 0u32);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    map.vanish();
                    std::thread::sleep(Duration::from_micros(20));
                    map.come_back();
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            let _over = AtEnd(&over);
            let began = Instant::now();
            while began.elapsed() < EACH || (changed == 0 || failed == 0) && began.elapsed() < MOST {
                match change(access(stag, map.addr() + 8), 1, &|old| old + 1) {
                    Ok(_) => changed += 1,
                    Err(why) => {
                        assert_eq!(why, Unchanged::Fault);
                        failed += 1;
                    }
                }
            }
        });
        println!("{way:?}: {changed} times changed, {failed} failed");
        assert!(changed > 0 && failed > 0, "{way:?}: {changed} changed, {failed} failed: this shows nothing");
        deregister(stag);
    }
}
