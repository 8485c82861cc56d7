// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm on a RoCE device: two identifiers, two processes, and a peer of which the test writes each
//! message. The environment is read once in a process, so each test starts itself again with
//! SOFTVERBS_TRANSPORT=roce. One with such a peer has a network namespace of its own: the peer repeats no
//! message, and one that is delivered to the process of another test is lost if that ends.

mod common;

use common::cm_peer::{HERE, PEER, Peer, drep, dreq, rep, req, rtu};
use common::ids::{address, bind, destroy, new_id, src_port};
use common::restart::{child, child_alone};
use common::verbs_h::fails;
use common::{End, accept, connect, listener, next_event, param, take_request};
use rdma_sys::rdma_cm_event_type::*;
use rdma_sys::*;
use softverbs::{rdma as cm, verbs};
use std::io::{BufRead, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use transport::roce::wire::cm::{Answered, CmaHeader, Mad, Message, Path, Reason, Rep, Transport};
use transport::roce::wire::{Addresses, Bth, DEFAULT_PKEY, Extension, Opcode, Operation, Packet};

fn padded(data: &[u8], len: usize) -> Vec<u8> {
    let mut all = data.to_vec();
    all.resize(len, 0);
    all
}

#[test]
fn a_connection_has_the_events_and_private_data_of_infiniband() {
    if !child("a_connection_has_the_events_and_private_data_of_infiniband", &[]) {
        return;
    }
    let (listening, events, port) = listener();
    let client = connect(c"127.0.0.1", port, 4, b"request");
    let (id, data) = take_request(events);
    assert_eq!(data, padded(b"request", 56));
    // SAFETY: the identifier of the request lives.
    unsafe {
        assert_eq!(u16::from_be(cm::rdma_get_src_port(id)), port);
        assert_eq!(cm::rdma_get_dst_port(id), cm::rdma_get_src_port(client.id));
    }
    let server = accept(id, 4, b"reply");
    assert_eq!(next_event(client.events), (RDMA_CM_EVENT_ESTABLISHED, 0, padded(b"reply", 196)));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
    // SAFETY: as above.
    assert_eq!(unsafe { cm::rdma_disconnect(client.id) }, 0);
    for end in [&client, &server] {
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_DISCONNECTED);
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    }
    client.destroy();
    server.destroy();
    destroy(listening);
}

/// Takes a request as uDAPL does: creates a queue pair with another identifier, stores it in that of the
/// request, and destroys the first one.
fn take_request_with_queue_pair(events: *mut rdma_event_channel) -> End {
    let (mut server, mut attr) = End::new(4);
    server.id = take_request(events).0;
    let first = new_id();
    bind(first, "127.0.0.1");
    // SAFETY: the objects live; a program may write the field `qp`.
    unsafe {
        assert_eq!(cm::rdma_create_qp_ex(first, &mut attr), 0);
        server.qp = (*first).qp;
        ((*server.id).qp, (*first).qp) = (server.qp, null_mut());
        assert_eq!(cm::rdma_destroy_id(first), 0);
    }
    server
}

#[test]
fn a_queue_pair_outlives_the_identifier_that_it_was_created_with() {
    if !child("a_queue_pair_outlives_the_identifier_that_it_was_created_with", &[]) {
        return;
    }
    let (listening, events, port) = listener();
    let client = connect(c"127.0.0.1", port, 4, b"");
    let server = take_request_with_queue_pair(events);
    // SAFETY: the objects live.
    unsafe {
        assert_eq!((*server.qp).state, ibv_qp_state::IBV_QPS_INIT);
        assert_eq!(cm::rdma_accept(server.id, &mut param(b"")), 0);
        assert_eq!(cm::rdma_migrate_id(server.id, server.events), 0);
    }
    for end in [&client, &server] {
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
    }
    client.destroy();
    server.destroy();
    destroy(listening);
}

