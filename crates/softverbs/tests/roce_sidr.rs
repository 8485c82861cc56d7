// SPDX-License-Identifier: BSD-3-Clause
//! Identifiers for datagrams (RDMA_PS_UDP) on a RoCE device: requests for the queue pair of a service,
//! between two identifiers, between two processes, and with a peer of which the test writes each message.
//! Each test starts itself again in a separate network namespace.

mod common;

use common::cm_peer::{HERE, PEER, Peer};
use common::ids::{Id, address, destroy};
use common::restart::child_alone;
use common::{End, LOCAL_WRITE, SIGNALED, dereg, listener, param, request, sge};
use rdma_sys::rdma_cm_event_type::*;
use rdma_sys::*;
use softverbs::{rdma as cm, verbs};
use std::io::BufRead;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use transport::roce::wire::cm::{
    CmaHeader, Mad, Message, PortSpace, ServiceId, SidrRep, SidrReq, SidrStatus, UDP_QKEY,
};
use transport::roce::wire::{Addresses, DEFAULT_PKEY};

const UDP: rdma_port_space::Type = rdma_port_space::RDMA_PS_UDP;
/// A queue pair, which receives nothing.
const NUMBER: u32 = 0x12_3456;

type Channel = *mut rdma_event_channel;

fn padded(data: &[u8], len: usize) -> Vec<u8> {
    let mut all = data.to_vec();
    all.resize(len, 0);
    all
}

fn channel() -> Channel {
    // SAFETY: it has no arguments.
    let events = unsafe { cm::rdma_create_event_channel() };
    assert!(!events.is_null());
    events
}

fn new_id(events: Channel) -> Id {
    let mut id = null_mut();
    // SAFETY: the channel lives, and the pointer outlives the call.
    assert_eq!(unsafe { cm::rdma_create_id(events, &mut id, null_mut(), UDP) }, 0);
    id
}

/// A listener for datagrams at an address.
fn listen(port: u16) -> (Id, Channel, u16) {
    let events = channel();
    let (id, mut local) = (new_id(events), address("127.0.0.1", port));
    // SAFETY: the identifier lives, and the address outlives the call.
    unsafe {
        assert_eq!(cm::rdma_bind_addr(id, (&raw mut local).cast()), 0);
        assert_eq!(cm::rdma_listen(id, 0), 0);
        (id, events, u16::from_be(cm::rdma_get_src_port(id)))
    }
}

/// An identifier that is resolved to a port of a host.
fn resolved(host: &str, port: u16) -> (Id, Channel) {
    let events = channel();
    let (id, mut to) = (new_id(events), address(host, port));
    // SAFETY: the identifier lives, and the address outlives the call.
    unsafe { assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), 1000), 0) };
    assert_eq!(next(events).kind, RDMA_CM_EVENT_ADDR_RESOLVED);
    // SAFETY: the identifier lives.
    unsafe { assert_eq!(cm::rdma_resolve_route(id, 1000), 0) };
    assert_eq!(next(events).kind, RDMA_CM_EVENT_ROUTE_RESOLVED);
    (id, events)
}

/// A resolved identifier that has requested the queue pair of a service.
fn connect(host: &str, port: u16, private_data: &[u8]) -> (Id, Channel) {
    let (id, events) = resolved(host, port);
    // SAFETY: the identifier lives, and the parameters outlive the call.
    unsafe { assert_eq!(cm::rdma_connect(id, &mut param(private_data)), 0) };
    (id, events)
}

/// The fields of an event.
struct Seen {
    id: Id,
    kind: u32,
    status: i32,
    data: Vec<u8>,
    qp_num: u32,
    qkey: u32,
    path: ibv_ah_attr,
}

