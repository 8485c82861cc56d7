// SPDX-License-Identifier: BSD-3-Clause
//! Queue pair 1: messages of connection management, and which process they are for.
//!
//! A message that answers another one has the communication id of its receiver, whose highest byte is the
//! slot, a SIDR_REP its request id. If that process has ended, the process that receives the message answers
//! it. A request has no such id: it is for the process that listens on its service. Any process of the user
//! may receive it, and forwards it once. If no process listens, or has an exchange for the request, it defers
//! the request for some milliseconds and then rejects it. A peer that gives up its request before it is
//! accepted sends a REJ without the id of the receiver, which is copied to all processes.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, Weak};
use std::time::Instant;

use super::Port;
use super::datagram::{Datagram, Via};
use super::drops::Reason;
use super::forward::Requester;
use super::owners::Rate;
use super::service::Lookup;
use super::socket::Family;
use super::{forward, service, slot};
use crate::limits::{CM_COPIES, MAX_DEFERRED};
use crate::lock;
use crate::policy::Policy;
use crate::policy::mode::Mode;
use crate::sys::{self, IpFields, Route};
use transport::policy::backoff::{Backoff, MOST_TRIES};
use transport::roce::cm::refusal;
use transport::roce::wire::cm::{self, GSI_QKEY, Mad, ServiceId};
use transport::roce::wire::{
    Addresses, BTH_LEN, Bth, DEFAULT_PKEY, Deth, Extension, Flow, GSI_QP, ICRC_LEN, Opcode, Operation,
    Packet, Psn, UDP_PORT, icrc, is_same_partition,
};
use transport::route::address_in;

/// Bytes of a message with BTH, DETH and ICRC.
const MESSAGE_LEN: usize = BTH_LEN + Deth::LEN + cm::MAD_LEN + ICRC_LEN;

/// Too many answers and events of the connection manager wait: a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The connection manager of the process.
pub(crate) trait Agent: Send + Sync {
    /// A message has arrived. False: it is a request, and no listener of the process listens on its service.
    fn received(&self, mad: &Mad, local: IpAddr, remote: IpAddr) -> Result<bool, Full>;
}

#[derive(Default)]
pub(super) struct Management {
    /// `None`: the process has none.
    agent: OnceLock<Weak<dyn Agent>>,
    /// The PSN of the last message that was sent.
    psn: AtomicU32,
    lookup: Mutex<Lookup>,
    /// Requests for services without a listener.
    deferred: Mutex<Vec<Deferred>>,
    /// Datagrams with copies for other processes.
    copies: Mutex<Rate<CM_COPIES>>,
}

/// A request whose listener is looked up again before it is rejected.
struct Deferred {
    requester: Requester,
    /// `None`: it is being looked up.
    due: Option<Instant>,
    /// Whether the listener is looked up once more.
    backoff: Backoff,
    /// All other processes have got a copy.
    is_copied: bool,
    message: Message,
}

/// Whether a request reaches the process for the first time, or was deferred.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Try {
    First,
    Again,
}

/// A packet for queue pair 1 with its ICRC, which is not checked yet.
#[derive(Clone)]
pub(super) struct Message {
    source: IpAddr,
    source_port: u16,
    destination: IpAddr,
    bytes: [u8; MESSAGE_LEN],
    via: Via,
}

impl Message {
    /// `None`: it has the length of no message.
    pub(super) fn copy(datagram: &Datagram<'_>) -> Option<Self> {
        let Datagram { source, source_port, destination, bytes, via, .. } = *datagram;
        Some(Self { source, source_port, destination, bytes: bytes.try_into().ok()?, via })
    }

