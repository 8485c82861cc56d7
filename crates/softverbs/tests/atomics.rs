// SPDX-License-Identifier: BSD-3-Clause
//! Atomic operations between two ends, with the calls that the inline functions of `verbs.h` make.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::verbs;
use std::sync::atomic::{AtomicU64, Ordering};

const ADD: u32 = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
const SWAP: u32 = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
const FETCH_ADD: u32 = 4;
const COMP_SWAP: u32 = 3;
const LOC_PROT_ERR: u32 = 4;
const LOC_QP_OP_ERR: u32 = 2;
const REM_INV_REQ_ERR: u32 = 9;
const REM_ACCESS_ERR: u32 = 10;
const FLUSH_ERR: u32 = 5;
const ZERO_BASED: i32 = 1 << 5;
const OPS_ATOMIC: u64 = 1 << 5 | 1 << 6;

fn atomic(opcode: u32, mr: *mut ibv_mr, at: u64, compare_add: u64, swap: u64) -> ibv_send_wr {
    let mut wr = request(opcode, 1, SIGNALED);
    // SAFETY: the region is still registered.
    let (addr, rkey) = unsafe { ((*mr).addr as u64, (*mr).rkey) };
    wr.wr.atomic =
        ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr: addr + at, compare_add, swap, rkey };
    wr
}

/// The bytes of words, so that they are aligned.
fn bytes(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the result covers exactly the bytes of `words`, which it borrows exclusively; any bytes are
    // valid.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

const ATOMIC: i32 = LOCAL_WRITE | REMOTE_ATOMIC;

#[test]
fn both_operations() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut near, mut far) = (vec![0u64; 4], vec![0u64, 100, 7, 0]);
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    let target = server.register(bytes(&mut far), ATOMIC);
    let run = |opcode, at, compare_add, swap| {
        let mut wr = atomic(opcode, target, at, compare_add, swap);
        assert_eq!(client.post(&mut wr, Some(&mut sge(sink, 8, 8))), 0);
        let wc = client.poll();
        let kind = if opcode == ADD { FETCH_ADD } else { COMP_SWAP };
        assert_eq!((wc.status, wc.opcode, wc.byte_len), (0, kind, 8));
        // SAFETY: this is the second word of `near`; the read is volatile since the kernel has written to it.
        unsafe { near.as_ptr().add(1).read_volatile() }
    };
    assert_eq!(run(ADD, 8, 5, 99), 100);
    assert_eq!(run(ADD, 8, u64::MAX, 99), 105, "one less");
    assert_eq!(run(SWAP, 16, 7, 70), 7);
    assert_eq!(run(SWAP, 16, 7, 700), 70, "nothing is stored");
    assert_eq!(run(ADD, 16, 0, 0), 70);
    dereg(sink);
    dereg(target);
    client.destroy();
    server.destroy();
    assert_eq!(far, [0, 104, 70, 0]);
    assert_eq!((near[0], near[2]), (0, 0));
}

#[test]
fn operations_of_two_connections_and_the_processor_are_atomic() {
    const EACH: u64 = 300;
    let word = AtomicU64::new(0);
    // SAFETY: these are the bytes of the word, which is only changed by atomic operations; the slice is used
    // only for its address.
    let memory = unsafe { std::slice::from_raw_parts_mut(word.as_ptr().cast::<u8>(), 8) };
    let ends = [pair(c"127.0.0.1", 16), pair(c"::1", 16)];
    let targets: Vec<_> = ends.iter().map(|(_, server)| server.register(memory, ATOMIC)).collect();
    let mut sinks = [[0u64; 1]; 2];
    let sinks: Vec<_> = ends
        .iter()
        .zip(&mut sinks)
        .map(|((client, _), sink)| client.register(bytes(sink), LOCAL_WRITE))
        .collect();
    let (mut done, mut by_processor) = (0, 0);
    let mut posted = [0; 2];
    while done < 2 * EACH {
        for (i, (client, _)) in ends.iter().enumerate() {
            let mut wr = atomic(ADD, targets[i], 0, 1, 0);
            if posted[i] < EACH && client.post(&mut wr, Some(&mut sge(sinks[i], 0, 8))) == 0 {
                posted[i] += 1;
            }
            if let Some(wc) = client.try_poll() {
                assert_eq!(wc.status, 0);
                done += 1;
            }
        }
        word.fetch_add(1 << 32, Ordering::Relaxed);
        by_processor += 1;
    }
    assert_eq!(word.load(Ordering::Relaxed), by_processor << 32 | (2 * EACH));
    sinks.into_iter().chain(targets).for_each(dereg);
    for (client, server) in ends {
        client.destroy();
        server.destroy();
    }
}