fn next(events: Channel) -> Seen {
    // SAFETY: the channel lives; the event is acknowledged once. Identifiers for datagrams have `param.ud`.
    unsafe {
        let mut event = null_mut();
        assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
        let rdma_cm_event { id, event: kind, status, .. } = *event;
        let ud = (*event).param.ud;
        let mut data = vec![0; usize::from(ud.private_data_len)];
        std::ptr::copy_nonoverlapping(ud.private_data.cast(), data.as_mut_ptr(), data.len());
        cm::rdma_ack_cm_event(event);
        Seen { id, kind, status, data, qp_num: ud.qp_num, qkey: ud.qkey, path: ud.ah_attr }
    }
}

/// Takes a request: its identifier and private data.
fn take(events: Channel) -> (Id, Vec<u8>) {
    let request = next(events);
    assert_eq!((request.kind, request.qp_num, request.qkey), (RDMA_CM_EVENT_CONNECT_REQUEST, 0, 0));
    (request.id, request.data)
}

/// Answers a request with a queue pair.
fn accept(id: Id, private_data: &[u8]) {
    let mut param = rdma_conn_param { qp_num: NUMBER, ..param(private_data) };
    // SAFETY: the identifier lives, and the parameters outlive the call.
    assert_eq!(unsafe { cm::rdma_accept(id, &mut param) }, 0);
}

fn close(events: Channel) {
    // SAFETY: its identifiers have been destroyed.
    unsafe { cm::rdma_destroy_event_channel(events) };
}

#[test]
fn a_service_is_resolved_to_its_queue_pair() {
    if !child_alone("a_service_is_resolved_to_its_queue_pair") {
        return;
    }
    // Both have the same port.
    let (connections, other_events, port) = listener();
    let (listening, events, _) = listen(port);
    let (client, replies) = connect("127.0.0.1", port, b"request");
    let (server, data) = take(events);
    assert_eq!(data, padded(b"request", 180));
    // SAFETY: the identifiers live.
    unsafe {
        assert_eq!((*server).qp_type, ibv_qp_type::IBV_QPT_UD);
        assert_eq!(u16::from_be(cm::rdma_get_src_port(server)), port);
        assert_eq!(cm::rdma_get_dst_port(server), cm::rdma_get_src_port(client));
    }
    accept(server, b"reply");
    let reply = next(replies);
    assert_eq!((reply.kind, reply.status), (RDMA_CM_EVENT_ESTABLISHED, 0));
    assert_eq!(reply.data, padded(b"reply", 136));
    assert_eq!((reply.qp_num, reply.qkey), (NUMBER, UDP_QKEY));
    // An address handle can be created from the path.
    let mut path = reply.path;
    // SAFETY: all-zero bytes are initialised, and an ibv_gid is 16 bytes; the protection domain is
    // deallocated after the address handle.
    unsafe {
        assert_eq!(path.grh.dgid.raw, std::net::Ipv4Addr::from(HERE).to_ipv6_mapped().octets());
        let pd = verbs::ibv_alloc_pd((*client).verbs);
        let ah = verbs::ibv_create_ah(pd, &mut path);
        assert!(!ah.is_null());
        assert_eq!(verbs::ibv_destroy_ah(ah), 0);
        assert_eq!(verbs::ibv_dealloc_pd(pd), 0);
        // There is nothing to disconnect, and no event follows.
        assert_eq!((cm::rdma_disconnect(client), cm::rdma_disconnect(server)), (0, 0));
        // It has its answer.
        assert_eq!(cm::rdma_connect(client, &mut param(b"")), -1);
    }
    // The kind of an event of the listener that follows: nothing was reported to the server.
    let (again, more_replies) = connect("127.0.0.1", port, b"");
    let (second, _) = take(events);
    for id in [client, again, server, second, listening, connections] {
        destroy(id);
    }
    [replies, more_replies, events, other_events].into_iter().for_each(close);
}

