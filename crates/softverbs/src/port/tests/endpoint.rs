// SPDX-License-Identifier: BSD-3-Clause
//! An endpoint sends to itself.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::process::{Inbox, packet};
use super::{in_namespace, sender_to, wait_until};
use crate::lock;
use crate::port::drops::Reason;
use crate::port::socket::Family;
use crate::port::{Endpoint, Port, PortCounter, allocate_number, release_number};
use crate::sys;
use transport::roce::wire::icrc::check;
use transport::roce::wire::{Addresses, Flow, ICRC_LEN, UDP_PORT};

#[test]
fn endpoints_are_called_when_the_socket_takes_packets() {
    in_namespace("writable");
}

#[test]
fn the_receive_buffer_is_large_whatever_rmem_max_is() {
    in_namespace("buffer");
}

/// With CAP_NET_ADMIN in the initial user namespace: the one of a network namespace is not enough.
pub(super) fn buffer() {
    let probe = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    if set_socket_recv_buffer_size_force(&probe, 1 << 20).is_err() {
        eprintln!("skipped: CAP_NET_ADMIN is missing");
        return;
    }
    let port = Port::get().unwrap();
    let socket = port.sockets.get(Family::V4).unwrap();
    let len: i32 = sys::get_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
    assert_eq!(len, 16 << 20, "the kernel doubles it, for its own data");
}

pub(super) fn writable() {
    let (num, port) = (allocate_number().unwrap(), Port::get().unwrap());
    assert!(Port::bound().is_some_and(|bound| Arc::ptr_eq(&bound, &port)));
    let inbox = Arc::new(Inbox { num, ..Inbox::default() });
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let weak: Weak<dyn Endpoint> = Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>));
    port.attach(num, Some((address, address)), weak);
    for _ in 0..3 {
        let before = inbox.writable.load(Ordering::Relaxed);
        port.sockets.await_writable(Family::V4, num);
        wait_until(|| inbox.writable.load(Ordering::Relaxed) > before);
    }
    // A program that polls receives in its own thread, or the engine was first.
    let mut sender = sender_to(&port, num, address, address, 0x68);
    for (number, len) in [(0, 1024), (1, 1024), (2, 500), (3, 1024), (4, 4112), (5, 24)] {
        assert!(sender.push_bytes(&packet(num, num, number, len)));
    }
    sender.flush();
    wait_until(|| {
        port.poll();
        lock(&inbox.packets).0.len() == 6
    });
    wait_until(|| inbox.received.load(Ordering::Relaxed) > 0);
    // Without UDP_SEGMENT.
    sender.segments = false;
    for number in 10..20 {
        assert!(sender.push_bytes(&packet(num, num, number, 256)));
    }
    // Each is sent with identification 0, so its ICRC is computed once.
    let flow = Flow {
        addresses: Addresses::between(address, address).unwrap(),
        source_port: UDP_PORT,
        destination_port: UDP_PORT,
    };
    let ids: Vec<_> =
        sender.batch.as_mut().unwrap().bytes().chunks(260).map(|packet| check(&flow, packet)).collect();
    assert_eq!(ids, [Ok(Some(0)); 10]);
    sender.flush();
    wait_until(|| lock(&inbox.packets).0.len() == 16);
    // Each packet with its ICRC: 3 * 1028 + 504 + 4116 + 28 + 10 * 260 bytes.
    wait_until(|| PortCounter::RcvPackets.of(&port) == 16);
    let data = [PortCounter::XmitData, PortCounter::RcvData].map(|counter| counter.of(&port));
    assert_eq!((PortCounter::XmitPackets.of(&port), data), (16, [10_332 / 4; 2]));
    // Addresses other than those of the peer, and no endpoint.
    port.attach(
        num,
        Some((address, "127.0.0.9".parse().unwrap())),
        Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>)),
    );
    assert!(sender.push_bytes(&packet(num, num, 30, 256)));
    sender.flush();
    wait_until(|| port.drops.get(Reason::WrongAddress) == 1);
    port.detach(num);
    assert!(sender.push_bytes(&packet(num, num, 31, 256)));
    sender.flush();
    wait_until(|| port.drops.get(Reason::UnknownQp) == 1);
    assert_eq!((port.drops.get(Reason::Icrc), port.drops.get(Reason::Malformed)), (0, 0));
    // A wrong checksum, and connection management.
    let mut wrong = packet(num, num, 32, 256);
    wrong.extend([0; ICRC_LEN]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    port.attach(num, Some((address, address)), Arc::downgrade(&(inbox.clone() as Arc<dyn Endpoint>)));
    socket.send_to(&wrong, ("127.0.0.1", UDP_PORT)).unwrap();
    wait_until(|| port.drops.get(Reason::Icrc) == 1);
    socket.send_to(&packet(1, num, 32, 256), ("127.0.0.1", UDP_PORT)).unwrap();
    wait_until(|| port.drops.get(Reason::Management) == 1);
    // More than the MTU: lost and counted.
    let mut elsewhere = sender_to(&port, num, address, "192.0.2.1".parse().unwrap(), 0);
    assert!(elsewhere.push_bytes(&packet(num, num, 33, 256)));
    elsewhere.flush();
    assert_eq!(PortCounter::XmitDiscards.value(), 1);
    assert_eq!((PortCounter::RcvErrors.value(), PortCounter::RcvPackets.value()), (1, 16));
    assert_eq!(lock(&inbox.packets).0.len(), 16);
    release_number(num);
}
