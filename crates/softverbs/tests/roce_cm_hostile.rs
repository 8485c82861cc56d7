// SPDX-License-Identifier: BSD-3-Clause
//! Forged and malformed messages of connection management, and floods of them, at a RoCE device. Each test
//! runs in a separate network namespace.

mod common;

use common::cm_peer::{Peer, drep, dreq, rej, rep, req, req_from, rtu};
use common::drops::{count_drops, dropped};
use common::ids::{bind, destroy, new_id, src_port};
use common::restart::child_alone;
use common::{End, accept, connect, has_event, listener, next_event, resident_pages, take_request};
use rdma_sys::rdma_cm_event_type::*;
use rdma_sys::rdma_event_channel;
use softverbs::rdma as cm;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use transport::roce::wire::cm::{
    Answered, GSI_QKEY, Mad, Message, Mra, PortSpace, Reason, Rep, Req, ServiceId, SidrRep, SidrReq,
    SidrStatus,
};
use transport::roce::wire::{DEFAULT_PKEY, Psn};

/// An address that is neither that of the peer nor that of the process.
const OTHER: [u8; 4] = [127, 0, 0, 8];
/// The maximum number of pending requests of one host (`MAX_REQUESTS_OF_HOST`).
const OF_HOST: i32 = 512;

fn has_event_now(end: &End) -> bool {
    has_event(end, Duration::ZERO)
}

/// The program accepts this request of the peer.
fn accept_from(peer: &Peer, events: *mut rdma_event_channel, req: Req) -> (End, Rep) {
    peer.send(Message::Req(req));
    let server = accept(take_request(events).0, 4, b"");
    let Mad { message: Message::Rep(rep), .. } = peer.receive() else { panic!("no REP") };
    (server, rep)
}

/// A REP of a queue pair that the peer does not have.
fn other_reply(local_comm_id: u32, remote_comm_id: u32) -> Message {
    Message::Rep(Rep { local_qpn: 0x12_3457, ..rep(local_comm_id, remote_comm_id) })
}

/// A message with guessed communication ids: most often the slot of the process is right.
fn forged(num: u32, random: &mut fastrand::Rng) -> Message {
    let slot = if random.u8(..4) > 0 { num >> 16 } else { random.u32(..256) };
    let remote_comm_id = slot << 24 | random.u32(..1 << 24);
    let local_comm_id = random.u32(..);
    match random.u8(..10) {
        0 => rtu(local_comm_id, remote_comm_id),
        1 => drep(local_comm_id, remote_comm_id),
        2 | 3 => dreq(local_comm_id, remote_comm_id, num),
        4 => Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            answered: Answered::Req,
            service_timeout: 31,
            private_data: [0; Mra::PRIVATE_DATA_LEN],
        }),
        5 => {
            let reason = if random.bool() { Reason::TIMEOUT } else { Reason::CONSUMER };
            rej(local_comm_id, random.u32(..2) * remote_comm_id, reason)
        }
        6 => other_reply(local_comm_id, remote_comm_id),
        7 => Message::SidrRep(SidrRep {
            request_id: remote_comm_id,
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: num,
            service_id: ServiceId::new(PortSpace::Udp, 1),
            qkey: 1,
            info: [0; SidrRep::INFO_LEN],
            private_data: [0; SidrRep::PRIVATE_DATA_LEN],
        }),
        8 => Message::SidrReq(SidrReq {
            request_id: local_comm_id,
            pkey: DEFAULT_PKEY,
            service_id: ServiceId::new(PortSpace::Udp, 1),
            private_data: [0; SidrReq::PRIVATE_DATA_LEN],
        }),
        // A service without a listener.
        _ => Message::Req(req(1, local_comm_id)),
    }
}