#[test]
fn a_request_is_refused_by_the_program_or_for_want_of_a_listener() {
    if !child_alone("a_request_is_refused_by_the_program_or_for_want_of_a_listener") {
        return;
    }
    // It listens for connections only.
    let (connections, other_events, port) = listener();
    let (client, replies) = connect("127.0.0.1", port, b"");
    let reply = next(replies);
    assert_eq!((reply.kind, reply.status), (RDMA_CM_EVENT_UNREACHABLE, 1));
    destroy(client);
    close(replies);
    let (listening, events, _) = listen(port);
    let (client, replies) = connect("127.0.0.1", port, b"");
    let (id, _) = take(events);
    // SAFETY: the identifier of the request lives.
    assert_eq!(unsafe { cm::rdma_reject(id, b"no".as_ptr().cast(), 2) }, 0);
    let reply = next(replies);
    assert_eq!((reply.kind, reply.status), (RDMA_CM_EVENT_UNREACHABLE, 2));
    assert_eq!(reply.data, padded(b"no", 136));
    for id in [client, id] {
        destroy(id);
    }
    close(replies);
    // The listener is destroyed before it has fetched the request.
    let (client, replies) = connect("127.0.0.1", port, b"");
    // SAFETY: the channel lives, and with it its descriptor.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw((*events).fd) };
    rustix::event::poll(&mut [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)], None).unwrap();
    destroy(listening);
    let reply = next(replies);
    assert_eq!((reply.kind, reply.status, reply.data), (RDMA_CM_EVENT_UNREACHABLE, 2, vec![0; 136]));
    destroy(client);
    destroy(connections);
    [replies, events, other_events].into_iter().for_each(close);
}

/// Of a synchronous identifier, rdma_connect waits for the answer and rdma_accept for nothing.
#[test]
fn a_synchronous_identifier_waits_for_the_answer() {
    if !child_alone("a_synchronous_identifier_waits_for_the_answer") {
        return;
    }
    let (listening, events, port) = listen(0);
    let client = std::thread::spawn(move || {
        let (id, mut to) = (new_id(null_mut()), address("127.0.0.1", port));
        // SAFETY: the identifier lives, and the arguments outlive the calls; the event is that of the
        // outcome.
        unsafe {
            assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), 1000), 0);
            assert_eq!(cm::rdma_resolve_route(id, 1000), 0);
            assert_eq!(cm::rdma_connect(id, &mut param(b"")), 0);
            assert_eq!((*(*id).event).param.ud.qp_num, NUMBER);
        }
        destroy(id);
    });
    let (id, _) = take(events);
    // SAFETY: the identifier lives. It is synchronous from then on.
    assert_eq!(unsafe { cm::rdma_migrate_id(id, null_mut()) }, 0);
    accept(id, b"");
    client.join().unwrap();
    destroy(id);
    destroy(listening);
    close(events);
}

