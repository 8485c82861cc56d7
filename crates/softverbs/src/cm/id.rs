// SPDX-License-Identifier: BSD-3-Clause
//! The communication identifier (`rdma_cm_id`), its state and its events.
//!
//! Lock order: a connection reports its establishment and its end ([`ConnObserver`]) with its session locked,
//! and the report locks `state`. Therefore a thread that holds `state` never calls a queue pair and never
//! waits. Events are queued with `state` locked, so rdma_migrate_id(3) moves all of them.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::event::{self, DatagramPath, Event};
use super::options::Options;
use super::protocol::{Attempt, Refused, Request};
use crate::channel::EventQueue;
use crate::lock;
use crate::qp::{ConnObserver, Kind, Qp};
use crate::sys::Errno;
use rdma_sys::rdma_cm_event_type::{RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED};
use transport::cm::{EventKind, Held, Phase};
use transport::roce::cm::Terms;

/// An event channel.
pub(crate) type Channel = Arc<EventQueue<Event>>;

/// The protocol by which an identifier connects, with its local address. Its methods may be called with the
/// state of the identifier locked, except those that take the identifier.
pub(super) trait Protocol: Send + Sync {
    /// Reports the further events of a connect request to its identifier, which the program has got. Earlier
    /// ones are dropped: the call that accepts the request fails then.
    fn report_to(&self, _id: &Arc<Id>) {}
    /// Binds the identifier, which is not bound, and returns the address with the actual port.
    fn bind(&self, wanted: &SocketAddr, options: Options) -> Result<SocketAddr, Refused>;
    /// The address that the identifier is bound to.
    fn bound(&self) -> Option<SocketAddr>;
    /// The address from which the identifier connects to `dst`. ENETUNREACH and other errors of connect(2):
    /// there is no route.
    fn source(&self, dst: &SocketAddr) -> Result<SocketAddr, Errno>;
    /// Claims the bound address for a listener, which shares it with no other identifier.
    fn claim(&self) -> Result<(), Refused>;
    /// Listens at the claimed address. EINVAL: another thread does. After another error the identifier is not
    /// bound.
    fn listen(&self, id: &Arc<Id>, backlog: i32) -> Result<Arc<dyn Listening>, Errno>;
    /// Starts an attempt; an event reports the outcome. For an identifier that is not bound, `has_source` is
    /// called with the local address before an event can be queued. After an error the identifier is not
    /// bound.
    fn connect(
        &self,
        id: &Arc<Id>,
        attempt: Attempt,
        has_source: &mut dyn FnMut(&SocketAddr),
    ) -> Result<Arc<dyn Connecting>, Errno>;
    /// Whether the identifier must have a queue pair to connect or to accept.
    fn needs_queue_pair(&self) -> bool;
    /// Ends the connection by a message of the protocol, if there is one.
    fn disconnect(&self);
    /// rdma_establish(3).
    fn establish(&self) -> Result<(), Errno>;
    /// The queue pair has received a packet of the peer, which has established the connection.
    fn received_data(&self);
    /// The type of the queue pairs that the identifier connects. One for datagrams gets the queue pair of a
    /// service, not a connection.
    fn kind(&self) -> Kind {
        Kind::Rc
    }
    /// Joins a multicast group. Returns the path to it. EINVAL: not for datagrams, or no local address.
    fn join(&self, _group: IpAddr, _receives: bool, _options: Options) -> Result<DatagramPath, Errno> {
        Err(libc::EINVAL)
    }
    /// Leaves a multicast group. Returns whether the identifier has received from it.
    fn leave(&self, _group: IpAddr) -> Result<bool, Errno> {
        Err(libc::EADDRNOTAVAIL)
    }
    /// The attributes of the queue pair, once the peer has sent its own.
    fn terms(&self) -> Option<Terms>;
    /// Releases the bound address: the identifier is being destroyed.
    fn release(&self);
    /// Applies RDMA_OPTION_ID_REUSEADDR to the bound address.
    fn permit_reuse(&self);
    /// Applies the type of service.
    fn apply_tos(&self, options: Options);
}

