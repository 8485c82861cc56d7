// SPDX-License-Identifier: BSD-3-Clause
//! Two queue pairs of one process, connected over the loopback address: the operations, and the end of
//! connections.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::{rdma as cm, verbs};

const SEND: u32 = ibv_wr_opcode::IBV_WR_SEND;
const SEND_IMM: u32 = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
const WRITE_IMM: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
const READ: u32 = ibv_wr_opcode::IBV_WR_RDMA_READ;
const DISCONNECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED;
const REJECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_REJECTED;
const FLUSH_ERR: u32 = 5;

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

fn write_then_read(host: &std::ffi::CStr, len: usize) {
    let (client, server) = pair(host, 16);
    let (mut from, mut to, mut back) = (pattern(len, 1), vec![0u8; len + 3], vec![0u8; len]);
    let source = client.register(&mut from, 0);
    let target = server.register(&mut to, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
    let sink = client.register(&mut back, LOCAL_WRITE);
    let mut wr = request(WRITE, 1, 0);
    aim(&mut wr, target, 3);
    assert_eq!(client.post(&mut wr, Some(&mut sge(source, 0, len))), 0);
    let mut wr = request(READ, 2, SIGNALED);
    aim(&mut wr, target, 3);
    assert_eq!(client.post(&mut wr, Some(&mut sge(sink, 0, len))), 0);
    let wc = client.poll();
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (2, 0, 2));
    assert!(back == from && to[3..] == from[..], "{len} bytes");
    assert_eq!(client.try_poll(), None, "the write was not signalled");
    dereg(source);
    dereg(target);
    dereg(sink);
    client.destroy();
    server.destroy();
}

#[test]
fn a_read_returns_what_was_written() {
    for len in [1, 8, 63, 64, 65, 4096, 65_536, 65_537, 5_000_001] {
        write_then_read(c"127.0.0.1", len);
    }
    write_then_read(c"::1", 100_000);
}

/// A small write of a polling program may be deferred until the next request. If it then fails, the
/// completion wakes the program although it has gone to sleep.
#[test]
fn a_deferred_write_that_fails_wakes_a_sleeping_program() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut near, mut far) = (vec![0u8; 8], vec![0u8; 8]);
    let local = client.register(&mut near, LOCAL_WRITE);
    let remote = server.register(&mut far, REMOTE_WRITE | LOCAL_WRITE | REMOTE_READ);
    for i in 0..2000 {
        let mut wr = request(READ, i, SIGNALED);
        aim(&mut wr, remote, 0);
        assert_eq!(client.post(&mut wr, Some(&mut sge(local, 0, 8))), 0);
        assert_eq!((client.poll().wr_id, client.try_poll()), (i, None));
    }
    let mut wr = request(WRITE, 7777, 0);
    aim(&mut wr, remote, 0);
    let mut unknown = sge(local, 0, 8);
    unknown.lkey ^= 1;
    assert_eq!(client.post(&mut wr, Some(&mut unknown)), 0);
    // SAFETY: the queue and its channel are not destroyed yet.
    let woken = unsafe {
        assert_eq!((*(*client.cq).context).ops.req_notify_cq.unwrap()(client.cq, 0), 0);
        let mut channel = libc::pollfd { fd: (*client.comp).fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut channel, 1, 10_000)
    };
    assert_eq!(woken, 1);
    let wc = client.poll();
    assert_eq!((wc.wr_id, wc.status), (7777, 4), "IBV_WC_LOC_PROT_ERR");
    dereg(local);
    dereg(remote);
    client.destroy();
    server.destroy();
}

