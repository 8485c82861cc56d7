// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm on a RoCE device, and several processes that may get a message. Each test runs in a separate
//! network namespace.

mod common;

use common::cm_peer::{Peer, request};
use common::ids::destroy;
use common::restart::{Partner, child_alone, print, role, wait_to_be_killed};
use common::{listener, take_request};
use transport::roce::wire::cm::{Answered, Message};

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
    peer.send(Message::Req(request(port, 0x99)));
    server.number();
    // A peer repeats a request after 200 ms at the earliest; the list of listeners is used for 20 ms.
    std::thread::sleep(std::time::Duration::from_millis(200));
    for _ in 0..16 {
        Peer::send_from_any_port(Message::Req(request(port, 0x99)));
    }
    for n in 0..16 {
        match peer.receive().message {
            Message::Mra(mra) => assert_eq!((mra.remote_comm_id, mra.answered), (0x99, Answered::Req)),
            other => panic!("answer {n}: {other:?}"),
        }
    }
    // Another request is rejected, for want of a listener.
    for n in 0..4 {
        Peer::send_from_any_port(Message::Req(request(port, 0x9a)));
        assert!(matches!(peer.receive().message, Message::Rej(_)), "request {n}");
    }
    destroy(listening);
}
