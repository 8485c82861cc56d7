// SPDX-License-Identifier: BSD-3-Clause
//! Receiving: from the sockets to the endpoints.
//!
//! A thread receives a bounded number of datagrams at a time; the epoll set is level-triggered, so it reports
//! the rest again. Most polls of the program find nothing, or packets at one socket only: they read that
//! socket without epoll_wait(2) ([`Port::receive_polled`]). Checks before a packet is delivered to its queue
//! pair: length, slot, queue pair number, addresses, ICRC.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::buffer::{Bytes, Received, Receiving};
use super::datagram::{Datagram, Via};
use super::drops::Reason;
use super::forward;
use super::management::Message;
use super::order::{NO_SLOT, Query};
use super::socket::{Family, SLOT_TOKEN};
use super::{Endpoint, Port, slot, table};
use crate::policy::Policy;
use crate::policy::forwarded::Forwarded;
use crate::policy::mode::Mode;
use crate::progress::By;
use crate::socket::Socket;
use crate::sys::{self, Arrived, IpFields};
use transport::roce::link::Batch;
use transport::roce::wire::{
    BTH_LEN, Flow, GSI_QP, ICRC_LEN, IP_HEADER_LEN, MULTICAST_QP, QPN_AT, UDP_PORT, icrc, ip_header,
};

/// Packets for a queue pair.
pub(crate) type Delivered = Batch<Bytes>;

/// Maximum calls of recvmsg(2) on a socket in a row. What they return, up to 64 KiB each, stays in the cache
/// of the processor until it is placed.
const CALLS: usize = 4;
/// Number of successful calls of recvmsg(2) after which the drop counter of the socket is read. A fixed
/// trade-off, no prediction: fewer packets do not overflow the socket.
const BURST: usize = 16;
/// Maximum length of a packet in bytes: 4096 of payload and the largest headers.
pub(crate) const MAX_PACKET_LEN: usize = 4096 + 128;

/// The hop limit in the IP header of a datagram that a process without queue pairs of type UD has forwarded:
/// that of the packet is not known.
const HOP_LIMIT: u8 = 64;

/// State of the receiving thread.
pub(super) struct Receiver {
    receiving: Receiving,
    found: Found,
    forwarded: Forwarded,
    /// Calls that returned packets since the socket was last checked for lost ones.
    unchecked: usize,
}

impl Receiver {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            receiving: Receiving::new(),
            found: Found::default(),
            forwarded: Forwarded::new(mode),
            unchecked: 0,
        }
    }
}

impl Receiver {
    /// Receives a datagram, or a batch of them from one source; `None` if there is none.
    fn next(&mut self, socket: &Socket) -> Option<(Arrived, Received)> {
        let arrived = sys::receive_datagrams(socket, self.receiving.bytes()?).ok()?;
        Some((arrived, self.receiving.received(arrived.len)?))
    }
}

/// What a thread has received for others, to be delivered without the lock.
#[derive(Default)]
pub(super) struct Found {
    /// Endpoints to which packets were delivered, by number: the last one, and the others. There is mostly
    /// one.
    last: Option<(u32, Arc<dyn Endpoint>)>,
    others: Vec<(u32, Arc<dyn Endpoint>)>,
    /// Packets for queue pair 1.
    messages: Vec<Message>,
    /// How many packets were delivered to endpoints, and their length from BTH to ICRC in bytes.
    packets: u64,
    bytes: usize,
    /// The socket had no room for packets.
    has_lost: bool,
}

