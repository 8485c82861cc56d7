// SPDX-License-Identifier: BSD-3-Clause
//! The connection manager of the process: drives the exchanges.
//!
//! Each call, message and timer changes the state under its lock, which also takes the resulting messages and
//! events into queues. They are carried out without that lock, and each queue in order. All messages of a
//! call are sent when it returns, since the program may exit then. Events are reported by one thread at a
//! time, whichever comes first: an event may change a queue pair, and queues events of identifiers. The
//! messages that precede an event are sent before it. A call sends no messages that were queued later than
//! its own, and reports a bounded number of events; the engine does the rest.
//!
//! Locks: `state` is under those of an identifier and of a connection, and above those of the engine's timers
//! only. `sending` is directly above `state`. `reporting` is never waited for: its holder checks the queue
//! again after it has released the lock, and wakes the engine for what is left.

mod datagrams;
mod exit;
mod failure;
mod messages;
mod request;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rdma_sys::rdma_cm_event_type::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, Type as Kind,
};
use transport::roce::cm::{
    self, CommId, ConnParam, Limits, ListenerId, Manager, Output, Received, Response, Route, Settings, Timing,
};
use transport::roce::wire::cm::{Mad, Reason};
use transport::units::Micros;

pub(in crate::cm) use exit::at_exit;
use messages::Messages;
use request::Unfetched;
use watch::Watch;

use crate::clock;
use crate::cm::event::Event;
use crate::cm::id::Id;
use crate::guid::guid;
use crate::instrument;
use crate::limits::{MAX_REQUESTS, MAX_REQUESTS_OF_HOST, MAX_WAITING_OUTPUTS};
use crate::lock;
use crate::port::{self, Full, Port};
use crate::process::PerProcess;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::qp::{ConnObserver, Qp};
use crate::sys::Errno;

/// Events that a call reports at most: each takes some microseconds, and may end a queue pair.
const MAX_EVENTS: usize = 32;

pub(super) struct State {
    pub manager: Manager,
    pub ids: HashMap<CommId, Weak<Id>>,
    pub listeners: HashMap<ListenerId, Weak<Id>>,
    messages: Messages,
    /// Each with the end of the messages that precede it.
    events: VecDeque<(u64, CommId, cm::Event)>,
    /// When the timer expires, and that timer.
    timer: Option<(Micros, Timer)>,
    watch: Watch,
}

/// The connection manager of the process.
pub(super) struct Agent {
    this: Weak<Self>,
    pub port: Arc<Port>,
    engine: Arc<Engine>,
    state: Mutex<State>,
    /// Held while messages are sent.
    sending: Mutex<()>,
    /// Held while events are reported.
    reporting: Mutex<()>,
    /// What drivers of connections have observed, until the engine passes it on.
    observed: Mutex<Vec<(CommId, Observed)>>,
    /// The engine will call [`Source::ready`].
    kicked: AtomicBool,
}

static AGENT: PerProcess<Arc<Agent>> = PerProcess::new();

