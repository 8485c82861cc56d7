// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm on a RoCE device, and processes that exit without rdma_disconnect: as the kernel does for its
//! rdma_cm, they send the message that ends each connection or attempt. The peer has another GUID, as on
//! another host, so its end shows by messages only. Each test runs in a separate network namespace.

mod common;

use common::cm_peer::{Peer, rep, req, rtu};
use common::restart::{Partner, child_alone, print, role};
use common::{End, accept, connect, listener, next_event, take_request};
use rdma_sys::rdma_cm_event_type::*;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use transport::roce::wire::cm::{Mad, Message, Reason, Rep, Req};

/// The next REQ of the process, and its transaction id. It has sent nothing but REQs and RTUs before.
fn next_req(peer: &Peer) -> (u64, Req) {
    loop {
        let Mad { transaction, message } = peer.receive();
        match message {
            Message::Req(req) => return (transaction, req),
            Message::Rtu(_) => {}
            other => panic!("{other:?} instead of a REQ"),
        }
    }
}

/// Accepts a connection of the process, with this communication id of the peer.
fn accept_next(peer: &Peer, comm_id: u32) -> u32 {
    let (transaction, req) = next_req(peer);
    // Another queue pair for each, since a second connection of one would be stale.
    let rep = Rep { local_qpn: 0x10_0000 + comm_id, ..rep(comm_id, req.local_comm_id) };
    peer.answer(transaction, Message::Rep(rep));
    req.local_comm_id
}

/// As a client: connects to the peer, which accepts.
fn connect_to_peer() -> End {
    let end = connect(c"127.0.0.9", 7471, 4, b"");
    assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
    end
}

#[test]
fn a_process_that_exits_ends_its_connections_and_attempts() {
    const NAME: &str = "a_process_that_exits_ends_its_connections_and_attempts";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        let (_listening, events, port) = listener();
        connect_to_peer();
        connect_to_peer();
        // The peer does not answer.
        connect(c"127.0.0.9", 7471, 4, b"");
        print(port.into());
        let server = accept(take_request(events).0, 4, b"");
        assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
        std::process::exit(0);
    }
    let peer = Peer::new();
    let mut process = Partner::start(NAME, "client");
    let mut connected: BTreeSet<_> = (1..=2).map(|id| (accept_next(&peer, id), id)).collect();
    let attempt = next_req(&peer).1.local_comm_id;
    let port = process.number() as u16;
    let server = loop {
        peer.send(Message::Req(Req { local_qpn: 0x10_0003, ..req(port, 3) }));
        if let Message::Rep(rep) = peer.receive().message {
            break rep.local_comm_id;
        }
    };
    connected.insert((server, 3));
    peer.send(rtu(3, server));
    let mut is_rejected = false;
    while !connected.is_empty() || !is_rejected {
        match peer.receive().message {
            Message::Dreq(dreq) => {
                assert!(connected.remove(&(dreq.local_comm_id, dreq.remote_comm_id)), "{dreq:?}");
            }
            Message::Rej(rej) => {
                assert_eq!((rej.local_comm_id, rej.reason), (attempt, Reason::TIMEOUT));
                is_rejected = true;
            }
            // Repeated.
            Message::Req(_) | Message::Rep(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(process.wait().success());
}

#[test]
fn a_rejection_arrives_although_its_process_exits_at_once() {
    const NAME: &str = "a_rejection_arrives_although_its_process_exits_at_once";
    if !child_alone(NAME) {
        return;
    }
    match role() {
        None => {}
        Some(role) if role == "server" => {
            let (_listening, events, port) = listener();
            print(port.into());
            let (id, _) = take_request(events);
            // SAFETY: the identifier of the request lives.
            assert_eq!(unsafe { softverbs::rdma::rdma_reject(id, std::ptr::null(), 0) }, 0);
            std::process::exit(0);
        }
        // Its packets may arrive at the socket of the server, as it has just joined the group.
        Some(port) => {
            let end = connect(c"127.0.0.1", port.parse().unwrap(), 4, b"");
            let (event, status, _) = next_event(end.events);
            assert_eq!(event, RDMA_CM_EVENT_REJECTED);
            print(status as u32);
            std::process::exit(0);
        }
    }
    for round in 0..100 {
        let mut server = Partner::start(NAME, "server");
        let port = server.number();
        let mut client = Partner::start(NAME, &port.to_string());
        assert_eq!(client.number(), u32::from(Reason::CONSUMER.0), "the status in round {round}");
        assert!(server.wait().success() && client.wait().success());
    }
}

#[test]
fn a_child_that_exits_leaves_the_connections_of_its_parent() {
    const NAME: &str = "a_child_that_exits_leaves_the_connections_of_its_parent";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        connect_to_peer();
        for has_port in [false, true] {
            // SAFETY: the child has only this thread; it uses the library, which is fork-safe, and exits.
            match unsafe { libc::fork() } {
                0 => {
                    if has_port {
                        listener();
                    }
                    // SAFETY: runs the handlers of exit(3), of which this is a test.
                    unsafe { libc::exit(0) };
                }
                child => {
                    let mut status = 0;
                    // SAFETY: waits for the child that was just created.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                    assert_eq!(status, 0);
                }
            }
        }
        // What the children have sent arrives before this.
        connect_to_peer();
        std::process::exit(0);
    }
    let peer = Peer::new();
    let mut process = Partner::start(NAME, "client");
    accept_next(&peer, 1);
    accept_next(&peer, 2);
    assert!(process.wait().success());
}

#[test]
fn threads_that_use_rdma_cm_do_not_delay_the_exit() {
    const NAME: &str = "threads_that_use_rdma_cm_do_not_delay_the_exit";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        for _ in 0..3 {
            std::thread::spawn(|| {
                loop {
                    connect(c"127.0.0.9", 7471, 4, b"").destroy();
                }
            });
        }
        connect(c"127.0.0.9", 7471, 4, b"");
        std::thread::sleep(Duration::from_millis(20));
        print(0);
        std::process::exit(0);
    }
    for _ in 0..20 {
        let mut process = Partner::start(NAME, "client");
        process.number();
        let begin = Instant::now();
        assert!(process.wait().success());
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
}
