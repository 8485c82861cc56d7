// SPDX-License-Identifier: BSD-3-Clause
//! All exchanges of a process, by communication id.
//!
//! A message belongs to an exchange if its addresses and both communication ids are those of the exchange; a
//! REQ, which has only the id of its sender, by that id, the GUID of the sender and the addresses. Before the
//! id of the peer is known, its answer to the REQ must have the transaction id of the REQ instead. Any other
//! message is ignored, or answered by one of its size: a REP by a REJ, a DREQ by a DREP. So a message that
//! repeats too late ends, and one with guessed ids has no effect.
//!
//! A communication id is in use while its exchange exists, and while the program has it: from
//! [`Manager::connect`] or [`Event::Request`] to [`Manager::destroy`]. The request ids of SIDR are of the
//! same numbers (`manager/sidr.rs`).
//!
//! Plain value: a driver has it in a mutex. After each call it takes [`Manager::poll`] until there is none,
//! and sets its timer to [`Manager::deadline`].

mod sidr;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::event::{ConnParam, Event, Output, Request};
use super::exchange::{Exchange, Outputs, QueuePair, State};
use super::listeners::Listeners;
use super::resolution::Resolution;
use super::terms::{Accept, Bound, CommId, Connect, ListenerId, REQUEST_DATA_LEN, Route, Settings, Terms};
use crate::limits::CM_MAX_ENDED;
use crate::roce::wire::cm::{
    Answered, CMA_HEADER_LEN, CmaHeader, Drep, Dreq, Mad, Message, Reason, Rej, Rep, Req, ServiceId,
    SidrStatus, Transport,
};
use crate::roce::wire::{GSI_QP, MULTICAST_QP, PathMtu, gid};
use crate::units::{Errno, Micros};

/// Random numbers that are tried for a communication id.
const ID_ATTEMPTS: u32 = 64;
const SLOT_SHIFT: u32 = 24;

/// Whether no queue pair of a connection has this number: 0 and 1 are those of management.
fn is_reserved(qpn: u32) -> bool {
    matches!(qpn, 0 | GSI_QP | MULTICAST_QP)
}

/// What became of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was processed or dropped.
    Taken,
    /// A REQ or SIDR_REQ for a service and an address on which no listener listens. Pass it to the process
    /// that does, or answer it with [`refusal`].
    NoListener,
}

/// A peer with the GUID of this side: a process of this host, or this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPeer {
    /// The exchange with it.
    pub id: CommId,
    /// The addresses.
    pub route: Route,
    /// The communication id of the peer, whose highest byte is the slot of its process.
    pub comm_id: u32,
}

/// The sender of a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    route: Route,
    ca_guid: u64,
    comm_id: u32,
}

/// The connection manager of a process.
pub struct Manager {
    settings: Settings,
    random: Box<dyn FnMut() -> u32 + Send>,
    listeners: Listeners,
    exchanges: BTreeMap<CommId, Exchange>,
    resolutions: BTreeMap<CommId, Resolution>,
    /// Communication ids that the program has, in identifiers and events.
    held: BTreeSet<CommId>,
    /// The passive exchanges, by their REQ.
    requests: BTreeMap<Origin, CommId>,
    /// The passive resolutions, by their SIDR_REQ.
    sidr_requests: BTreeMap<sidr::Origin, CommId>,
    queue_pairs: BTreeMap<QueuePair, CommId>,
    deadlines: BTreeSet<(Micros, CommId)>,
    /// Exchanges and resolutions that only answer messages, or wait for a DREP on their own, oldest first.
    ended: VecDeque<CommId>,
    outputs: Outputs,
}

