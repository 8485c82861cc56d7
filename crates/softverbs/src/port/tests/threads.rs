// SPDX-License-Identifier: BSD-3-Clause
//! Which thread receives: the engine or the program.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::member::{exchange, nothing_is_left, start};
use super::process::{packet, set_up};
use super::{in_namespace, in_namespace_with, sender_to, wait_until};
use crate::lock;
use crate::policy::trust::TICK;
use crate::port::socket::Family;
use crate::port::{Claim, ListenerSocket, Port, release_number};
use crate::progress::source::Source;
use transport::roce::cm::Bound;
use transport::roce::wire::cm::PortSpace;

#[test]
fn members_that_poll_get_packets_at_all_sockets() {
    in_namespace("polling");
}

pub(super) fn polling() {
    for family in Family::ALL {
        let mut members = start(family, 3);
        for member in &mut members {
            member.command("poll");
        }
        exchange(&mut members, 30);
        // Packets are forwarded, few at a time: the sockets of the slots have small buffers.
        for _ in 0..15 {
            members[0].command("scramble");
            exchange(&mut members, 3);
            exchange(&mut members, 3);
        }
    }
    nothing_is_left();
}

#[test]
fn a_program_that_stops_polling_gets_its_packets_from_the_engine() {
    // In mode never, the engine never leaves the sockets to the program.
    in_namespace_with("stops", &[("SOFTVERBS_POLICY", "adaptive")]);
}

pub(super) fn stops() {
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let (num, port, inbox) = set_up(address).unwrap();
    let mut sender = sender_to(&port, num, address, address, 0);
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        assert!(sender.push_bytes(&packet(num, num, sent, 64)));
        sender.flush();
        sent as usize
    };
    let got = || lock(&inbox.packets).0.len();
    let mut waits = Vec::new();
    for round in 0..30 {
        // The program polls until the engine leaves the sockets to it.
        let by_engine = wait_until_quiet(&port, || {
            let sent = send();
            wait_until(|| {
                port.polls();
                port.poll();
                got() == sent
            });
            inbox.by_engine.load(Ordering::Relaxed)
        });
        let begin = Instant::now();
        let sent = send();
        if round % 3 == 2 {
            // Before it sleeps.
            port.arm();
        }
        wait_until(|| got() == sent);
        wait_until(|| inbox.by_engine.load(Ordering::Relaxed) > by_engine);
        waits.push(begin.elapsed());
    }
    // Other processes of the host may delay some of them.
    waits.sort_unstable();
    assert!(waits[waits.len() / 2] < 25 * 2 * TICK, "{waits:?}");
    release_number(num);
}

/// Returns what `act` has returned when the engine does not wait for packets any more.
fn wait_until_quiet<T>(port: &Port, mut act: impl FnMut() -> T) -> T {
    let begin = Instant::now();
    loop {
        let result = act();
        if port.attention.is_quiet() {
            return result;
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn the_port_of_a_closed_listener_is_free_while_the_engine_handles_a_message() {
    in_namespace("rebinds");
}

pub(super) fn rebinds() {
    let port = Port::get().unwrap();
    let claim = || Claim::new(PortSpace::Tcp, 7471, Bound::Any);
    let first = claim().unwrap();
    let listener = ListenerSocket::open(&port, &first).unwrap();
    assert_eq!(claim().err(), Some(libc::EADDRINUSE));
    // The engine has it until it has handled its messages.
    let used_by_engine = listener.clone();
    listener.close();
    drop((listener, first));
    let second = claim();
    assert!(second.is_ok(), "{second:?}");
    used_by_engine.ready(libc::EPOLLIN as u32);
}
