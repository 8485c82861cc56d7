// SPDX-License-Identifier: BSD-3-Clause
//! The connect request of a pending connection, before and after the program fetches it.
//!
//! The connection stays with the engine until [`PendingConnection::take`] removes it, which succeeds once:
//! the program fetches the request, the peer disconnects, or the connection is evicted. Whoever succeeds owns
//! the socket. Dropping a request closes the connection.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use super::offers::Offer;
use super::pending::Admission;
use super::send_reply;
use crate::cm::exchange::Responder;
use crate::cm::{addr, negotiate};
use crate::lock;
use crate::progress::engine::Engine;
use crate::progress::timers::Timer;
use crate::socket::Socket;
use transport::iwarp::wire::mpa::Frame;

/// A pending connection, whose socket the engine watches.
pub(super) struct PendingConnection {
    pub(super) engine: Arc<Engine>,
    pub(super) token: u64,
    pub(super) peer: SocketAddr,
    /// `None`: the socket has been taken.
    pub(super) state: Mutex<Option<State>>,
}

/// The state of a pending connection.
pub(super) struct State {
    pub(super) socket: Socket,
    /// Counts the connection as pending until the program fetches the request.
    pub(super) admission: Admission,
    pub(super) exchange: Responder,
    /// The MPA Request is complete, and its event is queued.
    pub(super) requested: bool,
    /// Shared memory offered by the peer.
    pub(super) offer: Option<Offer>,
    /// Expires if the MPA Request is not complete in time.
    pub(super) timer: Option<Timer>,
}

/// A connect request that the program has not fetched. Dropping it closes the connection.
pub(crate) struct Unfetched {
    connection: Arc<PendingConnection>,
    frame: Frame,
}

/// A connect request. Dropping it closes the connection.
pub(crate) struct Request {
    /// `None`: the peer has closed the connection.
    pub socket: Option<Socket>,
    /// Shared memory offered by the peer.
    pub offer: Option<Offer>,
    pub frame: Frame,
    pub local: Option<SocketAddr>,
    pub peer: SocketAddr,
}

impl PendingConnection {
    /// Takes the socket, and removes it from the engine.
    pub(super) fn take(&self) -> Option<State> {
        let state = lock(&self.state).take()?;
        self.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }

    /// As [`PendingConnection::take`], but only while the MPA Request is incomplete.
    pub(super) fn take_stalled(&self) -> Option<State> {
        let state = lock(&self.state).take_if(|state| !state.requested)?;
        self.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }
}

impl Request {
    /// Sends an MPA Reply that rejects the request, unless the peer has closed the connection.
    pub(crate) fn reject(&self, private_data: &[u8]) {
        if let Some(socket) = &self.socket {
            send_reply(socket, &negotiate::rejection(&self.frame), private_data);
        }
    }
}

impl Unfetched {
    pub(super) fn new(connection: Arc<PendingConnection>, frame: Frame) -> Self {
        Self { connection, frame }
    }

    /// Whether this is the connect request of `connection`.
    pub(super) fn is_of(&self, connection: &Arc<PendingConnection>) -> bool {
        Arc::ptr_eq(&self.connection, connection)
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Hands the connection to the program: it is no longer pending, and the caller owns its socket.
    pub(crate) fn fetch(self) -> Request {
        let (socket, offer) = self.connection.take().map(|state| (state.socket, state.offer)).unzip();
        let local = socket.as_ref().and_then(|socket| addr::local(socket).ok());
        Request { socket, offer: offer.flatten(), frame: self.frame, local, peer: self.connection.peer }
    }
}

impl Drop for Unfetched {
    fn drop(&mut self) {
        self.connection.take();
    }
}
