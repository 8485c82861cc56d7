// SPDX-License-Identifier: BSD-3-Clause
//! rdma_create_qp(3) and rdma_create_srq(3): the objects that rdma_cm creates if the program passes none, and
//! their destruction.

mod common;
use common::verbs_h::*;
use common::*;
use rdma_sys::*;
use softverbs::{rdma as cm, verbs};
use std::ptr::{null, null_mut};

const ADDR_RESOLVED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED;
const ROUTE_RESOLVED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED;
const ESTABLISHED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;

type Channel = *mut rdma_event_channel;

/// An identifier that has a route to `port` of this host.
fn resolved(events: Channel, port: u16) -> *mut rdma_cm_id {
    // SAFETY: the arguments are objects that were just created.
    unsafe {
        let mut id = null_mut();
        assert_eq!(cm::rdma_create_id(events, &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        let service = std::ffi::CString::new(port.to_string()).unwrap();
        let mut info = null_mut();
        assert_eq!(cm::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), service.as_ptr(), null(), &mut info), 0);
        assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (*info).ai_dst_addr, 1000), 0);
        cm::rdma_freeaddrinfo(info);
        assert_eq!(next_event(events).0, ADDR_RESOLVED);
        assert_eq!(cm::rdma_resolve_route(id, 1000), 0);
        assert_eq!(next_event(events).0, ROUTE_RESOLVED);
        id
    }
}

/// Two identifiers that are not connected yet, one with a route and one of a request, and their channel.
/// `prepare` creates the queue pair of each.
fn connected(prepare: impl Fn(*mut rdma_cm_id)) -> (Channel, *mut rdma_cm_id, *mut rdma_cm_id) {
    // SAFETY: the arguments are objects that were just created; the listener is destroyed exactly once.
    unsafe {
        let (events, listening) = (cm::rdma_create_event_channel(), cm::rdma_create_event_channel());
        let (listener, port) = listen(listening, c"127.0.0.1");
        let client = resolved(events, port);
        prepare(client);
        assert_eq!(cm::rdma_connect(client, &mut param(b"")), 0);
        let (server, _) = take_request(listening);
        prepare(server);
        assert_eq!(cm::rdma_migrate_id(server, events), 0);
        assert_eq!(cm::rdma_accept(server, &mut param(b"")), 0);
        assert_eq!((next_event(events).0, next_event(events).0), (ESTABLISHED, ESTABLISHED));
        assert_eq!(cm::rdma_destroy_id(listener), 0);
        cm::rdma_destroy_event_channel(listening);
        (events, client, server)
    }
}

fn say(from: *mut rdma_cm_id, to: *mut rdma_cm_id, text: &[u8]) {
    let (mut sent, mut got) = (text.to_vec(), vec![0; 64]);
    let (source, target) = (reg_msgs(from, &mut sent), reg_msgs(to, &mut got));
    assert_eq!((post_recv(to, 7, target), post_send(from, 8, source, text.len())), (0, 0));
    assert_eq!(get_recv_comp(to), (7, 0, text.len() as u32));
    let (wr_id, status, _) = get_send_comp(from);
    assert_eq!((wr_id, status), (8, 0));
    assert_eq!(&got[..text.len()], text);
    dereg(source);
    dereg(target);
}

fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: each identifier is destroyed once, its queue pair first.
    unsafe {
        cm::rdma_destroy_qp(id);
        cm::rdma_destroy_srq(id);
        assert_eq!(cm::rdma_destroy_id(id), 0);
    }
}

#[test]
fn a_queue_pair_gets_the_objects_that_the_program_does_not_pass() {
    // SAFETY: the identifiers are not destroyed yet, and the channel outlives them.
    unsafe {
        let (events, client, server) = connected(|id| {
            let mut attr = bare_attributes(4);
            assert_eq!(cm::rdma_create_qp(id, null_mut(), &mut attr), 0);
            let c = id.read();
            assert!(!c.pd.is_null() && (*c.qp).pd == c.pd);
            assert!(c.send_cq != c.recv_cq && attr.send_cq == c.send_cq && attr.recv_cq == c.recv_cq);
            assert!((*c.send_cq).channel == c.send_cq_channel && (*c.recv_cq).channel == c.recv_cq_channel);
            assert!((*c.send_cq).cq_context == id.cast() && (*c.recv_cq).cq_context == id.cast());
            assert!(attr.cap.max_inline_data >= 16 && attr.cap.max_send_wr == 4);
        });
        assert_eq!((*client).pd, (*server).pd, "one protection domain for the device");
        say(client, server, b"asked");
        say(server, client, b"answered");
        cm::rdma_destroy_qp(client);
        let c = client.read();
        assert!(c.qp.is_null() && c.send_cq.is_null() && c.recv_cq.is_null());
        assert!(c.send_cq_channel.is_null() && c.recv_cq_channel.is_null());
        cm::rdma_destroy_qp(client);
        destroy(client);
        destroy(server);
        cm::rdma_destroy_event_channel(events);
    }
}

