// SPDX-License-Identifier: BSD-3-Clause
//! Tests of re-registration: each combination of changes, and each failure.

use std::ptr::null_mut;

use super::*;
use crate::ffi::verbs::ibv_dealloc_pd;
use crate::ffi::verbs::testing::{ALL, Mr, Pd, place, read};
use crate::memory::FULL;
use crate::sys::{self, tests::Mapping};
use transport::access::{Denied, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};

const ON_DEMAND: u32 = 1 << 6;
/// A page that the kernel permits no program to map.
const UNMAPPED: u64 = 4096;

fn rereg(mr: &Mr, flags: c_int, pd: *mut ibv_pd, addr: u64, length: usize, access: u32) -> (c_int, Errno) {
    set_errno(0);
    // SAFETY: `mr` is deregistered only when dropped, and `pd` is NULL, a live protection domain, or one of
    // another device, of which only the context is read. The tests access registered memory only as bytes.
    let result = unsafe { ibv_rereg_mr(mr.0, flags, pd, addr as *mut c_void, length, access as c_int) };
    (result, sys::errno())
}

fn fields(mr: &Mr) -> (*mut ibv_pd, u64, usize, u32, u32) {
    // SAFETY: `mr` is deregistered only when dropped, and no other thread writes to its fields.
    let mr = unsafe { mr.0.read() };
    (mr.pd, mr.addr as u64, mr.length, mr.lkey, mr.rkey)
}

#[test]
fn each_combination_of_flags_changes_nothing_else() {
    for flags in 1..8 {
        let (old_pd, new_pd) = (Pd::new(), Pd::new());
        let (old, new) = (Mapping::new(4096), Mapping::new(8192));
        let mr = old_pd.register(old.addr(), 4096, old.addr(), ALL).unwrap();
        let before = fields(&mr);
        let access = if flags & ACCESS != 0 { LOCAL_WRITE | REMOTE_READ } else { 0 };
        assert_eq!(rereg(&mr, flags, new_pd.0, new.addr(), 8192, access).0, 0);
        let pd = if flags & PD != 0 { &new_pd } else { &old_pd };
        let (map, len) = if flags & TRANSLATION != 0 { (&new, 8192) } else { (&old, 4096) };
        assert_eq!(fields(&mr), (pd.0, map.addr(), len, before.3, before.4), "{flags}");
        let (number, other) = if flags & PD != 0 {
            (new_pd.number(), old_pd.number())
        } else {
            (old_pd.number(), new_pd.number())
        };
        assert_eq!(read(mr.key(), number, map.addr(), len).unwrap(), vec![0; len]);
        assert_eq!(place(mr.key(), other, map.addr(), &[1]), Err(Denied::Pd));
        let written = place(mr.key(), number, map.addr() + len as u64 - 1, &[9]);
        assert_eq!(written, if flags & ACCESS != 0 { Err(Denied::Rights) } else { Ok(()) });
        let left = if flags & TRANSLATION != 0 { &old } else { &new };
        assert!(read(mr.key(), number, left.addr(), 1).is_err(), "{flags}");
        // The region counts as a user of this protection domain and of no other. SAFETY: `pd` is a live
        // protection domain; it has a user, so the call fails and it stays live.
        assert_eq!(unsafe { ibv_dealloc_pd(pd.0) }, libc::EBUSY);
        drop(mr);
    }
}

/// Repeated changes, including to the current values and back.
#[test]
fn a_region_can_be_changed_repeatedly() {
    let pds = [Pd::new(), Pd::new()];
    let maps = [Mapping::new(4096), Mapping::new(4096)];
    let mr = pds[0].register(maps[0].addr(), 4096, maps[0].addr(), ALL).unwrap();
    for round in 0..200 {
        let (pd, map) = (&pds[round % 2], &maps[round / 2 % 2]);
        assert_eq!(rereg(&mr, TRANSLATION | PD | ACCESS, pd.0, map.addr(), 4096, ALL).0, 0);
        place(mr.key(), pd.number(), map.addr() + round as u64, &[round as u8]).unwrap();
    }
    for (i, map) in maps.iter().enumerate() {
        // SAFETY: the page is mapped, and no thread writes to it while `seen` is used.
        let seen = unsafe { std::slice::from_raw_parts(map.addr() as *const u8, 200) };
        assert!(
            seen.iter().enumerate().all(|(at, byte)| *byte == if at / 2 % 2 == i { at as u8 } else { 0 })
        );
    }
}