    fn datagram(&self) -> Datagram<'_> {
        let Self { source, source_port, destination, via, .. } = *self;
        Datagram { source, source_port, destination, ip: IpFields::default(), bytes: &self.bytes, via }
    }

    fn forwardable(&self) -> forward::Message<'_> {
        let Self { source, source_port, destination, bytes, .. } = self;
        forward::Message::Packet {
            source: *source,
            source_port: *source_port,
            destination: *destination,
            ip: IpFields::default(),
            datagram: bytes,
        }
    }

    fn decode(&self) -> Result<Mad, Reason> {
        let flow = self.datagram().flow().ok_or(Reason::Malformed)?;
        icrc::check(&flow, &self.bytes).map_err(|_| Reason::Icrc)?;
        let packet = Packet::parse(&self.bytes[..MESSAGE_LEN - ICRC_LEN]).map_err(|_| Reason::Management)?;
        let is_message = packet.bth.opcode == Opcode::Ud(Operation::SendOnly)
            && is_same_partition(packet.bth.pkey, DEFAULT_PKEY)
            && matches!(packet.extension, Extension::Deth(deth) if deth.qkey == GSI_QKEY);
        if !is_message {
            return Err(Reason::Management);
        }
        Mad::decode(packet.payload).map_err(|_| Reason::Management)
    }
}

impl Port {
    /// Passes messages of queue pair 1 to `agent` from now on. Only the first call has an effect.
    pub(crate) fn set_agent(&self, agent: Weak<dyn Agent>) {
        let _ = self.management.agent.set(agent);
    }

    /// Passes a message to the process that it is for.
    pub(super) fn manage(&self, message: &Message) {
        self.try_to_pass(message, Try::First);
    }

    fn try_to_pass(&self, message: &Message, which: Try) {
        if let Err(reason) = self.pass(message, which) {
            self.drops.add(reason, 1);
        }
    }

    fn pass(&self, message: &Message, which: Try) -> Result<(), Reason> {
        let mad = message.decode()?;
        let agent = self.management.agent.get().and_then(Weak::upgrade);
        let take = || {
            let Some(agent) = &agent else { return Ok(false) };
            agent.received(&mad, message.destination, message.source).map_err(|Full| Reason::Overflow)
        };
        if let Some((requester, service)) = request_of(&mad.message, message.source) {
            return self.pass_request(&mad, requester, service, take()?, message, which);
        }
        if withdraws_request(&mad.message) {
            take()?;
            return self.copy_to_all(message);
        }
        let Some(slot) = slot_of(&mad.message) else { return Err(Reason::Management) };
        if slot == self.slot.number() {
            return if take()? { Ok(()) } else { self.refuse(&mad, cm::Reason::INVALID_COMM_ID, message) };
        }
        if message.via != Via::Network {
            return Err(Reason::UnknownQp);
        }
        // The process has ended, and the peer would repeat its message. An untrusted process may be alive.
        if !self.owners.is_ours(slot) && slot::is_unclaimed(slot) {
            return self.refuse(&mad, cm::Reason::INVALID_COMM_ID, message);
        }
        self.forward(slot, &message.forwardable());
        Ok(())
    }

    /// Answers a message for which there is no exchange, if it has an answer: as the kernel does for an
    /// unknown communication id.
    fn refuse(&self, mad: &Mad, reason: cm::Reason, message: &Message) -> Result<(), Reason> {
        let answer = refusal(mad, reason).ok_or(Reason::UnknownQp)?;
        self.send_message(&answer, message.destination, message.source);
        Ok(())
    }

    /// Forwards a REQ or SIDR_REQ, unless the connection manager of the process has taken it.
    fn pass_request(
        &self,
        mad: &Mad,
        requester: Requester,
        service: ServiceId,
        is_taken: bool,
        message: &Message,
        which: Try,
    ) -> Result<(), Reason> {
        let user = self.owners.user();
        if let Via::Slot(slot) = message.via {
            // That process has no listener, and rejects the request unless another one has its exchange.
            if is_taken {
                self.send_to_slot(slot, &forward::Message::Held(requester));
            }
            return Ok(());
        }
        if is_taken {
            return Ok(());
        }
        let Some(wanted) = service::addresses(service, message.destination) else {
            return self.refuse(mad, cm::Reason::INVALID_SERVICE_ID, message);
        };
        // The process that forwarded it found a listener, which has been closed since.
        let wanted = if message.via == Via::Listener { &[][..] } else { &wanted };
        let found = lock(&self.management.lookup).find(user, wanted);
        match found {
            Some(listener) => self.pass_on(listener, message),
            None if self.defer(requester, message, which)? => Ok(()),
            None => self.refuse(mad, cm::Reason::INVALID_SERVICE_ID, message),
        }
    }

