// SPDX-License-Identifier: BSD-3-Clause
//! Changes of a region, and threads that use it at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::super::exporters::tests::Notes;
use super::super::super::{AtEnd, add_exporter, remove_exporter};
use super::super::{CLAIMED, FULL, acquire, deregister, lose_writes, register, register_at};
use super::*;
use transport::access::{FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};

const IOVA: u64 = 0x100;

fn region() -> Region {
    Region { addr: 0x1000, len: 0x100, access: LOCAL_WRITE | REMOTE_WRITE, pd: 7 }
}

fn at(stag: u32, addr: u64, rights: u32, pd: u32) -> Result<u64, Denied> {
    acquire(Access { stag, addr, len: 16, rights }, pd).map(|grant| grant.addr())
}

fn replace(stag: u32, region: Region, iova: u64) {
    Change::begin(stag).unwrap().replace(region, iova, Changed::Memory(None)).unwrap();
}

#[test]
fn a_region_is_what_it_was_replaced_with() {
    let stag = register(region()).unwrap();
    replace(stag, Region { addr: 0x9000, len: 0x20, access: REMOTE_READ, pd: 8 }, IOVA);
    let now = Change::begin(stag).unwrap().region();
    assert_eq!(now, (Region { addr: 0x9000, len: 0x20, access: REMOTE_READ, pd: 8 }, IOVA));
    assert_eq!(at(stag, IOVA + 0x10, REMOTE_READ, 8), Ok(0x9010));
    assert_eq!(at(stag, IOVA + 0x10, REMOTE_READ, 7), Err(Denied::Pd));
    assert_eq!(at(stag, IOVA + 0x10, REMOTE_WRITE, 8), Err(Denied::Rights));
    assert_eq!(at(stag, IOVA + 0x11, REMOTE_READ, 8), Err(Denied::Bounds));
    assert_eq!(at(stag, 0x1000, REMOTE_READ, 8), Err(Denied::Bounds));
    deregister(stag);
    assert_eq!(at(stag, IOVA, REMOTE_READ, 8), Err(Denied::Stag));
    assert!(TABLE.find(stag).is_none());
}

#[test]
fn only_one_change_at_a_time_and_none_without_a_free_slot() {
    let stag = register(region()).unwrap();
    let mut change = Change::begin(stag).unwrap();
    assert_eq!(Change::begin(stag).err(), Some(libc::EBUSY));
    assert_eq!(at(stag, 0x1000, REMOTE_WRITE, 7), Ok(0x1000), "nothing has changed yet");
    FULL.set(true);
    assert_eq!(
        change.replace(Region { pd: 8, ..region() }, 0x1000, Changed::Memory(None)),
        Err(libc::ENOMEM)
    );
    FULL.set(false);
    drop(change);
    assert_eq!(at(stag, 0x1000, REMOTE_WRITE, 7), Ok(0x1000), "the region is unchanged");
    replace(stag, Region { pd: 8, ..region() }, 0x1000);
    assert_eq!(at(stag, 0x1000, REMOTE_WRITE, 8), Ok(0x1000));
    deregister(stag);
    assert_eq!(Change::begin(stag).err(), Some(libc::EINVAL));
}

#[test]
fn a_withdrawn_region_denies_all_accesses_and_can_be_deregistered() {
    let stag = register(region()).unwrap();
    Change::begin(stag).unwrap().withdraw();
    assert_eq!(at(stag, 0x1000, REMOTE_WRITE, 7), Err(Denied::Stag));
    assert_eq!(Change::begin(stag).err(), Some(libc::EINVAL));
    let slot = TABLE.find(stag).expect("the slot is kept");
    deregister(stag);
    assert!(TABLE.find(stag).is_none());
    assert_eq!(slot.state.load(Ordering::Relaxed), 0, "it can be given out again");
}

