// SPDX-License-Identifier: BSD-3-Clause
//! Receiving: from the sockets to the endpoints.
//!
//! A thread receives a bounded number of datagrams at a time; the epoll set is level-triggered, so it reports
//! the rest again. Most polls of the program find nothing, or packets at one socket only: they read that
//! socket without epoll_wait(2) ([`Port::receive_polled`]). Checks before a packet is delivered to its queue
//! pair: length, slot, queue pair number, addresses, ICRC.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::datagram::{Datagram, Via};
use super::drops::Reason;
use super::forward;
use super::management::Message;
use super::order::{NO_SLOT, Query};
use super::socket::{Family, SLOT_TOKEN};
use super::steer::QPN_AT;
use super::{Endpoint, Port, slot, table};
use crate::policy::Policy;
use crate::policy::forwarded::Forwarded;
use crate::policy::mode::Mode;
use crate::progress::By;
use crate::sys::{self, Arrived};
use transport::roce::wire::{BTH_LEN, Flow, GSI_QP, ICRC_LEN, MULTICAST_QP, UDP_PORT, icrc, ip_header};

/// Maximum size of a UDP_GRO batch; a smaller buffer would truncate it.
const BUFFER_LEN: usize = 64 << 10;
/// Maximum calls of recvmsg(2) on a socket in a row: 2 MiB of batches take a millisecond.
const CALLS: usize = 32;
/// Maximum length of a packet in bytes: 4096 of payload and the largest headers.
const MAX_PACKET_LEN: usize = 4096 + 128;

/// The hop limit in the IP header of a datagram. That of the packet is not known.
const HOP_LIMIT: u8 = 64;

/// A packet from the BTH to the pad, for a queue pair without a peer behind its IP header. Its ICRC was
/// correct and is removed.
#[derive(Debug)]
pub(crate) struct Packet(Box<[u8]>);

impl Packet {
    /// A copy; `None`: out of memory.
    pub(crate) fn copy(header: &[u8], bytes: &[u8]) -> Option<Self> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(header.len() + bytes.len()).ok()?;
        copy.extend_from_slice(header);
        copy.extend_from_slice(bytes);
        Some(Self(copy.into_boxed_slice()))
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// State of the receiving thread.
pub(super) struct Receiver {
    buffer: Box<[u8]>,
    found: Found,
    forwarded: Forwarded,
}

impl Receiver {
    pub(super) fn new(mode: Mode) -> Self {
        Self { buffer: vec![0; BUFFER_LEN].into(), found: Found::default(), forwarded: Forwarded::new(mode) }
    }
}

/// What a thread has received for others, to be delivered without the lock.
#[derive(Default)]
pub(super) struct Found {
    /// Endpoints to which packets were delivered, by number.
    touched: Vec<(u32, Arc<dyn Endpoint>)>,
    /// Packets for queue pair 1.
    messages: Vec<Message>,
    /// How many packets were delivered to endpoints, and their length from BTH to ICRC in bytes.
    packets: u64,
    bytes: usize,
}

impl Port {
    /// Reads datagrams from all readable sockets and delivers them. Returns whether there were any.
    pub(super) fn receive(&self, mut receiver: MutexGuard<'_, Receiver>, by: By) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 3];
        let count = self.sockets.set.wait(&mut events, Some(Duration::ZERO));
        let (mut found, mut writable) = (false, [false; 2]);
        receiver.forwarded.looked(events[..count].iter().any(|event| { event.u64 } == SLOT_TOKEN));
        for event in &events[..count] {
            let (token, flags) = (event.u64, event.events);
            if token == SLOT_TOKEN {
                found |= self.receive_from_slots(&mut receiver);
                continue;
            }
            let family = if token == Family::V4 as u64 { Family::V4 } else { Family::V6 };
            writable[family as usize] = flags & libc::EPOLLOUT as u32 != 0;
            if flags & !(libc::EPOLLOUT as u32) != 0 {
                found |= self.receive_from_network(family, &mut receiver);
            }
        }
        self.drive(receiver, by);
        for family in Family::ALL.into_iter().filter(|family| writable[*family as usize]) {
            self.now_writable(family);
        }
        found
    }