impl Manager {
    /// A manager without exchanges. `random` returns unpredictable numbers.
    pub fn new(settings: Settings, random: impl FnMut() -> u32 + Send + 'static) -> Self {
        Self {
            settings,
            random: Box::new(random),
            listeners: Listeners::new(settings.limits),
            exchanges: BTreeMap::new(),
            resolutions: BTreeMap::new(),
            held: BTreeSet::new(),
            requests: BTreeMap::new(),
            sidr_requests: BTreeMap::new(),
            queue_pairs: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ended: VecDeque::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Reports requests for a service to `bound` by queue pairs of `transport`; those of another one are
    /// rejected. The most specific listener gets a request. A REQ is dropped while `backlog` requests are
    /// pending; the peer repeats it.
    pub fn listen(
        &mut self,
        service: ServiceId,
        transport: Transport,
        bound: Bound,
        backlog: u32,
    ) -> ListenerId {
        self.listeners.add(service, transport, bound, backlog as usize)
    }

    /// Removes a listener, and rejects its pending requests, which the program still has to destroy.
    pub fn stop_listening(&mut self, listener: ListenerId, now: Micros) {
        for id in self.listeners.remove(listener) {
            self.end(id, now);
        }
    }

    /// The program has fetched the event of a request, which is no longer pending.
    pub fn fetched(&mut self, id: CommId) {
        self.listeners.remove_pending(id);
        self.update(id, |exchange, _| exchange.fetched());
    }

    /// Requests a connection: sends a REQ. EINVAL: a value does not fit into its field. EAGAIN: there is no
    /// communication id.
    pub fn connect(&mut self, route: Route, call: &Connect<'_>, now: Micros) -> Result<CommId, Errno> {
        let id = self.allocate().ok_or(libc::EAGAIN)?;
        let transaction = self.transaction(id);
        let out = &mut self.outputs;
        let exchange = Exchange::connect(id, &self.settings, transaction, route, call, now, out)?;
        self.insert(exchange);
        Ok(id)
    }

    /// Establishes a connection after [`Event::Response`]: sends the RTU. No event follows. EINVAL: there is
    /// no reply, or more than 224 bytes of private data.
    pub fn establish(&mut self, id: CommId, private_data: &[u8]) -> Result<(), Errno> {
        self.call(id, |exchange, out| exchange.establish(private_data, out))
    }

    /// Accepts a request: sends the REP. The queue pair is in RTS by then ([`Manager::terms_for`]), since
    /// the peer may send data at once. EINVAL: there is no request, or a value does not fit into its field.
    pub fn accept(&mut self, id: CommId, call: &Accept<'_>, now: Micros) -> Result<(), Errno> {
        self.call(id, |exchange, out| exchange.accept(call, now, out))
    }

    /// Rejects a request, or a reply after [`Event::Response`]: sends a REJ. No event follows. EINVAL: there
    /// is neither, or more than 148 bytes of private data.
    pub fn reject(
        &mut self,
        id: CommId,
        reason: Reason,
        private_data: &[u8],
        now: Micros,
    ) -> Result<(), Errno> {
        self.call(id, |exchange, out| exchange.reject(reason, private_data, now, out))
    }

    /// Ends a connection: sends a DREQ, and reports the end when it is answered. Without effect if it has
    /// ended. EINVAL: there is no connection, or more than 220 bytes of private data.
    pub fn disconnect(&mut self, id: CommId, private_data: &[u8], now: Micros) -> Result<(), Errno> {
        self.call(id, |exchange, out| exchange.disconnect(private_data, now, out))
    }

    /// The queue pair has received its first packet (`IBV_EVENT_COMM_EST`), which replaces the RTU.
    pub fn received_data(&mut self, id: CommId) {
        self.update(id, Exchange::received_data);
    }

    /// The peers that have the GUID of this side. Peers whose attempt or connection has ended are left out.
    pub fn local_peers(&self) -> impl Iterator<Item = LocalPeer> + '_ {
        let exchanges = self.exchanges.values();
        let local = exchanges.filter(|exchange| exchange.peer.ca_guid == self.settings.ca_guid);
        local.filter_map(|exchange| {
            let (id, route) = (exchange.id, exchange.route());
            Some(LocalPeer { id, route, comm_id: exchange.live_peer()? })
        })
    }

    /// The process of a peer has died, and sends no message any more: as if it had sent the REJ or the DREQ
    /// that ends the attempt or the connection. Without effect if that has ended.
    pub fn peer_died(&mut self, peer: &LocalPeer, now: Micros) {
        let exchange = self.exchanges.get(&peer.id);
        if exchange.is_some_and(|exchange| exchange.live_peer() == Some(peer.comm_id)) {
            self.update(peer.id, |exchange, out| exchange.peer_died(now, out));
        }
    }

    /// The program has destroyed the identifier, or discarded the event of a request. No further event is
    /// reported; the peer is notified. Without effect if the program does not have this communication id.
    pub fn destroy(&mut self, id: CommId, now: Micros) {
        if self.held.remove(&id) {
            self.listeners.remove_pending(id);
            self.end(id, now);
        }
    }

    /// The process ends: as [`Manager::destroy`] of everything that the program has. The DREQs are sent once.
    pub fn destroy_all(&mut self, now: Micros) {
        for id in self.held.clone() {
            self.destroy(id, now);
        }
    }

    fn end(&mut self, id: CommId, now: Micros) {
        self.update(id, |exchange, out| exchange.destroy(now, out));
        self.update_resolution(id, |resolution, out| resolution.destroy(now, out));
    }

    /// The attributes of the queue pair: after [`Event::Response`], or after [`Manager::accept`].
    pub fn terms(&self, id: CommId) -> Option<Terms> {
        self.exchanges.get(&id)?.terms()
    }

    /// The attributes of the queue pair if the program accepts a request with these parameters.
    pub fn terms_for(&self, id: CommId, call: &Accept<'_>) -> Option<Terms> {
        self.exchanges.get(&id)?.terms_for(call)
    }

    /// The next message to send, or event to report.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Manager::expire`] is due.
    pub fn deadline(&self) -> Option<Micros> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The timer has expired: repeats messages, and ends exchanges whose timeout has passed.
    pub fn expire(&mut self, now: Micros) {
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.update(id, |exchange, out| exchange.expire(now, out));
            self.update_resolution(id, |resolution, out| resolution.expire(now, out));
        }
    }

