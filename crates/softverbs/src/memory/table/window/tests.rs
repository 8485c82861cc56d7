// SPDX-License-Identifier: BSD-3-Clause
//! Windows: the regions to which they may be bound, the queue pairs that may use them, and that a region with
//! one cannot be deregistered.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use super::super::super::AtEnd;
use super::super::{Change, acquire, deregister, lose_writes, register, register_at, try_deregister};
use super::*;

const PD: u32 = 7;
const QP: Accessor = Accessor { pd: PD, qp: 40 };
const OTHER_QP: Accessor = Accessor { pd: PD, qp: 41 };
const BINDABLE: u32 = LOCAL_WRITE | MW_BIND;

fn region() -> Region {
    Region { addr: 0x1000, len: 0x100, access: BINDABLE, pd: PD }
}

fn bind_of(rkey: u32, region: u32) -> Bind {
    Bind { rkey, region, addr: 0x1010, len: 0x20, access: REMOTE_WRITE | REMOTE_READ }
}

/// The memory address of an access of 8 bytes.
fn at(stag: u32, addr: u64, rights: u32, by: Accessor) -> Result<u64, Denied> {
    acquire(Access { stag, addr, len: 8, rights }, by).map(|grant| grant.addr())
}

#[test]
fn a_window_is_accessed_within_its_range_with_its_rights_by_peers() {
    let of_region = register(region()).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    assert_eq!(at(rkey, 0x1010, REMOTE_READ, QP), Err(Denied::Stag), "not bound");
    bind_window(Bind { access: REMOTE_WRITE, ..bind_of(rkey, of_region) }, QP).unwrap();
    for by in [QP, OTHER_QP] {
        assert_eq!(at(rkey, 0x1010, REMOTE_WRITE, by), Ok(0x1010));
        assert_eq!(at(rkey, 0x1028, REMOTE_WRITE, by), Ok(0x1028));
        assert_eq!(at(rkey, 0x1029, REMOTE_WRITE, by), Err(Denied::Bounds));
        assert_eq!(at(rkey, 0x100f, REMOTE_WRITE, by), Err(Denied::Bounds));
        assert_eq!(at(rkey, u64::MAX - 4, REMOTE_WRITE, by), Err(Denied::Wrap));
        assert_eq!(at(rkey, 0x1010, REMOTE_READ, by), Err(Denied::Rights));
        assert_eq!(at(rkey, 0x1010, 0, by), Err(Denied::Stag), "it is not an lkey");
        assert_eq!(at(rkey, 0x1010, LOCAL_WRITE, by), Err(Denied::Stag));
    }
    assert_eq!(at(rkey, 0x1010, REMOTE_WRITE, Accessor { pd: 8, qp: 40 }), Err(Denied::Pd));
    assert_eq!(at(rkey ^ 1, 0x1010, REMOTE_WRITE, QP), Err(Denied::Stag), "another key");
    assert_eq!(
        at(of_region, 0x1010, REMOTE_WRITE, QP),
        Err(Denied::Rights),
        "the range of the window, not that of the region"
    );
    free_window(rkey);
    assert_eq!(at(rkey, 0x1010, REMOTE_WRITE, QP), Err(Denied::Stag));
    deregister(of_region);
}

#[test]
fn a_window_may_cover_a_whole_region() {
    let of_region = register(region()).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    bind_window(Bind { addr: 0x1000, len: 0x100, ..bind_of(rkey, of_region) }, QP).unwrap();
    for (addr, expected) in [(0xfff, Err(Denied::Bounds)), (0x1000, Ok(0x1000)), (0x10f8, Ok(0x10f8))] {
        assert_eq!(at(rkey, addr, REMOTE_READ, QP), expected);
    }
    free_window(rkey);
    deregister(of_region);
}

#[test]
fn a_window_does_not_inherit_the_rights_of_its_region() {
    let access = BINDABLE | REMOTE_READ | REMOTE_ATOMIC;
    let of_region = register(Region { access, ..region() }).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    bind_window(Bind { access: REMOTE_WRITE, ..bind_of(rkey, of_region) }, QP).unwrap();
    let of = |rights| Access { stag: rkey, addr: 0x1010, len: 8, rights };
    for right in [REMOTE_READ, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_READ] {
        assert_eq!(acquire(of(right), QP).err(), Some(Denied::Rights));
    }
    assert_eq!(acquire(of(REMOTE_WRITE), QP).ok().unwrap().persistent(of(REMOTE_WRITE)), None);
    free_window(rkey);
    deregister(of_region);
}

