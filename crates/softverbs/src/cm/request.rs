// SPDX-License-Identifier: BSD-3-Clause
//! A connect request: a pending connection, until the program fetches it.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use super::exchange::Responder;
use super::offers::Offer;
use super::pending::Place;
use super::{addr, negotiate, send_reply};
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

pub(super) struct State {
    pub(super) socket: Socket,
    /// The connection is counted until the program has fetched the request.
    pub(super) place: Place,
    pub(super) exchange: Responder,
    /// The MPA Request is complete; the program has been told.
    pub(super) requested: bool,
    /// Memory that the peer offers to share.
    pub(super) offer: Option<Offer>,
    /// The end of the time that there is for the request.
    pub(super) timer: Option<Timer>,
}

/// A connect request that the program has not fetched. Dropping it closes the connection.
pub(crate) struct Unfetched {
    connection: Arc<PendingConnection>,
    frame: Frame,
}

/// A connect request. Dropping it closes the connection.
pub(crate) struct Request {
    /// `None`: the peer has gone.
    pub socket: Option<Socket>,
    /// Memory that the peer offers to share.
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

    /// As [`PendingConnection::take`], unless the program has been told of it.
    pub(super) fn take_stalled(&self) -> Option<State> {
        let state = lock(&self.state).take_if(|state| !state.requested)?;
        self.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }
}

impl Request {
    /// Sends the reply that rejects the request, if its peer is still there.
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

    pub(super) fn is_of(&self, connection: &Arc<PendingConnection>) -> bool {
        Arc::ptr_eq(&self.connection, connection)
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The program fetches the request.
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