    /// Defers a request, for two reasons. Some programs, perftest for example, close a listener and open the
    /// next one on the same port while the peer already connects. And a process may have closed the listener
    /// after it received the request, which the peer repeats: so this process sends a copy to all others, and
    /// the one that has the exchange answers it. False: it was deferred often enough, and no process has
    /// answered. A request of which too many copies would have been sent is dropped instead.
    fn defer(&self, requester: Requester, message: &Message, which: Try) -> Result<bool, Reason> {
        let (wait, tries) = {
            let mut deferred = lock(&self.management.deferred);
            let known = deferred.iter().position(|deferred| deferred.requester == requester);
            let at = match (known, which) {
                (Some(at), Try::Again) => at,
                // The peer has repeated it; or another process has its exchange.
                (Some(_), Try::First) | (None, Try::Again) => return Ok(true),
                (None, Try::First) if deferred.len() >= MAX_DEFERRED => return Err(Reason::Management),
                (None, Try::First) => {
                    // In every mode, as other processes answer during the waits.
                    let backoff = Backoff::new(Mode::Always);
                    let (due, is_copied, message) = (None, false, message.clone());
                    deferred.push(Deferred { requester, due, backoff, is_copied, message });
                    deferred.len() - 1
                }
            };
            let Some(wait) = deferred[at].backoff.wait() else {
                return if deferred[at].is_copied { Ok(false) } else { Err(Reason::NotForwarded) };
            };
            deferred[at].due = Some(Instant::now() + wait);
            (wait, deferred[at].backoff.tries())
        };
        self.schedule(wait);
        // A second time, since a process may have been busy, or a copy lost.
        if (tries == 1 || tries == MOST_TRIES) && self.send_to_all(message) {
            let mut deferred = lock(&self.management.deferred);
            if let Some(request) = deferred.iter_mut().find(|request| request.requester == requester) {
                request.is_copied = true;
            }
        }
        Ok(true)
    }

    /// Sends a message to all other processes, unless one of them has sent it.
    fn copy_to_all(&self, message: &Message) -> Result<(), Reason> {
        if message.via != Via::Network || self.send_to_all(message) {
            return Ok(());
        }
        Err(Reason::NotForwarded)
    }

    /// Sends a message to all other processes. False: too many copies were sent recently.
    fn send_to_all(&self, message: &Message) -> bool {
        let mut slots = lock(&self.management.lookup).slots(self.owners.user());
        slots.retain(|slot| *slot != self.slot.number());
        if !lock(&self.management.copies).permits(slots.len(), Instant::now()) {
            return false;
        }
        for slot in slots {
            self.send_to_slot(slot, &message.forwardable());
        }
        true
    }

    /// Another process has the exchange of a request, and has answered it.
    pub(super) fn held_elsewhere(&self, requester: &Requester) {
        lock(&self.management.deferred).retain(|deferred| deferred.requester != *requester);
    }

    /// Looks the listeners of the requests up again that are due.
    pub(super) fn retry_deferred(&self) {
        let now = Instant::now();
        // They remain in the list meanwhile: a process that has the exchange removes them.
        let due: Vec<(Requester, Message)> = {
            let mut deferred = lock(&self.management.deferred);
            let due = deferred.iter_mut().filter(|request| request.due.is_some_and(|due| due <= now));
            due.map(|request| {
                request.due = None;
                (request.requester, request.message.clone())
            })
            .collect()
        };
        for (requester, message) in due {
            self.try_to_pass(&message, Try::Again);
            lock(&self.management.deferred)
                .retain(|request| request.requester != requester || request.due.is_some());
        }
    }

