// SPDX-License-Identifier: BSD-3-Clause
//! The connect request of a pending connection, before and after the program fetches it.
//!
//! The connection stays with the engine until [`PendingConnection::take`] removes it, which succeeds once:
//! the program fetches the request, the peer disconnects, or the connection is evicted. Whoever succeeds owns
//! the socket. Dropping a request closes the connection.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};

use super::offers::Offer;
use super::pending::Admission;
use super::send_reply;
use crate::cm::addr;
use crate::cm::protocol::{self, Params, Request};
use crate::progress::engine::Engine;
use crate::progress::timers::Timer;
use crate::qp::{ConnObserver, Qp, Stream};
use crate::socket::Socket;
use crate::sys::Errno;
use crate::{config, lock};
use transport::iwarp::cm::exchange::Responder;
use transport::iwarp::cm::negotiate;
use transport::iwarp::wire::mpa::Frame;
use transport::roce::cm::CommId;

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
pub(super) struct Unfetched {
    connection: Arc<PendingConnection>,
    frame: Frame,
}

/// A connect request that the program has fetched.
struct Fetched {
    /// `None`: the peer has closed the connection.
    socket: Option<Socket>,
    /// Shared memory offered by the peer.
    offer: Option<Offer>,
    frame: Frame,
    local: Option<SocketAddr>,
    peer: SocketAddr,
}

impl PendingConnection {
    /// Identifies the connection while it exists.
    pub(super) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self) as usize
    }

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

impl Unfetched {
    pub(super) fn new(connection: Arc<PendingConnection>, frame: Frame) -> Self {
        Self { connection, frame }
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl protocol::Unfetched for Unfetched {
    fn key(&self) -> usize {
        self.connection.key()
    }

    /// The connection is no longer pending, and the caller owns its socket.
    fn fetch(self: Box<Self>) -> Box<dyn Request> {
        let (socket, offer) = self.connection.take().map(|state| (state.socket, state.offer)).unzip();
        let local = socket.as_ref().and_then(|socket| addr::local(socket).ok());
        let offer = offer.flatten();
        Box::new(Fetched { socket, offer, frame: self.frame, local, peer: self.connection.peer })
    }
}

impl Drop for Unfetched {
    fn drop(&mut self) {
        self.connection.take();
    }
}

impl Request for Fetched {
    fn exchange(&self) -> Option<CommId> {
        None
    }

    fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the peer has announced an RTR.
    fn is_awaited(&self) -> bool {
        self.frame.enhanced.is_some_and(|enhanced| enhanced.peer_to_peer)
    }

    fn accept(
        self: Box<Self>,
        observer: Weak<dyn ConnObserver>,
        qp: Option<&Qp>,
        params: &Params,
    ) -> Result<(), Errno> {
        let qp = qp.ok_or(libc::EINVAL)?;
        let offer = negotiate::Offer { ird: params.ird, ord: params.ord, crc: config::get().crc };
        let (reply, agreed) = negotiate::accept(&self.frame, offer);
        // Answer the offer before the MPA Reply: the initiator reads the answer when it has the reply.
        let rings = self.offer.and_then(Offer::accept);
        let socket = self.socket.filter(|socket| send_reply(socket, &reply, &params.private_data));
        qp.connect(Stream {
            socket: socket.ok_or(libc::ECONNRESET)?,
            rings,
            crc: agreed.crc,
            ord: u32::from(agreed.ord),
            role: agreed.role,
            early: Vec::new(),
            rnr_retry: params.rnr_retry,
            peer: self.peer,
            observer,
        })
    }

    /// Sends an MPA Reply that rejects the request.
    fn reject(&self, private_data: &[u8]) {
        if let Some(socket) = &self.socket {
            send_reply(socket, &negotiate::rejection(&self.frame), private_data);
        }
    }
}
