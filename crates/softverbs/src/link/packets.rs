// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: its packets at UDP port 4791.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock;
use crate::port::{Endpoint, Packet, Port, Sender};

/// Packets of a queue pair that wait for its connection: twice what the window of a peer of this library
/// permits. More are dropped, which the peer finds as a loss.
const MAX_WAITING: usize = 2048;

/// Packets that have arrived for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    queue: Mutex<VecDeque<Packet>>,
    /// Whether the queue has any, to be checked without the lock.
    has_any: AtomicBool,
}

impl Arrived {
    /// Adds a packet.
    pub(crate) fn push(&self, packet: Packet) {
        let mut queue = lock(&self.queue);
        if queue.len() < MAX_WAITING && queue.try_reserve(1).is_ok() {
            queue.push_back(packet);
            self.has_any.store(true, Ordering::Release);
        }
    }

    fn take(&self) -> Option<Packet> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let packet = queue.pop_front();
        if queue.is_empty() {
            self.has_any.store(false, Ordering::Release);
        }
        packet
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }
}

/// Where the packets of a queue pair go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The address that they are sent from and received at.
    pub local: IpAddr,
    pub peer: IpAddr,
    /// The interface of a link-local address; else 0.
    pub scope: u32,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

impl Route {
    /// The address of the peer. Its port is always that of RoCE.
    pub(crate) fn peer_address(&self) -> SocketAddr {
        let mut address = SocketAddr::new(self.peer, transport::roce::wire::UDP_PORT);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(self.scope);
        }
        address
    }
}

/// The link of a queue pair, until it is reset or destroyed: a peer that has lost the last NAK gets it again.
pub(crate) struct Packets {
    port: Arc<Port>,
    num: u32,
    sender: Sender,
    arrived: Arc<Arrived>,
}

impl Packets {
    /// Has the packets of queue pair `num` given to `endpoint`, which adds them to `arrived`.
    pub(crate) fn open(
        port: Arc<Port>,
        num: u32,
        route: &Route,
        arrived: Arc<Arrived>,
        endpoint: Weak<dyn Endpoint>,
    ) -> Self {
        port.attach(num, route.local, route.peer, endpoint);
        let sender =
            port.sender(num, route.local, route.peer_address(), route.traffic_class, route.hop_limit);
        Self { port, num, sender, arrived }
    }

    /// Sends a packet, with others until [`Packets::flush`]; false: not now.
    pub(crate) fn send(&mut self, packet: &[u8]) -> bool {
        self.sender.push(packet)
    }

    pub(crate) fn receive(&mut self) -> Option<Packet> {
        self.arrived.take()
    }

    pub(crate) fn flush(&mut self) {
        self.sender.flush();
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.sender.flush();
        self.port.detach(self.num);
        while self.arrived.take().is_some() {}
    }
}