    /// A datagram to queue pair 1 has arrived.
    pub fn receive(&mut self, mad: &Mad, route: Route, now: Micros) -> Received {
        if self.is_forged(mad) {
            return Received::Taken;
        }
        match &mad.message {
            Message::Req(req) => return self.received_req(req, mad.transaction, route, now),
            Message::Rep(rep) => self.received_rep(rep, mad.transaction, route, now),
            Message::Mra(mra) => {
                self.find(mra.remote_comm_id, route, |exchange, _| exchange.received_mra(mra, now));
            }
            Message::Rej(rej) => self.received_rej(rej, route, now),
            Message::Rtu(rtu) => {
                self.find(rtu.remote_comm_id, route, |exchange, out| {
                    exchange.received_rtu(rtu.local_comm_id, out)
                });
            }
            Message::Dreq(dreq) => {
                let is_known = self.find(dreq.remote_comm_id, route, |exchange, out| {
                    exchange.received_dreq(dreq, mad.transaction, now, out)
                });
                if is_known != Some(true) {
                    self.send(route, mad.transaction, drep_to_unknown(dreq));
                }
            }
            Message::Drep(drep) => {
                self.find(drep.remote_comm_id, route, |exchange, out| {
                    exchange.received_drep(drep.local_comm_id, now, out);
                });
            }
            Message::SidrReq(req) => return self.received_sidr_req(req, mad.transaction, route),
            Message::SidrRep(rep) => self.received_sidr_rep(rep, mad.transaction, route),
        }
        Received::Taken
    }

    /// Whether it has the communication id, but not the transaction id of a REQ that is not answered yet.
    fn is_forged(&self, mad: &Mad) -> bool {
        let id = match &mad.message {
            Message::Rep(rep) => rep.remote_comm_id,
            Message::Rej(rej) => rej.remote_comm_id,
            Message::Mra(mra) => mra.remote_comm_id,
            _ => return false,
        };
        let exchange = self.exchanges.get(&CommId(id));
        exchange.is_some_and(|exchange| !exchange.is_answered_by(mad.transaction))
    }

    fn send(&mut self, route: Route, transaction: u64, message: Message) {
        self.outputs.push_back(Output::Send { route, mad: Mad { transaction, message } });
    }

