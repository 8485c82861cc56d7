// SPDX-License-Identifier: BSD-3-Clause
//! Which memory gets a backing, and that it stays accessible.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::pwrite;

use super::super::exporters::{add_exporter, remove_exporter, tests::Notes};
use super::super::table::{
    Change, Changed, Grant, Region, acquire, lose_writes, register, register_at, try_deregister,
};
use super::super::table::{alloc_window, bind_window, free_window};
use super::super::{Batch, change, fetch};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::*;
use crate::sys::{Process, page_size};
use transport::access::{
    Access, Accessor, Bind, FLUSH_PERSISTENT, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE,
};

const RIGHTS: u32 = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC;
const PD: u32 = 1;

/// A memfd that a program has mapped.
pub(crate) struct Memfd {
    file: OwnedFd,
    map: FileMapping,
    len: usize,
}

impl Memfd {
    pub(crate) fn new(len: usize, seals: SealFlags) -> Self {
        let file = memory_file(c"test", libc::MFD_ALLOW_SEALING).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, len as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        let map = FileMapping::new(&file, 0, len, true).unwrap();
        Self { file, map, len }
    }

    /// The address of the program's mapping.
    pub(crate) fn addr(&self) -> u64 {
        self.map.start().as_ptr() as u64
    }

    /// Registers a part of it, as ibv_reg_mr(3) does.
    pub(crate) fn register(&self, at: u64, len: u64) -> u32 {
        self.register_with(at, len, RIGHTS)
    }

    fn register_with(&self, at: u64, len: u64, access: u32) -> u32 {
        let region = Region { addr: self.addr() + at, len, access, pd: PD };
        let backing = examine(region.addr, len, access, true).unwrap();
        register_at(region, region.addr, backing).unwrap()
    }

    /// The number of its descriptor.
    pub(crate) fn descriptor(&self) -> u32 {
        self.file.as_raw_fd() as u32
    }

    pub(crate) fn inode(&self) -> u64 {
        fstat(&self.file).unwrap().st_ino
    }

    pub(crate) fn fill(&self, byte: u8) {
        assert_eq!(pwrite(&self.file, &vec![byte; self.len], 0), Ok(self.len));
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len);
        sys::tests::byte_at(self.addr() + at as u64)
    }
}

fn access(memory: &Memfd, stag: u32, at: u64, len: usize) -> Access {
    Access { stag, addr: memory.addr() + at, len, rights: LOCAL_WRITE }
}

/// [`file_offset`] for the backing that the region has.
fn offset(stag: u32) -> Option<u64> {
    let first = lock(BACKINGS.get()).as_ref()?.iter().find(|(of, _)| *of == stag)?.1.first;
    file_offset(stag, first).map(|file| file.offset)
}

fn is_backed(memory: &Memfd) -> bool {
    let stag = memory.register(0, 100);
    let backed = acquire(access(memory, stag, 0, 1), PD).is_ok_and(|grant: Grant| grant.is_backed());
    assert_eq!(try_deregister(stag), Ok(()));
    backed
}

#[test]
fn only_a_memfd_that_cannot_shrink_and_is_still_open_has_a_backing() {
    let page = page_size() as usize;
    assert!(is_backed(&Memfd::new(page, SealFlags::SHRINK)));
    assert!(is_backed(&Memfd::new(page, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)));
    assert!(!is_backed(&Memfd::new(page, SealFlags::GROW)), "it may shrink");
    let mut closed = Memfd::new(page, SealFlags::SHRINK);
    closed.file = File::open("/dev/null").unwrap().into();
    assert!(!is_backed(&closed));
    let mut other = Memfd::new(page, SealFlags::SHRINK);
    other.file = Memfd::new(page, SealFlags::SHRINK).file;
    assert!(!is_backed(&other), "another memfd");
    let sparse = Memfd::new(page, SealFlags::SHRINK);
    ftruncate(&sparse.file, 4 * page as u64).unwrap();
    assert!(!is_backed(&sparse), "others would allocate its pages");
}

