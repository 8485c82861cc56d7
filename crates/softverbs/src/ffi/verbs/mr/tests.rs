// SPDX-License-Identifier: BSD-3-Clause
//! Tests of memory regions: which arguments are accepted, and which memory an address refers to.

use std::ptr::null_mut;

use super::*;
use crate::ffi::verbs::testing::{ALL, Mr, Pd, place, read};
use crate::memory::{Batch, acquire};
use crate::sys::Process;
use transport::access::{Denied, REMOTE_READ, Unreachable};

/// Bytes and words are placed and read by virtual address, by iova and by offset. The region has mapped
/// memory on both sides, which must not change.
#[test]
fn an_access_reaches_the_memory_of_its_iova() {
    const PAGE: u64 = 4096;
    let pd = Pd::new();
    for (iova, flags) in [
        (None, 0),
        (None, ZERO_BASED),
        (Some(0), 0),
        (Some(0), ZERO_BASED),
        (Some(0x4000_0000_0000), 0),
        (Some(16), 0),
        (Some(u64::MAX - PAGE), 0),
    ] {
        let map = sys::tests::Mapping::new(3 * PAGE as usize);
        let start = map.addr() + PAGE;
        let mr = pd.register(start, PAGE as usize, iova.unwrap_or(start), ALL | flags).unwrap();
        assert_eq!(mr.addr(), start, "the address of the memory");
        let first = if flags == 0 { iova.unwrap_or(start) } else { 0 };
        place(mr.key(), pd.number(), first + 8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        place(mr.key(), pd.number(), first + 17, &[9, 10, 11]).unwrap();
        place(mr.key(), pd.number(), first + PAGE - 1, &[12]).unwrap();
        // SAFETY: the page is mapped, and no thread writes to it while `seen` is used.
        let seen = unsafe { std::slice::from_raw_parts(start as *const u8, PAGE as usize) };
        assert_eq!(&seen[..20], [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 10, 11]);
        assert_eq!(seen[PAGE as usize - 1], 12);
        assert_eq!(read(mr.key(), pd.number(), first + 15, 4).unwrap(), [8, 0, 9, 10]);
        let out = Err(Denied::Bounds);
        let behind = if first == u64::MAX - PAGE { Err(Denied::Wrap) } else { out };
        assert_eq!(place(mr.key(), pd.number(), first + PAGE - 1, &[1, 2]), behind);
        if first > 0 {
            assert_eq!(place(mr.key(), pd.number(), first - 1, &[1, 2]), out);
        }
        if first != start {
            assert_eq!(place(mr.key(), pd.number(), start, &[1]), out, "the virtual address is not valid");
        }
        // SAFETY: all three pages are mapped, and no thread writes to them while `around` is used.
        let around = unsafe { std::slice::from_raw_parts(map.addr() as *const u8, 3 * PAGE as usize) };
        assert!(around[..PAGE as usize].iter().chain(&around[2 * PAGE as usize..]).all(|byte| *byte == 0));
    }
}

/// A flush writes back the memory of the region, not its iova.
#[test]
fn a_flush_covers_the_memory_of_a_region() {
    const PERSISTENT: u32 = FLUSH_PERSISTENT;
    let pd = Pd::new();
    let map = sys::tests::Mapping::new(8192);
    let mr = pd.register(map.addr() + 100, 200, 7, ALL | PERSISTENT).unwrap();
    let access = Access { stag: mr.key(), addr: 7, len: 1, rights: REMOTE_READ };
    let grant = acquire(access, pd.number()).ok().unwrap();
    assert_eq!(grant.persistent(access), Some((map.addr() + 100, 200)));
    assert_eq!(grant.addr(), map.addr() + 100);
}

#[test]
fn advice_applies_to_the_memory_of_a_region() {
    let pd = Pd::new();
    let map = sys::tests::Mapping::new(8192);
    let mr = pd.register(map.addr(), 8192, 0, ALL).unwrap();
    let advise = |addr, length| {
        let mut sge = ibv_sge { addr, length, lkey: mr.key() };
        // SAFETY: `pd.0` is a protection domain, and the list has one entry.
        unsafe { ibv_advise_mr(pd.0, 1, 0, &raw mut sge, 1) }
    };
    assert_eq!(advise(0, 8192), 0);
    assert_eq!(advise(map.addr(), 1), libc::EINVAL);
    map.unmap(4096, 4096);
    assert_eq!(advise(0, 8192), libc::EFAULT);
    assert_eq!(advise(0, 4096), 0);
}

#[test]
fn ranges_that_cannot_be_translated_are_refused() {
    let pd = Pd::new();
    let map = sys::tests::Mapping::new(4096);
    let refused = |iova, access| pd.register(map.addr(), 4096, iova, access).err();
    assert_eq!(refused(u64::MAX - 4095, ALL), Some(libc::EINVAL), "its end exceeds 64 bits");
    assert_eq!(refused(u64::MAX - 4096, ALL), None);
    assert_eq!(refused(4096, ALL | ZERO_BASED), Some(libc::EINVAL), "two translations");
    assert_eq!(refused(map.addr(), ALL | ZERO_BASED), None);
    assert_eq!(refused(0, REMOTE_WRITE), Some(libc::EINVAL));
    assert_eq!(refused(0, 1 << 10), Some(libc::EINVAL));
    assert_eq!(
        pd.register(0, 4096, 0, ALL).err(),
        Some(libc::EFAULT),
        "the memory must be mapped, not the iova"
    );
    // SAFETY: `pd.0` is a protection domain, and the range stays mapped until the region is dropped.
    let mr = Mr(unsafe { ibv_reg_mr_iova2(pd.0, map.addr() as *mut c_void, 4096, 0, ALL | 1 << 20) });
    assert_ne!(mr.0, null_mut());
    assert_eq!(place(mr.key(), pd.number(), 4095, &[1]), Ok(()));
}

/// An implicit ODP region gives access to memory mapped before and after the registration, with the rights of
/// the region, but not to unmapped memory.
#[test]
fn an_implicit_region_covers_all_mapped_memory() {
    let pd = Pd::new();
    let before = sys::tests::Mapping::new(8192);
    let mr = pd.register(0, usize::MAX, 0, ALL | ON_DEMAND).unwrap();
    let readable = pd.register(0, usize::MAX, 0, REMOTE_READ | ON_DEMAND).unwrap();
    let after = sys::tests::Mapping::new(8192);
    for (n, map) in [(1, &before), (2, &after)] {
        place(mr.key(), pd.number(), map.addr() + 4095, &[n, 7]).unwrap();
        assert_eq!(read(mr.key(), pd.number(), map.addr() + 4094, 4).unwrap(), [0, n, 7, 0]);
        assert_eq!(read(readable.key(), pd.number(), map.addr() + 4094, 4).unwrap(), [0, n, 7, 0]);
        assert_eq!(place(readable.key(), pd.number(), map.addr(), &[1]), Err(Denied::Rights));
        // SAFETY: the page belongs to the mapping, and no reference to it exists.
        let hidden = unsafe { libc::mprotect((map.addr() + 4096) as *mut c_void, 4096, libc::PROT_NONE) };
        assert_eq!(hidden, 0);
        assert_eq!(read(mr.key(), pd.number(), map.addr() + 4096, 1), Err(Unreachable::Fault));
        assert_eq!(
            read(mr.key(), pd.number(), 4096, 1),
            Err(Unreachable::Fault),
            "no program can map this page"
        );
        let last = Access { stag: mr.key(), addr: u64::MAX - 8, len: 8, rights: REMOTE_WRITE };
        let mut batch = Batch::new().unwrap();
        batch.add(last, pd.number(), 0).unwrap();
        assert_eq!(batch.carry_out(Process::own(), &[1; 8]), Err(0), "memory of the kernel");
        assert_eq!(read(mr.key(), pd.number(), u64::MAX, 1), Err(Unreachable::Denied(Denied::Wrap)));
    }
    assert_eq!(mr.addr(), 0);
}

#[test]
fn an_implicit_region_requires_on_demand_and_no_iova() {
    let pd = Pd::new();
    let refused = |addr, iova, access| pd.register(addr, usize::MAX, iova, access).err();
    assert_eq!(refused(0, 0, ALL), Some(libc::EINVAL));
    assert_eq!(refused(0, 0, ALL | ON_DEMAND), None);
    assert_eq!(refused(0, 0, ALL | ON_DEMAND | ZERO_BASED), Some(libc::EINVAL));
    assert_eq!(refused(0, 0, ALL | ON_DEMAND | HUGETLB), Some(libc::EINVAL));
    assert_eq!(refused(0, 0, ALL | ON_DEMAND | FLUSH_PERSISTENT), Some(libc::EINVAL));
    assert_eq!(refused(0, 4096, ALL | ON_DEMAND), Some(libc::EINVAL));
    assert_eq!(refused(4096, 4096, ALL | ON_DEMAND), Some(libc::EINVAL), "exceeds the address space");
    assert_eq!(
        pd.register(0, usize::MAX - 1, 0, ALL).err(),
        Some(libc::EFAULT),
        "not the whole address space"
    );
}
