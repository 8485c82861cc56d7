// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions of a connection, also with addresses that differ from those of the memory.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::verbs;

const SEND: u32 = ibv_wr_opcode::IBV_WR_SEND;
const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
const READ: u32 = ibv_wr_opcode::IBV_WR_RDMA_READ;
const ALL: i32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + i / 251 + seed) % 256) as u8).collect()
}

fn key(mr: *mut ibv_mr) -> u32 {
    // SAFETY: the caller keeps the region registered.
    unsafe { (*mr).lkey }
}

fn entry(mr: *mut ibv_mr, addr: u64, length: usize) -> ibv_sge {
    ibv_sge { addr, length: length as u32, lkey: key(mr) }
}

fn aimed(opcode: u32, wr_id: u64, mr: *mut ibv_mr, addr: u64) -> ibv_send_wr {
    let mut wr = request(opcode, wr_id, SIGNALED);
    wr.wr.rdma.remote_addr = addr;
    wr.wr.rdma.rkey = key(mr);
    wr
}

/// Every address in a work request, on both sides, is an offset in its region or relative to an address that
/// the program has chosen. Small and large payloads take different code paths.
#[test]
fn every_operation_takes_the_addresses_that_the_region_was_registered_with() {
    for (near_iova, far_iova) in [(0, 0), (0x1000_0000_0003, 5)] {
        for len in [1, 8, 64, 4096, 300_000] {
            let (client, server) = pair(c"127.0.0.1", 16);
            let (mut near, mut far) = (pattern(len, 1), vec![0u8; len + 8]);
            let (mut back, mut received) = (vec![0u8; len], vec![0u8; len]);
            let register = |end: &End, memory: &mut Vec<u8>, iova| {
                let addr = memory.as_mut_ptr().cast();
                // SAFETY: the memory outlives the region.
                let mr = unsafe { verbs::ibv_reg_mr_iova(end.pd, addr, memory.len(), iova, ALL) };
                assert!(!mr.is_null());
                mr
            };
            let source = register(&client, &mut near, near_iova);
            let sink = register(&client, &mut back, near_iova + 1);
            let target = register(&server, &mut far, far_iova);
            let receive = register(&server, &mut received, far_iova + 1);
            assert_eq!(server.post_recv(9, Some(&mut entry(receive, far_iova + 1, len))), 0);
            let mut wr = aimed(WRITE, 1, target, far_iova + 8);
            assert_eq!(client.post(&mut wr, Some(&mut entry(source, near_iova, len))), 0);
            let mut wr = aimed(READ, 2, target, far_iova + 8);
            assert_eq!(client.post(&mut wr, Some(&mut entry(sink, near_iova + 1, len))), 0);
            let mut wr = request(SEND, 3, SIGNALED);
            assert_eq!(client.post(&mut wr, Some(&mut entry(source, near_iova, len))), 0);
            for wr_id in 1..4 {
                let wc = client.poll();
                assert_eq!((wc.wr_id, wc.status), (wr_id, 0));
            }
            assert_eq!((server.poll().wr_id, server.try_poll()), (9, None));
            assert!(far[..8] == [0; 8] && far[8..] == near[..] && back == near && received == near, "{len}");
            // The address of the memory itself is not valid.
            let addr = far.as_ptr() as u64;
            assert_eq!(
                client.post(&mut aimed(WRITE, 4, target, addr), Some(&mut entry(source, near_iova, 1))),
                0
            );
            let mut wr = aimed(READ, 5, target, far_iova);
            assert_eq!(client.post(&mut wr, Some(&mut entry(sink, near_iova + 1, 1))), 0);
            assert_eq!(client.poll().wr_id, 4);
            let wc = client.poll();
            assert!(wc.wr_id == 5 && wc.status != 0, "{wc:?}");
            [source, sink, target, receive].into_iter().for_each(dereg);
            client.destroy();
            server.destroy();
        }
    }
}

