// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: packets at UDP port 4791, or through memory that is shared with a peer on
//! the same host.
//!
//! A queue pair begins at the port. It moves to shared memory when one of the two sides has accepted the
//! offer of the other one ([`super::offers`]), and back when the peer closes the memory, as it does when it
//! ends or is reset. What was sent before a move and is not acknowledged, the connection sends again: it
//! repairs losses anyway, and its PSNs show duplicates. Packets from the port are processed at any time.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use super::arrived::Arrived;
use super::driver::Driver;
use super::local::Local;
use super::offers::{self, Offered};
use crate::port::offer::{Ends, Offer};
use crate::port::{Delivered, Endpoint, Fetch, Port, Sender};
use crate::progress::Driven;
use crate::progress::engine::Engine;
use crate::progress::watch::PeerNotify;
use crate::sys::Errno;
use transport::access::Unreachable;
use transport::iwarp::link::LinkError;
use transport::roce::link::{Dropped, Payload};
use transport::route::Route;

/// The link of a queue pair. It lasts until the queue pair is reset or destroyed, so that the last NAK can be
/// repeated for a peer that has lost it.
pub(crate) struct Packets {
    port: Arc<Port>,
    num: u32,
    sender: Sender,
    arrived: Arc<Arrived>,
    /// The memory that was offered to the peer, until it answers.
    offered: Option<Offered>,
    /// The number of the peer, if memory may be shared with it.
    peer: Option<u32>,
    /// The memory that both share.
    shared: Option<Local>,
    /// The peer has sent packets through the memory.
    has_peer_moved: bool,
    /// See [`Packets::has_changed`].
    has_changed: bool,
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
        Self {
            port,
            num,
            sender,
            arrived,
            offered: None,
            peer: None,
            shared: None,
            has_peer_moved: false,
            has_changed: false,
            _endpoint: endpoint,
        }
    }

    /// Offers shared memory to queue pair `peer` at the other end of the route, if that is on this host;
    /// `connection` is driven when it answers.
    pub(crate) fn offer(
        &mut self,
        peer: u32,
        route: &Route,
        engine: &Arc<Engine>,
        connection: Weak<dyn Driven>,
    ) {
        self.peer = Some(peer);
        let ends = Ends { from: (self.num, route.local), to: (peer, route.peer) };
        self.offered = Offered::send(&ends, self.port.any_socket(), engine, self.arrived.clone(), connection);
    }

    /// Whether [`Packets::negotiate`] has something to do.
    pub(crate) fn has_news(&self) -> bool {
        self.arrived.take_news()
    }

    /// Takes an answer or an offer of the peer. Returns the memory, if packets go through it from now on.
    pub(crate) fn negotiate(
        &mut self,
        driver: impl FnOnce() -> Result<Driver, Errno>,
    ) -> Option<Weak<dyn PeerNotify>> {
        let mut rings = match self.offered.as_mut().map(Offered::answer) {
            None | Some(Ok(None)) => None,
            Some(answer) => {
                self.offered = None;
                answer.ok().flatten()
            }
        };
        // Of two offers, that of the lower number. The other one waits for the answer: the peer may have
        // closed this one before it was in RTR, and makes no further offer.
        let below = self.offered.as_ref().map(|_| self.num);
        let offer = self.arrived.take_offer(below);
        let is_wanted =
            |offer: &Offer| rings.is_none() && self.shared.is_none() && self.peer == Some(offer.ends.from.0);
        if let Some(offer) = offer.filter(is_wanted) {
            match offers::accept(offer) {
                Ok(accepted) => {
                    self.offered = None;
                    rings = Some(accepted);
                }
                Err(why) => log::info!("queue pair {:#x} uses UDP on this host: {why}", self.num),
            }
        }
        let rings = rings?;
        drop(self.arrived.take_offer(None));
        let opened = driver().and_then(|driver| Local::open_for_packets(rings, driver));
        // If it is dropped, the peer uses UDP, too.
        let local = opened
            .inspect_err(|&e| {
                let why = std::io::Error::from_raw_os_error(e);
                log::info!("queue pair {:#x} uses UDP on this host: {why}", self.num);
            })
            .ok()?;
        log::debug!("queue pair {:#x} shares memory with its peer", self.num);
        self.port.set_shared(self.num, true);
        (self.has_changed, self.has_peer_moved) = (true, false);
        Some(self.shared.insert(local).peer_notify())
    }

    /// The peer has closed the memory, or it cannot be used any more: packets go over UDP.
    fn leave_memory(&mut self) {
        if let Some(local) = self.shared.take() {
            local.close(None);
            self.port.set_shared(self.num, false);
            self.has_changed = true;
        }
    }

    /// Whether the link has changed since the last call: this side sends over the other path, or the first
    /// packets of the peer have arrived through the memory. These overtake packets that it sent over UDP.
    pub(crate) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
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
        if let Some(local) = &mut self.shared {
            match local.send_packet(headers, payload) {
                Ok(sent) => return Ok(sent),
                Err(LinkError::Memory(_, why)) => return Err(why),
                Err(LinkError::Blocked) => return Ok(false),
                Err(LinkError::Broken(_)) => self.leave_memory(),
            }
        }
        self.sender.push(headers, payload, fetch)
    }

    pub(crate) fn receive(&mut self) -> Option<Delivered> {
        match self.shared.as_mut().map(Local::receive_packets) {
            Some(Ok(Some(packets))) => {
                self.has_changed |= !std::mem::replace(&mut self.has_peer_moved, true);
                return Some(packets);
            }
            Some(Err(_)) => self.leave_memory(),
            Some(Ok(None)) | None => {}
        }
        self.arrived.take()
    }

    /// Whether the port had no room for packets since the last call.
    pub(crate) fn has_lost(&self) -> bool {
        self.arrived.take_lost()
    }

    /// Whether the port has packets that were not received yet. Shared memory has none after
    /// [`Packets::receive`].
    pub(crate) fn has_unread(&self) -> bool {
        !self.shares_memory() && self.port.has_unread()
    }

    /// Whether packets go through memory that is shared with the peer.
    pub(crate) fn shares_memory(&self) -> bool {
        self.shared.is_some()
    }

    /// The memory that the two ends share.
    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        self.shared.as_ref()
    }

    /// As [`Packets::local`].
    #[inline]
    pub(crate) fn local_mut(&mut self) -> Option<&mut Local> {
        self.shared.as_mut()
    }

    /// The connection has dropped a packet.
    pub(crate) fn dropped(&self, why: Dropped) {
        self.port.dropped(why);
    }

    /// The end of a step: what was added leaves, and what was predicted is not valid any more.
    pub(crate) fn flush(&mut self) {
        match &mut self.shared {
            Some(shared) => {
                shared.forget_ahead();
                shared.acted();
            }
            None => self.sender.flush(),
        }
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.leave_memory();
        self.sender.flush();
        self.port.detach(self.num);
        self.arrived.restart();
    }
}