#[test]
fn sends_fill_receives_in_order_with_their_immediate_data() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut from, mut to) = (pattern(100_000, 2), vec![0u8; 100_000]);
    let source = server.register(&mut from, 0);
    let target = client.register(&mut to, LOCAL_WRITE);
    assert_eq!(client.post_recv(10, Some(&mut sge(target, 0, 1000))), 0);
    assert_eq!(client.post_recv(11, Some(&mut sge(target, 1000, 99_000))), 0);
    assert_eq!(client.post_recv(12, None), 0);
    assert_eq!(server.post(&mut request(SEND, 1, SIGNALED), Some(&mut sge(source, 0, 500))), 0);
    let mut wr = request(SEND_IMM, 2, SIGNALED);
    wr.__bindgen_anon_1.imm_data = 0x0102_0304u32.to_be();
    assert_eq!(server.post(&mut wr, Some(&mut sge(source, 500, 99_000))), 0);
    assert_eq!(server.post(&mut request(SEND, 3, 0), None), 0);
    let got = |wr_id, byte_len, imm| Wc { wr_id, status: 0, opcode: 128, byte_len, imm };
    assert_eq!(client.poll(), got(10, 500, None));
    assert_eq!(client.poll(), got(11, 99_000, Some(0x0102_0304)));
    assert_eq!(client.poll(), got(12, 0, None));
    assert!(to[..500] == from[..500] && to[1000..] == from[500..99_500]);
    assert_eq!((server.poll().wr_id, server.poll().wr_id), (1, 2));
    dereg(source);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn a_message_waits_for_its_receive() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut from, mut to) = (pattern(64, 3), vec![0u8; 64]);
    let source = client.register(&mut from, 0);
    let target = server.register(&mut to, LOCAL_WRITE | REMOTE_WRITE);
    assert_eq!(client.post(&mut request(SEND, 1, SIGNALED), Some(&mut sge(source, 0, 64))), 0);
    let mut wr = request(WRITE_IMM, 2, SIGNALED);
    wr.__bindgen_anon_1.imm_data = 7u32.to_be();
    aim(&mut wr, target, 32);
    assert_eq!(client.post(&mut wr, Some(&mut sge(source, 0, 32))), 0);
    assert_eq!((client.poll().wr_id, client.poll().wr_id), (1, 2));
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(server.try_poll(), None);
    assert_eq!(server.post_recv(20, Some(&mut sge(target, 0, 64))), 0);
    assert_eq!(server.poll(), Wc { wr_id: 20, status: 0, opcode: 128, byte_len: 64, imm: None });
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(server.post_recv(21, None), 0);
    assert_eq!(server.poll(), Wc { wr_id: 21, status: 0, opcode: 129, byte_len: 32, imm: Some(7) });
    assert!(to[..32] == from[..32] && to[32..] == from[..32]);
    dereg(source);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn the_end_completes_every_request_once() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let mut to = vec![0u8; 64];
    let target = client.register(&mut to, LOCAL_WRITE);
    for wr_id in 0..5 {
        assert_eq!(client.post_recv(wr_id, Some(&mut sge(target, 0, 64))), 0);
    }
    // SAFETY: the identifier is not destroyed yet.
    assert_eq!(unsafe { cm::rdma_disconnect(server.id) }, 0);
    assert_eq!(next_event(client.events).0, DISCONNECTED);
    assert_eq!(next_event(server.events).0, DISCONNECTED);
    for wr_id in 0..5 {
        let wc = client.poll();
        assert_eq!((wc.wr_id, wc.status), (wr_id, FLUSH_ERR));
    }
    assert_eq!(client.post(&mut request(SEND, 9, 0), Some(&mut sge(target, 0, 1))), 0);
    let wc = client.poll();
    assert_eq!((wc.wr_id, wc.status), (9, FLUSH_ERR), "an unsignalled request that fails completes, too");
    assert_eq!(client.try_poll(), None);
    // SAFETY: the identifier is not destroyed yet. A second disconnect does nothing.
    assert_eq!(unsafe { cm::rdma_disconnect(client.id) }, 0);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn a_denied_access_ends_its_connection_and_changes_nothing() {
    let mut memory = vec![7u8; 4096];
    for case in 0..6 {
        let (client, server) = pair(c"127.0.0.1", 16);
        let (other_client, other) = pair(c"127.0.0.1", 16);
        let mut local = vec![1u8; 4096];
        let source = client.register(&mut local, LOCAL_WRITE);
        let readable = server.register(&mut memory[..2048], LOCAL_WRITE | REMOTE_READ);
        let writable = server.register(&mut memory[..2048], LOCAL_WRITE | REMOTE_WRITE);
        let foreign = other.register(&mut memory[..2048], LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
        let (opcode, mr, offset, rkey_change) = match case {
            0 => (WRITE, readable, 0, 0),
            1 => (READ, writable, 0, 0),
            2 => (WRITE, writable, 2048 - 99, 0),
            3 => (READ, readable, 2048 - 99, 0),
            4 => (WRITE, writable, 0, 0x55),
            _ => (READ, foreign, 0, 0),
        };
        let mut wr = request(opcode, 1, SIGNALED);
        aim(&mut wr, mr, offset);
        // SAFETY: the union was just set.
        unsafe { wr.wr.rdma.rkey ^= rkey_change };
        assert_eq!(client.post(&mut wr, Some(&mut sge(source, 0, 100))), 0);
        assert_eq!(next_event(client.events).0, DISCONNECTED, "case {case}");
        assert_eq!(next_event(server.events).0, DISCONNECTED, "case {case}");
        let wc = client.poll();
        // A write completes when TCP has accepted it, even if the target refuses it; a refused read has the
        // reason.
        assert_eq!((wc.wr_id, wc.status), (1, if opcode == WRITE { 0 } else { 10 }), "case {case}");
        // The other connection continues.
        let mut wr = request(READ, 2, SIGNALED);
        aim(&mut wr, foreign, 0);
        let mut back = vec![0u8; 16];
        let sink = other_client.register(&mut back, LOCAL_WRITE);
        assert_eq!(other_client.post(&mut wr, Some(&mut sge(sink, 0, 16))), 0);
        assert_eq!(other_client.poll().status, 0);
        assert_eq!(back, vec![7; 16]);
        for mr in [source, readable, writable, foreign, sink] {
            dereg(mr);
        }
        for end in [client, server, other_client, other] {
            end.destroy();
        }
    }
    assert!(memory.iter().all(|&b| b == 7));
}

#[test]
fn a_wrong_local_key_fails_its_request() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut local, mut memory) = (vec![1u8; 64], vec![0u8; 64]);
    let source = client.register(&mut local, 0);
    let target = server.register(&mut memory, LOCAL_WRITE | REMOTE_WRITE);
    let mut wr = request(WRITE, 1, SIGNALED);
    aim(&mut wr, target, 0);
    assert_eq!(client.post(&mut wr, Some(&mut sge(source, 0, 65))), 0);
    let wc = client.poll();
    assert_eq!((wc.wr_id, wc.status), (1, 4));
    assert_eq!(next_event(client.events).0, DISCONNECTED);
    assert_eq!(memory, vec![0; 64]);
    dereg(source);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn a_port_without_a_listener_rejects() {
    // SAFETY: the listener is destroyed once, before the connection to its port.
    let port = unsafe {
        let events = cm::rdma_create_event_channel();
        let (id, port) = listen(events, c"127.0.0.1");
        cm::rdma_destroy_id(id);
        cm::rdma_destroy_event_channel(events);
        port
    };
    let client = connect(c"127.0.0.1", port, 4, b"");
    assert_eq!(next_event(client.events).0, REJECTED);
    client.destroy();
}