    /// As [`Port::receive`], in a polling thread. Reads only one socket if all queue pairs have addresses of
    /// its family, except after each tick of the engine and while [`Forwarded`] predicts more.
    pub(super) fn receive_polled(&self, mut receiver: MutexGuard<'_, Receiver>) -> bool {
        let only = self.table.only_family().filter(|family| !self.sockets.is_awaited(*family));
        match only {
            Some(family) if !receiver.forwarded.will_follow() && !self.takes_tick() => {
                let found = self.receive_from_network(family, &mut receiver);
                self.drive(receiver, By::Poller);
                found
            }
            _ => self.receive(receiver, By::Poller),
        }
    }

    /// Drives the endpoints to which packets were delivered.
    fn drive(&self, mut receiver: MutexGuard<'_, Receiver>, by: By) {
        let Found { mut touched, messages, packets, bytes } = std::mem::take(&mut receiver.found);
        drop(receiver);
        if packets > 0 {
            self.traffic.received.add(packets, bytes);
        }
        touched.sort_unstable_by_key(|(num, _)| *num);
        touched.dedup_by_key(|(num, _)| *num);
        for (_, endpoint) in touched {
            endpoint.received(by);
        }
        for message in messages {
            self.manage(&message);
        }
    }

    /// Returns whether there were datagrams.
    fn receive_from_network(&self, family: Family, receiver: &mut Receiver) -> bool {
        let Some(socket) = self.sockets.get(family) else { return false };
        for call in 0..CALLS {
            // An error other than EAGAIN is a pending error of an earlier send; the call has cleared it.
            let Ok(arrived) = sys::receive_datagrams(socket, &mut receiver.buffer) else { return call > 0 };
            let Arrived { len, source, destination: Some(destination), segment, is_truncated } = arrived
            else {
                self.drops.add(Reason::Malformed, 1);
                continue;
            };
            let buffer = std::mem::take(&mut receiver.buffer);
            let segment = segment.unwrap_or(len).max(1);
            for bytes in buffer[..len].chunks(segment) {
                if is_truncated && bytes.len() < segment {
                    self.drops.add(Reason::Malformed, 1);
                    continue;
                }
                let datagram = Datagram {
                    source: source.ip(),
                    source_port: source.port(),
                    destination,
                    bytes,
                    via: Via::Network,
                };
                if let Err(reason) = self.deliver(&datagram, &mut receiver.found) {
                    self.drops.add(reason, 1);
                }
            }
            if len == 0 {
                self.drops.add(Reason::Malformed, 1);
            }
            receiver.buffer = buffer;
        }
        true
    }

    /// Reads messages of other slots. Returns whether there were any.
    fn receive_from_slots(&self, receiver: &mut Receiver) -> bool {
        for call in 0..CALLS {
            let Ok(arrived) = sys::receive_datagrams(self.slot.socket(), &mut receiver.buffer) else {
                return call > 0;
            };
            let buffer = std::mem::take(&mut receiver.buffer);
            if let Err(reason) =
                self.take_message(arrived.source, &buffer[..arrived.len], &mut receiver.found)
            {
                self.drops.add(reason, 1);
            }
            receiver.buffer = buffer;
        }
        true
    }

    fn take_message(&self, from: SocketAddr, bytes: &[u8], found: &mut Found) -> Result<(), Reason> {
        let sender = slot::at(from).filter(|slot| self.owners.is_ours(*slot)).ok_or(Reason::Distrusted)?;
        match forward::Message::parse(bytes).ok_or(Reason::Malformed)? {
            forward::Message::Packet { source, source_port, destination, datagram } => {
                let via = Via::Slot(sender);
                let datagram = Datagram { source, source_port, destination, bytes: datagram, via };
                self.deliver(&datagram, found)
            }
            forward::Message::Answer { family, position, nonce } => {
                self.answered(sender, family, position, nonce);
                Ok(())
            }
            forward::Message::Held(requester) => {
                self.held_elsewhere(&requester);
                Ok(())
            }
        }
    }