/// Posts one operation on a new connection and returns its status. Unless that is 0, nothing may have
/// changed.
fn one(rights: i32, at: u64, change: impl FnOnce(&mut ibv_send_wr, &mut ibv_sge)) -> u32 {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut near, mut far) = (vec![7u64; 2], vec![1u64; 3]);
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    let target = server.register(bytes(&mut far), rights);
    let mut wr = atomic(ADD, target, at, 1, 0);
    let mut entry = sge(sink, 0, 8);
    change(&mut wr, &mut entry);
    assert_eq!(client.post(&mut wr, Some(&mut entry)), 0);
    let status = client.poll().status;
    if status != 0 {
        // The connection has ended, so further requests are flushed.
        assert_eq!(client.post(&mut atomic(ADD, target, 0, 1, 0), Some(&mut sge(sink, 0, 8))), 0);
        assert_eq!(client.poll().status, FLUSH_ERR);
    }
    dereg(sink);
    dereg(target);
    client.destroy();
    server.destroy();
    if status != 0 {
        assert_eq!(near, [7; 2]);
    }
    if !matches!(status, 0 | LOC_PROT_ERR) {
        assert_eq!(far, [1; 3], "status {status}");
    }
    status
}

#[test]
fn a_failure_has_its_status_and_changes_nothing() {
    let nothing = |_: &mut ibv_send_wr, _: &mut ibv_sge| ();
    assert_eq!(one(ATOMIC, 0, nothing), 0);
    for at in 1..8 {
        assert_eq!(one(ATOMIC, at, nothing), REM_INV_REQ_ERR, "at {at}");
    }
    assert_eq!(one(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ, 0, nothing), REM_ACCESS_ERR);
    assert_eq!(one(ATOMIC, 24, nothing), REM_ACCESS_ERR);
    assert_eq!(one(ATOMIC, 0, |wr, _| wr.wr.atomic.remote_addr = u64::MAX - 3), REM_ACCESS_ERR);
    assert_eq!(one(ATOMIC, 0, |wr, _| wr.wr.atomic.rkey = 2), REM_ACCESS_ERR);
    assert_eq!(one(ATOMIC, 0, |_, sge| sge.lkey = 2), LOC_PROT_ERR);
}

/// The word in memory must be aligned, not the offset in its region.
#[test]
fn alignment_is_that_of_the_memory_not_of_the_offset() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut near, mut far) = (vec![0u64; 1], vec![1u64; 4]);
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    let target = server.register(&mut bytes(&mut far)[4..28], ATOMIC | ZERO_BASED);
    let status = |at| {
        let mut wr = atomic(ADD, target, 0, 1, 0);
        wr.wr.atomic.remote_addr = at;
        assert_eq!(client.post(&mut wr, Some(&mut sge(sink, 0, 8))), 0);
        client.poll().status
    };
    assert_eq!(status(4), 0);
    assert_eq!(status(12), 0);
    assert_eq!(status(8), REM_INV_REQ_ERR);
    dereg(sink);
    dereg(target);
    client.destroy();
    server.destroy();
    assert_eq!(far, [1, 2, 2, 1]);
}

#[test]
fn unmapped_memory_ends_the_connection_and_not_the_process() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let mut near = vec![0u64; 1];
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    // SAFETY: a new mapping, which is unmapped once while a region is registered there, as a program may do.
    let target = unsafe {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        let target = verbs::ibv_reg_mr(server.pd, page, 4096, ATOMIC);
        assert!(!target.is_null());
        libc::mprotect(page, 4096, libc::PROT_READ);
        target
    };
    assert_eq!(client.post(&mut atomic(ADD, target, 0, 1, 0), Some(&mut sge(sink, 0, 8))), 0);
    assert_eq!(client.poll().status, REM_ACCESS_ERR);
    dereg(sink);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn invalid_requests_are_not_posted() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let mut near = vec![0u64; 4];
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    for opcode in [ADD, SWAP] {
        let wr = || atomic(opcode, sink, 0, 1, 0);
        for len in [0, 4, 7, 9, 16] {
            assert_eq!(client.post(&mut wr(), Some(&mut sge(sink, 0, len))), libc::EINVAL, "{len} bytes");
        }
        assert_eq!(client.post(&mut wr(), None), libc::EINVAL, "no entry");
        let mut two = [sge(sink, 0, 4), sge(sink, 8, 4)];
        assert_eq!(client.post_entries(&mut wr(), &mut two), libc::EINVAL, "two entries");
    }
    assert_eq!(client.try_poll(), None);
    dereg(sink);
    client.destroy();
    server.destroy();
}

