// SPDX-License-Identifier: BSD-3-Clause
//! What has arrived for a queue pair over RoCE, until its next step.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock;
use crate::port::Delivered;
use crate::port::offer::Offer;
use transport::limits::MAX_WAITING_PACKETS;

/// Packets that have arrived for a queue pair.
#[derive(Default)]
pub(crate) struct Arrived {
    waiting: Mutex<Waiting>,
    /// Whether any packet waits, readable without the lock.
    has_any: AtomicBool,
    /// The port had no room for packets, maybe for some of these.
    has_lost: AtomicBool,
    /// An offer or an answer of the peer has arrived.
    has_news: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Delivered>,
    /// Shared memory that the peer offers.
    offer: Option<Offer>,
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
        let (link, offer) = (waiting.link, waiting.offer.take());
        drop(waiting);
        drop(offer);
        link
    }

    /// Keeps an offer of the peer for this link, and closes the previous one.
    pub(crate) fn offer(&self, link: u32, offer: Offer) {
        let mut waiting = lock(&self.waiting);
        let unused = match waiting.link == link {
            true => waiting.offer.replace(offer),
            false => Some(offer),
        };
        drop(waiting);
        drop(unused);
        self.note_news();
    }

    /// The answer to an offer has arrived.
    pub(super) fn note_news(&self) {
        self.has_news.store(true, Ordering::Release);
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

    /// Whether an offer or an answer of the peer has arrived since the last call.
    pub(super) fn take_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::Acquire)
    }

    /// The offer of the peer. `below`: only if its queue pair number is lower than this.
    pub(super) fn take_offer(&self, below: Option<u32>) -> Option<Offer> {
        let is_wanted = |offer: &mut Offer| below.is_none_or(|num| offer.ends.from.0 < num);
        lock(&self.waiting).offer.take_if(is_wanted)
    }

    /// Whether the port had no room for packets since the last call.
    pub(super) fn take_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed) && self.has_lost.swap(false, Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> Option<Delivered> {
        if !self.has_any.load(Ordering::Acquire) {
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
        !self.has_any.load(Ordering::Acquire) && !self.has_news.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::port::Bytes;
    use crate::port::offer::Ends;
    use crate::socket::Socket;

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
    fn an_offer_waits_behind_one_of_a_lower_number() {
        let fd = || Socket::note(UdpSocket::bind("127.0.0.1:0").unwrap().into());
        let end = |num| (num, [127, 0, 0, 1].into());
        let ends = Ends { from: end(9), to: end(5) };
        let (arrived, offer) = (Arrived::default(), Offer { memory: fd(), notify: fd(), initiator: 0, ends });
        let link = arrived.restart();
        arrived.offer(link, offer);
        assert!(arrived.take_news() && arrived.take_offer(Some(5)).is_none());
        // The peer has closed the offer of number 5.
        assert_eq!(arrived.take_offer(None).map(|offer| offer.ends), Some(ends));
        assert!(arrived.take_offer(None).is_none());
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