#[test]
fn one_thread_at_a_time_locks_a_window() {
    let rkey = alloc_window(PD, false).unwrap();
    let window = Window::find(rkey).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(Window::find(rkey).is_some());
            done.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!done.load(Ordering::SeqCst));
        drop(window);
    });
    assert!(done.load(Ordering::SeqCst));
    free_window(rkey);
}

#[test]
fn the_slot_of_a_freed_window_is_reused() {
    let of_region = register(region()).unwrap();
    for is_bound in [false, true] {
        let rkey = alloc_window(PD, false).unwrap();
        if is_bound {
            bind_window(bind_of(rkey, of_region), QP).unwrap();
        }
        let (_, slot) = WINDOWS.holder(rkey).unwrap();
        free_window(rkey);
        assert_eq!(slot.state.load(Ordering::Relaxed), 0);
    }
    deregister(of_region);
}

#[test]
fn a_slot_without_a_window_is_no_window() {
    // Another thread is about to allocate one.
    let (level, slot, stag) = WINDOWS.take().unwrap();
    assert!(Window::find(stag).is_none());
    slot.state.fetch_or(ALLOCATED, Ordering::Relaxed);
    assert!(Window::find(stag).is_some_and(|window| window.level == level));
    slot.state.fetch_and(!ALLOCATED, Ordering::Relaxed);
    WINDOWS.give_back(level, slot);
    assert!(Window::find(stag).is_none());
}

#[test]
fn a_window_translates_like_its_region_or_is_zero_based() {
    let of_region = register_at(region(), 0x50, None).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    let bind = Bind { addr: 0x60, ..bind_of(rkey, of_region) };
    bind_window(bind, QP).unwrap();
    assert_eq!(at(rkey, 0x60, REMOTE_READ, QP), Ok(0x1010));
    assert_eq!(at(rkey, 0x5f, REMOTE_READ, QP), Err(Denied::Bounds));
    bind_window(Bind { access: REMOTE_READ | ZERO_BASED, ..bind }, QP).unwrap();
    assert_eq!(at(rkey, 0, REMOTE_READ, QP), Ok(0x1010));
    assert_eq!(at(rkey, 0x18, REMOTE_READ, QP), Ok(0x1028));
    assert_eq!(at(rkey, 0x60, REMOTE_READ, QP), Err(Denied::Bounds));
    free_window(rkey);
    deregister(of_region);
}

#[test]
fn a_bind_that_is_denied_changes_nothing() {
    let of_region = register(region()).unwrap();
    let unbindable = register(Region { access: LOCAL_WRITE, ..region() }).unwrap();
    let unwritable = register(Region { access: MW_BIND, ..region() }).unwrap();
    let foreign = register(Region { pd: 8, ..region() }).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    let good = bind_of(rkey, of_region);
    bind_window(good, QP).unwrap();
    let new = rkey ^ 5;
    let wrong = [
        (Bind { region: 0, ..good }, Denied::Stag),
        (Bind { region: of_region ^ 1, ..good }, Denied::Stag),
        (Bind { region: rkey, ..good }, Denied::Stag),
        (Bind { region: foreign, ..good }, Denied::Pd),
        (Bind { region: unbindable, ..good }, Denied::Rights),
        (Bind { region: unwritable, ..good }, Denied::Rights),
        (Bind { region: unwritable, access: REMOTE_ATOMIC, ..good }, Denied::Rights),
        (Bind { addr: 0xfff, ..good }, Denied::Bounds),
        (Bind { addr: 0x10e1, ..good }, Denied::Bounds),
        (Bind { len: 0xf1, ..good }, Denied::Bounds),
        (Bind { addr: u64::MAX - 3, ..good }, Denied::Wrap),
    ];
    for (bind, why) in wrong {
        assert_eq!(bind_window(Bind { rkey: new, ..bind }, QP), Err(why), "{bind:?}");
        assert_eq!(at(rkey, 0x1010, REMOTE_WRITE, QP), Ok(0x1010));
        assert_eq!(at(new, 0x1010, REMOTE_WRITE, QP), Err(Denied::Stag));
    }
    assert_eq!(
        bind_window(good, Accessor { pd: 8, qp: 40 }),
        Err(Denied::Pd),
        "a queue pair of another domain"
    );
    assert_eq!(bind_window(Bind { rkey: rkey ^ 1 << 20, ..good }, QP), Err(Denied::Stag));
    // A denied bind does not block deregistration.
    [unbindable, unwritable, foreign].into_iter().for_each(deregister);
    // A window without write access needs no write access of its region.
    let unwritable = register(Region { access: MW_BIND, ..region() }).unwrap();
    bind_window(Bind { region: unwritable, access: REMOTE_READ, ..good }, QP).unwrap();
    deregister(of_region);
    free_window(rkey);
    deregister(unwritable);
}