#[test]
fn private_data_and_port_spaces_that_do_not_fit_are_refused() {
    if !child_alone("private_data_and_port_spaces_that_do_not_fit_are_refused") {
        return;
    }
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
    let (id, events) = resolved("127.0.0.1", 7471);
    // SAFETY: the identifier lives, and the arguments outlive the calls.
    unsafe {
        assert_eq!(cm::rdma_connect(id, &mut param(&[7; 181])), -1);
        assert_eq!(errno(), libc::EINVAL);
        let mut attr: ibv_qp_attr = std::mem::zeroed();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        let mut mask = 0;
        assert_eq!(cm::rdma_init_qp_attr(id, &mut attr, &mut mask), 0);
        let wanted = [
            ibv_qp_attr_mask::IBV_QP_STATE,
            ibv_qp_attr_mask::IBV_QP_PKEY_INDEX,
            ibv_qp_attr_mask::IBV_QP_PORT,
            ibv_qp_attr_mask::IBV_QP_QKEY,
        ];
        assert_eq!(mask as u32, wanted.iter().map(|bit| bit.0).sum::<u32>());
        assert_eq!((attr.qkey, attr.port_num), (UDP_QKEY, 1));
        // A queue pair of another type than the port space has.
        let mut attr: ibv_qp_init_attr = std::mem::zeroed();
        attr.qp_type = ibv_qp_type::IBV_QPT_RC;
        assert_eq!((cm::rdma_create_qp(id, null_mut(), &mut attr), errno()), (-1, libc::EINVAL));
        let mut ipoib = null_mut();
        let ps = rdma_port_space::RDMA_PS_IPOIB;
        assert_eq!(cm::rdma_create_id(events, &mut ipoib, null_mut(), ps), -1);
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
    destroy(id);
    close(events);
    let (listening, events, port) = listen(0);
    let (client, replies) = connect("127.0.0.1", port, b"");
    let (server, _) = take(events);
    // SAFETY: the identifier lives, and the parameters outlive the calls.
    unsafe {
        let mut long = rdma_conn_param { qp_num: NUMBER, ..param(&[7; 137]) };
        assert_eq!((cm::rdma_accept(server, &mut long), errno()), (-1, libc::EINVAL));
        assert_eq!((cm::rdma_reject(server, [7; 137].as_ptr().cast(), 137), errno()), (-1, libc::EINVAL));
    }
    accept(server, &[7; 136]);
    assert_eq!(next(replies).data, [7; 136]);
    for id in [client, server, listening] {
        destroy(id);
    }
    [replies, events].into_iter().for_each(close);
}

fn header() -> [u8; 36] {
    let addresses = Addresses::V4 { source: PEER, destination: HERE };
    CmaHeader { source_port: 4711, addresses }.encode()
}

#[test]
fn a_sidr_req_of_a_peer_is_answered_as_specified() {
    if !child_alone("a_sidr_req_of_a_peer_is_answered_as_specified") {
        return;
    }
    let (peer, (listening, events, port)) = (Peer::new(), listen(0));
    let mut private_data = [0; SidrReq::PRIVATE_DATA_LEN];
    private_data[..36].copy_from_slice(&header());
    private_data[36..40].copy_from_slice(b"peer");
    let service_id = ServiceId::new(PortSpace::Udp, port);
    let request =
        |request_id| Message::SidrReq(SidrReq { request_id, pkey: DEFAULT_PKEY, service_id, private_data });
    peer.send(request(0x99));
    let (id, data) = take(events);
    assert_eq!(data, padded(b"peer", 180));
    accept(id, b"reply");
    let Mad { transaction, message: Message::SidrRep(rep) } = peer.receive() else { panic!("no SIDR_REP") };
    assert_eq!((transaction, rep.request_id, rep.status), (7, 0x99, SidrStatus::VALID));
    assert_eq!((rep.qpn, rep.qkey, rep.service_id), (NUMBER, UDP_QKEY, service_id));
    assert_eq!(rep.private_data[..], padded(b"reply", 136));
    // It has lost the reply.
    peer.send(request(0x99));
    assert_eq!(peer.receive().message, Message::SidrRep(rep.clone()));
    destroy(id);
    destroy(listening);
    peer.send(request(0x99));
    assert_eq!(peer.receive().message, Message::SidrRep(rep));
    // Without a listener.
    peer.send(request(0x9a));
    let Message::SidrRep(rep) = peer.receive().message else { panic!("no SIDR_REP") };
    assert_eq!((rep.request_id, rep.status, rep.qpn), (0x9a, SidrStatus::UNSUPPORTED, 0));
    close(events);
}

#[test]
fn a_sidr_req_to_a_peer_is_as_specified() {
    if !child_alone("a_sidr_req_to_a_peer_is_as_specified") {
        return;
    }
    let peer = Peer::new();
    for (qkey, outcome) in [
        (0x1234, (RDMA_CM_EVENT_ESTABLISHED, 0, NUMBER, 0x1234)),
        // As the kernel does.
        (0, (RDMA_CM_EVENT_ADDR_ERROR, -libc::EINVAL, 0, 0)),
    ] {
        let (client, replies) = connect("127.0.0.9", 7471, b"request");
        let Mad { transaction, message: Message::SidrReq(req) } = peer.receive() else {
            panic!("no SIDR_REQ")
        };
        assert_eq!((req.service_id.0, req.pkey), (0x0111_1d2f, DEFAULT_PKEY));
        let (header, data) = CmaHeader::decode(&req.private_data).unwrap();
        assert_eq!(header.addresses, Addresses::V4 { source: HERE, destination: PEER });
        assert_eq!(data, padded(b"request", 180));
        // It is repeated, with the same ids.
        let again = peer.receive();
        assert_eq!((again.transaction, again.message), (transaction, Message::SidrReq(req.clone())));
        let rep = SidrRep {
            request_id: req.request_id,
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: NUMBER,
            service_id: req.service_id,
            qkey,
            info: [0; SidrRep::INFO_LEN],
            private_data: [3; SidrRep::PRIVATE_DATA_LEN],
        };
        // A guessed transaction id.
        peer.send(Message::SidrRep(SidrRep { qpn: 9, ..rep.clone() }));
        peer.answer(transaction, Message::SidrRep(rep));
        let reply = next(replies);
        assert_eq!((reply.kind, reply.status, reply.qp_num, reply.qkey), outcome);
        assert_eq!(reply.data, [3; 136]);
        destroy(client);
        close(replies);
    }
}

/// The listener is in another process, and each of the two may get the request and the reply from the kernel.
#[test]
fn a_request_reaches_the_process_that_listens() {
    const NAME: &str = "a_request_reaches_the_process_that_listens";
    if !child_alone(NAME) {
        return;
    }
    if std::env::var_os("ROCE_SIDR_SERVER").is_some() {
        let (listening, events, port) = listen(0);
        println!("port {port} .");
        for _ in 0..8 {
            let (id, _) = take(events);
            accept(id, b"other process");
            destroy(id);
        }
        // The client has its last answer.
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        destroy(listening);
        return;
    }
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--exact", NAME, "--nocapture"]).env("ROCE_SIDR_SERVER", "1");
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It is read to the end, so that the server can write.
    let mut lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let mut words = line.split(' ').skip_while(|word| *word != "port").skip(1);
        words.next()?.parse().ok()
    });
    for _ in 0..8 {
        let (client, replies) = connect("127.0.0.1", port.expect("the server listens"), b"");
        let reply = next(replies);
        assert_eq!((reply.kind, reply.qp_num), (RDMA_CM_EVENT_ESTABLISHED, NUMBER));
        assert_eq!(reply.data, padded(b"other process", 136));
        destroy(client);
        close(replies);
    }
    drop(server.stdin.take());
    lines.for_each(drop);
    assert!(server.wait().unwrap().success());
}

