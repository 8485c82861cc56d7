// SPDX-License-Identifier: BSD-3-Clause
//! The shared memory of a connection: its size, its seals, and what a peer may write into it.

use super::*;
use crate::sys;
use crate::sys::tests::Mapping;
use std::os::fd::OwnedFd;

fn owned(fd: impl Into<OwnedFd>) -> Socket {
    Socket::noted(|| Ok(fd.into())).unwrap()
}

#[test]
fn unmapped_memory_is_an_error_in_both_directions() {
    let a = Shared::create().unwrap();
    let page = page_size() as usize;
    let map = Mapping::new(2 * page);
    map.unmap(page, page);
    let piece =
        |at, iov_len| libc::iovec { iov_base: (map.addr() as usize + at) as *mut libc::c_void, iov_len };
    // By process_vm_writev(2), by pwritev(2), by process_vm_writev(2) after all.
    for (no_process_writes, no_writes) in [(false, false), (true, false), (true, true)] {
        a.no_process_writes.store(no_process_writes, Ordering::Relaxed);
        a.no_writes.store(no_writes, Ordering::Relaxed);
        assert_eq!(a.write(0, 0, &[piece(page, 8)]), Err(libc::EFAULT));
        assert_eq!(a.write(0, 0, &[piece(page - 8, 8), piece(page, 8)]), Ok(8));
    }
    // SAFETY: there are no references to the memory of `map`, and the kernel checks the unmapped page after
    // it.
    unsafe {
        assert_eq!(a.read(0, 0, &[piece(page, 8)]), Err(libc::EFAULT));
        assert_eq!(a.read(0, 0, &[piece(page - 8, 8)]), Ok(8));
    }
}

#[test]
fn a_call_that_is_refused_is_replaced_for_good() {
    let refused = AtomicBool::new(false);
    let again = || unreachable!("the call was not refused");
    assert_eq!(copy(&refused, || Ok(3), again), Ok(3));
    assert_eq!(copy(&refused, || Err(libc::EFAULT), again), Err(libc::EFAULT));
    assert_eq!(copy(&refused, || Err(libc::EFBIG), || Ok(5)), Ok(5));
    assert_eq!(copy(&refused, || unreachable!("the call was refused"), || Ok(7)), Ok(7));
}

/// The kernel cuts a pwritev(2) off at the limit on the size of files, and fails the next one.
#[test]
fn a_write_is_whole_though_the_limit_is_in_the_ring() {
    const NAME: &str = "a_write_is_whole_though_the_limit_is_in_the_ring";
    if std::env::var_os(NAME).is_none() {
        // The limit is one of the process, which must not be that of the other tests.
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--nocapture"]).env(NAME, "");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the test did not run");
        return;
    }
    let a = Shared::create().unwrap();
    let (page, bytes) = (page_size() as usize, vec![7u8; 2 * page_size() as usize]);
    let limit = Some((header_len() + page) as u64);
    let limits = rustix::process::Rlimit { current: limit, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limits).unwrap();
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    assert_eq!(a.write_to_file(0, 0, &[part]), Ok(2 * page), "half of it by pwritev(2)");
    assert_eq!(a.write_to_file(0, 2 * page as u64, &[part]), Ok(2 * page), "nothing by pwritev(2)");
    let mut read = vec![0u8; 4 * page];
    a.copy_out(0, 0, &mut read);
    assert!(read.iter().all(|byte| *byte == 7));
}

#[test]
fn only_memory_that_cannot_shrink_is_adopted() {
    let len = total_len() as u64;
    let memory = |flags, len: u64, seals| {
        let file = memory_file(c"test", flags).unwrap();
        ftruncate(&file, len).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        Shared::adopt(owned(file)).map(drop)
    };
    let (grow, shrink, seal) = (SealFlags::GROW, SealFlags::SHRINK, SealFlags::SEAL);
    let sealing = libc::MFD_ALLOW_SEALING;
    assert_eq!(memory(sealing, len, grow | shrink | seal), Ok(()));
    assert_eq!(memory(sealing, len, grow | seal), Err(libc::EINVAL));
    assert_eq!(memory(sealing, len, shrink | seal), Err(libc::EINVAL));
    assert_eq!(memory(sealing, len, SealFlags::empty()), Err(libc::EINVAL));
    assert_eq!(memory(sealing, len - 1, grow | shrink | seal), Err(libc::EINVAL));
    assert_eq!(memory(sealing, len + 1, grow | shrink | seal), Err(libc::EINVAL));
    assert!(memory(sealing, len, grow | shrink | seal | SealFlags::WRITE).is_err());
    assert!(Shared::adopt(owned(sys::event_flag().unwrap())).is_err());
    assert!(Shared::adopt(owned(std::fs::File::open("/proc/self/exe").unwrap())).is_err());
}

#[test]
fn what_an_end_has_executed_directly_is_counted_by_kind_at_the_other_end() {
    let a = Shared::create().unwrap();
    let b = Shared::adopt(owned(a.file().try_clone().unwrap())).unwrap();
    for (operation, completed, bytes) in
        [(Served::Atomic, 1, 8), (Served::Write, 0, 100), (Served::Write, 2, 50), (Served::Atomic, 2, 16)]
    {
        a.export_page(1).count(operation, completed, bytes);
    }
    a.export_page(1).count(Served::Read, 4, 5);
    assert_eq!(b.export_page(1).copied(), Copied { write: (2, 150), read: (4, 5), atomic: (3, 24) });
    assert_eq!(b.export_page(0).copied(), Copied::default());
}
