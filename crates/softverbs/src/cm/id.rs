// SPDX-License-Identifier: BSD-3-Clause
//! The communication identifier (`rdma_cm_id`) and its state.
//!
//! A connection reports its establishment and its end ([`ConnObserver`]) while its session is locked, and that locks `state`; so a thread
//! that holds `state` neither calls a queue pair nor waits. Events are queued under `state`, so that rdma_migrate_id(3) moves each of them.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::binding::Binding;
use super::connect::Outgoing;
use super::event::Event;
use super::incoming::{Request, Unfetched};
use super::listen::Listener;
use super::options::Options;
use crate::channel::EventQueue;
use crate::lock;
use crate::qp::{ConnObserver, Qp};
use crate::socket::Socket;
use rdma_sys::rdma_cm_event_type::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};

/// An event channel.
pub(crate) type Channel = Arc<EventQueue<Event>>;

/// The state of an identifier in the life of a connection.
pub(crate) enum Phase {
    /// Created; neither listening nor connecting.
    Idle,
    Listening(Arc<Listener>),
    /// The program has called rdma_connect(3).
    Connecting(Option<Arc<Outgoing>>),
    /// The identifier of a connect request that the program has neither accepted nor rejected.
    Requested(Request),
    /// The program has called rdma_accept(3). `awaits`: the peer has announced a first FPDU, which establishes the connection.
    Accepting {
        awaits: bool,
    },
    Connected,
    /// The connection ended before the ESTABLISHED event was queued.
    BrokenEarly,
    /// The connection, or the attempt, has ended.
    Ended,
}

pub(crate) struct State {
    pub phase: Phase,
    pub channel: Option<Channel>,
    pub qp: Option<Arc<Qp>>,
    /// The address of rdma_bind_addr(3), which the identifier keeps until it is destroyed.
    pub binding: Option<Binding>,
    /// The socket that rdma_bind_addr(3) has bound, until it is used.
    pub socket: Option<Socket>,
    pub dst: Option<SocketAddr>,
    pub timeout: Duration,
    pub options: Options,
}

/// A communication identifier.
pub(crate) struct Id {
    /// The address of the C structure, which events carry.
    handle: AtomicUsize,
    state: Mutex<State>,
}

impl Id {
    pub(crate) fn new(channel: Option<Channel>, phase: Phase) -> Arc<Self> {
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

    pub(crate) fn set_handle(&self, handle: usize) {
        self.handle.store(handle, Ordering::Release);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues an event and enters the phase that it implies.
    pub(crate) fn raise(&self, mut event: Event) {
        event.id = self.handle.load(Ordering::Acquire);
        let mut state = self.state();
        let broken = matches!(state.phase, Phase::BrokenEarly);
        match event.kind {
            RDMA_CM_EVENT_ESTABLISHED if !broken => state.phase = Phase::Connected,
            RDMA_CM_EVENT_ESTABLISHED
            | RDMA_CM_EVENT_DISCONNECTED
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_UNREACHABLE => state.phase = Phase::Ended,
            _ => {}
        }
        let established = event.kind == RDMA_CM_EVENT_ESTABLISHED;
        let id = event.id;
        if let Some(channel) = &state.channel {
            channel.push(event);
            if established && broken {
                channel.push(Event::new(id, RDMA_CM_EVENT_DISCONNECTED, 0));
            }
        }
    }

    /// Whether an event is queued, or may be at any time without another call of the program.
    pub(crate) fn may_report(&self) -> bool {
        let id = self.handle.load(Ordering::Acquire);
        let state = self.state();
        match state.phase {
            Phase::Listening(_)
            | Phase::Connecting(_)
            | Phase::Accepting { .. }
            | Phase::Connected
            | Phase::BrokenEarly => true,
            Phase::Idle | Phase::Requested(_) | Phase::Ended => {
                state.channel.as_ref().is_some_and(|channel| channel.contains(|event| event.id == id))
            }
        }
    }

    /// Moves the identifier, with its queued events, to another channel. Without one they are discarded.
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

    /// Withdraws a connect request that nobody has fetched, because its peer has gone. It stays if it is the only event of the channel: a
    /// program that was told that there is one must not wait for another when it fetches it.
    pub(crate) fn withdraw_request(&self, is_it: impl Fn(&Unfetched) -> bool) {
        let channel = self.state().channel.clone();
        let Some(channel) = channel else { return };
        drop(channel.withdraw_unless_last(|event| event.request.as_ref().is_some_and(&is_it)));
    }

    /// Removes the identifier from its channel: no further event is queued, and queued ones are discarded, which closes the connections of
    /// connect requests.
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
        let mut state = self.state();
        let kind = match state.phase {
            Phase::Connected => RDMA_CM_EVENT_DISCONNECTED,
            Phase::Accepting { awaits: true } => RDMA_CM_EVENT_CONNECT_ERROR,
            // The peer may use the connection and close it before the call that establishes it here has returned.
            Phase::Connecting(_) | Phase::Accepting { awaits: false } => {
                state.phase = Phase::BrokenEarly;
                return;
            }
            _ => return,
        };
        drop(state);
        // A connection that never was has failed; one that ends has not.
        let status = if kind == RDMA_CM_EVENT_CONNECT_ERROR { -libc::ECONNRESET } else { 0 };
        self.raise(Event::new(0, kind, status));
    }
}

/// Whether an event is a connect request, of which `id` is the listening identifier.
pub(crate) fn is_connect_request(event: &Event) -> bool {
    event.kind == RDMA_CM_EVENT_CONNECT_REQUEST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of an accepted connection that ends and is then established.
    fn events(awaits: bool) -> Vec<u32> {
        let channel = Arc::new(EventQueue::new().unwrap());
        let id = Id::new(Some(channel.clone()), Phase::Accepting { awaits });
        id.ended();
        if !awaits {
            id.established();
        }
        channel.withdraw(|_| true).into_iter().map(|event| event.kind).collect()
    }

    #[test]
    fn a_peer_that_announced_nothing_is_established_before_it_is_gone() {
        assert_eq!(events(false), [RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED]);
    }

    #[test]
    fn a_peer_that_does_not_come_as_announced_is_an_error() {
        assert_eq!(events(true), [RDMA_CM_EVENT_CONNECT_ERROR]);
    }
}