/// An end whose queue pair for datagrams belongs to an identifier.
fn end_of(id: Id) -> End {
    let (mut end, mut attr) = End::new(4);
    attr.qp_type = ibv_qp_type::IBV_QPT_UD;
    end.id = id;
    // SAFETY: the identifier lives, and the attributes outlive the call.
    assert_eq!(unsafe { cm::rdma_create_qp_ex(id, &mut attr) }, 0);
    // SAFETY: as above.
    end.qp = unsafe { (*id).qp };
    end
}

/// Sends `data` from `from` to a queue pair behind a path.
fn send(from: &End, path: &ibv_ah_attr, qp_num: u32, qkey: u32, data: &[u8]) {
    let (mut memory, mut path) = (data.to_vec(), *path);
    let mr = from.register(&mut memory, 0);
    // SAFETY: the objects live; the address handle is destroyed after the send has completed.
    unsafe {
        let ah = verbs::ibv_create_ah(from.pd, &mut path);
        assert!(!ah.is_null());
        let mut wr = request(ibv_wr_opcode::IBV_WR_SEND, 1, SIGNALED);
        wr.wr.ud.ah = ah;
        (wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey) = (qp_num, qkey);
        assert_eq!(from.post(&mut wr, Some(&mut sge(mr, 0, data.len()))), 0);
        assert_eq!(from.poll().status, 0);
        assert_eq!(verbs::ibv_destroy_ah(ah), 0);
    }
    dereg(mr);
}

