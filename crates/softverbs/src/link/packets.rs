// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: packets at UDP port 4791.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::port::{Delivered, Endpoint, Fetch, Port, Sender};
use transport::access::Unreachable;
use transport::limits::MAX_WAITING_PACKETS;
use transport::roce::link::{Dropped, Payload};
use transport::route::Route;

/// Packets that have arrived for a queue pair.
#[derive(Default)]
pub(crate) struct Arrived {
    waiting: Mutex<Waiting>,
    /// Whether any packet waits, readable without the lock.
    has_any: AtomicBool,
    /// The port had no room for packets, maybe for some of these.
    has_lost: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Delivered>,
    /// Packets in the queue.
    count: usize,
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
        waiting.count = 0;
        self.has_any.store(false, Ordering::Release);
        waiting.link
    }

    /// Adds packets for this link. False: the queue has no room for them.
    pub(crate) fn push(&self, link: u32, packets: Delivered) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.link != link {
            return true;
        }
        let count = waiting.count + packets.count();
        if count > MAX_WAITING_PACKETS || waiting.queue.try_reserve(1).is_err() {
            return false;
        }
        waiting.count = count;
        waiting.queue.push_back(packets);
        self.has_any.store(true, Ordering::Release);
        true
    }

    /// The port had no room for packets.
    pub(crate) fn lose(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Delivered> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = lock(&self.waiting);
        let packets = waiting.queue.pop_front();
        waiting.count -= packets.as_ref().map_or(0, Delivered::count);
        if waiting.queue.is_empty() {
            self.has_any.store(false, Ordering::Release);
        }
        packets
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

    /// Adds a packet to the batch that [`Packets::flush`] sends. False: the socket is not writable. `Err`:
    /// the memory of the payload cannot be read.
    pub(crate) fn send(
        &mut self,
        headers: &[u8],
        payload: Payload<'_>,
        fetch: Fetch<'_>,
    ) -> Result<bool, Unreachable> {
        self.sender.push(headers, payload, fetch)
    }

    pub(crate) fn receive(&mut self) -> Option<Delivered> {
        self.arrived.take()
    }

    /// Whether the port had no room for packets since the last call.
    pub(crate) fn has_lost(&self) -> bool {
        self.arrived.has_lost.load(Ordering::Relaxed) && self.arrived.has_lost.swap(false, Ordering::Relaxed)
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
    use crate::port::Bytes;

    const STRIDE: usize = 16;

    fn packets(byte: u8, count: usize) -> Delivered {
        Delivered::new(Bytes::copy(&[], &vec![byte; count * STRIDE]).unwrap(), STRIDE)
    }

    #[test]
    fn a_packet_for_the_link_before_is_dropped() {
        let arrived = Arrived::default();
        let before = arrived.restart();
        assert!(arrived.push(before, packets(1, 1)));
        let link = arrived.restart();
        assert!(arrived.is_empty());
        assert!(arrived.push(before, packets(2, 1)) && arrived.is_empty(), "from the peer before");
        assert!(arrived.push(link, packets(3, 1)));
        assert_eq!(arrived.take().unwrap().buffer(), [3; STRIDE]);
        assert!(arrived.is_empty() && arrived.take().is_none());
    }

    #[test]
    fn a_flood_takes_a_bounded_amount_of_memory() {
        let arrived = Arrived::default();
        let link = arrived.restart();
        for count in [1, 3, 64] {
            let taken =
                (0..3 * MAX_WAITING_PACKETS).filter(|_| arrived.push(link, packets(1, count))).count();
            assert_eq!(taken, MAX_WAITING_PACKETS / count);
            assert!(arrived.take().is_some() && arrived.push(link, packets(1, count)));
            while arrived.take().is_some() {}
        }
    }
}
