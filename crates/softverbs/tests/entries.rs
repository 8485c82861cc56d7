// SPDX-License-Identifier: BSD-3-Clause
//! Scatter/gather lists and inline data, from the work request to the other end's memory.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::verbs;
use std::ptr::null_mut;

const SEND: u32 = ibv_wr_opcode::IBV_WR_SEND;
const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
const WRITE_IMM: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
const READ: u32 = ibv_wr_opcode::IBV_WR_RDMA_READ;
const INLINE: u32 = 8;
const LOC_PROT_ERR: u32 = 4;
const MAX_INLINE: usize = 220;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + i / 251 + seed) % 256) as u8).collect()
}

fn aim(wr: &mut ibv_send_wr, mr: *mut ibv_mr, offset: usize) {
    // SAFETY: the caller keeps the region registered.
    unsafe {
        wr.wr.rdma.remote_addr = (*mr).addr as u64 + offset as u64;
        wr.wr.rdma.rkey = (*mr).rkey;
    }
}

/// Entries of these lengths, with `gap` bytes between them, the last one first in memory.
fn list(mr: *mut ibv_mr, lens: &[usize], gap: usize) -> Vec<ibv_sge> {
    let mut at = lens.iter().map(|len| len + gap).sum();
    lens.iter()
        .map(|len| {
            at -= len + gap;
            sge(mr, at, *len)
        })
        .collect()
}

fn bytes_of(memory: &[u8], base: *mut ibv_mr, list: &[ibv_sge]) -> Vec<u8> {
    // SAFETY: the region is still registered.
    let base = unsafe { (*base).addr as u64 };
    let part = |entry: &ibv_sge| memory[(entry.addr - base) as usize..][..entry.length as usize].to_vec();
    list.iter().flat_map(part).collect()
}

/// Exchanges a Send and a Write with entries of lengths `lens`, received in entries of lengths `room`.
fn exchange(lens: &[usize], room: &[usize]) {
    let len: usize = lens.iter().sum();
    let size = 2 * (len + room.iter().sum::<usize>()) + 4096;
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut from, mut to, mut written) = (pattern(size, 1), vec![0u8; size], vec![0u8; size]);
    let source = client.register(&mut from, 0);
    let target = server.register(&mut to, LOCAL_WRITE);
    let writable = server.register(&mut written, LOCAL_WRITE | REMOTE_WRITE);
    let mut gather = list(source, lens, 5);
    let mut scatter = list(target, room, 9);
    assert_eq!(server.post_recv_entries(1, &mut scatter), 0);
    assert_eq!(server.post_recv_entries(2, &mut []), 0);
    assert_eq!(client.post_entries(&mut request(SEND, 3, SIGNALED), &mut gather), 0);
    let mut wr = request(WRITE_IMM, 4, SIGNALED);
    aim(&mut wr, writable, 7);
    assert_eq!(client.post_entries(&mut wr, &mut gather), 0);
    let done = [client.poll(), client.poll()].map(|wc| (wc.wr_id, wc.status));
    assert_eq!(done, [(3, 0), (4, 0)]);
    let received = [server.poll(), server.poll()].map(|wc| (wc.wr_id, wc.status, wc.byte_len as usize));
    assert_eq!(received, [(1, 0, len), (2, 0, len)]);
    let sent = bytes_of(&from, source, &gather);
    assert!(bytes_of(&to, target, &scatter)[..len] == sent, "{lens:?} into {room:?}");
    assert!(written[7..7 + len] == sent, "{lens:?} written");
    for mr in [source, target, writable] {
        dereg(mr);
    }
    client.destroy();
    server.destroy();
}

#[test]
fn entries_arrive_in_the_order_of_the_lists() {
    let most = [3usize; SGE as usize];
    let cases: [(&[usize], &[usize]); 7] = [
        (&[8, 8], &[16]),
        (&[16], &[8, 8]),
        (&[1, 100, 7], &[64, 3, 1, 40]),
        (&[0, 10, 0, 20, 0], &[0, 5, 0, 0, 25]),
        (&[100_000, 3, 70_000], &[9000, 1, 200_000]),
        (&most, &most),
        (&[0, 0], &[0, 0]),
    ];
    for (lens, room) in cases {
        exchange(lens, room);
    }
}

