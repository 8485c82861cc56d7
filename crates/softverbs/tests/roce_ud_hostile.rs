// SPDX-License-Identifier: BSD-3-Clause
//! What others send to queue pairs for datagrams, to services that are resolved (SIDR) and to multicast
//! groups, and programs that join and leave groups in a loop. Each test runs in a separate network namespace.

mod common;

use common::cm_peer::{HERE, PEER, Peer};
use common::drops::{count_drops, dropped};
use common::ids::{address, bind};
use common::restart::child_alone;
use common::{End, LOCAL_WRITE, dereg, has_event_of, resident_pages, sge};
use rdma_sys::rdma_cm_event_type::*;
use rdma_sys::*;
use softverbs::{rdma as cm, verbs};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use transport::roce::wire::cm::{
    CmaHeader, Mad, Message, PortSpace, ServiceId, SidrReq, SidrStatus, UDP_QKEY,
};
use transport::roce::wire::{
    Addresses, Bth, DEFAULT_PKEY, Deth, Extension, Flow, MULTICAST_QP, Opcode, Operation, Packet, Psn,
    UDP_PORT, icrc,
};

const UDP: rdma_port_space::Type = rdma_port_space::RDMA_PS_UDP;
const GROUP: [u8; 4] = [239, 1, 2, 3];
/// Bytes in front of the data of a receive.
const HEADER: usize = 40;
/// The maximum number of pending requests of one host (`MAX_REQUESTS_OF_HOST`).
const OF_HOST: usize = 512;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// An identifier for datagrams at 127.0.0.1, and its queue pair, which is in RTS.
fn datagrams(depth: u32) -> End {
    let (mut end, mut attr) = End::new(depth);
    attr.qp_type = ibv_qp_type::IBV_QPT_UD;
    // SAFETY: the channel lives, and the pointers outlive the calls.
    unsafe {
        assert_eq!(cm::rdma_create_id(end.events, &mut end.id, null_mut(), UDP), 0);
        bind(end.id, "127.0.0.1");
        assert_eq!(cm::rdma_create_qp_ex(end.id, &mut attr), 0);
        end.qp = (*end.id).qp;
    }
    end
}

fn number(end: &End) -> u32 {
    // SAFETY: the queue pair lives.
    unsafe { (*end.qp).qp_num }
}

/// A socket at the address of another host, which sends packets of any content.
struct Sender {
    socket: UdpSocket,
    port: u16,
}

