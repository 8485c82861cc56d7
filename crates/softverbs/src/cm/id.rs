// SPDX-License-Identifier: BSD-3-Clause
//! The communication identifier (`rdma_cm_id`), its state and its events.
//!
//! Lock order: a connection reports its establishment and its end ([`ConnObserver`]) with its session locked,
//! and the report locks `state`. Therefore a thread that holds `state` never calls a queue pair and never
//! waits. Events are queued with `state` locked, so rdma_migrate_id(3) moves all of them.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::event::Event;
use super::iwarp::binding::Binding;
use super::iwarp::request::{Request, Unfetched};
use super::options::Options;
use super::phase::{Held, Phase};
use crate::channel::EventQueue;
use crate::lock;
use crate::qp::{ConnObserver, Qp};
use crate::socket::Socket;
use rdma_sys::rdma_cm_event_type::{
    self, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};

/// An event channel.
pub(crate) type Channel = Arc<EventQueue<Event>>;

/// A listening socket, as its identifier uses it.
pub(super) trait Listening: Send + Sync {
    /// Stops listening; the port is free when this returns.
    fn close(&self);
    /// Applies the type of service to connections accepted from now on.
    fn apply_tos(&self, options: Options);
}

/// A connection attempt, as its identifier uses it.
pub(super) trait Connecting: Send + Sync {
    /// Cancels the attempt; no event is queued.
    fn cancel(&self);
}

/// The resources that an identifier holds in each phase.
pub(super) enum Sockets {}

impl Held for Sockets {
    type Listener = Arc<dyn Listening>;
    type Attempt = Arc<dyn Connecting>;
    type Request = Request;
}

/// What `Id::state` guards.
pub(super) struct State {
    pub phase: Phase<Sockets>,
    pub channel: Option<Channel>,
    pub qp: Option<Arc<Qp>>,
    /// The address of rdma_bind_addr(3), kept until the identifier is destroyed.
    pub binding: Option<Binding>,
    /// The socket bound by rdma_bind_addr(3), until rdma_listen(3) or rdma_connect(3) takes it.
    pub socket: Option<Socket>,
    pub dst: Option<SocketAddr>,
    pub timeout: Duration,
    pub options: Options,
}

/// A communication identifier.
pub(crate) struct Id {
    /// The address of the C structure, which each event carries.
    handle: AtomicUsize,
    state: Mutex<State>,
}

impl Id {
    pub(crate) fn new(channel: Option<Channel>) -> Arc<Self> {
        Self::with_phase(channel, Phase::Idle)
    }

    /// The identifier of a connect request.
    pub(crate) fn requested(channel: Option<Channel>, request: Request) -> Arc<Self> {
        Self::with_phase(channel, Phase::Requested(request))
    }

    fn with_phase(channel: Option<Channel>, phase: Phase<Sockets>) -> Arc<Self> {
        Arc::new(Self {
            handle: AtomicUsize::new(0),
            state: Mutex::new(State {
                phase,
                channel,
                qp: None,
                binding: None,
                socket: None,
                dst: None,
                timeout: Duration::ZERO,
                options: Options::default(),
            }),
        })
    }

    /// Sets the address of the C structure, before the first event.
    pub(crate) fn set_handle(&self, handle: usize) {
        self.handle.store(handle, Ordering::Release);
    }

    /// Locks the state; see the lock order above.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues an event of the connection, and a DISCONNECTED event if the connection has already ended.
    /// Queues nothing once the end has been reported.
    pub(crate) fn raise(&self, mut event: Event) {
        event.id = self.handle.load(Ordering::Acquire);
        let mut state = self.state();
        let kinds = state.phase.report(event.kind);
        let Some(channel) = &state.channel else { return };
        let mut event = Some(event);
        let instruments = state.qp.as_ref().and_then(|qp| qp.instruments());
        for &kind in kinds {
            if let (Some(instruments), Some(counted)) = (instruments, counted(kind)) {
                instruments.event(counted);
            }
            let id = self.handle.load(Ordering::Acquire);
            channel.push(event.take().unwrap_or_else(|| Event::new(id, kind, 0)));
        }
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
    pub(crate) fn withdraw_request(&self, is_it: impl Fn(&Unfetched) -> bool) {
        let channel = self.state().channel.clone();
        let Some(channel) = channel else { return };
        drop(channel.withdraw_unless_last(|event| event.request.as_ref().is_some_and(&is_it)));
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

/// The counter of an event in the metrics, if it has one.
fn counted(kind: rdma_cm_event_type::Type) -> Option<rpma_metrics::Event> {
    use rpma_metrics::Event;
    Some(match kind {
        RDMA_CM_EVENT_ESTABLISHED => Event::Established,
        RDMA_CM_EVENT_DISCONNECTED => Event::Closed,
        RDMA_CM_EVENT_CONNECT_ERROR => Event::Lost,
        RDMA_CM_EVENT_REJECTED => Event::Rejected,
        RDMA_CM_EVENT_UNREACHABLE => Event::Unreachable,
        _ => return None,
    })
}

impl ConnObserver for Id {
    fn established(&self) {
        self.raise(Event::new(0, RDMA_CM_EVENT_ESTABLISHED, 0));
    }

    fn ended(&self) {
        let due = self.state().phase.ended();
        let Some(kind) = due else { return };
        // Only a connection that was never established has failed; the end of an established one is no error.
        let status = if kind == RDMA_CM_EVENT_CONNECT_ERROR { -libc::ECONNRESET } else { 0 };
        self.raise(Event::new(0, kind, status));
    }
}

/// Whether an event is a connect request; its `id` is then the listening identifier.
pub(crate) fn is_connect_request(event: &Event) -> bool {
    event.kind == RDMA_CM_EVENT_CONNECT_REQUEST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of an accepted connection that ends and is then established.
    fn events(awaits: bool) -> Vec<u32> {
        let channel = Arc::new(EventQueue::new().unwrap());
        let id = Id::with_phase(Some(channel.clone()), Phase::Accepting { awaits });
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
