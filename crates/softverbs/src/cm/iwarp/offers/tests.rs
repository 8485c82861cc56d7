// SPDX-License-Identifier: BSD-3-Clause
//! Tests of offers of shared memory: which are accepted for which connection, and what a hostile local
//! process can send.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::BorrowedFd;

use super::*;

/// The offers of a listener, and the two ends of a connection to it: initiator and responder.
fn connected(addr: &str) -> (Offers, OwnedFd, OwnedFd) {
    let listener = TcpListener::bind(addr).unwrap();
    let port = listener.local_addr().unwrap().port();
    let ip = if addr.contains("127") || addr.contains("0.0.0.0") { "127.0.0.1" } else { "::1" };
    let initiator = TcpStream::connect((ip, port)).unwrap();
    let (responder, _) = listener.accept().unwrap();
    let offers = Offers::listen(&listener.into()).unwrap();
    (offers, initiator.into(), responder.into())
}

fn socket(fd: &OwnedFd) -> Socket {
    Socket::noted(|| Ok(fd.try_clone().unwrap())).unwrap()
}

fn connect(responder: &OwnedFd) -> Socket {
    rendezvous::connect(unix::namespace(responder), canonical(addr::local(responder).unwrap())).unwrap().0
}

/// The bytes of an offer from a peer that may inspect this process.
fn valid() -> Vec<u8> {
    let (number, own) = Evidence::own().unwrap();
    offer(own, number)
}

/// Sends an arbitrary message to the listener of `responder`.
fn send(responder: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Socket {
    let notify = connect(responder);
    unix::send_with(&notify, bytes, fds).unwrap();
    notify
}

#[test]
fn an_offer_is_taken_for_the_other_end_of_its_connection() {
    let _still = fork::tests::no_forks();
    for addr in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let (offers, initiator, responder) = connected(addr);
        assert!(offers.take(&responder).is_none());
        let offered = Offered::send(&initiator).unwrap();
        let taken = offers.take(&responder).unwrap();
        assert!(offers.take(&responder).is_none(), "an offer is taken once");
        let rings = taken.accept().unwrap();
        let other = offered.accepted().unwrap().unwrap();
        drop((rings, other));
    }
}

#[test]
fn a_fork_during_the_exchange_does_not_break_the_offer() {
    let (offers, initiator, responder) = connected("127.0.0.1:0");
    let fork = || {
        assert!(fork::tests::in_child(|| true));
        Evidence::own().unwrap();
    };
    let still = fork::tests::no_forks();
    let offered = Offered::send(&initiator).unwrap();
    let taken = offers.take(&responder).unwrap();
    drop(still);
    fork();
    let rings = taken.accept().unwrap();
    fork();
    assert!(offered.accepted().unwrap().is_some());
    drop(rings);
}

#[test]
fn an_offer_that_is_not_accepted_leaves_the_connection_on_tcp() {
    let _still = fork::tests::no_forks();
    let (offers, initiator, responder) = connected("127.0.0.1:0");
    let offered = Offered::send(&initiator).unwrap();
    assert!(offered.accepted().unwrap().is_none(), "not answered yet");
    let offered = Offered::send(&initiator).unwrap();
    drop(offers.take(&responder));
    drop(offers.take(&responder));
    assert!(offered.accepted().unwrap().is_none(), "dropped");
    let offered = Offered::send(&initiator).unwrap();
    let notify = offers.take(&responder).unwrap().notify;
    sys::send(&notify, b"?").unwrap();
    assert_eq!(offered.accepted().map(drop), Err(libc::EPROTO));
    drop(offers);
    assert!(Offered::send(&initiator).is_none(), "no listener");
}

#[test]
fn an_offer_is_not_taken_for_another_connection() {
    let _still = fork::tests::no_forks();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let one: OwnedFd = TcpStream::connect(addr).unwrap().into();
    let other: OwnedFd = TcpStream::connect(addr).unwrap().into();
    let (first, second) = (listener.accept().unwrap().0.into(), listener.accept().unwrap().0.into());
    let offers = Offers::listen(&listener.into()).unwrap();
    let _offered = Offered::send(&other).unwrap();
    assert!(offers.take(&first).is_none());
    let _offered_too = Offered::send(&one).unwrap();
    assert!(offers.take(&first).is_some());
    assert!(offers.take(&second).is_some(), "kept for its own connection");
}