#[test]
fn datagrams_reach_the_queue_pair_of_a_service() {
    if !child_alone("datagrams_reach_the_queue_pair_of_a_service") {
        return;
    }
    let (listening, events, port) = listen(0);
    let (id, replies) = resolved("127.0.0.1", port);
    let client = end_of(id);
    // SAFETY: the queue pair lives, and the results are valid for writes.
    unsafe {
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = std::mem::zeroed();
        assert_eq!(verbs::ibv_query_qp(client.qp, &mut attr, -1, &mut init), 0);
        assert_eq!((attr.qp_state, attr.qkey, attr.sq_psn), (ibv_qp_state::IBV_QPS_RTS, UDP_QKEY, 0));
        assert_eq!(cm::rdma_connect(id, &mut param(b"")), 0);
    }
    let server = end_of(take(events).0);
    let mut memory = vec![0; 64];
    let mr = server.register(&mut memory, LOCAL_WRITE);
    assert_eq!(server.post_recv(7, Some(&mut sge(mr, 0, 64))), 0);
    // SAFETY: the identifier lives, and the parameters outlive the call.
    assert_eq!(unsafe { cm::rdma_accept(server.id, &mut param(b"")) }, 0);
    let reply = next(replies);
    // SAFETY: the queue pair lives.
    assert_eq!(reply.qp_num, unsafe { (*server.qp).qp_num });
    send(&client, &reply.path, reply.qp_num, reply.qkey, b"datagram");
    let wc = server.poll();
    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (7, 0, 48));
    assert_eq!(memory[40..48], *b"datagram");
    dereg(mr);
    // Both are disconnected: the queue pairs are in ERR.
    for end in [&client, &server] {
        assert_eq!(server.post_recv(8, None), 0);
        // SAFETY: the identifier lives.
        assert_eq!(unsafe { cm::rdma_disconnect(end.id) }, 0);
    }
    assert_ne!(server.poll().status, 0, "flushed");
    client.destroy();
    server.destroy();
    destroy(listening);
    [replies, events].into_iter().for_each(close);
}

/// The groups that the host has joined on an interface.
fn groups() -> Vec<String> {
    let file = std::fs::read_to_string("/proc/net/igmp").unwrap();
    file.lines().filter_map(|line| line.strip_prefix("\t\t\t\t")?.get(..8).map(str::to_owned)).collect()
}