/// An unpredictable number, for communication ids and PSNs.
pub(super) fn random() -> u32 {
    let mut bytes = [0; 4];
    // It does not fail on a kernel that has let the process allocate a queue pair number.
    let _ = getrandom::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

impl Agent {
    /// The connection manager of this process. Errors of [`Port::get`].
    pub(super) fn get() -> Result<Arc<Self>, Errno> {
        let mut running = lock(AGENT.get());
        if let Some(agent) = &*running {
            return Ok(agent.clone());
        }
        let (port, engine) = (Port::get()?, Engine::get()?);
        let settings = Settings {
            slot: port.slot(),
            ca_guid: u64::from_be(guid()),
            timing: Timing::default(),
            limits: Limits { process: MAX_REQUESTS, address: MAX_REQUESTS_OF_HOST },
        };
        let state = State {
            manager: Manager::new(settings, random),
            ids: HashMap::new(),
            listeners: HashMap::new(),
            messages: Messages::default(),
            events: VecDeque::new(),
            timer: None,
            watch: Watch::default(),
        };
        let agent = Arc::new_cyclic(|this: &Weak<Self>| Self {
            this: this.clone(),
            port,
            engine,
            state: Mutex::new(state),
            sending: Mutex::default(),
            reporting: Mutex::default(),
            observed: Mutex::default(),
            kicked: AtomicBool::new(false),
        });
        let weak: Weak<Self> = Arc::downgrade(&agent);
        agent.port.set_agent(weak);
        *running = Some(agent.clone());
        Ok(agent)
    }

    /// Whether it is that of this process: a child after fork(2) must not lock that of its parent.
    pub(super) fn is_own(&self) -> bool {
        self.port.is_own()
    }

    /// Changes the state. What follows is carried out by [`Agent::deliver`].
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, Micros) -> T) -> T {
        let mut state = lock(&self.state);
        let now = clock::now();
        let result = change(&mut state, now);
        while let Some(output) = state.manager.poll() {
            match output {
                Output::Send { route, mad } => state.messages.push(route, mad),
                Output::Event { id, event } => {
                    let preceding = state.messages.end();
                    state.events.push_back((preceding, id, event));
                }
            }
        }
        let deadline = state.manager.deadline();
        if state.timer.as_ref().map(|(at, _)| *at) != deadline {
            let source = self.this.upgrade().map(|this| this as Arc<dyn Source>);
            state.timer = deadline.zip(source).map(|(at, source)| {
                (at, self.engine.schedule(Duration::from_micros(at.saturating_sub(now)), &source))
            });
        }
        result
    }

    /// As [`Agent::change`], and carries out what follows, events only unless another thread reports some.
    pub(super) fn call<T>(&self, change: impl FnOnce(&mut State, Micros) -> T) -> T {
        let result = self.change(change);
        self.deliver();
        result
    }

    /// Sends the messages that are queued, and reports events unless another thread does.
    pub(super) fn deliver(&self) {
        self.send();
        let Ok(reporting) = self.reporting.try_lock() else { return };
        for _ in 0..MAX_EVENTS {
            let next = lock(&self.state).events.pop_front();
            let Some((preceding, id, event)) = next else { break };
            self.send_until(preceding);
            self.report(id, event);
        }
        drop(reporting);
        // What the events have led to.
        self.send();
        let is_done = lock(&self.state).events.is_empty();
        if !is_done {
            self.kick();
        }
    }

    /// Sends the messages that are queued when it is called. None of them is queued any more, nor being sent,
    /// when it returns. Whoever queues further ones sends them, or wakes the engine.
    fn send(&self) {
        let end = lock(&self.state).messages.end();
        self.send_until(end);
    }

    fn send_until(&self, end: u64) {
        let _sending = lock(&self.sending);
        loop {
            let next = lock(&self.state).messages.pop_before(end);
            let Some((route, mad)) = next else { return };
            self.port.send_message(&mad, route.local, route.remote);
        }
    }

    /// Has the engine carry out what is queued.
    fn kick(&self) {
        if !self.kicked.swap(true, Ordering::AcqRel) {
            if let Some(this) = self.this.upgrade() {
                self.engine.kick(this);
            }
        }
    }

    /// Reports events of an exchange to `id` from now on.
    pub(super) fn adopt(&self, exchange: CommId, id: &Arc<Id>) {
        self.change(|state, _| state.ids.insert(exchange, Arc::downgrade(id)));
    }

    /// The program has destroyed the identifier of an exchange, or discarded its request.
    pub(super) fn destroy(&self, exchange: CommId) {
        if !self.is_own() {
            return;
        }
        self.call(|state, now| {
            state.ids.remove(&exchange);
            state.manager.destroy(exchange, now);
        });
    }

    /// What observes the connection of a queue pair for its exchange.
    pub(super) fn observer(&self, exchange: CommId) -> Arc<dyn ConnObserver> {
        Arc::new(Observer { agent: self.this.clone(), exchange })
    }

    /// Moves the queue pair of an identifier to RTS.
    pub(super) fn connect(&self, exchange: CommId, qp: &Qp, terms: &cm::Terms) -> Result<(), Errno> {
        qp.follow(terms, self.observer(exchange))
    }

    fn report(&self, exchange: CommId, event: cm::Event) {
        if let cm::Event::Request(_) | cm::Event::Response(_) | cm::Event::Established = event {
            self.watch();
        }
        let event = match event {
            cm::Event::Request(request) => return self.request(exchange, *request),
            cm::Event::SidrRequest(request) => return self.sidr_request(exchange, *request),
            event => event,
        };
        let id = lock(&self.state).ids.get(&exchange).and_then(Weak::upgrade);
        match event {
            cm::Event::Rejected { .. }
            | cm::Event::Unreachable
            | cm::Event::SidrReply(_)
            | cm::Event::ConnectError
            | cm::Event::TimeWaitExit => {
                lock(&self.state).ids.remove(&exchange);
            }
            _ => {}
        }
        let Some(id) = id else { return };
        let new = |kind: Kind, status| Event::new(0, kind, status);
        match event {
            cm::Event::Request(_) | cm::Event::SidrRequest(_) => {}
            cm::Event::SidrReply(reply) => datagrams::report(&id, &reply),
            cm::Event::Response(response) => self.respond(exchange, &id, &response),
            cm::Event::Established => {
                id.raise(new(RDMA_CM_EVENT_ESTABLISHED, 0));
            }
            cm::Event::Rejected { reason, private_data } => {
                // As librdmacm.
                if let Some(qp) = id.qp() {
                    qp.disconnect();
                }
                let mut event = new(RDMA_CM_EVENT_REJECTED, i32::from(reason.0));
                event.private_data = private_data.to_vec();
                event.reason = Some(failure::rejected(&id, reason));
                id.raise(event);
            }
            cm::Event::Unreachable => {
                let mut event = new(RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT);
                event.reason = Some(failure::unanswered(&id));
                id.raise(event);
            }
            cm::Event::ConnectError => {
                id.raise(new(RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNRESET));
            }
            cm::Event::Disconnected => {
                // Delivers what has arrived before.
                if let Some(qp) = id.qp() {
                    qp.disconnect();
                }
                id.raise(new(RDMA_CM_EVENT_DISCONNECTED, 0));
            }
            cm::Event::TimeWaitExit => id.notify(new(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0)),
        }
    }

    /// The peer has accepted: connects the queue pair, unless the program does so itself.
    fn respond(&self, exchange: CommId, id: &Arc<Id>, response: &Response) {
        let Some(qp) = id.qp() else {
            return id.notify(with_param(
                RDMA_CM_EVENT_CONNECT_RESPONSE,
                response.param,
                &response.private_data,
            ));
        };
        let terms = lock(&self.state).manager.terms(exchange);
        let connected = terms.ok_or(libc::ECONNRESET).and_then(|terms| self.connect(exchange, &qp, &terms));
        let established =
            connected.and_then(|()| self.change(|state, _| state.manager.establish(exchange, &[])));
        match established {
            Ok(()) => {
                // The RTU: the program may disconnect at once.
                self.send();
                id.raise(with_param(RDMA_CM_EVENT_ESTABLISHED, response.param, &response.private_data));
            }
            Err(e) => {
                let rejected =
                    self.change(|state, now| state.manager.reject(exchange, Reason::CONSUMER, &[], now));
                // It fails if the peer has given up, which is reported next.
                if rejected.is_ok() {
                    lock(&self.state).ids.remove(&exchange);
                    id.raise(Event::new(0, RDMA_CM_EVENT_CONNECT_ERROR, -e));
                }
            }
        }
    }

    /// Reports a connect request, unless it is rejected.
    fn request(&self, exchange: CommId, request: cm::Request) {
        let (listener, peer) = (request.listener, request.route.remote);
        let Some(id) = self.listener_with_room(exchange, listener, peer) else { return };
        let mut event = with_param(RDMA_CM_EVENT_CONNECT_REQUEST, request.param, &request.private_data);
        let cm::Request { route, service, source_port, param, .. } = request;
        event.request = self.this.upgrade().map(|agent| {
            Box::new(Unfetched::new(agent, exchange, route, service, source_port, Some(param))) as _
        });
        id.notify(event);
    }

    /// The identifier of a listener with memory for the event of a request; without, the request is rejected,
    /// and so it is by a fault.
    fn listener_with_room(&self, request: CommId, listener: ListenerId, peer: IpAddr) -> Option<Arc<Id>> {
        let is_permitted = !instrument::rejects_request(peer);
        let id = lock(&self.state).listeners.get(&listener).and_then(Weak::upgrade);
        let has_room = |id: &Arc<Id>| id.state().channel.as_ref().is_none_or(|channel| channel.make_room());
        let id = id.filter(|id| is_permitted && has_room(id));
        if id.is_none() {
            self.change(|state, now| state.manager.destroy(request, now));
        }
        id
    }
}