#[test]
fn a_region_with_a_window_cannot_be_deregistered() {
    let of_region = register(region()).unwrap();
    let [first, second] = [(); 2].map(|()| alloc_window(PD, false).unwrap());
    let stays = || {
        assert_eq!(try_deregister(of_region), Err(libc::EBUSY));
        assert_eq!(Change::begin(of_region).err(), Some(libc::EBUSY));
        acquire(Access { stag: of_region, addr: 0x1000, len: 1, rights: 0 }, PD).ok().unwrap();
    };
    for rkey in [first, second] {
        bind_window(bind_of(rkey, of_region), QP).unwrap();
        stays();
    }
    bind_window(Bind { len: 0, region: 0, addr: 0, ..bind_of(first, of_region) }, QP).unwrap();
    stays();
    assert_eq!(at(first, 0x1010, REMOTE_READ, QP), Err(Denied::Stag), "unbound");
    // A window that is bound to another region releases this one.
    let other = register(region()).unwrap();
    bind_window(bind_of(second, other), QP).unwrap();
    assert_eq!(try_deregister(other), Err(libc::EBUSY));
    let change = Change::begin(of_region).unwrap();
    assert_eq!(bind_window(bind_of(first, of_region), QP), Err(Denied::Stag), "being re-registered");
    drop(change);
    bind_window(bind_of(first, of_region), QP).unwrap();
    free_window(first);
    deregister(of_region);
    free_window(second);
    deregister(other);
    assert!(TABLE.find(of_region).is_none() && WINDOWS.holder(first).is_none());
}

#[test]
fn each_bind_may_change_the_key_and_only_the_last_one_is_valid() {
    let of_region = register(region()).unwrap();
    let mut rkey = alloc_window(PD, false).unwrap();
    for _ in 0..1000 {
        let new = another_key(rkey).unwrap();
        assert!(new != rkey && new >> 8 == rkey >> 8);
        bind_window(bind_of(new, of_region), QP).unwrap();
        assert_eq!(at(new, 0x1010, REMOTE_READ, QP), Ok(0x1010));
        assert_eq!(at(rkey, 0x1010, REMOTE_READ, QP), Err(Denied::Stag));
        rkey = new;
    }
    free_window(rkey ^ 1);
    deregister(of_region);
}

#[test]
fn a_window_of_type_2_belongs_to_a_queue_pair_until_it_is_invalidated() {
    let of_region = register(region()).unwrap();
    let rkey = alloc_window(PD, true).unwrap();
    assert_eq!(invalidate(rkey, QP.qp, PD), Err(Denied::Stag), "not bound");
    let empty = Bind { len: 0, ..bind_of(rkey, of_region) };
    assert_eq!(bind_window(empty, QP), Err(Denied::Bounds));
    for key in 0..3 {
        let rkey = rkey & !0xff | key;
        bind_window(bind_of(rkey, of_region), QP).unwrap();
        assert_eq!(bind_window(bind_of(rkey ^ 9, of_region), QP), Err(Denied::Stag), "it is bound");
        assert_eq!(at(rkey, 0x1010, REMOTE_READ, QP), Ok(0x1010));
        assert_eq!(at(rkey, 0x1010, REMOTE_READ, OTHER_QP), Err(Denied::Pd));
        assert_eq!(invalidate(rkey, OTHER_QP.qp, PD), Err(Denied::Pd));
        assert_eq!(invalidate(rkey, QP.qp, 8), Err(Denied::Pd));
        assert_eq!(invalidate(rkey ^ 1, QP.qp, PD), Err(Denied::Stag));
        assert_eq!(try_deregister(of_region), Err(libc::EBUSY));
        invalidate(rkey, QP.qp, PD).unwrap();
        assert_eq!(at(rkey, 0x1010, REMOTE_READ, QP), Err(Denied::Stag));
        assert_eq!(invalidate(rkey, QP.qp, PD), Err(Denied::Stag), "once");
    }
    deregister(of_region);
    free_window(rkey);
    // Neither a region nor a window of type 1 can be invalidated.
    let of_region = register(region()).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    bind_window(bind_of(rkey, of_region), QP).unwrap();
    assert_eq!(invalidate(rkey, QP.qp, PD), Err(Denied::Stag));
    assert_eq!(invalidate(of_region, QP.qp, PD), Err(Denied::Stag));
    free_window(rkey);
    deregister(of_region);
}