/// A listener, as its identifier uses it.
pub(super) trait Listening: Send + Sync {
    /// Stops listening; the port is free when this returns.
    fn close(&self);
    /// Applies the type of service to connections accepted from now on.
    fn apply_tos(&self, options: Options);
}

/// A connection attempt, as its identifier uses it.
pub(super) trait Connecting: Send + Sync {
    /// Cancels the attempt; no event is queued. [`Protocol::release`] follows.
    fn cancel(&self);
}

/// The resources that an identifier holds in each phase.
pub(super) enum Resources {}

impl Held for Resources {
    type Listener = Arc<dyn Listening>;
    type Attempt = Arc<dyn Connecting>;
    type Request = Box<dyn Request>;
}

/// What `Id::state` guards.
pub(super) struct State {
    pub phase: Phase<Resources>,
    pub channel: Option<Channel>,
    pub qp: Option<Arc<Qp>>,
    pub dst: Option<SocketAddr>,
    pub timeout: Duration,
    pub options: Options,
}

impl State {
    /// The queue pair of the program becomes that of the identifier, if it has none. Returns whether it does.
    pub(super) fn adopt(&mut self, qp: &Option<Arc<Qp>>) -> bool {
        let adopts = self.qp.is_none() && qp.is_some();
        if adopts {
            self.qp.clone_from(qp);
        }
        adopts
    }

    /// No attempt to connect has begun. `adopted`: the call has adopted the queue pair of the program, which
    /// keeps it.
    pub(super) fn not_started(&mut self, adopted: bool) {
        self.phase.not_started();
        if adopted {
            self.qp = None;
        }
    }
}

/// A communication identifier.
pub(crate) struct Id {
    /// The address of the C structure, which each event carries.
    handle: AtomicUsize,
    state: Mutex<State>,
    protocol: Box<dyn Protocol>,
}

impl Id {
    pub(super) fn new(channel: Option<Channel>, protocol: Box<dyn Protocol>) -> Arc<Self> {
        Self::with_phase(channel, protocol, Phase::Idle)
    }

    /// The identifier of a connect request.
    pub(super) fn requested(
        channel: Option<Channel>,
        protocol: Box<dyn Protocol>,
        request: Box<dyn Request>,
    ) -> Arc<Self> {
        Self::with_phase(channel, protocol, Phase::Requested(request))
    }

    fn with_phase(
        channel: Option<Channel>,
        protocol: Box<dyn Protocol>,
        phase: Phase<Resources>,
    ) -> Arc<Self> {
        Arc::new(Self {
            handle: AtomicUsize::new(0),
            protocol,
            state: Mutex::new(State {
                phase,
                channel,
                qp: None,
                dst: None,
                timeout: Duration::ZERO,
                options: Options::default(),
            }),
        })
    }

    /// Sets the address of the C structure, which events carry: an identifier of a connect request reports
    /// events from now on.
    pub(crate) fn set_handle(self: &Arc<Self>, handle: usize) {
        self.handle.store(handle, Ordering::Release);
        self.protocol().report_to(self);
    }

    /// Locks the state; see the lock order above.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The protocol by which it connects.
    pub(super) fn protocol(&self) -> &dyn Protocol {
        &*self.protocol
    }

    /// Queues an event of the connection, and a DISCONNECTED event if the connection has already ended.
    /// False: nothing was due, because the end has been reported or the identifier was destroyed.
    pub(crate) fn raise(&self, mut event: Event) -> bool {
        event.id = self.handle.load(Ordering::Acquire);
        let mut state = self.state();
        let kinds = event::kind(event.kind).map_or(&[][..], |kind| state.phase.report(kind));
        let is_due = !kinds.is_empty();
        let Some(channel) = &state.channel else { return is_due };
        let mut event = Some(event);
        for kind in kinds.iter().copied().map(event::number) {
            if let Some(qp) = &state.qp {
                qp.instruments.event(kind);
            }
            let id = self.handle.load(Ordering::Acquire);
            channel.push(event.take().unwrap_or_else(|| Event::new(id, kind, 0)));
        }
        is_due
    }