    /// The number of deferred requests, and of messages that were sent.
    #[cfg(test)]
    pub(super) fn deferred_and_sent(&self) -> (usize, u32) {
        (lock(&self.management.deferred).len(), self.management.psn.load(Ordering::Relaxed))
    }

    fn pass_on(&self, to: SocketAddr, message: &Message) -> Result<(), Reason> {
        match self.send_to_process(to, &message.forwardable()) {
            true => Ok(()),
            false => Err(Reason::NotForwarded),
        }
    }

    /// Sends a message to queue pair 1 of a peer. One that the kernel refuses is lost, as in the network.
    pub(crate) fn send_message(&self, mad: &Mad, local: IpAddr, remote: IpAddr) {
        let psn = Psn::new(self.management.psn.fetch_add(1, Ordering::Relaxed));
        let bth = Bth::new(Opcode::Ud(Operation::SendOnly), GSI_QP, psn);
        let deth = Extension::Deth(Deth { qkey: GSI_QKEY, source_qp: GSI_QP });
        let (headers, payload) = (Packet::encode_headers(&bth, &deth), mad.encode());
        let flow = Addresses::between(local, remote).map(|addresses| Flow {
            addresses,
            source_port: UDP_PORT,
            destination_port: UDP_PORT,
        });
        let sent = flow.zip(self.sockets.get(Family::of(local))).is_some_and(|(flow, socket)| {
            let sum = icrc::icrc(&flow, 0, &[&headers, &payload]);
            let to = address_in(remote, UDP_PORT, sys::scope_of(local).unwrap_or(0));
            let route = Route { source: Some(local), ..Route::to(to) };
            let parts = [IoSlice::new(&headers), IoSlice::new(&payload), IoSlice::new(&sum)];
            sys::send_datagram(socket, &route, &parts, None).is_ok()
        });
        if !sent {
            self.drops.add(Reason::NotSent, 1);
        }
    }
}

/// Whether it is the REJ of a peer that gives up its REQ, and does not know the communication id of the
/// receiver. It identifies the REQ. Only the reason tells it apart: with another one, the kernel's rdma_cm
/// looks for the communication id of the receiver, too, and finds none.
fn withdraws_request(message: &cm::Message) -> bool {
    matches!(message, cm::Message::Rej(rej) if rej.remote_comm_id == 0 && rej.reason == cm::Reason::TIMEOUT)
}

/// Who has sent a REQ or SIDR_REQ, and for which service. `None`: another message.
fn request_of(message: &cm::Message, address: IpAddr) -> Option<(Requester, ServiceId)> {
    match message {
        cm::Message::Req(req) => {
            let requester = Requester { address, ca_guid: req.local_ca_guid, comm_id: req.local_comm_id };
            Some((requester, req.service_id))
        }
        cm::Message::SidrReq(req) => {
            Some((Requester { address, ca_guid: 0, comm_id: req.request_id }, req.service_id))
        }
        _ => None,
    }
}

/// The slot in the communication id of the receiver. `None`: the message has no such id.
fn slot_of(message: &cm::Message) -> Option<u8> {
    let id = match message {
        cm::Message::Req(_) | cm::Message::SidrReq(_) => return None,
        cm::Message::SidrRep(rep) => rep.request_id,
        cm::Message::Mra(mra) => mra.remote_comm_id,
        cm::Message::Rej(rej) => rej.remote_comm_id,
        cm::Message::Rep(rep) => rep.remote_comm_id,
        cm::Message::Rtu(rtu) => rtu.remote_comm_id,
        cm::Message::Dreq(dreq) => dreq.remote_comm_id,
        cm::Message::Drep(drep) => drep.remote_comm_id,
    };
    Some((id >> 24) as u8)
}
