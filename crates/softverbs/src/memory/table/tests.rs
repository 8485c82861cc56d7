// SPDX-License-Identifier: BSD-3-Clause
//! The table: each check, STags, and threads that change it while others read.

use std::sync::Arc;

use super::super::exporters::tests::Notes;
use super::super::{add_exporter, remove_exporter};
use super::*;
use transport::access::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};

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
fn lost_writes_mark_every_region_with_the_memory_until_it_is_registered_anew() {
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
fn a_slot_without_a_region_is_not_marked_for_lost_writes() {
    static SLOT: Slot = Slot::new();
    SLOT.describe(region(), 0x1000, None);
    for (state, lost) in [(CLAIMED, 0), (CLAIMED | MOVING, 0), (CLAIMED | VALID, WRITES_LOST)] {
        SLOT.state.store(state, Ordering::Relaxed);
        // As for a window.
        SLOT.lose_writes(0x10ff, 0x1100, 0);
        assert_eq!((SLOT.lost(), SLOT.state.load(Ordering::Relaxed)), (lost, state));
    }
}

#[test]
fn a_region_is_flushed_if_it_was_registered_for_it() {
    for (flag, expected) in [(FLUSH_PERSISTENT, Some((0x1000, 0x100))), (0, None)] {
        let stag = register_at(Region { access: LOCAL_WRITE | flag, ..region() }, 0x50, None).unwrap();
        let access = Access { stag, addr: 0x60, len: 1, rights: 0 };
        let grant = acquire(access, 7).ok().unwrap();
        assert_eq!(grant.persistent(access), expected);
        drop(grant);
        deregister(stag);
    }
}

#[test]
fn a_slot_reused_by_another_region_is_not_accessed() {
    let [stag, other] = [(); 2].map(|()| register(region()).unwrap());
    let slot = TABLE.find(other).unwrap();
    let of = |stag| acquire_in(slot, Access { stag, addr: 0x1000, len: 1, rights: 0 }, 7).err();
    assert_eq!((of(other), of(stag)), (None, Some(Denied::Stag)));
    deregister(stag);
    deregister(other);
}

/// Half of the slots of each level are used, and none of a level with more slots than STags.
fn levels_fill<const SHIFT: u32>(levels: usize) {
    let table = Box::new(Table::<SHIFT>::new());
    for (level, bits) in LEVELS.iter().enumerate().take(levels) {
        table.used[level].store((1 << (bits - 1)) - 2, Ordering::Relaxed);
        for _ in 0..2 {
            assert_eq!(table.reserve(), Ok(level));
        }
    }
    for _ in 0..2 {
        assert_eq!(table.reserve(), Err(libc::ENOMEM));
    }
    let used = table.used.each_ref().map(|used| used.load(Ordering::Relaxed));
    assert_eq!(used[..levels], [1 << 11, 1 << 14, 1 << 17, 1 << 20, 1 << 24][..levels]);
    assert!(used[levels..].iter().all(|&used| used == 0));
}

#[test]
fn each_level_is_filled_to_one_half_before_the_next_one() {
    levels_fill::<0>(5);
    // The 8 bits of the key and the 25 bits of the last level exceed an STag.
    levels_fill::<8>(4);
}

#[test]
fn a_slot_that_another_thread_has_just_claimed_is_not_found_as_a_region() {
    static TABLE: Table<0> = Table::new();
    let table = &TABLE;
    let stag = 0x1234_5678;
    let [claimed, slot] = [0, 1].map(|level| table.slot(level, stag).unwrap());
    for slot in [claimed, slot] {
        slot.stag.store(stag, Ordering::Relaxed);
        slot.state.store(CLAIMED, Ordering::Relaxed);
    }
    assert!(table.region(stag).is_none());
    for state in [VALID, MOVING, WITHDRAWN | MOVING, WITHDRAWN] {
        slot.state.store(CLAIMED | state, Ordering::Relaxed);
        let (level, found) = table.region(stag).unwrap();
        assert!(level == 1 && std::ptr::eq(found, slot));
    }
}

#[test]
fn reserved_stags_are_not_given_out() {
    assert!([0, 1, FIRST_SINK, u32::MAX].iter().all(|&stag| !Table::<0>::may_give_out(stag)));
    assert!([2, FIRST_SINK - 1].iter().all(|&stag| Table::<0>::may_give_out(stag)));
    // With any key.
    assert!([0, 0x1ff, FIRST_SINK, u32::MAX].iter().all(|&stag| !Table::<8>::may_give_out(stag)));
    assert!([0x200, FIRST_SINK - 1].iter().all(|&stag| Table::<8>::may_give_out(stag)));
}

#[test]
fn regions_and_windows_never_share_an_stag() {
    let region = register(region()).unwrap();
    let window = alloc_window(7, false).unwrap();
    for key in [0, 1, 0x80, 0xff] {
        assert!(Table::<8>::is_elsewhere(region & !0xff | key));
        assert!(Table::<0>::is_elsewhere(window & !0xff | key));
    }
    free_window(window);
    deregister(region);
}

#[test]
fn both_stags_that_are_drawn_are_random() {
    let drawn: Vec<[u32; 2]> = (0..64).map(|_| random().unwrap()).collect();
    for which in 0..2 {
        let (all, any) =
            drawn.iter().fold((u32::MAX, 0), |(all, any), both| (all & both[which], any | both[which]));
        assert_eq!((all, any), (0, u32::MAX), "each bit is 0 in some and 1 in others");
    }
}

#[test]
fn a_key_is_revoked_if_it_was_exported() {
    let notes = Arc::new(Notes::default());
    add_exporter(&notes).unwrap();
    for is_exported in [true, false] {
        let stag = register(region()).unwrap();
        let access = Access { stag, addr: 0x1010, len: 1, rights: REMOTE_WRITE };
        let grant = acquire(access, 7).ok().unwrap();
        if is_exported {
            let exported = grant.export(access).unwrap();
            assert_eq!((exported.stag, exported.rights), (stag, REMOTE_WRITE));
            assert_eq!((exported.start, exported.len, exported.delta), (0x1000, 0x100, 0));
        }
        drop(grant);
        assert!(!notes.has(stag));
        deregister(stag);
        assert_eq!(notes.has(stag), is_exported);
    }
    remove_exporter(&notes);
}

#[test]
fn a_freed_key_is_not_given_out_again_at_once() {
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
    let done = Arc::new(AtomicU32::new(0));
    let seen = done.clone();
    let thread = std::thread::spawn(move || {
        deregister(stag);
        seen.store(1, Ordering::SeqCst);
    });
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(done.load(Ordering::SeqCst), 0);
    drop(grant);
    thread.join().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

/// Each of the 32 bits is set in about half of the STags, and the distances between neighbours spread over
/// the whole range.
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
    // Of 4096 drawn without a limit, 16 would be.
    assert!(high < FIRST_SINK, "{high:#x} may be the sink of a read");
}

#[test]
fn a_hundred_thousand_regions_are_distinguished() {
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

/// The optional access flags of verbs, which a program may set, are other bits of the same word.
#[test]
fn only_memory_of_the_library_stays_mapped() {
    let mut memory = [0u64; 1];
    let addr = memory.as_mut_ptr() as u64;
    let region = Region { addr, len: 8, access: LOCAL_WRITE | 0x3ff << 20, pd: 7 };
    let stag = register(region).unwrap();
    let is_backed =
        || acquire(Access { stag, addr, len: 8, rights: LOCAL_WRITE }, 7).ok().map(|grant| grant.is_backed());
    assert_eq!(is_backed(), Some(false));
    stays_mapped(stag);
    assert_eq!(is_backed(), Some(true));
    assert_eq!(try_deregister(stag), Ok(()));
}