    fn received_req(&mut self, req: &Req, transaction: u64, route: Route, now: Micros) -> Received {
        let origin = Origin { route, ca_guid: req.local_ca_guid, comm_id: req.local_comm_id };
        if let Some(id) = self.requests.get(&origin).copied() {
            self.find(id.0, route, |exchange, out| exchange.duplicate_req(now, out));
            return Received::Taken;
        }
        let Some(listener) = self.listeners.find(req.service_id, route.local) else {
            return Received::NoListener;
        };
        match self.check(req, listener, route, now) {
            Ok((header, mtu, private_data)) if self.listeners.has_room(listener, route.remote) => {
                let Some(id) = self.allocate() else { return Received::Taken };
                let terms = Terms::of_request(route, mtu, req);
                let exchange = Exchange::requested(id, &self.settings, terms, transaction, req, now);
                self.requests.insert(origin, id);
                self.listeners.add_pending(id, listener, route.remote);
                self.insert(exchange);
                let request = Request {
                    listener,
                    route,
                    service: req.service_id,
                    source_port: header.source_port,
                    param: ConnParam {
                        qpn: req.local_qpn,
                        srq: req.srq,
                        responder_resources: req.initiator_depth,
                        initiator_depth: req.responder_resources,
                        flow_control: req.end_to_end_flow_control,
                        retry_count: req.retry_count,
                        rnr_retry_count: req.rnr_retry_count,
                    },
                    private_data,
                };
                self.outputs.push_back(Output::Event { id, event: Event::Request(Box::new(request)) });
            }
            Ok(_) => {}
            Err(reason) => {
                self.send(route, transaction, rejection(0, req.local_comm_id, Answered::Req, reason));
            }
        }
        Received::Taken
    }

    /// Whether a REQ is acceptable; why not.
    fn check(
        &mut self,
        req: &Req,
        listener: ListenerId,
        route: Route,
        now: Micros,
    ) -> Result<(CmaHeader, PathMtu, [u8; REQUEST_DATA_LEN]), Reason> {
        if self.listeners.transport(listener) != Some(req.transport) {
            return Err(Reason::INVALID_TRANSPORT);
        }
        if req.service_id.is_for_datagrams() {
            return Err(Reason::CONSUMER);
        }
        let mtu = PathMtu::from_code(req.path_mtu).ok_or(Reason::INVALID_MTU)?;
        // The connection is between the addresses of the packet, as its ICRC is.
        if req.primary.local_gid != gid(route.remote) || req.primary.remote_gid != gid(route.local) {
            return Err(Reason::INVALID_GID);
        }
        let (header, data) = CmaHeader::decode(&req.private_data).map_err(|_| Reason::CONSUMER)?;
        if Ok(header.addresses) != route.reversed().addresses() {
            return Err(Reason::INVALID_GID);
        }
        if req.local_comm_id == 0 || is_reserved(req.local_qpn) {
            return Err(Reason::CONSUMER);
        }
        let queue_pair = QueuePair { address: route.remote, ca_guid: req.local_ca_guid, qpn: req.local_qpn };
        if self.end_stale(queue_pair, now) {
            return Err(Reason::STALE_CONNECTION);
        }
        let private_data = data.try_into().map_err(|_| Reason::CONSUMER)?;
        debug_assert_eq!(data.len() + CMA_HEADER_LEN, Req::PRIVATE_DATA_LEN);
        Ok((header, mtu, private_data))
    }

    /// Ends the connection that a queue pair of the peer already has. Returns whether there is one.
    fn end_stale(&mut self, queue_pair: QueuePair, now: Micros) -> bool {
        let Some(id) = self.queue_pairs.get(&queue_pair).copied() else { return false };
        self.update(id, |exchange, out| {
            if exchange.state == State::Established {
                // Without private data, a disconnection of an established exchange does not fail.
                let _ = exchange.disconnect(&[], now, out);
            }
        });
        true
    }