/// A region of the whole address space, on both sides: memory that is allocated after the registration is
/// accessible; an operation on unmapped memory fails.
#[test]
fn one_region_covers_all_memory() {
    const ON_DEMAND: i32 = 1 << 6;
    let (client, server) = pair(c"127.0.0.1", 16);
    let all = |end: &End| {
        // SAFETY: the requests of the test access only `memory` and unmapped addresses.
        let mr = unsafe { verbs::ibv_reg_mr(end.pd, std::ptr::null_mut(), usize::MAX, ALL | ON_DEMAND) };
        assert!(!mr.is_null());
        mr
    };
    let (near_mr, far_mr) = (all(&client), all(&server));
    for len in [8, 3000, 300_000] {
        let (near, mut far, mut back) = (pattern(len, 4), vec![0u8; len], vec![0u8; len]);
        let mut wr = aimed(WRITE, 1, far_mr, far.as_mut_ptr() as u64);
        assert_eq!(client.post(&mut wr, Some(&mut entry(near_mr, near.as_ptr() as u64, len))), 0);
        let mut wr = aimed(READ, 2, far_mr, far.as_mut_ptr() as u64);
        assert_eq!(client.post(&mut wr, Some(&mut entry(near_mr, back.as_mut_ptr() as u64, len))), 0);
        assert_eq!((client.poll().status, client.poll().status), (0, 0));
        assert!(far == near && back == near, "{len}");
    }
    let mut sink = [0u8; 8];
    let mut wr = aimed(READ, 3, far_mr, 4096);
    assert_eq!(client.post(&mut wr, Some(&mut entry(near_mr, sink.as_mut_ptr() as u64, 8))), 0);
    let wc = client.poll();
    assert!(wc.wr_id == 3 && wc.status != 0, "{wc:?}");
    dereg(near_mr);
    dereg(far_mr);
    client.destroy();
    server.destroy();
}

/// A region alternates between two buffers while the peer writes and reads: nothing fails, and a read returns
/// bytes of one of them.
#[test]
fn a_region_is_re_registered_under_traffic() {
    const LEN: usize = 40_000;
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut near, mut back) = (vec![0u8; LEN], vec![0u8; LEN]);
    let mut far = [vec![1u8; LEN], vec![2u8; LEN]];
    let source = client.register(&mut near, 0);
    let sink = client.register(&mut back, LOCAL_WRITE);
    // SAFETY: the memory outlives the region.
    let target = unsafe { verbs::ibv_reg_mr_iova(server.pd, far[0].as_mut_ptr().cast(), LEN, 0, ALL) };
    assert!(!target.is_null());
    let remote_key = key(target);
    let zero_based = 1 << 5;
    let over = std::sync::atomic::AtomicBool::new(false);
    let memories = [far[0].as_mut_ptr() as usize, far[1].as_mut_ptr() as usize];
    let region = target as usize;
    let mut seen = [0u32; 256];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut changes = 0usize;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                changes += 1;
                let flags = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as i32
                    | ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as i32;
                let addr = memories[changes % 2] as *mut libc::c_void;
                let access = ALL | zero_based;
                // SAFETY: the region and both buffers outlive the thread.
                let result = unsafe {
                    verbs::ibv_rereg_mr(region as *mut ibv_mr, flags, std::ptr::null_mut(), addr, LEN, access)
                };
                assert_eq!(result, 0);
            }
            assert!(changes > 10, "{changes} changes");
        });
        let until = std::time::Instant::now() + std::time::Duration::from_millis(1000);
        let mut rounds = 0u64;
        while std::time::Instant::now() < until || (seen[1] == 0 || seen[2] == 0) && rounds < 1_000_000 {
            rounds += 1;
            for opcode in [READ, WRITE] {
                let mut wr = request(opcode, rounds, SIGNALED);
                wr.wr.rdma.rkey = remote_key;
                // The first byte identifies the buffer and is not written; the others are.
                let (mr, from, len) = if opcode == READ { (sink, 0, LEN) } else { (source, 1, LEN - 1) };
                wr.wr.rdma.remote_addr = from as u64;
                assert_eq!(client.post(&mut wr, Some(&mut sge(mr, from, len))), 0);
                let wc = client.poll();
                assert_eq!((wc.wr_id, wc.status), (rounds, 0));
            }
            // SAFETY: the read has completed.
            seen[usize::from(unsafe { back.as_ptr().read_volatile() })] += 1;
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(seen[1] > 0 && seen[2] > 0, "both buffers were read");
    assert_eq!(seen[1] + seen[2], seen.iter().sum::<u32>(), "and nothing else");
    [source, sink, target].into_iter().for_each(dereg);
    client.destroy();
    server.destroy();
}