#[test]
fn a_region_of_the_same_memory_keeps_the_mark_of_lost_writes() {
    // Addresses that no other test has registered.
    const BASE: u64 = 0x7800_0000;
    let of = |addr, pd| Region { addr, len: 100, access: REMOTE_WRITE | FLUSH_PERSISTENT, pd };
    let stag = register(of(BASE, 7)).unwrap();
    let lost = |addr, pd| {
        let access = Access { stag, addr, len: 1, rights: REMOTE_WRITE };
        acquire(access, pd).ok().unwrap().writes_lost()
    };
    lose_writes(BASE, BASE + 1);
    replace(stag, of(BASE, 8), BASE);
    assert!(lost(BASE, 8));
    assert_eq!(Change::begin(stag).unwrap().region(), (of(BASE, 8), BASE), "no access flag");
    replace(stag, of(BASE + 200, 8), BASE + 200);
    assert!(!lost(BASE + 200, 8));
    replace(stag, of(BASE, 8), BASE);
    assert!(!lost(BASE, 8), "this memory is registered anew");
    deregister(stag);
}

#[test]
fn a_change_waits_for_accesses_in_progress_and_permits_new_ones() {
    for withdrawn in [false, true] {
        let stag = register_at(region(), IOVA, None).unwrap();
        let access = Access { stag, addr: IOVA, len: 16, rights: 0 };
        let grant = acquire(access, 7).ok().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut change = Change::begin(stag).unwrap();
                match withdrawn {
                    true => change.withdraw(),
                    false => change
                        .replace(Region { addr: 0x9000, ..region() }, IOVA, Changed::Memory(None))
                        .unwrap(),
                }
                done.store(true, Ordering::SeqCst);
            });
            // New accesses are permitted by the new region, or denied: they do not wait.
            let expected = if withdrawn { Err(Denied::Stag) } else { Ok(0x9000) };
            while at(stag, IOVA, 0, 7) != expected {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(at(stag, IOVA, 0, 7), expected);
            assert!(!done.load(Ordering::SeqCst));
            drop(grant);
        });
        assert!(done.load(Ordering::SeqCst));
        deregister(stag);
    }
}

/// A change of a region to the same memory that is stopped at its last step: the description is in the
/// region's slot again, and a grant of the second slot still exists. `meanwhile` is called with that grant
/// when only the second slot is valid, `at_the_end` with the slot of the region. Returns the STag of the
/// region, which the caller must deregister.
fn a_change_in_two_steps(
    region: Region,
    before: impl Fn(),
    meanwhile: impl Fn(&Grant, Access),
    at_the_end: impl Fn(&Grant),
) -> u32 {
    let stag = register(region).unwrap();
    before();
    let slot = TABLE.find(stag).unwrap();
    let access = Access { stag, addr: region.addr, len: 16, rights: REMOTE_WRITE };
    let until = |is_first: bool| loop {
        let grant = acquire(access, region.pd).ok().unwrap();
        if std::ptr::eq(grant.slot, slot) == is_first {
            return grant;
        }
        drop(grant);
        std::thread::yield_now();
    };
    let old = until(true);
    std::thread::scope(|scope| {
        scope.spawn(|| replace(stag, region, region.addr));
        let second = until(false);
        meanwhile(&second, access);
        drop(old);
        at_the_end(&until(true));
        drop(second);
    });
    stag
}

#[test]
fn lost_writes_are_marked_at_each_step_of_a_change() {
    // Addresses that no other test has registered.
    const BASE: u64 = 0x7900_0000;
    for (at, lost_before) in [(BASE, true), (BASE + 0x1000, false)] {
        let region = Region { addr: at, len: 100, access: REMOTE_WRITE | FLUSH_PERSISTENT, pd: 7 };
        let lose = || lose_writes(at, at + 1);
        let stag = a_change_in_two_steps(
            region,
            || {
                if lost_before {
                    lose()
                }
            },
            |grant, _| {
                assert_eq!(grant.writes_lost(), lost_before);
                lose();
                assert!(grant.writes_lost());
            },
            |grant| assert!(grant.writes_lost()),
        );
        let access = Access { stag, addr: at, len: 1, rights: REMOTE_WRITE };
        assert!(acquire(access, 7).ok().unwrap().writes_lost());
        deregister(stag);
    }
}

