// SPDX-License-Identifier: BSD-3-Clause
//! An incoming connection until the program fetches its connect request: a [`Source`] of the engine that owns
//! the socket.
//!
//! First it waits for the rest of the MPA Request. Then it waits for the program, and for the end of the
//! connection: a peer that has gone gives its descriptor back at once.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::event::Event;
use super::exchange::Responder;
use super::id::Id;
use super::limited_log::LimitedLog;
use super::offers::{Offer, Offers};
use super::pending::{Pending, Place};
use super::request::{PendingConnection, State, Unfetched};
use super::{negotiate, send_reply};
use crate::faults::{self, Fault};
use crate::limits::{REQUEST_TIMEOUT_S, YOUNGEST};
use crate::lock;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys;
use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
use transport::iwarp::wire::mpa::{Frame, MAX_FRAME_LEN};

/// What reports the end of a connection whose request has not been fetched. Nothing else matters: a peer
/// sends nothing before the reply.
const END: u32 = libc::EPOLLRDHUP as u32;

pub(super) struct Incoming {
    requests: Arc<ConnectRequests>,
    connection: Arc<PendingConnection>,
}

impl Incoming {
    /// Watches a connection that has been accepted. What it has sent already is read by the first
    /// [`Source::ready`].
    pub(super) fn start(requests: &Arc<ConnectRequests>, socket: Socket, peer: SocketAddr, place: Place) {
        let engine = &requests.engine;
        let (fd, token) = (socket.as_raw_fd(), engine.token());
        let state = Mutex::default();
        let connection = Arc::new(PendingConnection { engine: engine.clone(), token, peer, state });
        let incoming = Arc::new(Self { requests: requests.clone(), connection });
        let source: Arc<dyn Source> = incoming.clone();
        // Before anybody can find it: a listener that is closed on another thread, or a connection that needs
        // the room, takes the socket away and closes it.
        if engine.add(token, fd, libc::EPOLLIN as u32, source.clone()).is_err() {
            return;
        }
        {
            let mut state = lock(&incoming.connection.state);
            let State { place, .. } = state.insert(State {
                socket,
                place,
                exchange: Responder::default(),
                requested: false,
                offer: None,
                timer: None,
            });
            place.stalls(Arc::downgrade(&incoming) as _);
        }
        // Most initiators have sent their request by now: they are never in danger of making room for others.
        let received = incoming.receive();
        if !matches!(received, Ok(None)) {
            // A peer that connects several times at once expects its requests to be told in order. Those
            // before this one may have arrived since they were looked for: what a peer sends first arrives
            // first.
            for earlier in requests.expected() {
                if !earlier.is_requested() {
                    earlier.clone().ready(0);
                }
                if !earlier.is_requested() {
                    requests.expect(&earlier);
                }
            }
        }
        incoming.proceed(received);
        if !incoming.is_requested() {
            requests.expect(&incoming);
        }
        if let Some(state) = lock(&incoming.connection.state).as_mut().filter(|state| !state.requested) {
            state.timer = Some(engine.schedule(Duration::from_secs(REQUEST_TIMEOUT_S), &source));
        }
    }

    /// Receives bytes. Returns the MPA Request and its private data when it is complete, `Ok(None)` before.
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

    /// Does what has come of [`Incoming::receive`].
    fn proceed(self: &Arc<Self>, received: Result<Option<(Frame, Vec<u8>)>, String>) {
        match received {
            Ok(None) => {}
            Ok(Some((frame, private_data))) => self.requested(frame, &private_data),
            Err(why) => {
                // Closed behind the message: a peer that sees the end can rely on it.
                if let Some(_closed) = self.connection.take_stalled() {
                    self.requests.log_limited(format_args!("incoming connection closed: {why}"));
                }
            }
        }
    }

