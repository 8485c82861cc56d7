// SPDX-License-Identifier: BSD-3-Clause
//! The communication identifier: what `rdma_cm_id` stands for, and where it is in the life of a connection.
//!
//! `state` is taken by a queue pair's callbacks, which hold that queue pair's `rx`; so nothing here calls a queue pair, or waits, while
//! holding it. Events are queued under it, so that they cannot be overtaken by a change of channel.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::connect::Outgoing;
use super::event::Event;
use super::listen::{Listener, Request};
use crate::channel::EventQueue;
use crate::lock;
use crate::qp::{ConnObserver, Qp};
use rdma_sys::rdma_cm_event_type::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};

/// An event channel.
pub(crate) type Channel = Arc<EventQueue<Event>>;

/// Where an id is.
pub(crate) enum Phase {
    /// Nothing is under way.
    Idle,
    Listening(Arc<Listener>),
    /// The program has asked to connect.
    Connecting(Option<Arc<Outgoing>>),
    /// A peer has asked to connect, and the program has not answered.
    Requested(Request),
    /// The program has accepted. `awaits`: the peer has announced its first FPDU, and the connection is there when that is.
    Accepting {
        awaits: bool,
    },
    Connected,
    /// The connection broke before the program was told that it is there.
    BrokenEarly,
    /// There was a connection, or an attempt.
    Ended,
}

pub(crate) struct State {
    pub phase: Phase,
    pub channel: Option<Channel>,
    pub qp: Option<Arc<Qp>>,
    /// The socket that `rdma_bind_addr` made.
    pub socket: Option<OwnedFd>,
    pub src: Option<SocketAddr>,
    pub dst: Option<SocketAddr>,
    pub timeout: Duration,
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
                socket: None,
                src: None,
                dst: None,
                timeout: Duration::ZERO,
            }),
        })
    }

    pub(crate) fn set_handle(&self, handle: usize) {
        self.handle.store(handle, Ordering::Release);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues an event and moves on to the phase that it means.
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

    /// Gives the id another channel; what waits for it in the old one goes along.
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

    /// Ends the id's part in its channel: nothing is raised any more, and what waits is withdrawn; connect requests among it are closed.
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
            // A peer can do all that it came for before we are back from telling it that it may.
            Phase::Connecting(_) | Phase::Accepting { awaits: false } => {
                state.phase = Phase::BrokenEarly;
                return;
            }
            _ => return,
        };
        drop(state);
        self.raise(Event::new(0, kind, 0));
    }
}

/// Whether an event belongs to a listening id and carries a connection.
pub(crate) fn is_connect_request(event: &Event) -> bool {
    event.kind == RDMA_CM_EVENT_CONNECT_REQUEST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program gets to see of an accepted connection that breaks, and is established, in this order.
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
