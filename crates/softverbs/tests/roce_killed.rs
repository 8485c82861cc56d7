// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm on a RoCE device, and processes that are killed, for which no kernel sends a message as for those
//! of its rdma_cm. Each test runs in a separate network namespace.

mod common;

use common::cm_peer::{Peer, dreq, rej, rep, req};
use common::ids::destroy;
use common::restart::{Partner, child_alone, print, role, wait_to_be_killed};
use common::{End, accept, connect, has_event, has_event_of, listener, next_event, take_request};
use rdma_sys::rdma_cm_event_type::*;
use rdma_sys::{ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state};
use softverbs::verbs;
use std::mem::zeroed;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use transport::roce::wire::cm::{Answered, Message, Reason, Req};
use transport::roce::wire::{Bth, Extension, Opcode, Operation, Psn};

#[test]
fn another_process_answers_the_messages_for_one_that_was_killed() {
    const NAME: &str = "another_process_answers_the_messages_for_one_that_was_killed";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        connect(c"127.0.0.9", 7471, 4, b"");
        wait_to_be_killed();
    }
    let (listening, ..) = listener();
    let peer = Peer::new();
    let client = Partner::start(NAME, "client");
    let Message::Req(req) = peer.receive().message else { panic!("no REQ") };
    client.kill();
    let rep = rep(0x55, req.local_comm_id);
    let Message::Rej(rej) = peer.transact(&Message::Rep(rep)).message else { panic!("no REJ") };
    assert_eq!((rej.answered, rej.reason), (Answered::Rep, Reason::INVALID_COMM_ID));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (req.local_comm_id, 0x55));
    // As if the connection had been established.
    // No answer to a request of its queue pair, as of an adapter without it: the DREP is next.
    let bth = Bth::new(Opcode::Rc(Operation::SendOnly), req.local_qpn, Psn::new(9));
    peer.send_packet(&Bth { ack_req: true, ..bth }, &Extension::None, b"data");
    let dreq = dreq(0x55, req.local_comm_id, req.local_qpn);
    let Message::Drep(drep) = peer.transact(&dreq).message else { panic!("no DREP") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (req.local_comm_id, 0x55));
    destroy(listening);
}

#[test]
fn a_request_ends_when_the_peer_gives_it_up() {
    const NAME: &str = "a_request_ends_when_the_peer_gives_it_up";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        let _listening = listener();
        print(0);
        wait_to_be_killed();
    }
    let (listening, events, port) = listener();
    let mut others: Vec<_> = (0..3).map(|_| Partner::start(NAME, "other")).collect();
    others.iter_mut().for_each(|other| assert_eq!(other.number(), 0));
    let peer = Peer::new();
    for comm_id in 1..=8 {
        let req = Req { local_qpn: 0x12_3456 + comm_id, ..req(port, comm_id) };
        peer.send(Message::Req(req));
        let (id, _) = take_request(events);
        // As the kernel does for a process that is killed: the peer does not know the communication id of the
        // receiver. Any of the processes receives it, and only one has the request.
        Peer::send_from_any_port(rej(comm_id, 0, Reason::TIMEOUT));
        assert!(has_event_of(events, Duration::from_secs(10)), "request {comm_id} has not ended");
        let (event, status, _) = next_event(events);
        assert_eq!((event, status), (RDMA_CM_EVENT_REJECTED, i32::from(Reason::TIMEOUT.0)));
        destroy(id);
    }
    destroy(listening);
}

/// The peer of a connection was killed: it has ended, as by a DREQ. At once, compared with the timeouts of a
/// request that is not acknowledged.
fn has_ended(end: &End) {
    for expected in [RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT] {
        assert!(has_event(end, Duration::from_secs(10)), "no event {expected}");
        assert_eq!(next_event(end.events).0, expected);
    }
    // SAFETY: the queue pair lives, and all-zero attributes are valid.
    unsafe {
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
        assert_eq!(verbs::ibv_query_qp(end.qp, &mut attr, 1, &mut init), 0);
        assert_eq!(attr.qp_state, ibv_qp_state::IBV_QPS_ERR);
    }
}

#[test]
fn a_connection_ends_when_the_process_that_accepted_it_is_killed() {
    const NAME: &str = "a_connection_ends_when_the_process_that_accepted_it_is_killed";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        let (_, events, port) = listener();
        print(port.into());
        let _end = accept(take_request(events).0, 4, b"");
        wait_to_be_killed();
    }
    let mut server = Partner::start(NAME, "server");
    let client = connect(c"127.0.0.1", server.number() as u16, 4, b"");
    assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_ESTABLISHED);
    server.kill();
    has_ended(&client);
    client.destroy();
}

/// Its sockets are close-on-exec, and no exit handler runs.
#[test]
fn a_connection_ends_when_the_process_executes_another_program() {
    const NAME: &str = "a_connection_ends_when_the_process_executes_another_program";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        let (_, events, port) = listener();
        print(port.into());
        let end = accept(take_request(events).0, 4, b"");
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
        panic!("{}", Command::new("sleep").arg("100").exec());
    }
    let mut server = Partner::start(NAME, "server");
    let client = connect(c"127.0.0.1", server.number() as u16, 4, b"");
    assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_ESTABLISHED);
    has_ended(&client);
    client.destroy();
    drop(server);
}

#[test]
fn connections_end_when_the_process_that_requested_them_is_killed() {
    const NAME: &str = "connections_end_when_the_process_that_requested_them_is_killed";
    if !child_alone(NAME) {
        return;
    }
    if let Some(port) = role() {
        for _ in 0..2 {
            let client = connect(c"127.0.0.1", port.parse().unwrap(), 4, b"");
            assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_ESTABLISHED);
        }
        print(0);
        wait_to_be_killed();
    }
    let (listening, events, port) = listener();
    let start = || Partner::start(NAME, &port.to_string());
    let (first, mut killed) = (start(), start());
    let ends: Vec<_> = (0..4).map(|_| accept(take_request(events).0, 4, b"")).collect();
    for end in &ends {
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
    }
    killed.number();
    // SAFETY: the queue pairs live, and all-zero attributes are valid.
    let slot_of_peer = |end: &End| unsafe {
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
        assert_eq!(verbs::ibv_query_qp(end.qp, &mut attr, 1 << 20, &mut init), 0);
        attr.dest_qp_num >> 16
    };
    let one = slot_of_peer(&ends[0]);
    let (mut of_one, mut of_other): (Vec<_>, Vec<_>) =
        ends.into_iter().partition(|end| slot_of_peer(end) == one);
    assert_eq!((of_one.len(), of_other.len()), (2, 2));
    killed.kill();
    // Which of the two it was shows the first event.
    let has_event = |end: &End| has_event(end, Duration::ZERO);
    let begin = Instant::now();
    while !has_event(&of_one[0]) && !has_event(&of_other[0]) {
        assert!(begin.elapsed() < Duration::from_secs(10), "no event");
        std::thread::yield_now();
    }
    if has_event(&of_other[0]) {
        std::mem::swap(&mut of_one, &mut of_other);
    }
    of_one.iter().for_each(has_ended);
    assert!(!of_other.iter().any(has_event), "the other process lives");
    drop(first);
    of_other.iter().for_each(has_ended);
    of_one.into_iter().chain(of_other).for_each(End::destroy);
    destroy(listening);
}