/// A peer cannot use a region that has moved to another protection domain, and can again after it has moved
/// back.
#[test]
fn a_region_changes_its_protection_domain_under_a_connection() {
    for comes_back in [true, false] {
        let (client, server) = pair(c"127.0.0.1", 16);
        // SAFETY: the context is that of the software device.
        let other = unsafe { verbs::ibv_alloc_pd(softverbs::context()) };
        let (mut near, mut far) = (vec![0u8; 64], vec![7u8; 64]);
        let sink = client.register(&mut near, LOCAL_WRITE);
        let target = server.register(&mut far, ALL);
        let flags = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0 as i32;
        let to = |pd| {
            // SAFETY: the region and the protection domains still exist.
            let result = unsafe { verbs::ibv_rereg_mr(target, flags, pd, std::ptr::null_mut(), 0, 0) };
            assert_eq!(result, 0);
        };
        to(other);
        // SAFETY: the protection domain is in use, so the call does not deallocate it.
        assert_eq!(unsafe { verbs::ibv_dealloc_pd(other) }, libc::EBUSY);
        if comes_back {
            to(server.pd);
        }
        let mut wr = aimed(READ, 1, target, far.as_ptr() as u64);
        assert_eq!(client.post(&mut wr, Some(&mut sge(sink, 0, 64))), 0);
        let wc = client.poll();
        assert_eq!((wc.wr_id, wc.status == 0, near == far), (1, comes_back, comes_back));
        dereg(sink);
        dereg(target);
        // SAFETY: no object uses it any more.
        assert_eq!(unsafe { verbs::ibv_dealloc_pd(other) }, 0);
        client.destroy();
        server.destroy();
    }
}

/// After a fork the child has a separate copy of the memory, and a peer writes to the parent's, whichever
/// process touches a page first: ibv_fork_init(3) is not necessary.
#[test]
fn a_fork_separates_no_region_from_its_memory() {
    const LEN: usize = 16 * 4096;
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut near, mut far) = (pattern(LEN, 6), vec![1u8; LEN]);
    let source = client.register(&mut near, LOCAL_WRITE);
    let target = server.register(&mut far, ALL);
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let memory = far.as_mut_ptr();
    // SAFETY: the child calls read, write to its own memory and _exit only, which are async-signal-safe.
    let child = unsafe {
        match libc::fork() {
            0 => {
                let mut byte = 0u8;
                // Some pages are copied by the child before the peer writes, the others later.
                memory.add(4096).write_volatile(9);
                libc::close(pipe[1]);
                libc::read(pipe[0], (&raw mut byte).cast(), 1);
                let changed = (0..LEN).filter(|at| memory.add(*at).read_volatile() != 1).count();
                libc::_exit(if changed == 1 { 0 } else { 1 })
            }
            child => child,
        }
    };
    assert!(child > 0);
    // SAFETY: nothing else accesses this byte now. The write makes the parent copy the page before the peer
    // writes.
    unsafe { memory.add(8192).write_volatile(3) };
    let mut wr = aimed(WRITE, 1, target, memory as u64);
    assert_eq!(client.post(&mut wr, Some(&mut sge(source, 0, LEN))), 0);
    let mut back = vec![0u8; LEN];
    let sink = client.register(&mut back, LOCAL_WRITE);
    let mut wr = aimed(READ, 2, target, memory as u64);
    assert_eq!(client.post(&mut wr, Some(&mut sge(sink, 0, LEN))), 0);
    assert_eq!((client.poll().status, client.poll().status), (0, 0));
    assert!(far == near && back == near);
    // SAFETY: the descriptors were made above; the child ends when the pipe is closed.
    unsafe {
        libc::close(pipe[1]);
        libc::close(pipe[0]);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "the child's memory is as it was");
    }
    [source, target, sink].into_iter().for_each(dereg);
    client.destroy();
    server.destroy();
}