    /// The MPA Request is complete: raises the event.
    fn requested(self: &Arc<Self>, frame: Frame, private_data: &[u8]) {
        if frame.markers {
            let Some(state) = self.connection.take_stalled() else { return };
            self.requests.log_limited(format_args!(
                "connect request rejected: the peer requires MPA markers, which are not supported"
            ));
            send_reply(&state.socket, &negotiate::rejection(&frame), &[]);
            return;
        }
        if let Some(fault) = faults::plan().and_then(|plan| plan.event(faults::Event::Accept)) {
            return self.reject_by(fault, &frame);
        }
        {
            let mut guard = lock(&self.connection.state);
            let Some(state) = &mut *guard else { return };
            state.requested = true;
            state.offer = self.requests.offer(&state.socket);
            state.timer = None;
            state.place.stalls_no_more();
            // Before the program can take the socket away. Fails only if there is no memory, and then nobody
            // learns of a peer that goes.
            let _ = self.connection.engine.watch(self.connection.token, state.socket.as_raw_fd(), END);
        }
        self.requests.raise(Unfetched::new(self.connection.clone(), frame), private_data);
    }

    /// Rejects the request by a fault; the program is not told.
    #[cold]
    fn reject_by(&self, fault: Fault<'_>, frame: &Frame) {
        let Some(state) = self.connection.take_stalled() else { return };
        fault.log(format_args!("connect request of {}", self.connection.peer.ip()));
        send_reply(&state.socket, &negotiate::rejection(frame), &[]);
    }

    fn is_requested(&self) -> bool {
        lock(&self.connection.state).as_ref().is_none_or(|state| state.requested)
    }
}

/// The connect requests of a listener: what its incoming connections share.
pub(super) struct ConnectRequests {
    id: Weak<Id>,
    engine: Arc<Engine>,
    /// `None` when closed, or where there are no offers.
    offers: Mutex<Option<Arc<Offers>>>,
    limited_log: Arc<LimitedLog>,
    /// The connections that were accepted last and have not sent their request yet, oldest first.
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

    /// No connection finds an offer any more.
    pub(super) fn close_offers(&self) {
        let offers = lock(&self.offers).take();
        drop(offers);
    }

    /// The shared memory that was offered for a connection, whose MPA Request is there.
    fn offer(&self, socket: &Socket) -> Option<Offer> {
        let offers = lock(&self.offers).clone();
        offers.and_then(|offers| offers.take(socket))
    }

    /// Logs what strangers have done, if it is not too much.
    pub(super) fn log_limited(&self, what: Arguments<'_>) {
        self.limited_log.warn(&self.engine, what);
    }

    /// Notes a connection whose request is still to come.
    fn expect(&self, incoming: &Arc<Incoming>) {
        let mut youngest = lock(&self.youngest);
        if youngest.len() == YOUNGEST {
            youngest.pop_front();
        }
        youngest.push_back(Arc::downgrade(incoming));
    }

    /// The noted connections, oldest first, which are not noted any more.
    fn expected(&self) -> Vec<Arc<Incoming>> {
        lock(&self.youngest).drain(..).filter_map(|incoming| incoming.upgrade()).collect()
    }

    /// Tells the program of a connect request.
    fn raise(&self, request: Unfetched, private_data: &[u8]) {
        let Some(id) = self.id.upgrade() else { return };
        // These are the only events of which there may be many.
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
        event.request = Some(request);
        id.notify(event);
    }

    /// The peer of a connect request that was not fetched has gone. If the program may have been told of this
    /// request alone, it can still fetch it, and learns when it answers.
    fn withdraw(&self, connection: &Arc<PendingConnection>) {
        if let Some(id) = self.id.upgrade() {
            id.withdraw_request(|request| request.is_of(connection));
        }
    }
}

impl Pending for Incoming {
    fn dismiss(&self) -> bool {
        self.connection.take_stalled().is_some()
    }
}

impl Source for Incoming {
    fn ready(self: Arc<Self>, events: u32) {
        if self.is_requested() {
            // Only its end is watched for. The engine may still have been told of bytes that were read for
            // the sake of another connection.
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
