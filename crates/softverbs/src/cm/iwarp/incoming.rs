// SPDX-License-Identifier: BSD-3-Clause
//! A pending connection on the passive side: accepted, and its connect request not yet fetched by the
//! program.
//!
//! It is a [`Source`] of the engine. Until the MPA Request is complete it reads from the socket, under a
//! timeout. Afterwards it only watches for the end of the connection, so that the descriptor is closed as
//! soon as the peer disconnects. [`super::request`] has the socket and determines who takes it.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::offers::{Offer, Offers};
use super::pending::{Admission, Pending};
use super::request::{PendingConnection, State, Unfetched};
use super::send_reply;
use crate::cm::event::Event;
use crate::cm::id::Id;
use crate::cm::limited_log::LimitedLog;
use crate::instrument;
use crate::limits::REQUEST_TIMEOUT_S;
use crate::lock;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys;
use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
use transport::iwarp::cm::exchange::Responder;
use transport::iwarp::cm::negotiate;
use transport::iwarp::wire::mpa::{Frame, MAX_FRAME_LEN};

/// The epoll event for the end of a connection whose request has not been fetched. A peer sends no data
/// before the MPA Reply, so no other event is needed.
const END: u32 = libc::EPOLLRDHUP as u32;
/// The number of older accepted connections whose requests are checked once more before a newer request is
/// reported, to keep the order: a few system calls a connection.
const YOUNGEST: usize = 64;

/// A pending connection as the engine serves it.
pub(super) struct Incoming {
    requests: Arc<ConnectRequests>,
    connection: Arc<PendingConnection>,
}

impl Incoming {
    /// Adds an accepted connection to the engine, and reads what has already arrived. If the engine cannot
    /// take it, for lack of memory or descriptors, the connection is closed.
    pub(super) fn start(
        requests: &Arc<ConnectRequests>,
        socket: Socket,
        peer: SocketAddr,
        admission: Admission,
    ) {
        let engine = &requests.engine;
        let (fd, token) = (socket.as_raw_fd(), engine.token());
        let state = Mutex::default();
        let connection = Arc::new(PendingConnection { engine: engine.clone(), token, peer, state });
        let incoming = Arc::new(Self { requests: requests.clone(), connection });
        let source: Arc<dyn Source> = incoming.clone();
        // Add it to the engine before it can be found: a listener that is closed by another thread, or a new
        // connection that needs room, takes the socket and closes it.
        if engine.add(token, fd, libc::EPOLLIN as u32, source.clone()).is_err() {
            return;
        }
        {
            let mut state = lock(&incoming.connection.state);
            let State { admission, .. } = state.insert(State {
                socket,
                admission,
                exchange: Responder::default(),
                requested: false,
                offer: None,
                timer: None,
            });
            admission.set_stalled(Arc::downgrade(&incoming) as _);
        }
        // The request of most initiators has already arrived; such a connection is never evicted to make
        // room.
        let received = incoming.receive();
        if !matches!(received, Ok(None)) {
            // A peer that opens several connections at once expects its requests to be reported in order. The
            // requests of earlier connections may have arrived after the last attempt to read them, so read
            // those first.
            for earlier in requests.take_awaiting() {
                if !earlier.is_requested() {
                    earlier.clone().ready(0);
                }
                if !earlier.is_requested() {
                    requests.await_request(&earlier);
                }
            }
        }
        incoming.proceed(received);
        if !incoming.is_requested() {
            requests.await_request(&incoming);
        }
        if let Some(state) = lock(&incoming.connection.state).as_mut().filter(|state| !state.requested) {
            state.timer = Some(engine.schedule(Duration::from_secs(REQUEST_TIMEOUT_S), &source));
        }
    }

    /// Reads from the socket. Returns the MPA Request and its private data once complete, and `Ok(None)`
    /// before that or if the socket has been taken. An error says why the connection must be closed.
    fn receive(&self) -> Result<Option<(Frame, Vec<u8>)>, String> {
        let mut state = lock(&self.connection.state);
        let Some(State { socket, exchange, .. }) = &mut *state else { return Ok(None) };
        let mut chunk = [0; MAX_FRAME_LEN];
        match sys::recv(socket, &mut chunk) {
            Ok(n) => exchange.received(&chunk[..n]),
            Err(libc::EAGAIN) => Ok(None),
            Err(e) => Err(std::io::Error::from_raw_os_error(e).to_string()),
        }
    }

    /// Acts on the result of [`Incoming::receive`].
    fn proceed(self: &Arc<Self>, received: Result<Option<(Frame, Vec<u8>)>, String>) {
        match received {
            Ok(None) => {}
            Ok(Some((frame, private_data))) => self.requested(frame, &private_data),
            Err(why) => {
                // The socket is closed after the message is logged, so a peer that sees the end can expect
                // the message.
                if let Some(_closed) = self.connection.take_stalled() {
                    self.requests.log_limited(format_args!("incoming connection closed: {why}"));
                }
            }
        }
    }