    fn received_rep(&mut self, rep: &Rep, transaction: u64, route: Route, now: Micros) {
        let is_first = self.find(rep.remote_comm_id, route, |exchange, _| exchange.awaits_reply());
        let queue_pair = QueuePair { address: route.remote, ca_guid: rep.local_ca_guid, qpn: rep.local_qpn };
        if is_first == Some(true) && (rep.local_comm_id == 0 || is_reserved(rep.local_qpn)) {
            return;
        }
        if is_first == Some(true) && self.end_stale(queue_pair, now) {
            self.find(rep.remote_comm_id, route, |exchange, out| exchange.reject_stale_rep(rep, now, out));
            return;
        }
        let is_known = self.find(rep.remote_comm_id, route, |exchange, out| exchange.received_rep(rep, out));
        if is_known != Some(true) {
            let reason = Reason::INVALID_COMM_ID;
            let rej = rejection(rep.remote_comm_id, rep.local_comm_id, Answered::Rep, reason);
            self.send(route, transaction, rej);
        }
    }

    fn received_rej(&mut self, rej: &Rej, route: Route, now: Micros) {
        let mut id = rej.remote_comm_id;
        if id == 0 && rej.reason == Reason::TIMEOUT {
            // The peer has not received a REP, and identifies its REQ by its GUID.
            let Some(guid) = rej.info.first_chunk().copied().map(u64::from_be_bytes) else { return };
            let origin = Origin { route, ca_guid: guid, comm_id: rej.local_comm_id };
            let Some(request) = self.requests.get(&origin) else { return };
            id = request.0;
        }
        self.find(id, route, |exchange, out| exchange.received_rej(rej, now, out));
    }

    /// A communication id that neither an exchange nor the program has.
    fn allocate(&mut self) -> Option<CommId> {
        let slot = u32::from(self.settings.slot) << SLOT_SHIFT;
        (0..ID_ATTEMPTS).find_map(|_| {
            let id = CommId(slot | ((self.random)() & ((1 << SLOT_SHIFT) - 1)));
            let exists = self.exchanges.contains_key(&id) || self.resolutions.contains_key(&id);
            (id.0 != 0 && !exists && !self.held.contains(&id)).then_some(id)
        })
    }

    /// The transaction id of a request: half of it is random.
    fn transaction(&mut self, id: CommId) -> u64 {
        u64::from((self.random)()) << 32 | u64::from(id.0)
    }

    fn insert(&mut self, exchange: Exchange) {
        let id = exchange.id;
        self.deadlines.extend(exchange.deadline().map(|at| (at, id)));
        self.queue_pairs.extend(exchange.remote_queue_pair().map(|pair| (pair, id)));
        self.exchanges.insert(id, exchange);
        self.held.insert(id);
    }

    fn call(
        &mut self,
        id: CommId,
        call: impl FnOnce(&mut Exchange, &mut Outputs) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.update(id, call).unwrap_or(Err(libc::EINVAL))
    }

    /// The exchange of a message with this communication id, if it is between the same addresses.
    fn find<T>(
        &mut self,
        id: u32,
        route: Route,
        message: impl FnOnce(&mut Exchange, &mut Outputs) -> T,
    ) -> Option<T> {
        let id = CommId(id);
        let is_between = self.exchanges.get(&id).is_some_and(|exchange| exchange.route() == route);
        if is_between { self.update(id, message) } else { None }
    }

    /// Changes an exchange, and what the manager has recorded of it.
    fn update<T>(&mut self, id: CommId, change: impl FnOnce(&mut Exchange, &mut Outputs) -> T) -> Option<T> {
        let exchange = self.exchanges.get_mut(&id)?;
        let (deadline, queue_pair) = (exchange.deadline(), exchange.remote_queue_pair());
        let had_ended = exchange.has_ended();
        let result = change(exchange, &mut self.outputs);
        let due = exchange.deadline();
        if exchange.remote_queue_pair() != queue_pair {
            if let Some(pair) = queue_pair {
                self.queue_pairs.remove(&pair);
            }
            self.queue_pairs.extend(exchange.remote_queue_pair().map(|pair| (pair, id)));
        }
        let (is_gone, ends) = (exchange.state == State::Gone, exchange.has_ended() && !had_ended);
        self.record(id, (deadline, due), is_gone, ends);
        Some(result)
    }