/// Objects of the program are used, and not destroyed.
#[test]
fn a_queue_of_the_program_is_not_replaced() {
    // SAFETY: the identifier is not destroyed yet; the queue and the protection domain are destroyed when
    // nothing uses them.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let id = resolved(events, 1);
        let pd = verbs::ibv_alloc_pd((*id).verbs);
        let cq = verbs::ibv_create_cq((*id).verbs, 8, null_mut(), null_mut(), 0);
        let mut attr = bare_attributes(4);
        attr.send_cq = cq;
        assert_eq!(cm::rdma_create_qp(id, pd, &mut attr), 0);
        assert!((*(*id).qp).send_cq == cq && (*id).pd == pd && (*(*id).qp).pd == pd);
        assert!((*id).send_cq.is_null() && !(*id).recv_cq.is_null());
        cm::rdma_destroy_qp(id);
        assert!((*id).recv_cq.is_null());

        // Or in the identifier.
        (*id).recv_cq = cq;
        let mut attr = bare_attributes(4);
        assert_eq!(cm::rdma_create_qp(id, pd, &mut attr), 0);
        assert!((*(*id).qp).recv_cq == cq && attr.recv_cq == cq && !(*id).send_cq.is_null());
        cm::rdma_destroy_qp(id);
        assert!((*id).recv_cq == cq && (*id).send_cq.is_null());

        assert_eq!(cm::rdma_destroy_id(id), 0);
        assert_eq!(
            (verbs::ibv_destroy_cq(cq), verbs::ibv_dealloc_pd(pd)),
            (0, 0),
            "they are not in use any more"
        );
        cm::rdma_destroy_event_channel(events);
    }
}