#[test]
fn accesses_use_addresses_of_the_new_memory_or_offsets() {
    const ZERO: u32 = ZERO_BASED;
    let pd = Pd::new();
    let maps = [Mapping::new(4096), Mapping::new(4096)];
    let first = |mr: &Mr, addr| assert_eq!(place(mr.key(), pd.number(), addr, &[1]), Ok(()), "{addr:#x}");
    let mr = pd.register(maps[0].addr(), 4096, 0x5000, ALL).unwrap();
    first(&mr, 0x5000);
    assert_eq!(rereg(&mr, ACCESS, null_mut(), 0, 0, LOCAL_WRITE | REMOTE_WRITE).0, 0);
    first(&mr, 0x5000);
    assert_eq!(rereg(&mr, TRANSLATION, null_mut(), maps[1].addr(), 4096, 0).0, 0);
    first(&mr, maps[1].addr());
    assert_eq!(rereg(&mr, ACCESS, null_mut(), 0, 0, ALL | ZERO).0, 0);
    first(&mr, 0);
    assert_eq!(rereg(&mr, TRANSLATION, null_mut(), maps[0].addr(), 4096, 0).0, 0);
    first(&mr, 4095);
    assert_eq!(rereg(&mr, ACCESS, null_mut(), 0, 0, ALL).0, 0);
    first(&mr, maps[0].addr());
}

#[test]
fn invalid_arguments_leave_the_region_unchanged() {
    let pd = Pd::new();
    let (old, new) = (Mapping::new(4096), Mapping::new(4096));
    let (at, len) = (new.addr(), 4096);
    let mr = pd.register(old.addr(), 4096, old.addr(), ALL).unwrap();
    let before = fields(&mr);
    // SAFETY: all-zero is a valid ibv_pd. It stands for one of another device: its context is NULL, not that
    // of softverbs.
    let mut foreign: ibv_pd = unsafe { std::mem::zeroed() };
    let foreign = &raw mut foreign;
    let none = null_mut();
    let wrong = [
        (0, pd.0, at, len, 0),
        (8, pd.0, at, len, 0),
        (TRANSLATION | 8, pd.0, at, len, 0),
        (-1, pd.0, at, len, ALL),
        (TRANSLATION, none, 0, len, 0),
        (TRANSLATION, none, at, 0, 0),
        (TRANSLATION, none, u64::MAX - 4095, len, 0),
        (TRANSLATION, none, at, usize::MAX, 0),
        (TRANSLATION, none, at, len, LOCAL_WRITE),
        (PD, pd.0, 0, 0, LOCAL_WRITE),
        (PD, none, 0, 0, 0),
        (PD, foreign, 0, 0, 0),
        (PD | TRANSLATION, foreign, at, len, 0),
        (ACCESS, none, 0, 0, REMOTE_WRITE),
        (ACCESS, none, 0, 0, 1 << 10),
        (ACCESS | TRANSLATION, none, 0, usize::MAX, ALL | ON_DEMAND),
    ];
    for (flags, pd_of, addr, length, access) in wrong {
        let result = rereg(&mr, flags, pd_of, addr, length, access);
        assert_eq!(result, (IBV_REREG_MR_ERR_INPUT, libc::EINVAL), "{flags} {addr:#x} {length} {access:#x}");
        assert_eq!(fields(&mr), before);
        place(mr.key(), pd.number(), old.addr(), &[1]).unwrap();
        assert!(read(mr.key(), pd.number(), at, 1).is_err());
    }
    let change = Change::begin(mr.key()).unwrap();
    assert_eq!(rereg(&mr, PD, pd.0, 0, 0, 0), (IBV_REREG_MR_ERR_INPUT, libc::EBUSY));
    drop(change);
    assert_eq!(rereg(&mr, PD, pd.0, 0, 0, 0).0, 0);
}