/// The connection was negotiated without outstanding reads and atomic operations.
#[test]
fn no_atomic_operations_with_an_ord_of_0() {
    // SAFETY: the listener and its channel are destroyed exactly once.
    let (client, server) = unsafe {
        let events = softverbs::rdma::rdma_create_event_channel();
        let (listener, port) = listen(events, c"127.0.0.1");
        let client =
            connect_with(c"127.0.0.1", port, 16, &mut rdma_conn_param { initiator_depth: 0, ..param(b"") });
        let (id, _) = take_request(events);
        let server = accept(id, 16, b"");
        next_event(client.events);
        next_event(server.events);
        softverbs::rdma::rdma_destroy_id(listener);
        softverbs::rdma::rdma_destroy_event_channel(events);
        (client, server)
    };
    let mut near = vec![0u64; 1];
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    assert_eq!(client.post(&mut atomic(ADD, sink, 0, 1, 0), Some(&mut sge(sink, 0, 8))), 0);
    assert_eq!(client.poll().status, LOC_QP_OP_ERR);
    dereg(sink);
    client.destroy();
    server.destroy();
}

#[test]
fn an_extended_queue_pair_posts_both() {
    OPERATIONS.set(OPS_ATOMIC);
    let (client, server) = pair(c"127.0.0.1", 16);
    OPERATIONS.set(0);
    let (mut near, mut far) = (vec![0u64; 2], vec![10u64; 1]);
    let sink = client.register(bytes(&mut near), LOCAL_WRITE);
    let target = server.register(bytes(&mut far), ATOMIC);
    // SAFETY: the queue pair was created with operations and lives; the calls are between start and complete.
    unsafe {
        let qp = verbs::ibv_qp_to_qp_ex(client.qp);
        let (addr, rkey) = ((*target).addr as u64, (*target).rkey);
        assert!((*qp).wr_rdma_write.is_none());
        (*qp).wr_start.unwrap()(qp);
        (*qp).wr_flags = SIGNALED;
        (*qp).wr_id = 1;
        (*qp).wr_atomic_fetch_add.unwrap()(qp, rkey, addr, 5);
        (*qp).wr_set_sge.unwrap()(qp, (*sink).lkey, (*sink).addr as u64, 8);
        (*qp).wr_id = 2;
        (*qp).wr_atomic_cmp_swp.unwrap()(qp, rkey, addr, 15, 3);
        (*qp).wr_set_sge.unwrap()(qp, (*sink).lkey, (*sink).addr as u64 + 8, 8);
        assert_eq!((*qp).wr_complete.unwrap()(qp), 0);
        let done = [client.poll(), client.poll()].map(|wc| (wc.wr_id, wc.status, wc.opcode));
        assert_eq!(done, [(1, 0, FETCH_ADD), (2, 0, COMP_SWAP)]);
        // Without an SGE it is not posted.
        (*qp).wr_start.unwrap()(qp);
        (*qp).wr_atomic_fetch_add.unwrap()(qp, rkey, addr, 5);
        assert_eq!((*qp).wr_complete.unwrap()(qp), libc::EINVAL);
    }
    dereg(sink);
    dereg(target);
    client.destroy();
    server.destroy();
    assert_eq!((near, far), (vec![10, 15], vec![3]));
}

#[test]
fn the_device_reports_them() {
    // SAFETY: the context is never closed, and the attributes are written as a whole.
    unsafe {
        let mut attr: ibv_device_attr = std::mem::zeroed();
        assert_eq!(verbs::ibv_query_device(softverbs::context(), &mut attr), 0);
        assert_eq!(attr.atomic_cap, ibv_atomic_cap::IBV_ATOMIC_GLOB);
        assert_eq!((attr.max_qp_rd_atom, attr.max_qp_init_rd_atom), (128, 128));
        assert!(attr.max_res_rd_atom >= attr.max_qp_rd_atom);
        let mut attr: ibv_device_attr_ex = std::mem::zeroed();
        assert_eq!(verbs::ibv_query_device_ex(softverbs::context(), std::ptr::null(), &mut attr), 0);
        assert_ne!(attr.odp_caps.per_transport_caps.rc_odp_caps & 1 << 4, 0);
        let pci = attr.pci_atomic_caps;
        assert_eq!((pci.fetch_add, pci.swap, pci.compare_swap), (0, 0, 0));
    }
}