/// The peer has withdrawn its request before the program accepts: the queue pair in the C structure was never
/// connected, and is flushed by rdma_disconnect.
#[test]
fn receives_for_a_withdrawn_request_are_flushed() {
    if !child("receives_for_a_withdrawn_request_are_flushed", &[]) {
        return;
    }
    let (listening, events, port) = listener();
    let client = connect(c"127.0.0.1", port, 4, b"");
    let server = take_request_with_queue_pair(events);
    client.destroy();
    assert_eq!(next_event(events).0, RDMA_CM_EVENT_REJECTED);
    assert_eq!(server.post_recv(7, None), 0);
    // SAFETY: the identifier lives.
    unsafe {
        fails(cm::rdma_accept(server.id, &mut param(b"")), libc::EINVAL);
        assert_eq!(cm::rdma_disconnect(server.id), 0);
    }
    let flushed = server.poll();
    assert_eq!((flushed.wr_id, flushed.status), (7, ibv_wc_status::IBV_WC_WR_FLUSH_ERR));
    // SAFETY: destroyed exactly once, the queue pair before its identifier.
    assert_eq!(unsafe { (verbs::ibv_destroy_qp(server.qp), cm::rdma_destroy_id(server.id)) }, (0, 0));
    server.destroy_unconnected();
    destroy(listening);
}

/// The metrics of this process.
fn metrics() -> String {
    let path = std::env::temp_dir().join(format!("softverbs-metrics-{}.sock", std::process::id()));
    let mut stream = UnixStream::connect(path).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_reset_queue_pair_has_no_peer_in_the_metrics() {
    let path = std::env::temp_dir().join("softverbs-metrics-%p.sock");
    let setting = format!("unix:{}", path.display());
    if !child("a_reset_queue_pair_has_no_peer_in_the_metrics", &[("RPMA_METRICS", &setting)]) {
        return;
    }
    let (listening, events, port) = listener();
    let client = connect(c"127.0.0.1", port, 4, b"");
    let (id, _) = take_request(events);
    let server = accept(id, 4, b"");
    for end in [&client, &server] {
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
    }
    const IBV_QP_STATE: i32 = 1;
    let has = |line: &str| metrics().lines().any(|other| other == line);
    assert!(has("rpma_connections{state=\"open\"} 2"), "{}", metrics());
    // SAFETY: all-zero attributes are valid, and the queue pair lives.
    let reset = unsafe {
        let mut attr: ibv_qp_attr = std::mem::zeroed();
        attr.qp_state = ibv_qp_state::IBV_QPS_RESET;
        verbs::ibv_modify_qp(client.qp, &mut attr, IBV_QP_STATE)
    };
    assert_eq!(reset, 0);
    assert!(has("rpma_connections{state=\"open\"} 1"), "{}", metrics());
    assert!(has("rpma_connections{state=\"requested\"} 1"), "{}", metrics());
    client.destroy();
    server.destroy();
    destroy(listening);
    let _ = std::fs::remove_file(path.to_string_lossy().replace("%p", &std::process::id().to_string()));
}

#[test]
fn a_request_is_rejected_by_the_program_or_for_want_of_a_listener() {
    if !child("a_request_is_rejected_by_the_program_or_for_want_of_a_listener", &[]) {
        return;
    }
    let (listening, events, port) = listener();
    let client = connect(c"127.0.0.1", port, 4, b"");
    let (id, _) = take_request(events);
    // SAFETY: the identifier of the request lives.
    unsafe {
        assert_eq!(cm::rdma_reject(id, b"no".as_ptr().cast(), 2), 0);
        cm::rdma_destroy_id(id);
    }
    assert_eq!(next_event(client.events), (RDMA_CM_EVENT_REJECTED, 28, padded(b"no", 148)));
    client.destroy();
    destroy(listening);
    let client = connect(c"127.0.0.1", port, 4, b"");
    let (kind, status, _) = next_event(client.events);
    assert_eq!((kind, status), (RDMA_CM_EVENT_REJECTED, 8));
    client.destroy();
}

/// As on an adapter, the call fails before anything else happens: no fault is injected, nor counted.
#[test]
fn private_data_that_a_message_cannot_carry_is_refused() {
    let faults = ("SOFTVERBS_FAULTS", "connect:reject@n=1");
    if !child("private_data_that_a_message_cannot_carry_is_refused", &[faults]) {
        return;
    }
    let id = new_id();
    let mut to = address("127.0.0.1", 7471);
    let long = [7; 57];
    let of = |len| rdma_conn_param { qp_num: 0x12_3456, ..param(&long[..len]) };
    // SAFETY: the identifier lives, and the arguments outlive the calls.
    unsafe {
        assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), 100), 0);
        assert_eq!(cm::rdma_resolve_route(id, 100), 0);
        assert_eq!(((*id).route.num_paths, (*(*id).route.path_rec).pkey), (1, 0xffff));
        fails(cm::rdma_connect(id, &mut of(57)), libc::EINVAL);
        fails(cm::rdma_connect(id, &mut of(56)), libc::ECONNREFUSED);
    }
    destroy(id);
}