/// Neither slot is valid when it is visited: that of the region before the change ends, the second one
/// afterwards, or the other way around.
#[test]
fn lost_writes_are_marked_if_a_change_is_between_the_visits_of_its_slots() {
    // Addresses that no other test has registered.
    const BASE: u64 = 0x7a00_0000;
    let region = Region { addr: BASE, len: 100, access: REMOTE_WRITE | FLUSH_PERSISTENT, pd: 7 };
    let lose = |slot: &'static Slot| slot.lose_writes(BASE, BASE + 1, LOST_MEANWHILE);
    let stag = a_change_in_two_steps(
        region,
        || (),
        |grant, access| {
            lose(TABLE.find(access.stag).unwrap());
            // The sweep has visited it before it had the region.
            grant.slot.access.fetch_and(!WRITES_LOST, Ordering::Relaxed);
        },
        |_| (),
    );
    let access = Access { stag, addr: BASE, len: 1, rights: REMOTE_WRITE };
    let is_marked = || acquire(access, 7).ok().unwrap().writes_lost();
    assert!(is_marked());
    replace(stag, region, BASE);
    assert!(is_marked(), "it is the same memory");
    replace(stag, Region { addr: BASE + 200, ..region }, BASE);
    replace(stag, region, BASE);
    assert!(!is_marked(), "this memory is registered anew");
    deregister(stag);
}

#[test]
fn a_key_exported_during_a_change_is_revoked_later() {
    let notes = Arc::new(Notes::default());
    add_exporter(&notes).unwrap();
    for is_exported in [true, false] {
        let meanwhile = |grant: &Grant, access| {
            if is_exported {
                grant.export(access).unwrap();
            }
        };
        let stag = a_change_in_two_steps(region(), || (), meanwhile, |_| ());
        assert!(!notes.has(stag));
        deregister(stag);
        assert_eq!(notes.has(stag), is_exported);
    }
    remove_exporter(&notes);
}

#[test]
fn a_change_revokes_an_exported_key() {
    let notes = Arc::new(Notes::default());
    add_exporter(&notes).unwrap();
    let export = |is_exported| {
        let stag = register(region()).unwrap();
        let access = Access { stag, addr: 0x1000, len: 16, rights: REMOTE_WRITE };
        if is_exported {
            acquire(access, 7).ok().unwrap().export(access).unwrap();
            assert_eq!(Change::begin(stag).unwrap().region().0, region(), "no access flag");
        }
        stag
    };
    for is_exported in [true, false] {
        let stag = export(is_exported);
        replace(stag, region(), 0x1000);
        assert_eq!(notes.take(stag), is_exported);
        deregister(stag);
        assert!(!notes.has(stag), "it is no longer exported");
        let stag = export(is_exported);
        Change::begin(stag).unwrap().withdraw();
        assert_eq!(notes.has(stag), is_exported);
        deregister(stag);
    }
    remove_exporter(&notes);
}

/// Another region may have reused the second slot.
#[test]
fn an_access_is_not_redirected_to_a_slot_reused_by_another_region() {
    let stag = register(region()).unwrap();
    let other = register(Region { addr: 0x9000, ..region() }).unwrap();
    let slot = TABLE.find(stag).unwrap();
    slot.other.store(other, Ordering::Relaxed);
    slot.state.fetch_add(1, Ordering::Acquire);
    let access = Access { stag, addr: 0x1000, len: 16, rights: 0 };
    let grant = acquire_moving(Grant { slot, addr: 0 }, MOVING, access, 7);
    assert_eq!(grant.map(|grant| grant.addr()), Ok(0x1000));
    deregister(stag);
    deregister(other);
}