#[test]
fn forged_messages_cost_time_and_nothing_else() {
    if !child_alone("forged_messages_cost_time_and_nothing_else") {
        return;
    }
    let (listening, events, port) = listener();
    let pair = || {
        let client = connect(c"127.0.0.1", port, 4, b"");
        let server = accept(take_request(events).0, 4, b"");
        assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
        (client, server)
    };
    let (client, server) = pair();
    // SAFETY: the queue pair lives.
    let num = unsafe { (*server.qp).qp_num };
    let (before, stop, sent) = (resident_pages(), AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut random = fastrand::Rng::with_seed(12);
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    Peer::send_from_any_port(forged(num, &mut random));
                }
                sent.fetch_add(100, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let (begin, mut connections) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_secs(1) || connections == 0 {
            let (client, server) = pair();
            connections += 1;
            client.destroy();
            server.destroy();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(![&client, &server].into_iter().any(has_event_now), "the connection was disturbed");
    for end in [&client, &server] {
        // SAFETY: the identifier lives.
        assert_eq!(unsafe { cm::rdma_disconnect(end.id) }, 0);
    }
    for end in [&client, &server] {
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_DISCONNECTED);
    }
    let more = resident_pages().saturating_sub(before);
    assert!(more < 64 << 8, "{more} pages more after {} messages", sent.into_inner());
    client.destroy();
    server.destroy();
    destroy(listening);
}

#[test]
fn messages_of_another_address_change_no_connection() {
    if !child_alone("messages_of_another_address_change_no_connection") {
        return;
    }
    let (listening, events, port) = listener();
    let peer = Peer::new();
    let (server, rep) = accept_from(&peer, events, req(port, 0x99));
    let (id, num) = (rep.local_comm_id, rep.local_qpn);
    // The ids are right, the address is not.
    let attack = || {
        Peer::send_as(OTHER, rtu(0x99, id));
        Peer::send_as(OTHER, other_reply(0x99, id));
        Peer::send_as(OTHER, rej(0x99, id, Reason::CONSUMER));
        Peer::send_as(OTHER, rej(0x99, 0, Reason::TIMEOUT));
        Peer::send_as(OTHER, dreq(0x99, id, num));
        // The address is right, the id of the peer or the queue pair is not.
        peer.send(rej(0x98, id, Reason::CONSUMER));
        peer.send(dreq(0x99, id, num ^ 2));
        // It is answered after all of these.
        while !is_drep_for(&peer.transact(&dreq(0x97, id, num)), 0x97) {}
    };
    attack();
    assert!(!has_event_now(&server), "before the RTU");
    peer.send(rtu(0x99, id));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
    attack();
    assert!(!has_event_now(&server), "after the RTU");
    while !is_drep_for(&peer.transact(&dreq(0x99, id, num)), 0x99) {}
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_DISCONNECTED);
    server.destroy();
    destroy(listening);
}

#[test]
fn only_the_queue_pair_of_a_connection_makes_it_stale() {
    if !child_alone("only_the_queue_pair_of_a_connection_makes_it_stale") {
        return;
    }
    let (listening, events, port) = listener();
    let peer = Peer::new();
    let (server, rep) = accept_from(&peer, events, req(port, 0x99));
    peer.send(rtu(0x99, rep.local_comm_id));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
    // Queue pairs of other hosts, another adapter of the peer, and another one of its queue pairs.
    Peer::send_as(OTHER, Message::Req(req_from(OTHER, port, 0x51)));
    peer.send(Message::Req(Req { local_ca_guid: 0x4321, ..req(port, 0x52) }));
    peer.send(Message::Req(Req { local_qpn: 0x12_3457, ..req(port, 0x53) }));
    for _ in 0..3 {
        // SAFETY: each identifier is destroyed once.
        assert_eq!(unsafe { cm::rdma_destroy_id(take_request(events).0) }, 0);
    }
    assert!(!has_event_now(&server));
    // The peer has another connection with it, as the specification has it.
    peer.send(Message::Req(req(port, 0x54)));
    let id = loop {
        if let Message::Dreq(dreq) = peer.receive().message {
            break dreq.local_comm_id;
        }
    };
    assert_eq!(id, rep.local_comm_id);
    peer.send(drep(0x99, id));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_DISCONNECTED);
    server.destroy();
    destroy(listening);
}

