// SPDX-License-Identifier: BSD-3-Clause
//! The table: each check, STags, and threads that change it while others look.

use super::*;
use crate::access::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};

fn region() -> Region {
    Region { addr: 0x1000, len: 0x100, access: LOCAL_WRITE | REMOTE_WRITE, pd: 7 }
}

fn denied(stag: u32, pd: u32, addr: u64, len: usize, rights: u32) -> Option<Denied> {
    acquire(Access { stag, addr, len, rights }, pd).err()
}

#[test]
fn every_check_is_made() {
    let stag = register(region()).unwrap();
    assert_eq!(denied(stag, 7, 0x1000, 0x100, REMOTE_WRITE), None);
    assert_eq!(denied(stag ^ 1, 7, 0x1000, 1, 0), Some(Denied::Stag));
    assert_eq!(denied(0, 7, 0x1000, 1, 0), Some(Denied::Stag));
    assert_eq!(denied(stag ^ 1 << 31, 7, 0x1000, 1, 0), Some(Denied::Stag));
    assert_eq!(denied(stag, 8, 0x1000, 1, 0), Some(Denied::Pd));
    assert_eq!(denied(stag, 7, 0x1000, 1, REMOTE_READ), Some(Denied::Rights));
    assert_eq!(denied(stag, 7, 0x1000, 1, REMOTE_READ | REMOTE_WRITE), Some(Denied::Rights));
    assert_eq!(denied(stag, 7, 0xfff, 1, 0), Some(Denied::Bounds));
    assert_eq!(denied(stag, 7, 0x10ff, 2, 0), Some(Denied::Bounds));
    assert_eq!(denied(stag, 7, u64::MAX, 2, 0), Some(Denied::Wrap));
    deregister(stag);
    assert_eq!(denied(stag, 7, 0x1000, 1, 0), Some(Denied::Stag));
}

#[test]
fn lost_writes_are_those_of_every_region_with_the_memory_until_it_is_registered_anew() {
    let at =
        |addr, len| register(Region { addr, len, access: REMOTE_WRITE | FLUSH_PERSISTENT, pd: 7 }).unwrap();
    let lost = |stag, addr| {
        let access = Access { stag, addr, len: 1, rights: REMOTE_WRITE };
        acquire(access, 7).ok().unwrap().writes_lost()
    };
    // Addresses that no other test has registered.
    const BASE: u64 = 0x7000_0000;
    let (first, same, before, behind) =
        (at(BASE + 100, 100), at(BASE + 150, 100), at(BASE, 100), at(BASE + 200, 100));
    lose_writes(BASE + 100, BASE + 200);
    assert!(lost(first, BASE + 100) && lost(same, BASE + 150));
    assert!(!lost(before, BASE) && !lost(behind, BASE + 200));
    deregister(first);
    let anew = at(BASE + 100, 100);
    assert!(!lost(anew, BASE + 100));
    [anew, same, before, behind].into_iter().for_each(deregister);
}

#[test]
fn a_key_given_back_is_not_given_out_again_at_once() {
    let first = register(region()).unwrap();
    deregister(first);
    let second = register(region()).unwrap();
    assert_ne!(first, second);
    assert_eq!(denied(first, 7, 0x1000, 1, 0), Some(Denied::Stag));
    deregister(second);
}

#[test]
fn deregistration_waits_for_a_grant() {
    let stag = register(region()).unwrap();
    let grant = acquire(Access { stag, addr: 0x1000, len: 1, rights: 0 }, 7).ok().unwrap();
    let done = std::sync::Arc::new(AtomicU32::new(0));
    let seen = done.clone();
    let thread = std::thread::spawn(move || {
        deregister(stag);
        seen.store(1, Ordering::SeqCst);
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(done.load(Ordering::SeqCst), 0);
    drop(grant);
    thread.join().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

/// Each of the 32 bits is set in about half of the STags, and the distances between neighbours spread over the whole range.
#[test]
fn all_bits_of_an_stag_are_random() {
    const COUNT: usize = 4096;
    let mut stags: Vec<u32> = (0..COUNT).map(|_| register(region()).unwrap()).collect();
    for bit in 0..32 {
        let set = stags.iter().filter(|&stag| stag >> bit & 1 == 1).count();
        // 2048 expected, with a standard deviation of 32.
        assert!((1728..2368).contains(&set), "bit {bit} is set in {set} of {COUNT}");
    }
    let in_order = stags.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((1728..2368).contains(&in_order), "{in_order} STags are larger than the one before");
    for &stag in &stags {
        deregister(stag);
    }
    stags.sort_unstable();
    stags.dedup();
    assert_eq!(stags.len(), COUNT);
    let (low, high) = (stags[0], stags[COUNT - 1]);
    assert!(low < 1 << 25 && high > FIRST_SINK - (1 << 25), "the range is {low:#x} to {high:#x}");
    // Of 4096 that are drawn from all, 16 are.
    assert!(high < FIRST_SINK, "{high:#x} may be the sink of a read");
}

#[test]
fn a_hundred_thousand_regions_are_told_apart() {
    const COUNT: u64 = 100_000;
    let of = |i| Region { addr: 0x10_0000 * (i + 1), len: i + 1, ..region() };
    let stags: Vec<u32> = (0..COUNT).map(|i| register(of(i)).unwrap()).collect();
    let exact = |i: u64, stag, more: usize| {
        denied(stag, 7, of(i).addr, of(i).len as usize + more, LOCAL_WRITE | REMOTE_WRITE)
    };
    for (i, &stag) in (0..).zip(&stags) {
        assert_eq!(exact(i, stag, 0), None);
        assert_eq!(exact(i, stag, 1), Some(Denied::Bounds));
    }
    let (given_back, kept) = stags.split_at(stags.len() / 2);
    for &stag in given_back {
        deregister(stag);
    }
    for (i, &stag) in (0..).zip(&stags) {
        let expected = if i < given_back.len() as u64 { Some(Denied::Stag) } else { None };
        assert_eq!(exact(i, stag, 0), expected);
    }
    for &stag in kept {
        deregister(stag);
    }
    assert!(stags.iter().all(|&stag| TABLE.find(stag).is_none()), "all slots are free");
}

#[test]
fn threads_register_and_deregister_at_the_same_time() {
    let threads: Vec<_> = (0..4u32)
        .map(|pd| {
            std::thread::spawn(move || {
                for round in 0..2000u64 {
                    let own: Vec<_> = (0..4)
                        .map(|i| {
                            let addr = 0x1000 * (4 * round + i + 1);
                            (addr, register(Region { addr, pd, ..region() }).unwrap())
                        })
                        .collect();
                    for (addr, stag) in own {
                        assert_eq!(denied(stag, pd, addr, 0x100, LOCAL_WRITE), None);
                        deregister(stag);
                        assert_eq!(denied(stag, pd, addr, 0x100, LOCAL_WRITE), Some(Denied::Stag));
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
