// SPDX-License-Identifier: BSD-3-Clause
//! rdma_get_cm_event(3): the events of identifiers with their status, and how long they are valid.

mod common;
use common::verbs_h::*;
use common::*;
use rdma_cm_event_type::*;
use rdma_sys::*;
use softverbs::rdma as cm;
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use transport::iwarp::wire::mpa::{self, Enhanced, Frame, Kind};

type Channel = *mut rdma_event_channel;

/// An identifier on a channel (NULL: synchronous) with a queue pair and a route to `port` of this host.
fn ready(events: Channel, port: u16, timeout_ms: i32) -> *mut rdma_cm_id {
    // SAFETY: the arguments are objects that were just created.
    unsafe {
        let mut id = null_mut();
        assert_eq!(cm::rdma_create_id(events, &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        let service = CString::new(port.to_string()).unwrap();
        let mut info = null_mut();
        assert_eq!(cm::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), service.as_ptr(), null(), &mut info), 0);
        assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (*info).ai_dst_addr, timeout_ms), 0);
        cm::rdma_freeaddrinfo(info);
        assert_eq!(cm::rdma_resolve_route(id, timeout_ms), 0);
        assert_eq!(cm::rdma_create_qp(id, null_mut(), &mut bare_attributes(4)), 0);
        id
    }
}

fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: each identifier is destroyed exactly once.
    unsafe { cm::rdma_destroy_ep(id) };
}

/// A listening socket with a full backlog: it does not respond to further connections.
fn deaf() -> (OwnedFd, Vec<TcpStream>, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // SAFETY: the descriptor is the listener's, which is taken out of it and closed exactly once.
    let fd = unsafe {
        assert_eq!(libc::listen(listener.as_raw_fd(), 0), 0);
        OwnedFd::from_raw_fd(libc::dup(listener.as_raw_fd()))
    };
    drop(listener);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let soon = std::time::Duration::from_millis(100);
    let filled = (0..4).map_while(|_| TcpStream::connect_timeout(&address, soon).ok()).collect();
    (fd, filled, port)
}

#[test]
fn each_step_of_an_identifier_has_its_event() {
    // SAFETY: the channel outlives the identifiers.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listening, port) = listen(events, c"127.0.0.1");
        let id = ready(events, port, 1000);
        let none = Vec::new;
        assert_eq!(next_event(events), (RDMA_CM_EVENT_ADDR_RESOLVED, 0, none()));
        assert_eq!(next_event(events), (RDMA_CM_EVENT_ROUTE_RESOLVED, 0, none()));
        assert_eq!(cm::rdma_connect(id, &mut param(b"request")), 0);
        let mut event = null_mut();
        assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
        let (request, seen) = ((*event).id, event.read());
        assert_eq!((seen.event, seen.status), (RDMA_CM_EVENT_CONNECT_REQUEST, 0));
        assert!(request != listening && seen.listen_id == listening);
        let conn = seen.param.conn;
        assert_eq!(
            (conn.responder_resources, conn.initiator_depth),
            (128, 128),
            "255, limited to the maximum of the device"
        );
        assert_eq!(conn.private_data_len, 7);
        assert_eq!(cm::rdma_ack_cm_event(event), 0);

        assert_eq!(cm::rdma_create_qp(request, null_mut(), &mut bare_attributes(4)), 0);
        let mut answer = param(b"answer");
        (answer.responder_resources, answer.initiator_depth) = (3, 2);
        assert_eq!(cm::rdma_accept(request, &mut answer), 0);
        for _ in 0..2 {
            assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
            let seen = event.read();
            assert_eq!((seen.event, seen.status), (RDMA_CM_EVENT_ESTABLISHED, 0));
            assert!(seen.listen_id.is_null() && (seen.id == id || seen.id == request));
            let conn = seen.param.conn;
            if seen.id == id {
                assert_eq!(
                    (conn.private_data_len, conn.responder_resources, conn.initiator_depth),
                    (6, 2, 3)
                );
            } else {
                assert!(conn.private_data.is_null() && conn.private_data_len == 0);
            }
            assert_eq!(cm::rdma_ack_cm_event(event), 0);
        }
        assert_eq!(cm::rdma_disconnect(request), 0);
        for _ in 0..2 {
            assert_eq!(next_event(events), (RDMA_CM_EVENT_DISCONNECTED, 0, none()));
        }
        [id, request, listening].into_iter().for_each(destroy);
        cm::rdma_destroy_event_channel(events);
    }
}