impl Sender {
    fn new() -> Self {
        let socket = UdpSocket::bind(SocketAddrV4::new(PEER.into(), 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        Self { socket, port }
    }

    /// Sends a packet, whose ICRC is that of a packet from `source`.
    fn send(&self, source: [u8; 4], to: [u8; 4], bth: &Bth, extension: &Extension, payload: &[u8]) {
        let bth = Bth { pad: (payload.len().next_multiple_of(4) - payload.len()) as u8, ..*bth };
        let mut packet = Packet::encode_headers(&bth, extension).to_vec();
        packet.extend(payload);
        packet.resize(packet.len() + usize::from(bth.pad), 0);
        let addresses = Addresses::V4 { source, destination: to };
        let flow = Flow { addresses, source_port: self.port, destination_port: UDP_PORT };
        packet.extend(icrc::icrc(&flow, 0, &[&packet]));
        self.socket.send_to(&packet, SocketAddrV4::new(to.into(), UDP_PORT)).unwrap();
    }

    fn datagram(&self, to: [u8; 4], num: u32, qkey: u32, payload: &[u8]) {
        let bth = Bth::new(Opcode::Ud(Operation::SendOnly), num, Psn::new(1));
        let deth = Extension::Deth(Deth { qkey, source_qp: 0x77 });
        self.send(PEER, to, &bth, &deth, payload);
    }
}

#[test]
fn what_is_no_datagram_for_the_queue_pair_is_dropped_and_counted() {
    if !child_alone("what_is_no_datagram_for_the_queue_pair_is_dropped_and_counted") {
        return;
    }
    count_drops();
    let (end, sender) = (datagrams(4), Sender::new());
    let (num, mut memory) = (number(&end), vec![0xa5u8; 256]);
    let mr = end.register(&mut memory, LOCAL_WRITE);
    assert_eq!(end.post_recv(7, Some(&mut sge(mr, 0, HEADER + 8))), 0);
    let bth = Bth::new(Opcode::Ud(Operation::SendOnly), num, Psn::new(1));
    let deth = |qkey| Extension::Deth(Deth { qkey, source_qp: 0x77 });
    // Another Q_Key: with each bit changed.
    for bit in 0..32 {
        sender.datagram(HERE, num, UDP_QKEY ^ 1 << bit, b"key");
    }
    // Longer than the receive, by a byte and as long as a datagram can be.
    for _ in 0..4 {
        sender.datagram(HERE, num, UDP_QKEY, b"too long!");
        sender.datagram(HERE, num, UDP_QKEY, &[1; 4096]);
    }
    // Another partition.
    for pkey in [0, 1, 0x8000, 0xfffe] {
        sender.send(PEER, HERE, &Bth { pkey, ..bth }, &deth(UDP_QKEY), b"pkey");
    }
    // A packet with the source address of another host.
    for host in [1, 2, 3, 8] {
        sender.send([127, 0, 0, host], HERE, &bth, &deth(UDP_QKEY), b"from");
    }
    // Other operations, and other services: they have other headers.
    for operation in [Operation::SendFirst, Operation::SendMiddle, Operation::SendLast, Operation::SendOnly] {
        let bth = Bth { opcode: Opcode::Rc(operation), ..bth };
        sender.send(PEER, HERE, &bth, &Extension::None, b"send");
    }
    // To the queue pair of groups, at an address of a host.
    for _ in 0..4 {
        sender.datagram(HERE, MULTICAST_QP, UDP_QKEY, b"group");
    }
    sender.datagram(HERE, num, UDP_QKEY, b"datagram");
    let wc = end.poll();
    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (7, 0, 48));
    assert_eq!((&memory[HEADER..48], &memory[48..]), (&b"datagram"[..], &[0xa5; 208][..]));
    let reasons = [
        "wrong Q_Key",
        "unreliable message longer than the receive",
        "wrong P_Key",
        "wrong ICRC",
        "malformed",
        "multicast",
    ];
    assert_eq!(reasons.map(dropped), [32, 8, 4, 4, 4, 4]);
    // Without a receive, each is lost, and the queue pair continues.
    for _ in 0..8 {
        sender.datagram(HERE, num, UDP_QKEY, b"lost");
    }
    let begin = Instant::now();
    while dropped("no receive posted for an unreliable message") != 8 {
        assert!(end.try_poll().is_none() && begin.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(end.post_recv(8, Some(&mut sge(mr, 0, 64))), 0);
    sender.datagram(HERE, num, UDP_QKEY, b"last");
    assert_eq!(end.poll().wr_id, 8);
    dereg(mr);
    end.destroy();
}

#[test]
fn a_flood_of_datagrams_takes_no_memory() {
    if !child_alone("a_flood_of_datagrams_takes_no_memory") {
        return;
    }
    let (end, sender) = (datagrams(4), Sender::new());
    let (num, mut memory) = (number(&end), vec![0; 8192]);
    let mr = end.register(&mut memory, LOCAL_WRITE);
    let before = resident_pages();
    let mut random = fastrand::Rng::with_seed(30);
    // 200 MiB.
    for _ in 0..50_000 {
        let qkey = if random.bool() { UDP_QKEY } else { random.u32(..) };
        sender.datagram(HERE, num, qkey, &[7; 4096]);
    }
    let grown = (resident_pages().saturating_sub(before)) * 4096;
    assert!(grown < 64 << 20, "{grown} bytes");
    // Some of the flood may still wait, at the socket or at the queue pair; what comes then may be lost.
    let begin = Instant::now();
    assert_eq!(end.post_recv(1, Some(&mut sge(mr, 0, 8192))), 0);
    loop {
        sender.datagram(HERE, num, UDP_QKEY, b"last");
        match end.try_poll() {
            Some(wc) if wc.byte_len == HEADER as u32 + 4 => break,
            Some(_) => assert_eq!(end.post_recv(1, Some(&mut sge(mr, 0, 8192))), 0),
            None => assert!(begin.elapsed() < Duration::from_secs(20)),
        }
    }
    assert_eq!(memory[HEADER..HEADER + 4], *b"last");
    dereg(mr);
    end.destroy();
}

/// The port of the host that requests.
fn port_of(host: [u8; 4]) -> u16 {
    4700 + u16::from(host[3])
}

/// A request for the queue pair of a service, of a host.
fn request(host: [u8; 4], port: u16, request_id: u32) -> Message {
    let addresses = Addresses::V4 { source: host, destination: HERE };
    let mut private_data = [0; SidrReq::PRIVATE_DATA_LEN];
    private_data[..36].copy_from_slice(&CmaHeader { source_port: port_of(host), addresses }.encode());
    let service_id = ServiceId::new(PortSpace::Udp, port);
    Message::SidrReq(SidrReq { request_id, pkey: DEFAULT_PKEY, service_id, private_data })
}

#[test]
fn a_flood_of_requests_for_a_service_keeps_no_other_host_out() {
    if !child_alone("a_flood_of_requests_for_a_service_keeps_no_other_host_out") {
        return;
    }
    const OTHER: [u8; 4] = [127, 0, 0, 8];
    let end = datagrams(4);
    // SAFETY: the identifier lives.
    let port = unsafe {
        assert_eq!(cm::rdma_listen(end.id, 0), 0);
        u16::from_be(cm::rdma_get_src_port(end.id))
    };
    let peer = Peer::new();
    for n in 0..3 * OF_HOST as u32 {
        Peer::send_as(OTHER, request(OTHER, port, n + 1));
        if n % 50 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // A request that the host sends in the name of another one is refused, and is not pending.
    Peer::send_as(OTHER, request(PEER, port, 1));
    // The answer to a request for no service follows those that came before.
    let Mad { message: Message::SidrRep(rep), .. } = peer.transact(&request(PEER, port ^ 1, 5)) else {
        panic!("no SIDR_REP")
    };
    assert_eq!(rep.status, SidrStatus::UNSUPPORTED);
    peer.send(request(PEER, port, 9));
    let mut count = 0;
    loop {
        let mut event = null_mut();
        // SAFETY: the channel lives; event and identifier are released once.
        let is_peer = unsafe {
            assert_eq!(cm::rdma_get_cm_event(end.events, &mut event), 0);
            let (id, kind) = ((*event).id, (*event).event);
            assert_eq!(kind, RDMA_CM_EVENT_CONNECT_REQUEST);
            assert_eq!(cm::rdma_ack_cm_event(event), 0);
            let port = u16::from_be(cm::rdma_get_dst_port(id));
            assert_eq!(cm::rdma_destroy_id(id), 0);
            port == port_of(PEER)
        };
        if is_peer {
            break;
        }
        count += 1;
    }
    assert_eq!(count, OF_HOST);
    assert!(!has_event_of(end.events, Duration::ZERO));
    end.destroy();
}

/// The attributes of a multicast join, with the address.
fn join(id: *mut rdma_cm_id, group: &str) -> i32 {
    let mut to = address(group, 0);
    // SAFETY: the identifier lives, and the address outlives the call.
    unsafe { cm::rdma_join_multicast(id, (&raw mut to).cast(), null_mut()) }
}

fn leave(id: *mut rdma_cm_id, group: &str) -> i32 {
    let mut to = address(group, 0);
    // SAFETY: as for `join`.
    unsafe { cm::rdma_leave_multicast(id, (&raw mut to).cast()) }
}

/// Acknowledges the event of a join: its kind and status.
fn joined(end: &End) -> (u32, i32) {
    let mut event = null_mut();
    // SAFETY: the channel lives; the event is acknowledged once.
    unsafe {
        assert_eq!(cm::rdma_get_cm_event(end.events, &mut event), 0);
        let of = ((*event).event, (*event).status);
        assert_eq!(cm::rdma_ack_cm_event(event), 0);
        of
    }
}

#[test]
fn groups_are_joined_up_to_the_limit_of_the_host_and_left_without_a_trace() {
    if !child_alone("groups_are_joined_up_to_the_limit_of_the_host_and_left_without_a_trace") {
        return;
    }
    let end = datagrams(4);
    let limit = std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let group = |i: usize| format!("239.7.{}.{}", i / 256, i % 256);
    for i in 0..limit {
        assert_eq!(join(end.id, &group(i)), 0, "group {i} of {limit}");
        assert_eq!(joined(&end), (RDMA_CM_EVENT_MULTICAST_JOIN, 0));
    }
    assert_eq!((join(end.id, &group(limit)), errno()), (-1, libc::ENOBUFS));
    assert_eq!((leave(end.id, &group(limit)), errno()), (-1, libc::EADDRNOTAVAIL));
    // One that is left makes room, again and again.
    let before = resident_pages();
    for i in 0..5_000 {
        assert_eq!(leave(end.id, &group(i % limit)), 0);
        assert_eq!(join(end.id, &group(i % limit)), 0);
        assert_eq!(joined(&end), (RDMA_CM_EVENT_MULTICAST_JOIN, 0));
    }
    let grown = resident_pages().saturating_sub(before) * 4096;
    assert!(grown < 4 << 20, "{grown} bytes");
    end.destroy();
    let groups = std::fs::read_to_string("/proc/net/igmp").unwrap();
    assert!(!groups.contains("07EF"), "{groups}");
}

#[test]
fn queue_pairs_are_attached_to_groups_up_to_the_limits_of_the_device() {
    if !child_alone("queue_pairs_are_attached_to_groups_up_to_the_limits_of_the_device") {
        return;
    }
    let gid = |i: i32| ibv_gid { raw: Ipv4Addr::from(0xef00_0000 + i as u32).to_ipv6_mapped().octets() };
    // SAFETY: all-zero attributes are valid, and the context is that of the device.
    let attr = unsafe {
        let mut attr: ibv_device_attr = std::mem::zeroed();
        assert_eq!(verbs::ibv_query_device(softverbs::context(), &mut attr), 0);
        attr
    };
    let (groups, qps) = (attr.max_mcast_grp, attr.max_mcast_qp_attach);
    assert_eq!((groups, qps, attr.max_total_mcast_qp_attach), (8192, 56, 8192 * 56));
    let ends: Vec<_> = (0..=qps).map(|_| datagrams(1)).collect();
    // SAFETY: the queue pairs live, and the GIDs outlive the calls.
    let attach = |end: &End, i: i32| unsafe { verbs::ibv_attach_mcast(end.qp, &gid(i), 0) };
    // SAFETY: as above.
    let detach = |end: &End, i: i32| unsafe { verbs::ibv_detach_mcast(end.qp, &gid(i), 0) };
    let (last, others) = ends.split_last().unwrap();
    others.iter().for_each(|end| assert_eq!(attach(end, 0), 0));
    assert_eq!(attach(last, 0), libc::ENOMEM);
    (1..groups).for_each(|i| assert_eq!(attach(last, i), 0));
    assert_eq!((attach(last, groups), attach(last, 1)), (libc::ENOMEM, 0));
    // A join whose queue pair cannot be attached leaves the group again.
    assert_eq!(join(last.id, "239.7.0.1"), 0);
    assert_eq!(joined(last), (RDMA_CM_EVENT_MULTICAST_ERROR, -libc::ENOMEM));
    assert_eq!((leave(last.id, "239.7.0.1"), errno()), (-1, libc::EADDRNOTAVAIL));
    // What is detached makes room, and so does a queue pair that is destroyed.
    assert_eq!((detach(last, 1), attach(last, groups)), (0, 0));
    assert_eq!((detach(&others[0], 0), attach(last, 0)), (0, 0));
    assert_eq!(attach(&others[0], 0), libc::ENOMEM);
    let mut ends = ends;
    ends.pop().unwrap().destroy();
    assert_eq!(attach(&ends[0], 0), 0);
    assert_eq!(attach(&ends[0], 5), 0);
    ends.into_iter().for_each(End::destroy);
}

#[test]
fn a_queue_pair_receives_from_groups_that_processes_of_its_own_have_joined() {
    if !child_alone("a_queue_pair_receives_from_groups_that_processes_of_its_own_have_joined") {
        return;
    }
    count_drops();
    let (end, sender) = (datagrams(4), Sender::new());
    let mut memory = vec![0; 128];
    let mr = end.register(&mut memory, LOCAL_WRITE);
    for id in 0..2 {
        assert_eq!(end.post_recv(id, Some(&mut sge(mr, 64 * id as usize, 64))), 0);
    }
    let mut gid = ibv_gid { raw: Ipv4Addr::from(GROUP).to_ipv6_mapped().octets() };
    // Another program, or another user, has joined the group on this host; this one has only attached.
    let other = UdpSocket::bind("0.0.0.0:0").unwrap();
    other.join_multicast_v4(&GROUP.into(), &HERE.into()).unwrap();
    // SAFETY: the queue pair lives, and the GID outlives the calls.
    unsafe {
        assert_eq!(verbs::ibv_attach_mcast(end.qp, &gid, 0), 0);
        // Again, and no group.
        assert_eq!(verbs::ibv_attach_mcast(end.qp, &gid, 0), 0);
        gid.raw[12] = 10;
        assert_eq!(verbs::ibv_attach_mcast(end.qp, &gid, 0), libc::EINVAL);
    }
    rustix::net::sockopt::set_ip_multicast_if(&sender.socket, &HERE.into()).unwrap();
    sender.datagram(GROUP, MULTICAST_QP, UDP_QKEY, b"foreign");
    // What the kernel delivers after it arrives after it.
    sender.datagram(HERE, number(&end), UDP_QKEY, b"direct");
    assert_eq!((end.poll().wr_id, &memory[HEADER..46]), (0, &b"direct"[..]));
    assert_eq!(join(end.id, "239.1.2.3"), 0);
    // With another Q_Key, with another queue pair number, and in the name of another host.
    sender.datagram(GROUP, MULTICAST_QP, UDP_QKEY ^ 1, b"key");
    sender.datagram(GROUP, number(&end), UDP_QKEY, b"number");
    let bth = Bth::new(Opcode::Ud(Operation::SendOnly), MULTICAST_QP, Psn::new(1));
    let deth = Extension::Deth(Deth { qkey: UDP_QKEY, source_qp: 0x77 });
    sender.send([127, 0, 0, 8], GROUP, &bth, &deth, b"forged");
    sender.datagram(GROUP, MULTICAST_QP, UDP_QKEY, b"member");
    assert_eq!((end.poll().wr_id, &memory[64 + HEADER..64 + 46]), (1, &b"member"[..]));
    assert_eq!(["wrong Q_Key", "multicast", "wrong ICRC"].map(dropped), [1; 3]);
    dereg(mr);
    end.destroy();
}