#[test]
fn a_request_can_be_rejected_with_a_reason() {
    // SAFETY: each object is destroyed exactly once.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listen_id, port) = listen(events, c"::1");
        let client = connect(c"::1", port, 4, &[9; 251]);
        let (id, data) = take_request(events);
        assert_eq!(data, vec![9; 251]);
        assert_eq!(cm::rdma_reject(id, c"no".as_ptr().cast(), 2), 0);
        let (kind, status, reason) = next_event(client.events);
        assert_eq!((kind, reason), (REJECTED, b"no".to_vec()));
        assert!(status < 0);
        cm::rdma_destroy_id(id);
        cm::rdma_destroy_id(listen_id);
        cm::rdma_destroy_event_channel(events);
        client.destroy();
    }
}

#[test]
fn a_waiting_program_is_woken() {
    let (client, server) = pair(c"127.0.0.1", 16);
    let mut to = vec![0u8; 8];
    let target = server.register(&mut to, LOCAL_WRITE);
    assert_eq!(server.post_recv(1, Some(&mut sge(target, 0, 8))), 0);
    // SAFETY: the completion queue is not destroyed yet; its event is acknowledged exactly once.
    unsafe {
        assert_eq!((*(*server.cq).context).ops.req_notify_cq.unwrap()(server.cq, 0), 0);
        assert_eq!(client.post(&mut request(SEND, 1, SIGNALED), None), 0);
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(verbs::ibv_get_cq_event(server.comp, &mut cq, &mut context), 0);
        assert_eq!(cq, server.cq);
        verbs::ibv_ack_cq_events(cq, 1);
    }
    assert_eq!(server.poll().wr_id, 1);
    assert_eq!(client.poll().wr_id, 1);
    dereg(target);
    client.destroy();
    server.destroy();
}

#[test]
fn a_full_completion_queue_loses_nothing() {
    // The queue holds 2 x 8 completions, the queue pair 8 requests of each kind: fill both.
    let (client, server) = pair(c"127.0.0.1", 8);
    for round in 0..50u64 {
        for wr_id in 0..8 {
            assert_eq!(server.post_recv(wr_id, None), 0);
        }
        for wr_id in 0..8 {
            assert_eq!(client.post(&mut request(SEND, wr_id, SIGNALED), None), 0, "round {round}");
        }
        assert_eq!(client.post(&mut request(SEND, 99, SIGNALED), None), libc::ENOMEM);
        for wr_id in 0..8 {
            assert_eq!(client.poll().wr_id, wr_id);
            assert_eq!(server.poll().wr_id, wr_id);
        }
    }
    client.destroy();
    server.destroy();
}