#[test]
fn ports_of_the_two_spaces_and_of_tcp_are_apart() {
    if !child("ports_of_the_two_spaces_and_of_tcp_are_apart", &[]) {
        return;
    }
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let bound = |space, host: &str, port| {
        let (mut id, mut local) = (null_mut(), address(host, port));
        // SAFETY: the identifier was just created, and the arguments outlive the calls.
        let result = unsafe {
            assert_eq!(cm::rdma_create_id(null_mut(), &mut id, null_mut(), space), 0);
            cm::rdma_bind_addr(id, (&raw mut local).cast())
        };
        let errno = (result != 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap());
        (id, errno)
    };
    let (space, ib) = (rdma_port_space::RDMA_PS_TCP, rdma_port_space::RDMA_PS_IB);
    let all = [
        (bound(space, "127.0.0.1", port), None),
        (bound(ib, "127.0.0.1", port), None),
        (bound(space, "127.0.0.2", port), None),
        (bound(space, "127.0.0.1", port), Some(libc::EADDRINUSE)),
        (bound(space, "0.0.0.0", port), Some(libc::EADDRNOTAVAIL)),
        (bound(space, "192.0.2.1", port), Some(libc::EADDRNOTAVAIL)),
    ];
    for ((id, errno), expected) in all {
        assert_eq!(errno, expected);
        destroy(id);
    }
    let id = new_id();
    bind(id, "127.0.0.1");
    assert!(src_port(id) >= 49_152);
    destroy(id);
}

#[test]
fn a_peer_that_connects_gets_the_messages_of_the_specification() {
    if !child_alone("a_peer_that_connects_gets_the_messages_of_the_specification") {
        return;
    }
    let (peer, (listening, events, port)) = (Peer::new(), listener());
    peer.send(Message::Req(req(port, 0x99)));
    let (id, data) = take_request(events);
    assert_eq!(data, padded(b"peer", 56));
    // It repeats the request: an MRA reports that the program has it.
    peer.send(Message::Req(req(port, 0x99)));
    let Message::Mra(mra) = peer.receive().message else { panic!("no MRA") };
    assert_eq!((mra.remote_comm_id, mra.answered), (0x99, Answered::Req));
    let server = accept(id, 4, b"reply");
    let Mad { transaction, message: Message::Rep(rep) } = peer.receive() else { panic!("no REP") };
    assert_eq!((transaction, rep.remote_comm_id, rep.local_qkey), (7, 0x99, 0));
    // SAFETY: the queue pair lives.
    assert_eq!(rep.local_qpn, unsafe { (*server.qp).qp_num });
    // At most what the peer offers.
    assert_eq!((rep.responder_resources, rep.initiator_depth), (2, 3));
    assert_eq!((rep.target_ack_delay, rep.rnr_retry_count, rep.srq), (15, 7, false));
    assert_eq!(rep.private_data[..], padded(b"reply", 196));
    let comm_id = rep.local_comm_id;
    assert_eq!(comm_id >> 24, rep.local_qpn >> 16, "the slot of the process");
    peer.send(rtu(0x99, comm_id));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
    peer.send(dreq(0x99, comm_id, rep.local_qpn));
    let Message::Drep(drep) = peer.receive().message else { panic!("no DREP") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (comm_id, 0x99));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_DISCONNECTED);
    server.destroy();
    destroy(listening);
    // No process listens any more.
    peer.send(Message::Req(req(port, 0x9a)));
    let Message::Rej(rej) = peer.receive().message else { panic!("no REJ") };
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (0, 0x9a));
    assert_eq!((rej.answered, rej.reason), (Answered::Req, Reason::INVALID_SERVICE_ID));
}