#[test]
fn invalid_attributes_of_a_queue_pair_are_refused_without_effect() {
    // SAFETY: the identifier is not destroyed yet; the calls only compare the foreign protection domain.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let mut unbound = null_mut();
        assert_eq!(cm::rdma_create_id(events, &mut unbound, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        fails(cm::rdma_create_qp(unbound, null_mut(), &mut bare_attributes(4)), libc::EINVAL);
        fails(cm::rdma_create_qp(null_mut(), null_mut(), &mut bare_attributes(4)), libc::EINVAL);
        fails(cm::rdma_create_qp(unbound, null_mut(), null_mut()), libc::EINVAL);
        assert_eq!(cm::rdma_destroy_id(unbound), 0);

        let id = resolved(events, 1);
        let cq = verbs::ibv_create_cq((*id).verbs, 8, null_mut(), null_mut(), 0);
        let bad = |what: &str, change: &dyn Fn(&mut ibv_qp_init_attr)| {
            let mut attr = bare_attributes(4);
            change(&mut attr);
            fails(cm::rdma_create_qp(id, null_mut(), &mut attr), libc::EINVAL);
            let c = id.read();
            assert!(c.qp.is_null() && c.send_cq.is_null() && c.send_cq_channel.is_null(), "{what}");
            assert!(c.recv_cq.is_null() && c.recv_cq_channel.is_null() && attr.recv_cq.is_null(), "{what}");
        };
        bad("too many sends", &|attr| attr.cap.max_send_wr = u32::MAX);
        bad("too many receives", &|attr| attr.cap.max_recv_wr = 1 << 30);
        bad("too many entries", &|attr| attr.cap.max_send_sge = 1000);
        (*id).send_cq = cq;
        let mut attr = bare_attributes(4);
        let other = verbs::ibv_create_cq((*id).verbs, 8, null_mut(), null_mut(), 0);
        attr.send_cq = other;
        fails(cm::rdma_create_qp(id, null_mut(), &mut attr), libc::EINVAL);
        assert_eq!(attr.send_cq, other, "not the one of the identifier");
        (*id).send_cq = null_mut();

        let mut foreign = ibv_pd { context: 0x40 as *mut ibv_context, handle: 1 };
        fails(cm::rdma_create_qp(id, &mut foreign, &mut bare_attributes(4)), libc::EINVAL);
        assert_eq!(cm::rdma_create_qp(id, null_mut(), &mut bare_attributes(4)), 0);
        let qp = (*id).qp;
        fails(cm::rdma_create_qp(id, null_mut(), &mut bare_attributes(4)), libc::EINVAL);
        assert_eq!((*id).qp, qp, "an identifier has one queue pair");
        destroy(id);
        assert_eq!((verbs::ibv_destroy_cq(cq), verbs::ibv_destroy_cq(other)), (0, 0));
        cm::rdma_destroy_event_channel(events);
    }
}

fn srq_attributes(max_wr: u32) -> ibv_srq_init_attr {
    // SAFETY: all-zero attributes are valid.
    let mut attr: ibv_srq_init_attr = unsafe { std::mem::zeroed() };
    attr.attr.max_wr = max_wr;
    attr.attr.max_sge = 1;
    attr
}

#[test]
fn a_shared_receive_queue_of_the_identifier_feeds_its_queue_pair() {
    // SAFETY: the identifiers are destroyed once, after their queues; the channel outlives them.
    unsafe {
        let (events, client, server) = connected(|id| {
            assert_eq!(cm::rdma_create_srq(id, null_mut(), &mut srq_attributes(8)), 0);
            let mut attr = bare_attributes(2);
            attr.cap.max_recv_wr = 0;
            assert_eq!(cm::rdma_create_qp(id, null_mut(), &mut attr), 0);
            assert!(attr.srq == (*id).srq && (*(*id).qp).srq == (*id).srq);
            assert!((*(*id).recv_cq).cqe >= 8, "room for every receive");
        });
        say(client, server, b"one");
        say(server, client, b"two");
        let srq = (*server).srq;
        cm::rdma_destroy_srq(server);
        assert_eq!((*server).srq, srq, "in use");
        cm::rdma_destroy_qp(server);
        cm::rdma_destroy_srq(server);
        assert!((*server).srq.is_null());
        destroy(server);
        destroy(client);
        cm::rdma_destroy_event_channel(events);
    }
}

#[test]
fn invalid_attributes_of_a_shared_receive_queue_are_refused() {
    // SAFETY: the identifiers are destroyed once; the calls only read the attributes.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let mut unbound = null_mut();
        assert_eq!(cm::rdma_create_id(events, &mut unbound, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        fails(cm::rdma_create_srq(unbound, null_mut(), &mut srq_attributes(8)), libc::EINVAL);
        assert_eq!(cm::rdma_destroy_id(unbound), 0);

        let id = resolved(events, 1);
        fails(cm::rdma_create_srq(id, null_mut(), &mut srq_attributes(0)), libc::EINVAL);
        fails(cm::rdma_create_srq(id, null_mut(), null_mut()), libc::EINVAL);
        let mut foreign = ibv_pd { context: 0x40 as *mut ibv_context, handle: 1 };
        fails(cm::rdma_create_srq(id, &mut foreign, &mut srq_attributes(8)), libc::EINVAL);
        let mut full: ibv_srq_init_attr_ex = std::mem::zeroed();
        full.attr = srq_attributes(8).attr;
        fails(cm::rdma_create_srq_ex(id, &mut full), libc::EINVAL);
        full.comp_mask = 1;
        for (kind, errno) in
            [(ibv_srq_type::IBV_SRQT_XRC, libc::EOPNOTSUPP), (ibv_srq_type::IBV_SRQT_TM, libc::EOPNOTSUPP)]
        {
            full.srq_type = kind;
            fails(cm::rdma_create_srq_ex(id, &mut full), errno);
        }
        assert!((*id).srq.is_null());
        full.srq_type = ibv_srq_type::IBV_SRQT_BASIC;
        assert_eq!(cm::rdma_create_srq_ex(id, &mut full), 0);
        fails(cm::rdma_create_srq(id, null_mut(), &mut srq_attributes(8)), libc::EINVAL);
        destroy(id);
        cm::rdma_destroy_event_channel(events);
    }
}