#[test]
fn a_group_is_joined_once_and_left_by_its_last_member() {
    if !child_alone("a_group_is_joined_once_and_left_by_its_last_member") {
        return;
    }
    // 239.1.2.3 in the order of the file.
    const GROUP: &str = "030201EF";
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
    let group = |host: &str| address(host, 0);
    let mut wanted = group("239.1.2.3");
    let context = std::ptr::without_provenance_mut(7);
    let ids = [0; 2].map(|_| {
        let events = channel();
        let (id, mut local) = (new_id(events), address("127.0.0.1", 0));
        // SAFETY: the identifier lives, and the addresses outlive the calls.
        unsafe {
            assert_eq!(cm::rdma_join_multicast(id, (&raw mut wanted).cast(), context), -1, "not bound");
            assert_eq!(errno(), libc::EINVAL);
            assert_eq!(cm::rdma_bind_addr(id, (&raw mut local).cast()), 0);
            assert_eq!(cm::rdma_join_multicast(id, (&raw mut wanted).cast(), context), 0);
        }
        (id, events)
    });
    for (id, events) in ids {
        let mut event = null_mut();
        // SAFETY: the channel lives, and the event is acknowledged once.
        unsafe {
            assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
            let (kind, ud) = ((*event).event, (*event).param.ud);
            assert_eq!((kind, (*event).status, (*event).id), (RDMA_CM_EVENT_MULTICAST_JOIN, 0, id));
            assert_eq!((ud.private_data, ud.private_data_len), (context.cast_const(), 0));
            assert_eq!((ud.qp_num, ud.qkey), (0xff_ffff, UDP_QKEY));
            assert_eq!(ud.ah_attr.grh.dgid.raw, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3]);
            assert_eq!(cm::rdma_ack_cm_event(event), 0);
        }
    }
    let [(first, first_events), (second, second_events)] = ids;
    assert_eq!(groups().iter().filter(|group| *group == GROUP).count(), 1, "{:?}", groups());
    // SAFETY: the identifiers live, and the addresses outlive the calls.
    unsafe {
        assert_eq!(cm::rdma_leave_multicast(first, (&raw mut wanted).cast()), 0);
        assert_eq!(
            (cm::rdma_leave_multicast(first, (&raw mut wanted).cast()), errno()),
            (-1, libc::EADDRNOTAVAIL)
        );
        assert!(groups().contains(&GROUP.to_owned()), "the second one is a member");
        for other in ["10.0.0.1", "ff02::7"] {
            let mut other = group(other);
            assert_eq!(cm::rdma_join_multicast(first, (&raw mut other).cast(), context), -1);
            assert_eq!(errno(), libc::EINVAL);
        }
        // It sends only, and the host does not become a member.
        let mut other = group("239.9.9.9");
        let addr = (&raw mut other).cast();
        let mut attr = rdma_cm_join_mc_attr_ex { comp_mask: 3, join_flags: 1, addr };
        assert_eq!(cm::rdma_join_multicast_ex(first, &mut attr, context), 0);
        assert!(!groups().contains(&"090909EF".to_owned()));
        for (comp_mask, join_flags, expected) in
            [(7, 1, libc::ENOTSUP), (2, 0, libc::EINVAL), (3, 2, libc::EINVAL)]
        {
            let mut attr = rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr };
            assert_eq!(cm::rdma_join_multicast_ex(first, &mut attr, context), -1);
            assert_eq!(errno(), expected);
        }
    }
    destroy(first);
    destroy(second);
    assert!(!groups().contains(&GROUP.to_owned()), "a destroyed identifier leaves its groups");
    [first_events, second_events].into_iter().for_each(close);
}

/// As `mckey`: each member receives what the sender sends to the group.
#[test]
fn members_of_a_group_receive_its_datagrams() {
    if !child_alone("members_of_a_group_receive_its_datagrams") {
        return;
    }
    send_to_members("239.1.2.3", "127.0.0.1");
}

/// Runs a command of a shell in the network namespace of the test.
fn run(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}

/// The kernel has no route to IPv6 groups over `lo`, unless root adds one.
#[test]
fn an_ipv6_group_without_a_route_is_not_joined() {
    if !child_alone("an_ipv6_group_without_a_route_is_not_joined") {
        return;
    }
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
    let events = channel();
    let (id, mut local, mut group) = (new_id(events), address("::1", 0), address("ff05::77", 0));
    // SAFETY: the identifier lives, and the addresses outlive the calls.
    unsafe {
        assert_eq!(cm::rdma_bind_addr(id, (&raw mut local).cast()), 0);
        let addr = (&raw mut group).cast();
        assert_eq!((cm::rdma_join_multicast(id, addr, null_mut()), errno()), (-1, libc::ENETUNREACH));
        assert_eq!((cm::rdma_leave_multicast(id, addr), errno()), (-1, libc::EADDRNOTAVAIL));
        let joined = std::fs::read_to_string("/proc/net/igmp6").unwrap();
        assert!(!joined.contains("ff050000000000000000000000000077"), "{joined}");
        run("ip -6 route add local ff00::/8 dev lo");
        assert_eq!(cm::rdma_join_multicast(id, addr, null_mut()), 0);
    }
    assert_eq!(next(events).kind, RDMA_CM_EVENT_MULTICAST_JOIN);
    destroy(id);
    close(events);
}

#[test]
fn members_of_an_ipv6_group_receive_its_datagrams_over_loopback() {
    if !child_alone("members_of_an_ipv6_group_receive_its_datagrams_over_loopback") {
        return;
    }
    run("ip -6 route add local ff00::/8 dev lo");
    for group in ["ff01::77", "ff02::77", "ff05::77", "ff0e::77"] {
        send_to_members(group, "::1");
    }
}

