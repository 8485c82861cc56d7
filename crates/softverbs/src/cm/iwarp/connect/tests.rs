// SPDX-License-Identifier: BSD-3-Clause
//! The end of an attempt while its identifier is destroyed.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};

use super::*;
use crate::cm::iwarp::local::Local;
use crate::qp::tests::{cq, queue_pair};
use transport::cm::Phase;
use transport::iwarp::cm::negotiate::Agreed;
use transport::iwarp::conn::Role;
use transport::iwarp::wire::mpa::{Frame, Kind, REVISION};

/// The program destroys the identifier after the engine has taken the socket, and before the queue pair has
/// it: the cancellation finds no attempt, and the queue pair no connection to end.
#[test]
fn the_connection_of_an_identifier_that_is_destroyed_meanwhile_ends() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let dst = server.local_addr().unwrap();
    let socket = Socket::new(addr::family(&dst)).unwrap();
    let connected = addr::connect(&socket, &dst);
    assert!(matches!(connected, Ok(()) | Err(libc::EINPROGRESS)), "{connected:?}");
    let (mut far, _) = server.accept().unwrap();
    let queue = cq();
    let qp = queue_pair(&queue, &queue);
    let id = Id::new(None, Box::new(Local::default()));
    id.set_qp(Some(qp.clone()));
    id.state().phase = Phase::Connecting(None);
    let handshake = Handshake {
        qp: qp.clone(),
        request: Vec::new(),
        offer: Offer { ird: 1, ord: 1, crc: false },
        rnr_retry: 7,
        dst,
        timeout: Duration::from_secs(10),
    };
    let exchange = Initiator::new(handshake.offer, now(), handshake.timeout, config::get().policy);
    let state = State { socket, exchange, offered: None, timer: None, next_try: None };
    let engine = Engine::get().unwrap();
    let outgoing = Outgoing {
        id: Arc::downgrade(&id),
        token: engine.token(),
        engine,
        handshake,
        state: Mutex::new(Some(state)),
    };
    id.destroy();
    outgoing.accepted(Accepted {
        agreed: Agreed { crc: false, ord: 1, role: Role::default() },
        frame: Frame {
            kind: Kind::Reply,
            markers: false,
            crc: false,
            reject: false,
            revision: REVISION,
            enhanced: None,
        },
        private_data: Vec::new(),
        early: Vec::new(),
    });
    far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut rest = Vec::new();
    assert!(far.read_to_end(&mut rest).is_ok(), "the connection is open");
    qp.destroy();
}