    /// An exchange or a resolution was changed: its deadline before and after, whether it can be removed, and
    /// whether it now only answers messages.
    fn record(
        &mut self,
        id: CommId,
        (before, due): (Option<Micros>, Option<Micros>),
        is_gone: bool,
        ends: bool,
    ) {
        if before != due {
            if let Some(at) = before {
                self.deadlines.remove(&(at, id));
            }
            self.deadlines.extend(due.map(|at| (at, id)));
        }
        if is_gone {
            self.remove(id);
        } else if ends {
            self.ended.push_back(id);
            self.evict();
        }
    }

    /// Removes an exchange or a resolution that has ended.
    fn remove(&mut self, id: CommId) {
        self.remove_resolution(id);
        if let Some(exchange) = self.exchanges.remove(&id) {
            let (route, peer) = (exchange.route(), exchange.peer);
            let origin = Origin { route, ca_guid: peer.ca_guid, comm_id: peer.comm_id };
            if self.requests.get(&origin) == Some(&id) {
                self.requests.remove(&origin);
            }
        }
        // Most end in the order in which they began to wait.
        if let Some(at) = self.ended.iter().position(|ended| *ended == id) {
            self.ended.remove(at);
        }
    }

    /// Removes the oldest exchange that has ended if there are too many.
    fn evict(&mut self) {
        if self.ended.len() > CM_MAX_ENDED {
            if let Some(oldest) = self.ended.front().copied() {
                self.update(oldest, Exchange::forget);
                self.update_resolution(oldest, |resolution, _| resolution.finish());
            }
        }
    }

    /// Sets the GUID of this side.
    #[cfg(test)]
    pub(crate) fn set_guid(&mut self, ca_guid: u64) {
        self.settings.ca_guid = ca_guid;
    }

    /// The process of an exchange is killed.
    #[cfg(test)]
    pub(crate) fn kill(&mut self, id: CommId) {
        self.held.remove(&id);
        self.listeners.remove_pending(id);
        self.update(id, |exchange, _| exchange.kill());
        self.update_resolution(id, |resolution, _| resolution.finish());
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.exchanges.len() + self.resolutions.len()
    }

    /// Whether nothing is left of past connections.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
            && self.requests.is_empty()
            && self.resolutions.is_empty()
            && self.sidr_requests.is_empty()
            && self.queue_pairs.is_empty()
            && self.deadlines.is_empty()
            && self.ended.is_empty()
    }

    /// Whether the program has communication ids.
    #[cfg(test)]
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty() || self.listeners.has_pending()
    }
}

/// The answer to a message for which there is no exchange, and no process that has one: a REJ to a REQ and a
/// REP, a DREP to a DREQ, a SIDR_REP to a SIDR_REQ, none to others.
pub fn refusal(mad: &Mad, reason: Reason) -> Option<Mad> {
    let message = match &mad.message {
        Message::Req(req) => rejection(0, req.local_comm_id, Answered::Req, reason),
        Message::Rep(rep) => rejection(rep.remote_comm_id, rep.local_comm_id, Answered::Rep, reason),
        Message::Dreq(dreq) => drep_to_unknown(dreq),
        Message::SidrReq(req) => sidr::refusal(req, SidrStatus::UNSUPPORTED),
        _ => return None,
    };
    Some(Mad { transaction: mad.transaction, message })
}

/// A REJ for which there is no exchange.
fn rejection(local_comm_id: u32, remote_comm_id: u32, answered: Answered, reason: Reason) -> Message {
    Message::Rej(Rej {
        local_comm_id,
        remote_comm_id,
        answered,
        info_len: 0,
        reason,
        info: [0; Rej::INFO_LEN],
        private_data: [0; Rej::PRIVATE_DATA_LEN],
    })
}

/// The DREP to a DREQ for which there is no exchange.
fn drep_to_unknown(dreq: &Dreq) -> Message {
    Message::Drep(Drep {
        local_comm_id: dreq.remote_comm_id,
        remote_comm_id: dreq.local_comm_id,
        private_data: [0; Drep::PRIVATE_DATA_LEN],
    })
}