#[test]
fn a_file_of_another_file_system_has_no_backing() {
    let len = page_size();
    let path = std::env::temp_dir().join(format!("softverbs-backing-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(path).unwrap();
    ftruncate(&file, len).unwrap();
    let map = FileMapping::new(&file, 0, len as usize, true).unwrap();
    let Content::Shared(part) = content(map.start().as_ptr() as u64, len, true) else {
        panic!("a shared mapping of a file")
    };
    assert_eq!(file.metadata().unwrap().ino(), part.inode);
    assert!(Backing::map(part, len, RIGHTS).is_none());
}

#[test]
fn the_part_of_the_file_is_that_of_the_region() {
    let page = page_size();
    let memory = Memfd::new(3 * page as usize, SealFlags::SHRINK);
    let at = page + 100;
    let stag = memory.register(at, page);
    let mut batch = Batch::new().unwrap();
    // Both sides of a page boundary, a word, and the last byte.
    for (offset, len) in [(at, 8), (2 * page - 3, 5), (2 * page + 96, 3), (at + 4, 8), (2 * page + 99, 1)] {
        batch.add(access(&memory, stag, offset, len), PD, 0).unwrap();
    }
    assert_eq!(batch.carry_out(Process::own(), &[7; 8]), Ok(()));
    let written = |range: std::ops::Range<u64>| {
        range.into_iter().map(|at| memory.byte(at as usize)).collect::<Vec<_>>()
    };
    assert_eq!(written(at - 1..at + 13), [&[0][..], &[7; 12], &[0]].concat());
    assert_eq!(written(2 * page - 4..2 * page + 3), [0, 7, 7, 7, 7, 7, 0]);
    assert_eq!(written(2 * page + 95..2 * page + 101), [0, 7, 7, 7, 7, 0]);
    let mut got = [0; 6];
    fetch(Process::own(), access(&memory, stag, 2 * page - 4, 6), PD, &mut got).unwrap();
    assert_eq!(got, [0, 7, 7, 7, 7, 7]);
    assert_eq!(offset(stag), Some(at));
    assert_eq!(try_deregister(stag), Ok(()));
    assert_eq!(offset(stag), None);
}

#[test]
fn memory_that_the_program_has_unmapped_is_still_accessible() {
    let memory = Memfd::new(page_size() as usize, SealFlags::SHRINK);
    let stag = memory.register(0, 64);
    let word = access(&memory, stag, 8, 8);
    let (file, addr) = (memory.file.as_fd().try_clone_to_owned().unwrap(), memory.addr());
    drop(memory);
    assert_eq!(change(word, PD, &|value| value + 5), Ok(0));
    assert_eq!(super::super::store(Access { addr: addr + 16, ..word }, PD, [1; 8]), Ok(()));
    let map = FileMapping::new(&file, 0, 64, false).unwrap();
    let at = |at| sys::tests::byte_at(map.start().as_ptr() as u64 + at);
    assert_eq!([8, 9, 15, 16, 23, 24].map(at), [5, 0, 0, 1, 1, 0]);
    assert_eq!(try_deregister(stag), Ok(()));
}

#[test]
fn a_reregistered_region_keeps_its_backing_or_gets_that_of_the_new_memory() {
    let page = page_size();
    let memory = Memfd::new(2 * page as usize, SealFlags::SHRINK);
    let stag = memory.register(0, 64);
    let replace = |addr: u64, pd: u32, changed: Changed| {
        let region = Region { addr, len: 64, access: RIGHTS, pd };
        Change::begin(stag).unwrap().replace(region, memory.addr(), changed).unwrap();
        let access = Access { stag, addr: memory.addr(), len: 8, rights: LOCAL_WRITE };
        let backed = acquire(access, pd).ok().unwrap().is_backed();
        assert_eq!(change(access, pd, &|value| value + 1).ok(), Some(u64::from(pd) - 2));
        backed
    };
    assert!(replace(memory.addr(), 2, Changed::Nothing));
    assert_eq!(memory.byte(0), 1);
    assert_eq!(Change::begin(stag).unwrap().region().0.addr, memory.addr(), "that of the program");
    assert!(!replace(memory.addr(), 3, Changed::Memory(None)));
    assert_eq!((memory.byte(0), offset(stag)), (2, None));
    let Content::Shared(part) = content(memory.addr() + page, 64, true) else { panic!("a memfd") };
    let access = Access { stag, addr: memory.addr(), len: 8, rights: LOCAL_WRITE };
    let region = Region { addr: memory.addr() + page, len: 64, access: RIGHTS, pd: 4 };
    let new = Changed::Memory(Backing::map(part, 64, RIGHTS));
    Change::begin(stag).unwrap().replace(region, memory.addr(), new).unwrap();
    assert!(acquire(access, 4).ok().unwrap().is_backed());
    assert_eq!(change(access, 4, &|value| value + 7), Ok(0));
    assert_eq!((memory.byte(0), memory.byte(page as usize)), (2, 7));
    assert_eq!(offset(stag), Some(page));
    assert_eq!(try_deregister(stag), Ok(()));
}

/// No key is exported with the range of one memory and the file of another.
#[test]
fn a_key_is_exported_without_file_while_its_backing_is_replaced() {
    let page = page_size();
    let memory = Memfd::new(2 * page as usize, SealFlags::SHRINK);
    let stag = memory.register(0, 64);
    let of = |rights| Access { rights, ..access(&memory, stag, 0, 8) };
    let export = |rights| acquire(of(rights), PD).ok().unwrap().export(of(rights));
    let file = |rights| export(rights).map(|exported| exported.file.map(|file| file.offset));
    assert_eq!([REMOTE_WRITE, REMOTE_ATOMIC].map(file), [Some(Some(0)); 2]);
    // As in the middle of a re-registration.
    let old = remove(stag).unwrap();
    let Content::Shared(part) = content(memory.addr() + page, 64, true) else { panic!("a memfd") };
    keep(stag, Backing::map(part, 64, RIGHTS).unwrap()).unwrap();
    assert_eq!([REMOTE_WRITE, REMOTE_ATOMIC].map(file), [Some(None), None]);
    drop(remove(stag));
    keep(stag, old).unwrap();
    assert_eq!(try_deregister(stag), Ok(()));
}

/// Lost writes are those of the program's mapping, not of the library's.
#[test]
fn a_flush_that_failed_marks_a_region_with_a_backing() {
    let memory = Memfd::new(page_size() as usize, SealFlags::SHRINK);
    let stag = memory.register_with(0, 200, RIGHTS | FLUSH_PERSISTENT);
    let flush = Access { rights: FLUSH_PERSISTENT, ..access(&memory, stag, 100, 8) };
    let grant = || acquire(flush, PD).ok().unwrap();
    assert!(grant().is_backed() && !grant().writes_lost());
    let (start, len) = grant().persistent(flush).unwrap();
    assert_eq!((start, len), (memory.addr() + 100, 8));
    lose_writes(start, start + len);
    assert!(grant().writes_lost());
    assert_eq!(try_deregister(stag), Ok(()));
}

/// A peer may be copying to the old memory or to the new one, so both mappings stay until then.
#[test]
fn deregistration_removes_both_backings_after_a_failed_replacement() {
    let page = page_size();
    let peer = Arc::new(Notes::default());
    add_exporter(&peer).unwrap();
    for has_backing in [true, false] {
        let memory = Memfd::new(2 * page as usize, SealFlags::SHRINK);
        let region = Region { addr: memory.addr(), len: 64, access: RIGHTS, pd: PD };
        let stag = if has_backing { memory.register(0, 64) } else { register(region).unwrap() };
        let of = Access { rights: REMOTE_WRITE, ..access(&memory, stag, 0, 8) };
        assert!(acquire(of, PD).ok().unwrap().export(of).is_some());
        peer.copies_with(stag);
        let Content::Shared(part) = content(memory.addr() + page, 64, true) else { panic!("a memfd") };
        let other = Region { addr: memory.addr() + page, ..region };
        let new = Changed::Memory(Backing::map(part, 64, RIGHTS));
        let mut change = Change::begin(stag).unwrap();
        assert_eq!(change.replace(other, memory.addr(), new), Err(libc::EBUSY));
        change.withdraw();
        let kept = || lock(BACKINGS.get()).iter().flatten().filter(|(of, _)| *of == stag).count();
        assert_eq!(try_deregister(stag), Err(libc::EBUSY));
        assert_eq!(kept(), 1 + usize::from(has_backing));
        peer.copies_with(0);
        assert_eq!(try_deregister(stag), Ok(()));
        assert_eq!(kept(), 0, "a mapping and a descriptor");
    }
    assert!(remove_exporter(&peer));
}

#[test]
fn a_window_of_other_memory_has_no_backing() {
    for type_2 in [false, true] {
        let mut other = vec![0u8; 64];
        let addr = other.as_mut_ptr() as u64;
        let of_other = register(Region { addr, len: 64, access: RIGHTS | MW_BIND, pd: PD }).unwrap();
        let memory = Memfd::new(page_size() as usize, SealFlags::SHRINK);
        let of_memfd = memory.register_with(0, 64, RIGHTS | MW_BIND);
        for (region, addr, expected) in [(of_other, addr, false), (of_memfd, memory.addr(), true)] {
            let window = alloc_window(PD, type_2).unwrap();
            let bind = Bind { rkey: window, region, addr: addr + 8, len: 16, access: REMOTE_WRITE };
            let by = Accessor { pd: PD, qp: 1 };
            assert!(bind_window(bind, by).is_ok());
            let grant = acquire(Access { stag: window, addr: addr + 8, len: 8, rights: REMOTE_WRITE }, by);
            assert_eq!(grant.ok().map(|grant| grant.is_backed()), Some(expected), "type 2: {type_2}");
            free_window(window);
            assert_eq!(try_deregister(region), Ok(()));
        }
    }
}

#[test]
fn a_child_can_use_what_its_parent_registered() {
    let memory = Memfd::new(page_size() as usize, SealFlags::SHRINK);
    let stag = memory.register(0, 64);
    let changed = || {
        let changed = change(access(&memory, stag, 0, 8), PD, &|value| value + 1);
        changed == Ok(0) && try_deregister(stag) == Ok(())
    };
    assert!(crate::fork::tests::in_child(changed));
    assert_eq!(memory.byte(0), 1, "the memory is shared");
    assert_eq!(try_deregister(stag), Ok(()));
}