#[test]
fn a_host_that_does_not_respond_is_unreachable() {
    let (_listening, filled, port) = deaf();
    assert!(filled.len() < 4, "the queue of the listener is full");
    // SAFETY: the channel outlives the identifier.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let id = ready(events, port, 200);
        assert_eq!((next_event(events).0, next_event(events).0), (0, 2));
        assert_eq!(cm::rdma_connect(id, null_mut()), 0);
        assert_eq!(next_event(events), (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, vec![]));
        destroy(id);
        cm::rdma_destroy_event_channel(events);

        let id = ready(null_mut(), port, 200);
        fails(cm::rdma_connect(id, null_mut()), libc::ETIMEDOUT);
        let seen = (*id).event.read();
        assert_eq!((seen.event, seen.status), (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT));
        destroy(id);
    }
}

/// An initiator that announces its first message but closes instead.
#[test]
fn an_accepted_connection_that_is_never_established_is_an_error() {
    // SAFETY: each object is destroyed exactly once.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listening, port) = listen(events, c"127.0.0.1");
        for waits in [false, true] {
            let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let announced =
                Enhanced { peer_to_peer: true, rtr_write: true, ird: 8, ord: 8, ..Enhanced::default() };
            let frame = Frame {
                kind: Kind::Request,
                markers: false,
                crc: false,
                reject: false,
                revision: 2,
                enhanced: Some(announced),
            };
            let mut bytes = Vec::new();
            mpa::encode(&frame, b"", &mut bytes).unwrap();
            peer.write_all(&bytes).unwrap();
            let (id, _) = take_request(events);
            assert_eq!(cm::rdma_create_qp(id, null_mut(), &mut bare_attributes(4)), 0);
            let gone = std::thread::spawn(move || {
                assert!(peer.read(&mut [0; 64]).unwrap() > 0, "the reply");
                peer.shutdown(Shutdown::Both).unwrap();
            });
            if waits {
                assert_eq!(cm::rdma_migrate_id(id, null_mut()), 0);
                fails(cm::rdma_accept(id, null_mut()), libc::ECONNRESET);
                let seen = (*id).event.read();
                assert_eq!((seen.event, seen.status), (RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET));
            } else {
                assert_eq!(cm::rdma_accept(id, null_mut()), 0);
                assert_eq!(next_event(events), (RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET, vec![]));
            }
            gone.join().unwrap();
            destroy(id);
        }
        destroy(listening);
        cm::rdma_destroy_event_channel(events);
    }
}

/// rdma_destroy_id does not wait for the acknowledgement, unlike librdmacm; the event and its private data
/// stay valid.
#[test]
fn an_event_outlives_its_identifier_until_it_is_acknowledged() {
    // SAFETY: the event is acknowledged once, after its last use.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listening, port) = listen(events, c"127.0.0.1");
        let client = ready(null_mut(), port, 1000);
        assert_eq!(cm::rdma_migrate_id(client, events), 0);
        assert_eq!(cm::rdma_connect(client, &mut param(b"kept")), 0);
        let mut event = null_mut();
        assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
        destroy((*event).id);
        destroy(listening);
        let conn = (*event).param.conn;
        let data = std::slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into());
        assert_eq!(data, b"kept");
        assert_eq!(cm::rdma_ack_cm_event(event), 0);
        assert_eq!(next_event(events).0, RDMA_CM_EVENT_REJECTED, "destroying a request rejects it");
        destroy(client);
        cm::rdma_destroy_event_channel(events);
    }
}

#[test]
fn a_null_event_is_refused() {
    // SAFETY: the channel is destroyed exactly once.
    unsafe {
        let mut event = null_mut();
        fails(cm::rdma_get_cm_event(null_mut(), &mut event), libc::EINVAL);
        fails(cm::rdma_ack_cm_event(null_mut()), libc::EINVAL);
        let events = cm::rdma_create_event_channel();
        let flags = libc::fcntl((*events).fd, libc::F_GETFL);
        assert_eq!(libc::fcntl((*events).fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
        fails(cm::rdma_get_cm_event(events, &mut event), libc::EAGAIN);
        assert!(event.is_null());
        cm::rdma_destroy_event_channel(events);
    }
}
