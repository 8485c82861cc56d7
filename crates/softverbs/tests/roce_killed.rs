// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm on a RoCE device, and processes that are killed: nobody sends a message for them, as the kernel
//! does for the processes of its rdma_cm. Each test has a network namespace of its own.

mod common;

use common::cm_peer::Peer;
use common::ids::destroy;
use common::restart::{Partner, child_alone, role};
use common::{connect, listen};
use softverbs::rdma as cm;
use transport::roce::wire::Psn;
use transport::roce::wire::cm::{Answered, Dreq, Message, Reason, Rep};

#[test]
fn another_process_answers_the_messages_for_one_that_was_killed() {
    const NAME: &str = "another_process_answers_the_messages_for_one_that_was_killed";
    if !child_alone(NAME) {
        return;
    }
    if role().is_some() {
        connect(c"127.0.0.9", 7471, 4, b"");
        loop {
            std::thread::park();
        }
    }
    // SAFETY: the channel was just created.
    let (listening, _) = listen(unsafe { cm::rdma_create_event_channel() }, c"127.0.0.1");
    let peer = Peer::new();
    let client = Partner::start(NAME, "client");
    let Message::Req(req) = peer.receive().message else { panic!("no REQ") };
    client.kill();
    let rep = Rep {
        local_comm_id: 0x55,
        remote_comm_id: req.local_comm_id,
        local_qkey: 0,
        local_qpn: 0x12_3456,
        starting_psn: Psn::new(9),
        responder_resources: 4,
        initiator_depth: 5,
        target_ack_delay: 15,
        failover_accepted: 0,
        end_to_end_flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: 0x1234,
        private_data: [3; Rep::PRIVATE_DATA_LEN],
    };
    let Message::Rej(rej) = peer.ask(&Message::Rep(rep)).message else { panic!("no REJ") };
    assert_eq!((rej.answered, rej.reason), (Answered::Rep, Reason::INVALID_COMM_ID));
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (req.local_comm_id, 0x55));
    // As if the connection had been established.
    let dreq = Dreq {
        local_comm_id: 0x55,
        remote_comm_id: req.local_comm_id,
        remote_qpn: req.local_qpn,
        private_data: [0; Dreq::PRIVATE_DATA_LEN],
    };
    let Message::Drep(drep) = peer.ask(&Message::Dreq(dreq)).message else { panic!("no DREP") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (req.local_comm_id, 0x55));
    destroy(listening);
}