/// The memory that a read fills has no remote rights, and the peer gets none of its keys.
#[test]
fn a_read_fills_its_entries_in_order() {
    for room in [&[100usize][..], &[1, 99], &[0, 50, 0, 50], &[9000, 70_000, 3], &[10; SGE as usize]] {
        let len: usize = room.iter().sum();
        let (client, server) = pair(c"127.0.0.1", 16);
        let (mut from, mut to) = (pattern(len + 7, 1), vec![0u8; 2 * len + 4096]);
        let source = server.register(&mut from, REMOTE_READ);
        let target = client.register(&mut to, LOCAL_WRITE);
        for wr_id in 0..3 {
            let mut scatter = list(target, room, 9);
            let mut wr = request(READ, wr_id, SIGNALED);
            aim(&mut wr, source, 7);
            assert_eq!(client.post_entries(&mut wr, &mut scatter), 0);
            let wc = client.poll();
            assert_eq!((wc.wr_id, wc.status), (wr_id, 0));
            assert!(bytes_of(&to, target, &scatter) == from[7..], "{room:?}");
            to.fill(0);
        }
        dereg(source);
        dereg(target);
        client.destroy();
        server.destroy();
    }
}

/// The local memory is invalid, not the response.
#[test]
fn a_read_into_memory_that_may_not_be_written_fails() {
    for second in [0, 1] {
        let (client, server) = pair(c"127.0.0.1", 16);
        let (mut from, mut to, mut other) = (pattern(64, 1), vec![0u8; 64], vec![0u8; 64]);
        let source = server.register(&mut from, REMOTE_READ);
        let (good, bad) = (client.register(&mut to, LOCAL_WRITE), client.register(&mut other, 0));
        let mut scatter = [sge(bad, 0, 32), sge(good, 0, 32)];
        scatter.rotate_left(second);
        let mut wr = request(READ, 7, SIGNALED);
        aim(&mut wr, source, 0);
        assert_eq!(client.post_entries(&mut wr, &mut scatter), 0);
        assert_eq!(client.poll().status, LOC_PROT_ERR);
        assert!(to.iter().chain(&other).all(|byte| *byte == 0));
        for mr in [source, good, bad] {
            dereg(mr);
        }
        client.destroy();
        server.destroy();
    }
}

#[test]
fn a_shared_receive_queue_scatters_too() {
    let (client, server) = pair(c"127.0.0.1", 4);
    // SAFETY: the arguments are objects that are not destroyed yet, and each is destroyed exactly once.
    unsafe {
        let mut attr: ibv_srq_init_attr = std::mem::zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (4, 17);
        assert!(
            verbs::ibv_create_srq(server.pd, &mut attr).is_null(),
            "more entries than the device supports"
        );
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        attr.attr.max_sge = 3;
        let srq = verbs::ibv_create_srq(server.pd, &mut attr);
        assert!(!srq.is_null() && attr.attr.max_sge == 3);
        let post = |count| {
            let mut list = vec![ibv_sge { addr: 0, length: 0, lkey: 0 }; 17];
            let mut wr =
                ibv_recv_wr { wr_id: 1, next: null_mut(), num_sge: count, sg_list: list.as_mut_ptr() };
            let mut bad = null_mut();
            let result = (*(*srq).context).ops.post_srq_recv.unwrap()(srq, &mut wr, &mut bad);
            assert!(result == 0 || bad == &raw mut wr);
            result
        };
        assert_eq!([3, 4, -1].map(post), [0, libc::EINVAL, libc::EINVAL]);
        assert_eq!(verbs::ibv_destroy_srq(srq), 0);
    }
    client.destroy();
    server.destroy();
}