    /// The MPA Request is complete: queues the connect request event, or rejects the request if it requires
    /// markers.
    fn requested(self: &Arc<Self>, frame: Frame, private_data: &[u8]) {
        if frame.markers {
            self.requests.log_limited(format_args!(
                "connect request rejected: the peer requires MPA markers, which are not supported"
            ));
            return self.reject(&frame);
        }
        if instrument::rejects_request(self.connection.peer.ip()) {
            return self.reject(&frame);
        }
        {
            let mut guard = lock(&self.connection.state);
            let Some(state) = &mut *guard else { return };
            state.requested = true;
            state.offer = self.requests.offer(&state.socket);
            state.timer = None;
            state.admission.set_complete();
            // Change the events before the program can take the socket. This fails only when the kernel is
            // out of memory; then the end of the connection is found when the program replies.
            let _ = self.connection.engine.watch(self.connection.token, state.socket.as_raw_fd(), END);
        }
        self.requests.raise(Unfetched::new(self.connection.clone(), frame), private_data);
    }

    /// Rejects the request. The program gets no event.
    #[cold]
    fn reject(&self, frame: &Frame) {
        if let Some(state) = self.connection.take_stalled() {
            send_reply(&state.socket, &negotiate::rejection(frame), &[]);
        }
    }

    fn is_requested(&self) -> bool {
        lock(&self.connection.state).as_ref().is_none_or(|state| state.requested)
    }
}

/// What the incoming connections of a listener share: the identifier, the offers of shared memory, and the
/// log.
pub(super) struct ConnectRequests {
    id: Weak<Id>,
    engine: Arc<Engine>,
    /// `None` when closed, or if connections from this host use TCP.
    offers: Mutex<Option<Arc<Offers>>>,
    limited_log: Arc<LimitedLog>,
    /// The most recently accepted connections whose MPA Request is not complete, oldest first.
    youngest: Mutex<VecDeque<Weak<Incoming>>>,
}

impl ConnectRequests {
    pub(super) fn new(id: &Arc<Id>, engine: Arc<Engine>, offers: Option<Arc<Offers>>) -> Self {
        Self {
            id: Arc::downgrade(id),
            engine,
            offers: Mutex::new(offers),
            limited_log: Arc::default(),
            youngest: Mutex::default(),
        }
    }

    /// Stops taking offers of shared memory; the name of the Unix socket is free afterwards.
    pub(super) fn close_offers(&self) {
        let offers = lock(&self.offers).take();
        drop(offers);
    }

    /// The shared memory offered for a connection whose MPA Request is complete.
    fn offer(&self, socket: &Socket) -> Option<Offer> {
        let offers = lock(&self.offers).clone();
        offers.and_then(|offers| offers.take(socket))
    }

    /// Logs a condition that a peer has caused, with a rate limit.
    pub(super) fn log_limited(&self, what: Arguments<'_>) {
        self.limited_log.warn(&self.engine, what);
    }

    /// Records a connection whose MPA Request is not complete, so that a later connection can check it first.
    /// Only the last [`YOUNGEST`] are kept.
    fn await_request(&self, incoming: &Arc<Incoming>) {
        let mut youngest = lock(&self.youngest);
        if youngest.len() == YOUNGEST {
            youngest.pop_front();
        }
        youngest.push_back(Arc::downgrade(incoming));
    }

    /// Takes the recorded connections, oldest first.
    fn take_awaiting(&self) -> Vec<Arc<Incoming>> {
        lock(&self.youngest).drain(..).filter_map(|incoming| incoming.upgrade()).collect()
    }

    /// Queues a connect request event. If the event queue cannot grow, the connection is closed.
    fn raise(&self, request: Unfetched, private_data: &[u8]) {
        let Some(id) = self.id.upgrade() else { return };
        // The number of connect requests is up to the peers, so the queue must be able to grow without
        // aborting.
        if id.state().channel.as_ref().is_some_and(|channel| !channel.make_room()) {
            self.log_limited(format_args!("incoming connection closed: out of memory"));
            return;
        }
        let depth = |d: u16| u8::try_from(d).unwrap_or(u8::MAX);
        let mut event = Event::new(0, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        event.private_data = private_data.to_vec();
        if let Some(enhanced) = request.frame().enhanced {
            event.responder_resources = depth(enhanced.ord);
            event.initiator_depth = depth(enhanced.ird);
        }
        event.request = Some(Box::new(request));
        id.notify(event);
    }

    /// Withdraws a connect request whose peer has disconnected. If it is the only event of the channel, the
    /// program can still fetch it; the reply then fails.
    fn withdraw(&self, connection: &Arc<PendingConnection>) {
        if let Some(id) = self.id.upgrade() {
            id.withdraw_request(connection.key());
        }
    }
}

impl Pending for Incoming {
    fn evict(&self) -> bool {
        self.connection.take_stalled().is_some()
    }
}

impl Source for Incoming {
    fn ready(self: Arc<Self>, events: u32) {
        if self.is_requested() {
            // Only the end of the connection matters now. The engine may still report readable bytes that
            // were read on behalf of a later connection.
            if events & (END | (libc::EPOLLHUP | libc::EPOLLERR) as u32) != 0
                && self.connection.take().is_some()
            {
                self.requests.withdraw(&self.connection);
            }
            return;
        }
        let received = self.receive();
        self.proceed(received);
    }

    fn timeout(self: Arc<Self>) {
        if let Some(_closed) = self.connection.take_stalled() {
            self.requests.log_limited(format_args!(
                "incoming connection closed: no MPA Request within {REQUEST_TIMEOUT_S} s"
            ));
        }
    }
}