/// An event with `rdma_conn_param`.
fn with_param(kind: Kind, param: ConnParam, private_data: &[u8]) -> Event {
    let mut event = Event::new(0, kind, 0);
    event.private_data = private_data.to_vec();
    event.responder_resources = param.responder_resources;
    event.initiator_depth = param.initiator_depth;
    event.retry_count = param.retry_count;
    event.rnr_retry_count = param.rnr_retry_count;
    (event.qp_num, event.srq) = (param.qpn, param.srq);
    event
}

impl port::Agent for Agent {
    fn received(&self, mad: &Mad, local: IpAddr, remote: IpAddr) -> Result<bool, Full> {
        let route = Route { local, remote };
        let received = self.change(|state, now| {
            let has_room = state.messages.len() + state.events.len() < MAX_WAITING_OUTPUTS;
            has_room.then(|| state.manager.receive(mad, route, now))
        });
        // The thread that receives may hold locks under which no queue pair may be changed.
        self.kick();
        received.map(|received| received != Received::NoListener).ok_or(Full)
    }
}

impl Source for Agent {
    /// Messages were received, or something was observed of queue pairs.
    fn ready(self: Arc<Self>, _events: u32) {
        self.kicked.swap(false, Ordering::AcqRel);
        let observed = std::mem::take(&mut *lock(&self.observed));
        self.call(|state, now| {
            for (exchange, observed) in observed {
                match observed {
                    Observed::Data => state.manager.received_data(exchange),
                    // Without effect if the connection has ended.
                    Observed::Cut => drop(state.manager.disconnect(exchange, &[], now)),
                }
            }
        });
    }

    fn timeout(self: Arc<Self>) {
        self.call(|state, now| {
            // Scheduled anew, even for the same deadline.
            state.timer = None;
            state.manager.expire(now);
        });
        self.check_peers();
    }
}

/// Observes the connection of a queue pair.
struct Observer {
    agent: Weak<Agent>,
    exchange: CommId,
}

/// What a driver has observed of the queue pair of an exchange.
enum Observed {
    /// It has received a packet.
    Data,
    /// A fault has cut its connection.
    Cut,
}

impl Observer {
    /// Leaves it to the engine, since the caller drives the connection.
    fn pass_on(&self, observed: Observed) {
        if let Some(agent) = self.agent.upgrade() {
            lock(&agent.observed).push((self.exchange, observed));
            agent.kick();
        }
    }
}

impl ConnObserver for Observer {
    fn established(&self) {
        self.pass_on(Observed::Data);
    }

    /// The peer learns of the end by a DREQ, when the program disconnects.
    fn ended(&self) {}

    fn cut(&self) {
        self.pass_on(Observed::Cut);
    }
}