#[test]
fn inline_data_is_copied_when_it_is_posted() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let mut to = vec![0u8; 4096];
    let target = server.register(&mut to, LOCAL_WRITE | REMOTE_WRITE);
    for lens in [&[1usize][..], &[32], &[33], &[MAX_INLINE], &[0, 16, 16, 0], &[100, 1, 119], &[0]] {
        let len: usize = lens.iter().sum();
        let mut from = pattern(len, 9);
        let expected = from.clone();
        let mut at = from.as_mut_ptr() as u64;
        let mut entries: Vec<ibv_sge> = Vec::new();
        for len in lens {
            // No key: the memory is not registered.
            entries.push(ibv_sge { addr: at, length: *len as u32, lkey: 0xdead });
            at += *len as u64;
        }
        assert_eq!(server.post_recv(1, Some(&mut sge(target, 0, 1024))), 0);
        let mut wr = request(WRITE, 2, INLINE);
        aim(&mut wr, target, 2048);
        assert_eq!(client.post_entries(&mut wr, &mut entries), 0);
        assert_eq!(client.post_entries(&mut request(SEND, 3, SIGNALED | INLINE), &mut entries), 0);
        from.fill(0);
        assert_eq!((client.poll().status, server.poll().byte_len as usize), (0, len));
        assert!(to[..len] == expected && to[2048..2048 + len] == expected, "{lens:?}");
    }
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn invalid_lists_are_refused_without_effect() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut from, mut to) = (pattern(4096, 1), vec![0u8; 4096]);
    let source = client.register(&mut from, LOCAL_WRITE);
    let target = server.register(&mut to, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
    let refused = |opcode, flags, lens: &[usize]| {
        let mut wr = request(opcode, 1, SIGNALED | flags);
        aim(&mut wr, target, 0);
        let mut entries: Vec<_> = lens.iter().map(|len| sge(source, 0, *len)).collect();
        assert_eq!(client.post_entries(&mut wr, &mut entries), libc::EINVAL, "{opcode} {lens:?}");
    };
    let too_many = [1usize; SGE as usize + 1];
    for opcode in [SEND, WRITE, WRITE_IMM, READ] {
        refused(opcode, 0, &too_many);
        refused(opcode, 0, &[1 << 30, 1 << 30, 1]);
        refused(opcode, 0, &[u32::MAX as usize, 1]);
        let mut wr = request(opcode, 1, SIGNALED);
        for (num_sge, list) in [(-1, &mut sge(source, 0, 1) as *mut ibv_sge), (2, null_mut())] {
            (wr.num_sge, wr.sg_list) = (num_sge, list);
            assert_eq!(client.post(&mut wr, None), libc::EINVAL);
        }
    }
    refused(SEND, INLINE, &[MAX_INLINE + 1]);
    refused(WRITE, INLINE, &[MAX_INLINE - 1, 0, 2]);
    let mut entries: Vec<_> = too_many.iter().map(|len| sge(target, 0, *len)).collect();
    assert_eq!(server.post_recv_entries(1, &mut entries), libc::EINVAL);
    assert_eq!(client.try_poll(), None, "nothing was posted");
    assert!(to.iter().all(|byte| *byte == 0));
    // A wrong key is detected when the bytes move.
    let mut wrong = [sge(source, 0, 8), ibv_sge { lkey: 0xbad, ..sge(source, 8, 8) }];
    assert_eq!(server.post_recv(5, Some(&mut sge(target, 0, 1024))), 0);
    assert_eq!(client.post_entries(&mut request(SEND, 7, SIGNALED), &mut wrong), 0);
    assert_eq!((client.poll().status, server.poll().wr_id), (LOC_PROT_ERR, 5));
    assert!(to.iter().all(|byte| *byte == 0));
    dereg(source);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn the_device_reports_its_limits() {
    // SAFETY: the context lives as long as the process, and the attributes are writable.
    let attr = unsafe {
        let mut attr: ibv_device_attr_ex = std::mem::zeroed();
        assert_eq!(verbs::ibv_query_device_ex(softverbs::context(), std::ptr::null(), &mut attr), 0);
        attr.orig_attr
    };
    assert_eq!((attr.max_sge, attr.max_sge_rd, attr.max_srq_sge), (16, 16, 16));
}