#[test]
fn a_window_inherits_lost_writes_and_persistence_from_its_region() {
    // Addresses that no other test has registered.
    const BASE: u64 = 0x7a00_0000;
    let access = BINDABLE | FLUSH_PERSISTENT;
    let of_region = register(Region { addr: BASE, len: 0x100, access, pd: PD }).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    let bind = Bind { addr: BASE + 0x10, ..bind_of(rkey, of_region) };
    let read = Access { stag: rkey, addr: BASE + 0x10, len: 1, rights: REMOTE_READ };
    let grant = || acquire(read, QP).ok().unwrap();
    bind_window(bind, QP).unwrap();
    assert_eq!(grant().persistent(read), Some((BASE + 0x10, 0x20)));
    lose_writes(BASE, BASE + 0x10);
    assert!(!grant().writes_lost(), "not of its range");
    bind_window(bind, QP).unwrap();
    assert!(grant().writes_lost(), "inherited from the region");
    free_window(rkey);
    deregister(of_region);
    let of_region = register(Region { addr: BASE, len: 0x100, access, pd: PD }).unwrap();
    let rkey = alloc_window(PD, false).unwrap();
    bind_window(Bind { rkey, region: of_region, ..bind }, QP).unwrap();
    lose_writes(BASE + 0x10, BASE + 0x11);
    let access = Access { stag: rkey, addr: BASE + 0x10, len: 1, rights: REMOTE_READ };
    assert!(acquire(access, QP).ok().unwrap().writes_lost());
    free_window(rkey);
    deregister(of_region);
}

/// The upper 24 bits of an STag are unique among regions and windows.
#[test]
fn stags_of_windows_and_regions_are_disjoint() {
    const COUNT: usize = 20_000;
    let windows: Vec<u32> = (0..COUNT).map(|_| alloc_window(PD, false).unwrap()).collect();
    let regions: Vec<u32> = (0..COUNT).map(|_| register(region()).unwrap()).collect();
    let mut numbers: Vec<u32> = windows.iter().map(|stag| stag >> 8).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() == COUNT && numbers[0] > 0);
    assert!(regions.iter().all(|stag| numbers.binary_search(&(stag >> 8)).is_err()));
    let set = windows.iter().filter(|stag| *stag >> 31 == 1).count();
    assert!((COUNT * 45 / 100..COUNT * 55 / 100).contains(&set), "{set} of {COUNT} have the highest bit");
    regions.into_iter().for_each(deregister);
    for stag in windows {
        assert!(WINDOWS.find(stag).is_some());
        free_window(stag);
        assert!(WINDOWS.holder(stag).is_none());
    }
}

/// Peers use a window while it is bound to two regions in turn: an access is denied or reaches the right
/// memory, and once the window is bound to the other region, the first one can be deregistered and no access
/// to its memory is in progress.
#[test]
fn threads_access_a_window_while_it_is_rebound() {
    const LONG: Duration = Duration::from_millis(1500);
    let rkey = alloc_window(PD, false).unwrap();
    let held: [AtomicU32; 2] = Default::default();
    let over = AtomicBool::new(false);
    let (granted, denied) = (AtomicU32::new(0), AtomicU32::new(0));
    let mut rounds = 0usize;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _over = AtEnd(&over);
                while !over.load(Ordering::Relaxed) {
                    let access = Access { stag: rkey, addr: 4, len: 8, rights: REMOTE_WRITE };
                    match acquire(access, OTHER_QP) {
                        Ok(grant) => {
                            let which = match grant.addr() {
                                0x1014 => 0,
                                0x5014 => 1,
                                addr => panic!("an access reaches {addr:#x}"),
                            };
                            held[which].fetch_add(1, Ordering::SeqCst);
                            granted.fetch_add(1, Ordering::Relaxed);
                            held[which].fetch_sub(1, Ordering::SeqCst);
                        }
                        Err(why) => {
                            assert_eq!(why, Denied::Stag);
                            denied.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    std::thread::yield_now();
                }
            });
        }
        let _over = AtEnd(&over);
        let until = Instant::now() + LONG;
        let mut last = None;
        while Instant::now() < until || granted.load(Ordering::Relaxed) == 0 {
            assert!(!over.load(Ordering::Relaxed), "a thread has failed");
            let which = rounds % 2;
            let new = register(Region { addr: [0x1000, 0x5000][which], ..region() }).unwrap();
            let addr = [0x1010, 0x5010][which];
            let access = REMOTE_WRITE | ZERO_BASED;
            bind_window(Bind { rkey, region: new, addr, len: 0x20, access }, QP).unwrap();
            assert_eq!(
                held[1 - which].load(Ordering::SeqCst),
                0,
                "an access to the old memory is still in progress"
            );
            if let Some(last) = last.replace(new) {
                deregister(last);
            }
            rounds += 1;
        }
        free_window(rkey);
        last.into_iter().for_each(deregister);
    });
    println!("{rounds} binds, {granted:?} accesses, {denied:?} denied");
}