/// Re-registration must not give an implicit ODP region flags that it cannot have.
#[test]
fn an_implicit_region_cannot_get_incompatible_flags() {
    let (pd, other) = (Pd::new(), Pd::new());
    let map = Mapping::new(4096);
    let mr = pd.register(0, usize::MAX, 0, ALL | ON_DEMAND).unwrap();
    for access in [ALL, ALL | ON_DEMAND | ZERO_BASED, ALL | ON_DEMAND | FLUSH_PERSISTENT] {
        let result = rereg(&mr, ACCESS, null_mut(), 0, 0, access);
        assert_eq!(result, (IBV_REREG_MR_ERR_INPUT, libc::EINVAL));
    }
    assert_eq!(rereg(&mr, PD, other.0, 0, 0, 0).0, 0);
    place(mr.key(), other.number(), map.addr(), &[1]).unwrap();
    assert_eq!(rereg(&mr, TRANSLATION, null_mut(), map.addr(), 4096, 0).0, 0);
    place(mr.key(), other.number(), map.addr() + 4095, &[1]).unwrap();
    assert_eq!(place(mr.key(), other.number(), map.addr() + 4096, &[1]), Err(Denied::Bounds));
}

/// After a failed command neither the old nor the new memory can be accessed. The region counts as a user of
/// its old protection domain until it is deregistered.
#[test]
fn a_failed_command_leaves_an_inaccessible_region() {
    let read_only = Mapping::new(4096);
    // SAFETY: the page belongs to the mapping, and no reference to it exists.
    assert_eq!(unsafe { libc::mprotect(read_only.addr() as *mut c_void, 4096, libc::PROT_READ) }, 0);
    for (full, errno, flags, addr, access) in [
        (false, libc::EFAULT, TRANSLATION, UNMAPPED, 0),
        (false, libc::EFAULT, TRANSLATION | PD, UNMAPPED, 0),
        (false, libc::EFAULT, TRANSLATION | ACCESS, read_only.addr(), ALL),
        (true, libc::ENOMEM, PD, 0, 0),
        (true, libc::ENOMEM, ACCESS, 0, REMOTE_READ),
    ] {
        let (pd, other) = (Pd::new(), Pd::new());
        let map = Mapping::new(4096);
        let mr = pd.register(map.addr(), 4096, map.addr(), ALL).unwrap();
        let before = fields(&mr);
        FULL.set(full);
        let result = rereg(&mr, flags, other.0, addr, 4096, access);
        FULL.set(false);
        assert_eq!(result, (IBV_REREG_MR_ERR_CMD, errno));
        assert_eq!(fields(&mr), before);
        for pd in [&pd, &other] {
            assert_eq!(place(mr.key(), pd.number(), map.addr(), &[1]), Err(Denied::Stag));
        }
        let again = rereg(&mr, PD, pd.0, 0, 0, 0);
        assert_eq!(again, (IBV_REREG_MR_ERR_CMD, libc::EINVAL), "it stays invalid");
        drop(other);
        // SAFETY: `pd` is a live protection domain; it has a user, so the call fails and it stays live.
        assert_eq!(unsafe { ibv_dealloc_pd(pd.0) }, libc::EBUSY);
    }
    // A region without write access may be in read-only memory.
    let pd = Pd::new();
    let map = Mapping::new(4096);
    let mr = pd.register(map.addr(), 4096, map.addr(), ALL).unwrap();
    let result = rereg(&mr, TRANSLATION | ACCESS, null_mut(), read_only.addr(), 4096, REMOTE_READ);
    assert_eq!(result.0, 0);
    assert_eq!(rereg(&mr, TRANSLATION, null_mut(), UNMAPPED, 4096, 0).0, IBV_REREG_MR_ERR_CMD);
    let mr = pd.register(map.addr(), 4096, map.addr(), ALL).unwrap();
    let on_demand = rereg(&mr, TRANSLATION | ACCESS, null_mut(), UNMAPPED, 4096, ALL | ON_DEMAND);
    assert_eq!(on_demand.0, 0, "an on-demand range need not be mapped");
}
