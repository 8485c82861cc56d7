// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm on a RoCE device, and several processes that may get a message. Each test runs in a separate
//! network namespace.

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use common::cm_peer::{PEER, Peer, req, send_from};
use common::ids::destroy;
use common::restart::{Partner, child_alone, print, role, wait_to_be_killed};
use common::{has_event_of, listener, take_request};
use transport::roce::wire::cm::{Answered, Message, Req};

/// The kernel gives a REQ to any process, and those of another source port to another one.
#[test]
fn no_process_rejects_a_request_that_another_one_has() {
    const NAME: &str = "no_process_rejects_a_request_that_another_one_has";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        let (listening, events, port) = listener();
        print(port.into());
        let _id = take_request(events).0;
        destroy(listening);
        print(0);
        wait_to_be_killed();
    }
    // This process gets some of the requests.
    let (listening, ..) = listener();
    let (peer, mut server) = (Peer::new(), Partner::start(NAME, "server"));
    let port = server.number() as u16;
    peer.send(Message::Req(req(port, 0x99)));
    server.number();
    // A peer repeats a request after 200 ms at the earliest; the list of listeners is used for 20 ms.
    std::thread::sleep(Duration::from_millis(200));
    for n in 0..16 {
        // A process that has deferred it ignores a repetition.
        match peer.transact_from_any_port(&Message::Req(req(port, 0x99))).message {
            Message::Mra(mra) => assert_eq!((mra.remote_comm_id, mra.answered), (0x99, Answered::Req)),
            other => panic!("answer {n}: {other:?}"),
        }
    }
    // Another request is rejected, for want of a listener.
    for n in 0..4 {
        let answers = || peer.transact_from_any_port(&Message::Req(req(port, 0x9a))).message;
        // Unless it is the answer to a repetition of the other one.
        assert!((0..3).any(|_| matches!(answers(), Message::Rej(_))), "request {n}");
    }
    destroy(listening);
}

/// A stopped process neither takes nor forwards what the kernel gives it.
#[test]
fn a_stopped_process_keeps_requests_from_no_other_one() {
    const NAME: &str = "a_stopped_process_keeps_requests_from_no_other_one";
    const PEERS: u32 = 8;
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        listener();
        print(0);
        wait_to_be_killed();
    }
    let (listening, events, port) = listener();
    let mut stopped = Partner::start(NAME, "stopped");
    stopped.number();
    stopped.stop();
    // A hash of addresses and ports, or the filter, may select the stopped process for each of them.
    let peers: Vec<_> =
        (0..PEERS).map(|_| UdpSocket::bind(SocketAddrV4::new(PEER.into(), 0)).unwrap()).collect();
    let (mut requested, begin) = (BTreeSet::new(), Instant::now());
    while requested.len() < PEERS as usize {
        assert!(begin.elapsed() < Duration::from_secs(15), "only requests {requested:?} have arrived");
        for (peer, n) in peers.iter().zip(0..).filter(|(_, n)| !requested.contains(n)) {
            let mut req = Req { local_qpn: 0x10_0000 + n, ..req(port, 1 + n) };
            req.private_data[36] = n as u8;
            send_from(peer, Message::Req(req));
        }
        while has_event_of(events, Duration::from_millis(200)) {
            let (id, data) = take_request(events);
            requested.insert(u32::from(data[0]));
            destroy(id);
        }
    }
    destroy(listening);
}