#[test]
fn invalid_offers_are_closed_and_do_not_affect_others() {
    let _still = fork::tests::no_forks();
    let (offers, initiator, responder) = connected("127.0.0.1:0");
    let memory = Mine::create().unwrap();
    let (tcp, file) = (initiator.as_fd(), memory.file().as_fd());
    let mut closed = vec![
        send(&responder, b"x", &[tcp, file]),
        send(&responder, b"softverbs offer 1", &[tcp, file]),
        send(&responder, OFFER, &[tcp, file]),
        send(&responder, &offer(Evidence([b'7'; evidence::LEN]), 3), &[tcp, file]),
        send(&responder, &[valid(), b"and more".to_vec()].concat(), &[tcp, file]),
        send(&responder, &valid(), &[]),
        send(&responder, &valid(), &[tcp]),
        send(&responder, &valid(), &[file, tcp]),
    ];
    // Bound and connected like the initiator's socket, but UDP.
    let (local, peer) = (addr::local(&initiator).unwrap(), addr::peer(&initiator).unwrap());
    let udp = UdpSocket::bind(local).unwrap();
    udp.connect(peer).unwrap();
    assert_eq!(ends(&initiator), Ok((local, peer)));
    closed.push(send(&responder, &valid(), &[udp.as_fd(), file]));
    // The socket of the responder itself, which no other process can have.
    let _own = send(&responder, &valid(), &[responder.as_fd(), file]);
    let silent = connect(&responder);
    assert!(offers.take(&responder).is_none());
    for (i, notify) in closed.iter().enumerate() {
        assert_ne!(sys::recv(notify, &mut [0]), Err(libc::EAGAIN), "number {i} is still open");
    }
    // An offer that arrives late is still accepted.
    unix::send_with(&silent, &valid(), &[tcp, file]).unwrap();
    assert!(offers.take(&responder).is_some());
}

#[test]
fn a_descriptor_that_is_not_shared_memory_is_not_accepted() {
    let _still = fork::tests::no_forks();
    let (offers, initiator, responder) = connected("127.0.0.1:0");
    let wrong = sys::event_flag().unwrap();
    let notify = send(&responder, &valid(), &[initiator.as_fd(), wrong.as_fd()]);
    assert!(offers.take(&responder).unwrap().accept().is_none());
    assert_eq!(sys::recv(&notify, &mut [0]), Ok(0), "no answer is sent");
}

#[test]
fn the_tcp_socket_of_an_offer_is_not_kept_open() {
    let _still = fork::tests::no_forks();
    let (offers, initiator, responder) = connected("127.0.0.1:0");
    let _offered = Offered::send(&initiator).unwrap();
    let _taken = offers.take(&responder).unwrap();
    drop(initiator);
    let responder = socket(&responder);
    assert_eq!(sys::recv(&responder, &mut [0]), Ok(0));
}

#[test]
fn offers_without_a_request_are_limited() {
    let _still = fork::tests::no_forks();
    let (offers, initiator, responder) = connected("127.0.0.1:0");
    let memory = Mine::create().unwrap();
    let fds = [initiator.as_fd(), memory.file().as_fd()];
    let unrelated: OwnedFd = TcpStream::connect(addr::local(&responder).unwrap()).map(Into::into).unwrap_or(
        // The TCP listener is closed; any other connection serves the purpose.
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            TcpStream::connect(listener.local_addr().unwrap()).unwrap().into()
        },
    );
    let mut open = Vec::new();
    for _ in 0..MAX_OFFERS {
        open.push(send(&responder, &valid(), &[unrelated.as_fd(), fds[1]]));
        open.push(connect(&responder));
        if open.len() % 64 == 0 {
            let _ = offers.take(&responder);
        }
    }
    open.push(send(&responder, &valid(), &fds));
    assert!(offers.take(&responder).is_some());
    let queue = lock(&offers.queue);
    assert!(queue.silent.len() <= MAX_OFFERS && queue.waiting.len() <= MAX_OFFERS);
}

#[test]
fn a_listener_bound_to_a_wildcard_is_found() {
    let _still = fork::tests::no_forks();
    let names = |addr: &str| candidates(addr.parse().unwrap()).map(|a| a.to_string()).collect::<Vec<_>>();
    assert_eq!(names("10.0.0.5:7"), ["10.0.0.5:7", "0.0.0.0:7", "[::]:7"]);
    assert_eq!(names("[::1]:7"), ["[::1]:7", "[::]:7"]);
    assert_eq!(canonical("[::ffff:10.0.0.5]:7".parse().unwrap()).to_string(), "10.0.0.5:7");
}