/// The access reads the state of the region during the change, and the second slot after it.
#[test]
fn an_access_is_not_redirected_to_the_second_slot_after_the_change() {
    let stag = register(region()).unwrap();
    let slot = TABLE.find(stag).unwrap();
    let (level, second, second_stag) = TABLE.take().unwrap();
    second.describe(Region { addr: 0x9000, ..region() }, 0x1000, None);
    second.other.store(stag, Ordering::Relaxed);
    slot.other.store(second_stag, Ordering::Relaxed);
    let access = Access { stag, addr: 0x1000, len: 16, rights: 0 };
    for (state, expected) in [(CLAIMED, 0x1000), (CLAIMED | VALID, 0x9000)] {
        second.state.store(state, Ordering::Relaxed);
        slot.state.fetch_add(1, Ordering::Acquire);
        let grant = acquire_moving(Grant { slot, addr: 0 }, MOVING, access, 7);
        assert_eq!(grant.map(|grant| grant.addr()), Ok(expected));
    }
    second.invalidate();
    TABLE.give_back(level, second);
    deregister(stag);
}

/// A region alternates between two buffers, protection domains and rights while threads access it, two
/// accesses at a time: none is denied that both permit, each reaches one of the buffers, and none the old one
/// after the change.
#[test]
fn threads_access_a_region_while_it_is_replaced() {
    const LONG: Duration = Duration::from_millis(1500);
    const MEMORY: [u64; 2] = [0x1_0000, 0x2_0000];
    let stag = register_at(Region { addr: MEMORY[0], ..region() }, IOVA, None).unwrap();
    let held: [AtomicU32; 2] = Default::default();
    let accesses: [AtomicU64; 2] = Default::default();
    let denied = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (held, accesses, denied, over) = (&held, &accesses, &denied, &over);
            scope.spawn(move || {
                let _over = AtEnd(over);
                let which = |grant: &Grant| match grant.addr() {
                    addr if addr == MEMORY[0] + thread => 0,
                    addr if addr == MEMORY[1] + thread => 1,
                    addr => panic!("an access reaches {addr:#x}"),
                };
                while !over.load(Ordering::Relaxed) {
                    let access = |rights| Access { stag, addr: IOVA + thread, len: 16, rights };
                    let first = acquire(access(REMOTE_WRITE), 7).expect("both permit it");
                    held[which(&first)].fetch_add(1, Ordering::SeqCst);
                    let second = acquire(access(LOCAL_WRITE), 7).expect("both permit it");
                    held[which(&second)].fetch_add(1, Ordering::SeqCst);
                    // Only the second region may be read by a peer.
                    match acquire(access(REMOTE_READ), 7) {
                        Ok(grant) => assert_eq!(which(&grant), 1),
                        Err(why) => {
                            assert_eq!(why, Denied::Rights);
                            denied.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    for grant in [second, first] {
                        accesses[which(&grant)].fetch_add(1, Ordering::Relaxed);
                        held[which(&grant)].fetch_sub(1, Ordering::SeqCst);
                        drop(grant);
                    }
                    // Yield without a grant, so that the change seldom waits for a preempted thread.
                    std::thread::yield_now();
                }
            });
        }
        let _over = AtEnd(&over);
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            rounds += 1;
            let new = rounds % 2;
            let access = region().access | if new == 1 { REMOTE_READ } else { 0 };
            replace(stag, Region { addr: MEMORY[new], access, ..region() }, IOVA);
            for _ in 0..10 {
                assert_eq!(
                    held[1 - new].load(Ordering::SeqCst),
                    0,
                    "an access to the old memory is still in progress"
                );
            }
        }
        // Both must have been seen, however few processors there are.
        let began = accesses.each_ref().map(|count| count.load(Ordering::Relaxed));
        for memory in [1, 0] {
            let access = region().access | if memory == 1 { REMOTE_READ } else { 0 };
            replace(stag, Region { addr: MEMORY[memory], access, ..region() }, IOVA);
            while accesses[memory].load(Ordering::Relaxed) == began[memory] {
                assert!(!over.load(Ordering::Relaxed), "a thread has failed");
                std::thread::yield_now();
            }
        }
    });
    println!("{rounds} changes, {accesses:?} accesses, {denied:?} denied");
    deregister(stag);
    assert!(TABLE.find(stag).is_none());
}