    /// Delivers a packet to its endpoint, or forwards it to the process of its slot.
    fn deliver(&self, datagram: &Datagram<'_>, found: &mut Found) -> Result<(), Reason> {
        let Datagram { source, source_port, destination, bytes, .. } = *datagram;
        let forwarded = datagram.is_forwarded();
        if bytes.len() < BTH_LEN + ICRC_LEN || bytes.len() > MAX_PACKET_LEN {
            return Err(Reason::Malformed);
        }
        let num = u32::from_be_bytes([0, bytes[QPN_AT], bytes[QPN_AT + 1], bytes[QPN_AT + 2]]);
        if destination.is_multicast() {
            return self.deliver_to_group(num, datagram, found);
        }
        if num == MULTICAST_QP {
            return Err(Reason::Multicast);
        }
        let slot = bytes[QPN_AT];
        if slot == 0 || slot == NO_SLOT {
            if num == GSI_QP {
                found.messages.try_reserve(1).map_err(|_| Reason::Memory)?;
                found.messages.push(Message::copy(datagram).ok_or(Reason::Management)?);
                return Ok(());
            }
            let is_query = !forwarded && source_port == UDP_PORT && source.is_loopback();
            let query = Query::parse(bytes).filter(|_| is_query).ok_or(Reason::UnknownQp)?;
            self.answer(Family::of(source), &query);
            return Ok(());
        }
        if num & 0xffff == 0 && slot == self.slot.number() {
            if !forwarded && source_port == UDP_PORT && source.is_loopback() {
                self.check_arrived(Family::of(source));
            }
            return Ok(());
        }
        if slot != self.slot.number() {
            if forwarded {
                return Err(Reason::UnknownQp);
            }
            self.forward(
                slot,
                &forward::Message::Packet { source, source_port, destination, datagram: bytes },
            );
            return Ok(());
        }
        let receiver = self.table.receiver(num, source, destination)?;
        let flow = check(datagram)?;
        put(num, receiver, &flow, bytes, found)
    }

    /// Delivers a packet of a multicast group to the queue pairs that are attached to the group.
    fn deliver_to_group(&self, num: u32, datagram: &Datagram<'_>, found: &mut Found) -> Result<(), Reason> {
        let Datagram { source, destination, bytes, .. } = *datagram;
        let attached = self.attached_to(destination);
        if num != MULTICAST_QP || datagram.is_forwarded() || attached.is_empty() {
            return Err(Reason::Multicast);
        }
        let flow = check(datagram)?;
        for num in attached {
            // It is not in RTR yet, or is being destroyed, or has a peer.
            let Ok(receiver) = self.table.receiver(num, source, destination) else { continue };
            put(num, receiver, &flow, bytes, found)?;
        }
        Ok(())
    }
}

/// The flow of a packet whose ICRC is right.
fn check(datagram: &Datagram<'_>) -> Result<Flow, Reason> {
    let flow = datagram.flow().ok_or(Reason::Malformed)?;
    icrc::check(&flow, datagram.bytes)
        .or_else(|bad| icrc::check_rxe_flush(&flow, datagram.bytes).map_err(|_| bad))
        .map_err(|_| Reason::Icrc)?;
    Ok(flow)
}

/// Passes a packet to its receiver.
fn put(
    num: u32,
    table::Found { endpoint, needs_header }: table::Found,
    flow: &Flow,
    bytes: &[u8],
    found: &mut Found,
) -> Result<(), Reason> {
    let header = if needs_header { &ip_header(&flow.addresses, 0, HOP_LIMIT, bytes.len())[..] } else { &[] };
    let packet = Packet::copy(header, &bytes[..bytes.len() - ICRC_LEN]).ok_or(Reason::Memory)?;
    if found.touched.last().is_none_or(|(last, _)| *last != num) {
        found.touched.try_reserve(1).map_err(|_| Reason::Memory)?;
        found.touched.push((num, endpoint.clone()));
    }
    (found.packets, found.bytes) = (found.packets + 1, found.bytes + bytes.len());
    endpoint.arrived(packet);
    Ok(())
}
