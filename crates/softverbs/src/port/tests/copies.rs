// SPDX-License-Identifier: BSD-3-Clause
//! Messages of connection management that are copied to all processes of the user.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::deferred::arrived;
use super::{in_namespace, wait_until};
use crate::cm_peer::{rej, req};
use crate::limits::CM_COPIES;
use crate::port::management::{self, Full, Message};
use crate::port::{Port, slot};
use transport::roce::wire::cm::{Mad, Message as CmMessage, Reason, Req};

/// Other processes of the user, as far as they matter here: the sockets of their slots.
const PROCESSES: usize = 100;

/// A connection manager without listeners and exchanges.
struct Agent;

impl management::Agent for Agent {
    fn received(&self, _: &Mad, _: IpAddr, _: IpAddr) -> Result<bool, Full> {
        Ok(false)
    }
}

/// The port, its connection manager and the other processes.
fn set_up() -> (Arc<Port>, Arc<Agent>, Vec<UdpSocket>) {
    let (port, agent) = (Port::get().unwrap(), Arc::new(Agent));
    let weak: Weak<dyn management::Agent> = Arc::downgrade(&(agent.clone() as Arc<dyn management::Agent>));
    port.set_agent(weak);
    let others: Vec<_> = (1..=slot::MAX_SLOT)
        .filter_map(|slot| UdpSocket::bind(slot::address(slot)).ok())
        .take(PROCESSES)
        .inspect(|socket| socket.set_nonblocking(true).unwrap())
        .collect();
    assert_eq!(others.len(), PROCESSES);
    (port, agent, others)
}

/// How many datagrams have arrived at the other processes.
fn copies(others: &[UdpSocket]) -> usize {
    let of = |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 512]).ok()).count();
    others.iter().map(of).sum()
}

/// Receives this many messages. Returns how many copies of them were sent, and how many may be in that time.
fn flood(port: &Port, others: &[UdpSocket], messages: impl Iterator<Item = Message>) -> (usize, usize) {
    let (begin, mut sent) = (Instant::now(), 0);
    for message in messages {
        port.manage(&message);
        sent += copies(others);
    }
    let intervals = begin.elapsed().as_millis() as usize / 20 + 2;
    (sent, intervals * CM_COPIES as usize)
}

#[test]
fn a_flood_of_rejections_is_copied_to_all_processes_at_a_limited_rate() {
    in_namespace("rejections");
}

pub(super) fn rejections() {
    let (port, _agent, others) = set_up();
    let rejection = |id, reason| arrived(rej(id, 0, reason));
    // Of a peer that gives up its request.
    port.manage(&rejection(1, Reason::TIMEOUT));
    assert_eq!(copies(&others), PROCESSES);
    // No peer sends another REJ without the communication id of its receiver.
    for reason in (0..=33).map(Reason).filter(|reason| *reason != Reason::TIMEOUT) {
        port.manage(&rejection(1, reason));
    }
    assert_eq!(copies(&others), 0);
    let (sent, most) = flood(&port, &others, (2..500).map(|id| rejection(id, Reason::TIMEOUT)));
    assert!(sent <= most, "{sent} copies, at most {most} permitted");
}

#[test]
fn a_flood_of_requests_is_copied_to_all_processes_at_a_limited_rate() {
    in_namespace("floods");
}

pub(super) fn floods() {
    let (port, _agent, others) = set_up();
    let message = |id| CmMessage::Req(Req { local_qpn: 0x10_0000 + id, ..req(7471, id) });
    let (mut sent, most) = flood(&port, &others, (1..=64).map(|id| arrived(message(id))));
    assert!(sent <= most, "{sent} copies, at most {most} permitted");
    let begin = Instant::now();
    wait_until(|| port.deferred_and_sent().0 == 0);
    std::thread::sleep(Duration::from_millis(50));
    sent += copies(&others);
    let most = most + (begin.elapsed().as_millis() as usize / 20 + 1) * CM_COPIES as usize;
    assert!(sent <= most, "{sent} copies, at most {most} permitted");
    // A process without a copy may have the exchange, so that the request must not be rejected.
    let rejected = port.deferred_and_sent().1 as usize;
    assert!((1..=sent / PROCESSES).contains(&rejected), "{rejected} are rejected, with {sent} copies");
}
