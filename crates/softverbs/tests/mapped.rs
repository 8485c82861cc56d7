// SPDX-License-Identifier: BSD-3-Clause
//! Memory of sealed memfds, which both ends map: a request takes no system call, so it does not wait for the
//! next one.

mod common;
use common::*;
use rdma_sys::*;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
const LEN: usize = 4096;

/// The words of a sealed memfd without holes, mapped until the process ends. Registration needs the file.
fn sealed() -> (std::os::fd::OwnedFd, &'static [AtomicU64]) {
    let file = memfd_create("mapped", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, LEN as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping replaces none. It is zeroed, never unmapped, and used only as atomics.
    unsafe {
        let at = mmap(null_mut(), LEN, access, MapFlags::SHARED, &file, 0).unwrap();
        (file, std::slice::from_raw_parts(at.cast(), LEN / 8))
    }
}

fn register(end: &End, words: &[AtomicU64], access: i32) -> *mut ibv_mr {
    // SAFETY: the words stay mapped.
    let mr = unsafe {
        softverbs::verbs::ibv_reg_mr(end.pd, words.as_ptr().cast_mut().cast(), size_of_val(words), access)
    };
    assert!(!mr.is_null());
    mr
}

#[test]
fn an_unsignalled_write_does_not_wait_for_the_next_one() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let ((_near, from), (_far, to)) = (sealed(), sealed());
    let source = register(&client, from, 0);
    let target = register(&server, to, LOCAL_WRITE | REMOTE_WRITE);
    // SAFETY: the region is registered until the end.
    let (remote_addr, rkey) = unsafe { ((*target).addr as u64, (*target).rkey) };
    let mut value = 0;
    // Whether a write has arrived when it is posted.
    let mut arrives = |flags| {
        value += 1;
        from[0].store(value, Ordering::Relaxed);
        let mut wr = request(WRITE, value, flags);
        wr.wr.rdma.remote_addr = remote_addr;
        wr.wr.rdma.rkey = rkey;
        assert_eq!(client.post(&mut wr, Some(&mut sge(source, 0, 8))), 0);
        to[0].load(Ordering::Acquire) == value
    };
    // The first ones go over the ring.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !arrives(SIGNALED) {
        assert_eq!(client.poll().status, 0);
        assert!(Instant::now() < deadline, "no direct copies");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.poll().status, 0);
    // A few may find that the engine drives the connection.
    let late = (0..1000).filter(|_| !arrives(0)).count();
    assert!(late < 50, "{late} of 1000 writes waited");
    dereg(source);
    dereg(target);
    client.destroy();
    server.destroy();
}