#[test]
fn extreme_values_of_a_peer_fail_its_connection_at_most() {
    if !child_alone("extreme_values_of_a_peer_fail_its_connection_at_most") {
        return;
    }
    let (listening, events, port) = listener();
    let peer = Peer::new();
    let mut req = Req {
        local_qpn: 0xff_fffe,
        responder_resources: 255,
        initiator_depth: 255,
        remote_response_timeout: 31,
        local_response_timeout: 31,
        starting_psn: Psn::new(0xff_ffff),
        pkey: 0x1234,
        path_mtu: 5,
        ..req(port, 0x99)
    };
    (req.primary.hop_limit, req.primary.ack_timeout, req.primary.flow_label) = (0, 31, 0xf_ffff);
    (req.primary.traffic_class, req.primary.sl, req.primary.rate) = (255, 15, 63);
    let (server, own) = accept_from(&peer, events, req);
    assert!(own.responder_resources <= 128 && own.initiator_depth <= 128);
    peer.send(rtu(0x99, own.local_comm_id));
    assert_eq!(next_event(server.events).0, RDMA_CM_EVENT_ESTABLISHED);
    server.destroy();

    let client = connect(c"127.0.0.9", 7471, 4, b"");
    let (transaction, id) = loop {
        if let Mad { transaction, message: Message::Req(req) } = peer.receive() {
            break (transaction, req.local_comm_id);
        }
    };
    let rep = Rep {
        // That of the connection before would be stale.
        local_qpn: 0xff_fffd,
        responder_resources: 255,
        initiator_depth: 255,
        target_ack_delay: 31,
        starting_psn: Psn::new(0xff_ffff),
        ..rep(0x55, id)
    };
    peer.answer(transaction, Message::Rep(rep));
    // More reads than an adapter accepts at a time.
    assert_eq!(next_event(client.events).0, RDMA_CM_EVENT_CONNECT_ERROR);
    client.destroy();
    destroy(listening);
}

/// Whether it answers the DREQ of a communication id.
fn is_drep_for(answer: &Mad, comm_id: u32) -> bool {
    matches!(&answer.message, Message::Drep(drep) if drep.remote_comm_id == comm_id)
}

#[test]
fn a_flood_of_requests_keeps_no_other_host_out() {
    if !child_alone("a_flood_of_requests_keeps_no_other_host_out") {
        return;
    }
    let listening = new_id();
    bind(listening, "127.0.0.1");
    // SAFETY: the identifier and the channel live.
    let events = unsafe {
        let events = cm::rdma_create_event_channel();
        assert_eq!(cm::rdma_migrate_id(listening, events), 0);
        // The default backlog.
        assert_eq!(cm::rdma_listen(listening, 0), 0);
        events
    };
    let (peer, port) = (Peer::new(), src_port(listening));
    for n in 0..3 * OF_HOST as u32 {
        Peer::send_from_any_port(Message::Req(Req { local_qpn: 0x10_0000 + n, ..req(port, n + 1) }));
        if n % 50 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let client = connect(c"127.0.0.1", port, 4, b"honest");
    // It is answered after all requests were received, of which none is fetched before.
    // SAFETY: the queue pair lives.
    let slot = unsafe { (*client.qp).qp_num } >> 16;
    while !is_drep_for(&peer.transact(&dreq(0x97, slot << 24, 2)), 0x97) {}
    let mut others = 0;
    let id = loop {
        let (id, data) = take_request(events);
        if data.starts_with(b"honest") {
            break id;
        }
        others += 1;
        // SAFETY: each identifier is destroyed once.
        assert_eq!(unsafe { cm::rdma_destroy_id(id) }, 0);
    };
    assert_eq!(others, OF_HOST);
    let server = accept(id, 4, b"");
    for end in [&client, &server] {
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
    }
    client.destroy();
    server.destroy();
    destroy(listening);
}

#[test]
fn nonsense_is_dropped_and_counted() {
    if !child_alone("nonsense_is_dropped_and_counted") {
        return;
    }
    count_drops();
    let (listening, events, port) = listener();
    let peer = Peer::new();
    let good = Mad { transaction: 7, message: Message::Req(req(port, 0x99)) }.encode();
    // Truncated, longer than a MAD, of another class, method or attribute, with another Q_Key.
    for len in [0, 24, 100, 252] {
        peer.send_to_gsi(GSI_QKEY, &good[..len]);
    }
    peer.send_to_gsi(GSI_QKEY, &[&good[..], &[0; 8]].concat());
    for at in [0, 1, 2, 3, 16, 17] {
        let mut bad = good;
        bad[at] ^= 0x5a;
        peer.send_to_gsi(GSI_QKEY, &bad);
    }
    peer.send_to_gsi(GSI_QKEY ^ 1, &good);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..20 {
        let noise = std::array::from_fn::<u8, 256, _>(|_| random.u8(..));
        peer.send_to_gsi(GSI_QKEY, &noise);
    }
    peer.send(Message::Req(Req { local_qpn: 0x10_0000, ..req(port, 0x98) }));
    let (id, _) = take_request(events);
    assert_eq!(dropped("connection management"), 4 + 1 + 6 + 1 + 20);
    // SAFETY: the identifier is destroyed once.
    assert_eq!(unsafe { cm::rdma_destroy_id(id) }, 0);
    destroy(listening);
}