#[test]
fn a_peer_that_accepts_gets_the_messages_of_the_specification() {
    if !child_alone("a_peer_that_accepts_gets_the_messages_of_the_specification") {
        return;
    }
    let peer = Peer::new();
    let client = connect(c"127.0.0.9", 7471, 4, b"request");
    let Mad { transaction, message: Message::Req(req) } = peer.receive() else { panic!("no REQ") };
    assert_eq!(req.service_id.0, 0x0106_1d2f);
    assert_eq!((req.transport, req.local_qkey, req.pkey), (Transport::Rc, 0, DEFAULT_PKEY));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout, req.max_cm_retries), (20, 20, 15));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.srq), (7, 7, false));
    assert_eq!((req.responder_resources, req.initiator_depth), (128, 128));
    assert_eq!((req.primary.ack_timeout, req.primary.local_lid), (17, Path::PERMISSIVE_LID));
    assert_eq!(std::net::Ipv6Addr::from(req.primary.remote_gid).to_ipv4_mapped(), Some(PEER.into()));
    let (header, data) = CmaHeader::decode(&req.private_data).unwrap();
    assert_eq!(header.addresses, Addresses::V4 { source: HERE, destination: PEER });
    // SAFETY: the identifier lives.
    assert_eq!(header.source_port, u16::from_be(unsafe { cm::rdma_get_src_port(client.id) }));
    assert_eq!(data, padded(b"request", 56));
    peer.answer(transaction, Message::Rep(rep(0x55, req.local_comm_id)));
    let answer = peer.receive();
    let Message::Rtu(rtu) = answer.message else { panic!("no RTU") };
    assert_eq!((answer.transaction, rtu.remote_comm_id), (transaction, 0x55));
    assert_eq!(next_event(client.events), (RDMA_CM_EVENT_ESTABLISHED, 0, vec![3; 196]));
    // SAFETY: the identifier lives.
    assert_eq!(unsafe { cm::rdma_disconnect(client.id) }, 0);
    let Message::Dreq(dreq) = peer.receive().message else { panic!("no DREQ") };
    assert_eq!((dreq.remote_comm_id, dreq.remote_qpn), (0x55, 0x12_3456));
    peer.send(drep(0x55, req.local_comm_id));
    assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_DISCONNECTED);
    client.destroy();
}

/// The kernel of a peer may process the RTU and the DREQ of a short connection on two processors at a time,
/// and report the end of a connection before it was established.
#[test]
fn the_rtu_is_sent_before_the_program_learns_of_the_connection() {
    if !child_alone("the_rtu_is_sent_before_the_program_learns_of_the_connection") {
        return;
    }
    let peer = Peer::new();
    for round in 1..=200 {
        let client = connect(c"127.0.0.9", 7471, 4, b"");
        let Mad { transaction, message: Message::Req(req) } = peer.receive() else { panic!("no REQ") };
        let rep = Rep { local_qpn: 0x10_0000 + round, ..rep(round, req.local_comm_id) };
        peer.answer(transaction, Message::Rep(rep));
        assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_ESTABLISHED);
        assert!(peer.has_packet(), "no RTU in round {round}");
        assert!(matches!(peer.receive().message, Message::Rtu(_)));
        // SAFETY: the identifier lives.
        assert_eq!(unsafe { cm::rdma_disconnect(client.id) }, 0);
        assert!(matches!(peer.receive().message, Message::Dreq(_)));
        peer.send(drep(round, req.local_comm_id));
        assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_DISCONNECTED);
        client.destroy();
    }
}