    /// Queues an event that does not change the phase: address or route resolved, or a connect request.
    pub(crate) fn notify(&self, mut event: Event) {
        event.id = self.handle.load(Ordering::Acquire);
        if let Some(channel) = &self.state().channel {
            channel.push(event);
        }
    }

    /// Whether an event is queued, or may be queued without another call by the program.
    pub(crate) fn may_report(&self) -> bool {
        let id = self.handle.load(Ordering::Acquire);
        let state = self.state();
        state.phase.may_report()
            || state.channel.as_ref().is_some_and(|channel| channel.contains(|event| event.id == id))
    }

    /// Sets the channel of an identifier that has none and no events.
    pub(crate) fn set_channel(&self, channel: Option<Channel>) {
        self.state().channel = channel;
    }

    /// Moves the identifier and its queued events to another channel; with `None` the events are discarded.
    pub(crate) fn migrate(&self, to: Option<Channel>) {
        let id = self.handle.load(Ordering::Acquire);
        let mut state = self.state();
        let from = std::mem::replace(&mut state.channel, to.clone());
        let Some(from) = from else { return };
        for event in from.withdraw(|event| event.id == id) {
            if let Some(to) = &to {
                to.push(event);
            }
        }
    }

    /// Withdraws a connect request whose peer has disconnected before the program fetched it. The last event
    /// of a channel is not withdrawn: the program may have seen the descriptor become readable, and must not
    /// block when it fetches that event.
    pub(crate) fn withdraw_request(&self, key: usize) {
        let channel = self.state().channel.clone();
        let Some(channel) = channel else { return };
        drop(channel.withdraw_unless_last(|event| {
            event.request.as_ref().is_some_and(|request| request.key() == key)
        }));
    }

    /// Removes the identifier from its channel: no further event is queued, and queued events are discarded.
    /// Discarding a connect request closes its connection.
    pub(crate) fn leave_channel(&self) {
        let id = self.handle.load(Ordering::Acquire);
        let channel = self.state().channel.take();
        if let Some(channel) = channel {
            drop(channel.withdraw(|event| event.id == id));
        }
    }
}

impl ConnObserver for Id {
    fn established(&self) {
        self.raise(Event::new(0, RDMA_CM_EVENT_ESTABLISHED, 0));
    }

    fn ended(&self) {
        let due = self.state().phase.ended();
        let Some(kind) = due else { return };
        // Only a connection that was never established has failed; the end of an established one is no error.
        let status = if kind == EventKind::ConnectError { -libc::ECONNRESET } else { 0 };
        self.raise(Event::new(0, event::number(kind), status));
    }
}

/// Whether an event is a connect request; its `id` is then the listening identifier.
pub(crate) fn is_connect_request(event: &Event) -> bool {
    event.kind == RDMA_CM_EVENT_CONNECT_REQUEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::iwarp::Local;
    use rdma_sys::rdma_cm_event_type::{RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DISCONNECTED};

    /// The events of an accepted connection that ends and is then established.
    fn events(awaits: bool) -> Vec<u32> {
        let channel = Arc::new(EventQueue::new().unwrap());
        let protocol = Box::<Local>::default();
        let id = Id::with_phase(Some(channel.clone()), protocol, Phase::Accepting { awaits });
        id.ended();
        if !awaits {
            id.established();
        }
        channel.withdraw(|_| true).into_iter().map(|event| event.kind).collect()
    }

    #[test]
    fn a_connection_without_rtr_is_established_before_its_end_is_reported() {
        assert_eq!(events(false), [RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED]);
    }

    #[test]
    fn a_connection_that_ends_before_the_announced_rtr_is_an_error() {
        assert_eq!(events(true), [RDMA_CM_EVENT_CONNECT_ERROR]);
    }
}
