// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: packets at UDP port 4791.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::port::{Endpoint, Fetch, Packet, Port, Sender};
use transport::access::Unreachable;
use transport::limits::MAX_WAITING_PACKETS;
use transport::roce::link::{Dropped, Payload};
use transport::route::Route;

/// Packets that have arrived for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    waiting: Mutex<Waiting>,
    /// Whether any packet waits, readable without the lock.
    has_any: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Packet>,
    /// The number of the current link. A receiving thread may still have a packet for the previous link, from
    /// another peer.
    link: u32,
}

impl Arrived {
    /// Starts a link and returns its number. Packets for the previous link are dropped.
    pub(crate) fn restart(&self) -> u32 {
        let mut waiting = lock(&self.waiting);
        waiting.link = waiting.link.wrapping_add(1);
        waiting.queue.clear();
        self.has_any.store(false, Ordering::Release);
        waiting.link
    }

    /// Adds a packet for this link. False: the queue is full.
    pub(crate) fn push(&self, link: u32, packet: Packet) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.link != link {
            return true;
        }
        if waiting.queue.len() == MAX_WAITING_PACKETS || waiting.queue.try_reserve(1).is_err() {
            return false;
        }
        waiting.queue.push_back(packet);
        self.has_any.store(true, Ordering::Release);
        true
    }

    fn take(&self) -> Option<Packet> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = lock(&self.waiting);
        let packet = waiting.queue.pop_front();
        if waiting.queue.is_empty() {
            self.has_any.store(false, Ordering::Release);
        }
        packet
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }
}

/// The link of a queue pair. It lasts until the queue pair is reset or destroyed, so that the last NAK can be
/// repeated for a peer that has lost it.
pub(crate) struct Packets {
    port: Arc<Port>,
    num: u32,
    sender: Sender,
    arrived: Arc<Arrived>,
    /// [`Port`] has only a weak reference.
    _endpoint: Arc<dyn Endpoint>,
}

impl Packets {
    /// Attaches queue pair `num` to the port: its packets are delivered to `endpoint`, which adds them to
    /// `arrived`. `route`: that to its peer, if it has one.
    pub(crate) fn open(
        port: Arc<Port>,
        num: u32,
        route: Option<&Route>,
        arrived: Arc<Arrived>,
        endpoint: Arc<dyn Endpoint>,
    ) -> Self {
        let addresses = route.map(|route| (route.local, route.peer));
        port.attach(num, addresses, Arc::downgrade(&endpoint));
        let mut sender = port.sender(num);
        if let Some(route) = route {
            sender.aim(route);
        }
        Self { port, num, sender, arrived, _endpoint: endpoint }
    }

    /// Of a queue pair without a peer: packets go this way from now on. False: the socket is not writable.
    pub(crate) fn aim(&mut self, route: &Route) -> bool {
        self.sender.aim(route)
    }

    /// Adds a packet to the batch that [`Packets::flush`] sends. False: the socket is not writable. `Err`: the
    /// memory of the payload cannot be read.
    pub(crate) fn send(
        &mut self,
        headers: &[u8],
        payload: Payload<'_>,
        fetch: Fetch<'_>,
    ) -> Result<bool, Unreachable> {
        self.sender.push(headers, payload, fetch)
    }

    pub(crate) fn receive(&mut self) -> Option<Packet> {
        self.arrived.take()
    }

    /// The connection has dropped a packet.
    pub(crate) fn dropped(&self, why: Dropped) {
        self.port.dropped(why);
    }

    pub(crate) fn flush(&mut self) {
        self.sender.flush();
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.sender.flush();
        self.port.detach(self.num);
        self.arrived.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(byte: u8) -> Packet {
        Packet::copy(&[], &[byte; 12]).unwrap()
    }

    #[test]
    fn a_packet_for_the_link_before_is_dropped() {
        let arrived = Arrived::default();
        let before = arrived.restart();
        assert!(arrived.push(before, packet(1)));
        let link = arrived.restart();
        assert!(arrived.is_empty());
        assert!(arrived.push(before, packet(2)) && arrived.is_empty(), "from the peer before");
        assert!(arrived.push(link, packet(3)));
        assert_eq!(arrived.take().unwrap().as_ref(), [3; 12]);
        assert!(arrived.is_empty() && arrived.take().is_none());
    }

    #[test]
    fn a_flood_takes_a_bounded_amount_of_memory() {
        let arrived = Arrived::default();
        let link = arrived.restart();
        let taken = (0..3 * MAX_WAITING_PACKETS).filter(|_| arrived.push(link, packet(1))).count();
        assert_eq!(taken, MAX_WAITING_PACKETS);
        assert!(arrived.take().is_some() && arrived.push(link, packet(1)));
    }
}