/// There are routes to all groups over both interfaces, and the first one would be used.
#[test]
fn an_ipv6_group_is_that_of_the_interface_of_the_local_address() {
    if !child_alone("an_ipv6_group_is_that_of_the_interface_of_the_local_address") {
        return;
    }
    run("ip link add one type veth peer name two && ip link add three type veth peer name four && \
         ip addr add fd00:1::1/64 dev one nodad && ip addr add fd00:2::1/64 dev three nodad && \
         for name in one two three four; do ip link set $name up; done");
    let routes =
        || Command::new("ip").args(["-6", "route", "show", "table", "local"]).output().unwrap().stdout;
    while ["one", "three"].iter().any(|name| {
        let text = String::from_utf8(routes()).unwrap();
        !text.contains(&format!("multicast ff00::/8 dev {name}"))
    }) {
        std::thread::yield_now();
    }
    for group in ["ff02::77", "ff05::77", "ff0e::77"] {
        send_to_members(group, "fd00:1::1");
        send_to_members(group, "fd00:2::1");
    }
}

/// Two members and a sender at an address of the host.
fn send_to_members(group: &str, host: &str) {
    let mut wanted = address(group, 0);
    let addr = (&raw mut wanted).cast();
    let member = |receives: bool| {
        let events = channel();
        let (id, mut local) = (new_id(events), address(host, 0));
        // SAFETY: the identifier lives, and the addresses outlive the calls.
        unsafe {
            assert_eq!(cm::rdma_bind_addr(id, (&raw mut local).cast()), 0);
            let end = end_of(id);
            let mut attr = rdma_cm_join_mc_attr_ex { comp_mask: 3, join_flags: u32::from(!receives), addr };
            assert_eq!(cm::rdma_join_multicast_ex(id, &mut attr, null_mut()), 0);
            let mut event = null_mut();
            assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
            assert_eq!((*event).event, RDMA_CM_EVENT_MULTICAST_JOIN);
            let ud = (*event).param.ud;
            assert_eq!(cm::rdma_ack_cm_event(event), 0);
            (end, events, ud)
        }
    };
    let (sender, sender_events, ud) = member(false);
    let members = [member(true), member(true)];
    let mut memory = [0; 128];
    let regions = [0, 1].map(|i| {
        let mr = members[i].0.register(&mut memory[i * 64..][..64], LOCAL_WRITE);
        assert_eq!(members[i].0.post_recv(i as u64, Some(&mut sge(mr, 0, 64))), 0);
        mr
    });
    // Another Q_Key, and then that of the group.
    send(&sender, &ud.ah_attr, ud.qp_num, ud.qkey ^ 1, b"dropped!");
    send(&sender, &ud.ah_attr, ud.qp_num, ud.qkey, b"to a few");
    for (i, (member, ..)) in members.iter().enumerate() {
        let wc = member.poll();
        assert_eq!((wc.wr_id, wc.status, wc.byte_len), (i as u64, 0, 48));
    }
    // SAFETY: all completions of receives have been polled.
    let received = unsafe { std::slice::from_raw_parts(memory.as_ptr(), 128) };
    assert_eq!((&received[40..48], &received[104..112]), (&b"to a few"[..], &b"to a few"[..]));
    // The first one leaves.
    // SAFETY: the identifier lives, and the address outlives the call.
    assert_eq!(unsafe { cm::rdma_leave_multicast(members[0].0.id, addr) }, 0);
    for (i, mr) in regions.iter().enumerate() {
        assert_eq!(members[i].0.post_recv(7, Some(&mut sge(*mr, 0, 64))), 0);
    }
    send(&sender, &ud.ah_attr, ud.qp_num, ud.qkey, b"to one..");
    assert_eq!(members[1].0.poll().wr_id, 7);
    assert!(members[0].0.try_poll().is_none());
    regions.into_iter().for_each(dereg);
    for (end, events, _) in members.into_iter().chain([(sender, sender_events, ud)]) {
        end.destroy();
        close(events);
    }
}