impl Found {
    /// Delivers packets, which are in this range of what was received, to the endpoint with this number:
    /// those of a queue pair without a peer one by one, behind their IP headers.
    fn add(
        &mut self,
        num: u32,
        received: &Received,
        range: Range<usize>,
        stride: usize,
        To { found: table::Found { endpoint, needs_header }, flow, ip }: To,
    ) -> Result<(), Reason> {
        let (bytes, len) = (&received.bytes()[range.clone()], range.len());
        let packets = match needs_header {
            true => {
                let hop_limit = if ip.hop_limit == 0 { HOP_LIMIT } else { ip.hop_limit };
                let header = ip_header(&flow.addresses, ip.traffic_class, hop_limit, len);
                Bytes::copy(&header, bytes).map(|bytes| Batch::new(bytes, IP_HEADER_LEN + len))
            }
            false => received.part(range).map(|bytes| Batch::new(bytes, stride)),
        };
        let packets = packets.ok_or(Reason::Memory)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != num) {
            self.others.try_reserve(usize::from(self.last.is_some())).map_err(|_| Reason::Memory)?;
            self.others.extend(self.last.replace((num, endpoint.clone())));
        }
        (self.packets, self.bytes) = (self.packets + packets.count() as u64, self.bytes + len);
        endpoint.arrived(packets);
        Ok(())
    }
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
                found |= self.receive_from_network(family, &mut receiver, by);
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
                let found = self.receive_from_network(family, &mut receiver, By::Poller);
                self.drive(receiver, By::Poller);
                found
            }
            _ => self.receive(receiver, By::Poller),
        }
    }

    /// Drives the endpoints to which packets were delivered.
    fn drive(&self, mut receiver: MutexGuard<'_, Receiver>, by: By) {
        let Found { last, mut others, messages, packets, bytes, has_lost } =
            std::mem::take(&mut receiver.found);
        drop(receiver);
        if packets > 0 {
            self.traffic.received.add(packets, bytes);
        }
        others.retain(|(num, _)| last.as_ref().is_none_or(|(last, _)| num != last));
        others.sort_unstable_by_key(|(num, _)| *num);
        others.dedup_by_key(|(num, _)| *num);
        for (_, endpoint) in others.into_iter().chain(last) {
            if has_lost {
                endpoint.lost();
            }
            endpoint.received(by);
        }
        for message in messages {
            self.manage(&message);
        }
    }

    /// Returns whether there were datagrams. A polling thread soon returns, so it delivers a single packet
    /// before it looks for others.
    fn receive_from_network(&self, family: Family, receiver: &mut Receiver, by: By) -> bool {
        let Some(socket) = self.sockets.get(family) else { return false };
        for call in 0..CALLS {
            // An error other than EAGAIN is a pending error of an earlier send; the call has cleared it.
            let Some((arrived, received)) = receiver.next(socket) else {
                // After a burst its last packets may be missing, and nothing behind them shows it.
                if receiver.unchecked >= BURST && receiver.found.last.is_some() {
                    receiver.unchecked = 0;
                    receiver.found.has_lost |= self.sockets.has_lost(family);
                }
                return call > 0;
            };
            receiver.unchecked += 1;
            let Arrived { mut len, source, destination: Some(destination), segment, ip, is_truncated } =
                arrived
            else {
                self.drops.add(Reason::Malformed, 1);
                continue;
            };
            let stride = segment.unwrap_or(len).max(1);
            if len == 0 || (is_truncated && len % stride != 0) {
                self.drops.add(Reason::Malformed, 1);
                len -= len % stride;
            }
            let datagrams = Datagram {
                source: source.ip(),
                source_port: source.port(),
                destination,
                ip,
                bytes: &received.bytes()[..len],
                via: Via::Network,
            };
            self.deliver(&datagrams, stride, (&received, 0), &mut receiver.found);
            if by == By::Poller && len <= stride {
                break;
            }
        }
        true
    }

    /// Reads messages of other slots. Returns whether there were any.
    fn receive_from_slots(&self, receiver: &mut Receiver) -> bool {
        for call in 0..CALLS {
            let Some((arrived, received)) = receiver.next(self.slot.socket()) else { return call > 0 };
            if let Err(reason) = self.take_message(arrived.source, &received, &mut receiver.found) {
                self.drops.add(reason, 1);
            }
        }
        true
    }

    fn take_message(&self, from: SocketAddr, received: &Received, found: &mut Found) -> Result<(), Reason> {
        let sender = slot::at(from).filter(|slot| self.owners.is_ours(*slot)).ok_or(Reason::Distrusted)?;
        match forward::Message::parse(received.bytes()).ok_or(Reason::Malformed)? {
            forward::Message::Packet { source, source_port, destination, ip, datagram } => {
                let via = Via::Slot(sender);
                let datagram = Datagram { source, source_port, destination, ip, bytes: datagram, via };
                let start = received.bytes().len() - datagram.bytes.len();
                self.deliver(&datagram, datagram.bytes.len().max(1), (received, start), found);
                Ok(())
            }
            forward::Message::Answer { family, position, nonce } => {
                self.answered(sender, family, position, nonce);
                Ok(())
            }
            forward::Message::Held(requester) => {
                self.held_elsewhere(&requester);
                Ok(())
            }
            forward::Message::Confirm => {
                self.send_to_slot(sender, &forward::Message::Confirmed);
                Ok(())
            }
            forward::Message::Confirmed => {
                self.exit.confirmed(sender);
                Ok(())
            }
        }
    }

    /// Delivers datagrams of one source, of `stride` bytes but the last, which are in `received` from the
    /// given offset on. The kernel puts packets into one batch whatever their queue pairs are, so each may be
    /// for another process; those for one queue pair behind each other are delivered together.
    fn deliver(
        &self,
        datagrams: &Datagram<'_>,
        stride: usize,
        (received, start): (&Received, usize),
        found: &mut Found,
    ) {
        let all = datagrams.bytes;
        let mut at = 0;
        while at < all.len() {
            let rest = &all[at..];
            let first = Datagram { bytes: &rest[..rest.len().min(stride)], ..*datagrams };
            let routed = match first.bytes.len() {
                len if !(BTH_LEN + ICRC_LEN..=MAX_PACKET_LEN).contains(&len) => Err(Reason::Malformed),
                _ if first.destination.is_multicast() => {
                    self.deliver_to_group(&first, (received, start + at), found).map(|()| None)
                }
                _ => self.route(&first, found),
            };
            match routed {
                Ok(None) => {}
                Ok(Some(to)) => {
                    let packets = if to.found.needs_header { first.bytes } else { rest };
                    match checked(&to.flow, at / stride, packets, stride) {
                        0 => self.drops.add(Reason::Icrc, 1),
                        len => {
                            let range = start + at..start + at + len;
                            if let Err(reason) = found.add(number(packets), received, range, stride, to) {
                                self.drops.add(reason, len.div_ceil(stride) as u64);
                            }
                            at += len;
                            continue;
                        }
                    }
                }
                Err(reason) => self.drops.add(reason, 1),
            }
            at += stride;
        }
    }

    /// Delivers a packet of a multicast group, which is in `received` at the given offset, to the queue pairs
    /// that are attached to the group.
    fn deliver_to_group(
        &self,
        datagram: &Datagram<'_>,
        (received, start): (&Received, usize),
        found: &mut Found,
    ) -> Result<(), Reason> {
        let Datagram { source, destination, ip, bytes, .. } = *datagram;
        let attached = self.attached_to(destination);
        if number(bytes) != MULTICAST_QP || datagram.is_forwarded() || attached.is_empty() {
            return Err(Reason::Multicast);
        }
        let flow = datagram.flow().ok_or(Reason::Malformed)?;
        if checked(&flow, 0, bytes, bytes.len()) == 0 {
            return Err(Reason::Icrc);
        }
        for num in attached {
            // It is not in RTR yet, or is being destroyed, or has a peer.
            let Ok(receiver) = self.table.receiver(num, source, destination) else { continue };
            let to = To { found: receiver, flow, ip };
            found.add(num, received, start..start + bytes.len(), bytes.len(), to)?;
        }
        Ok(())
    }

    /// The endpoint of a packet, or `None` if the packet was forwarded to the process of its slot, or is for
    /// the port itself.
    fn route(&self, datagram: &Datagram<'_>, found: &mut Found) -> Result<Option<To>, Reason> {
        let Datagram { source, source_port, destination, ip, bytes, .. } = *datagram;
        let forwarded = datagram.is_forwarded();
        let num = number(bytes);
        if num == MULTICAST_QP {
            return Err(Reason::Multicast);
        }
        let slot = bytes[QPN_AT];
        if slot == 0 || slot == NO_SLOT {
            if num == GSI_QP {
                found.messages.try_reserve(1).map_err(|_| Reason::Memory)?;
                found.messages.push(Message::copy(datagram).ok_or(Reason::Management)?);
                return Ok(None);
            }
            let is_query = !forwarded && source_port == UDP_PORT && source.is_loopback();
            let query = Query::parse(bytes).filter(|_| is_query).ok_or(Reason::UnknownQp)?;
            self.answer(Family::of(source), &query);
            return Ok(None);
        }
        if num & 0xffff == 0 && slot == self.slot.number() {
            if !forwarded && source_port == UDP_PORT && source.is_loopback() {
                self.check_arrived(Family::of(source));
            }
            return Ok(None);
        }
        if slot != self.slot.number() {
            if forwarded {
                return Err(Reason::UnknownQp);
            }
            self.forward(
                slot,
                &forward::Message::Packet { source, source_port, destination, ip, datagram: bytes },
            );
            return Ok(None);
        }
        let found = self.table.receiver(num, source, destination)?;
        let flow = datagram.flow().ok_or(Reason::Malformed)?;
        Ok(Some(To { found, flow, ip }))
    }
}

/// An endpoint, and the IP header of its packet.
struct To {
    found: table::Found,
    flow: Flow,
    ip: IpFields,
}

/// The queue pair number of a packet.
fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes([0, packet[QPN_AT], packet[QPN_AT + 1], packet[QPN_AT + 2]])
}

/// Bytes of the first packets that are for the queue pair of the first one and have correct ICRCs. `first`:
/// how many packets were before them in their batch.
fn checked(flow: &Flow, first: usize, packets: &[u8], stride: usize) -> usize {
    let first = first as u16;
    let num = number(packets);
    // A socket with UDP_SEGMENT numbers the packets of a call from 0 on.
    let is_good = |(id, packet): &(u16, &[u8])| {
        packet.len() >= BTH_LEN + ICRC_LEN
            && number(packet) == num
            && (icrc::check_expecting(flow, *id, packet).is_ok()
                || icrc::check_rxe_flush(flow, packet).is_ok())
    };
    (first..).zip(packets.chunks(stride)).take_while(is_good).map(|(_, packet)| packet.len()).sum()
}