/// Otherwise the message of a peer that has disconnected completes with a flush error.
#[test]
fn a_message_is_acknowledged_before_the_dreq() {
    if !child_alone("a_message_is_acknowledged_before_the_dreq") {
        return;
    }
    let (peer, (listening, events, port)) = (Peer::new(), listener());
    for round in 1..=100 {
        let mut req = req(port, round);
        req.local_qpn = 0x10_0000 + round;
        peer.send(Message::Req(req));
        let (id, _) = take_request(events);
        let server = accept(id, 4, b"");
        let Message::Rep(rep) = peer.receive().message else { panic!("no REP") };
        peer.send(rtu(round, rep.local_comm_id));
        assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(server.post_recv(1, None), 0);
        // SAFETY: the completion queue lives.
        assert_eq!(unsafe { (*(*server.cq).context).ops.req_notify_cq.unwrap()(server.cq, 0) }, 0);
        let mut bth = Bth::new(Opcode::Rc(Operation::SendOnly), rep.local_qpn, rep.starting_psn);
        bth.ack_req = true;
        peer.send_packet(&bth, &Extension::None, &[]);
        // The engine receives it, in another thread than the one that disconnects.
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel lives; the event is acknowledged once.
        unsafe {
            assert_eq!(verbs::ibv_get_cq_event(server.comp, &mut cq, &mut context), 0);
            verbs::ibv_ack_cq_events(cq, 1);
        }
        assert_eq!(server.poll().status, 0);
        // SAFETY: the identifier lives.
        assert_eq!(unsafe { cm::rdma_disconnect(server.id) }, 0);
        let packet = peer.receive_packet();
        let opcode = Packet::parse(&packet).unwrap().bth.opcode;
        assert_eq!(opcode, Opcode::Rc(Operation::Acknowledge), "round {round}");
        let Message::Dreq(dreq) = peer.receive().message else { panic!("no DREQ") };
        peer.send(drep(round, dreq.local_comm_id));
        assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_DISCONNECTED);
        server.destroy();
    }
    destroy(listening);
}

/// The listener is in another process, and each of the two may get the request from the kernel.
#[test]
fn a_request_reaches_the_process_that_listens() {
    const NAME: &str = "a_request_reaches_the_process_that_listens";
    if !child(NAME, &[]) {
        return;
    }
    if std::env::var_os("ROCE_CM_SERVER").is_some() {
        let (listening, events, port) = listener();
        println!("port {port} .");
        for _ in 0..8 {
            let server = accept(take_request(events).0, 4, b"other process");
            assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
            assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_DISCONNECTED);
            server.destroy();
        }
        destroy(listening);
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--exact", NAME, "--nocapture"]).env("ROCE_CM_SERVER", "1").stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    // It is read to the end, so that the server can write.
    let mut lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let mut words = line.split(' ').skip_while(|word| *word != "port").skip(1);
        words.next()?.parse().ok()
    });
    for _ in 0..8 {
        let client = connect(c"127.0.0.1", port.expect("the server listens"), 4, b"");
        assert_eq!(next_event(client.events), (RDMA_CM_EVENT_ESTABLISHED, 0, padded(b"other process", 196)));
        // SAFETY: the identifier lives.
        assert_eq!(unsafe { cm::rdma_disconnect(client.id) }, 0);
        assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_DISCONNECTED);
        client.destroy();
    }
    lines.for_each(drop);
    assert!(server.wait().unwrap().success());
}
