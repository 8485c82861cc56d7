// SPDX-License-Identifier: BSD-3-Clause
//! An incoming connection until the program fetches its connect request: a [`Source`] of the engine that owns
//! the socket.
//!
//! First it waits for the rest of the MPA Request. Then it waits for the program, and for the end of the
//! connection: a peer that has gone gives its descriptor back at once.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::exchange::Responder;
use super::listen::Listener;
use super::offers::Offer;
use super::pending::{Pending, Place};
use super::{addr, negotiate, send_reply};
use crate::faults::{self, Event, Fault};
use crate::limits::REQUEST_TIMEOUT_S;
use crate::lock;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::socket::Socket;
use crate::sys;
use transport::iwarp::wire::mpa::{Frame, MAX_FRAME_LEN};

/// What reports the end of a connection whose request has not been fetched. Nothing else matters: a peer
/// sends nothing before the reply.
const END: u32 = libc::EPOLLRDHUP as u32;

struct State {
    socket: Socket,
    /// The connection is counted until the program has fetched the request.
    place: Place,
    exchange: Responder,
    /// The MPA Request is complete; the program has been told.
    requested: bool,
    /// Memory that the peer offers to share.
    offer: Option<Offer>,
    /// The end of the time that there is for the request.
    timer: Option<Timer>,
}

pub(super) struct Incoming {
    listener: Arc<Listener>,
    token: u64,
    peer: SocketAddr,
    state: Mutex<Option<State>>,
}

/// A connect request that the program has not fetched. Dropping it closes the connection.
pub(crate) struct Unfetched {
    incoming: Arc<Incoming>,
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

impl Request {
    /// Sends the reply that rejects the request, if its peer is still there.
    pub(crate) fn reject(&self, private_data: &[u8]) {
        if let Some(socket) = &self.socket {
            send_reply(socket, &negotiate::rejection(&self.frame), private_data);
        }
    }
}

impl Unfetched {
    pub(super) fn is_of(&self, incoming: &Arc<Incoming>) -> bool {
        Arc::ptr_eq(&self.incoming, incoming)
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The program fetches the request.
    pub(crate) fn fetch(self) -> Request {
        let (socket, offer) = self.incoming.take().map(|state| (state.socket, state.offer)).unzip();
        let local = socket.as_ref().and_then(|socket| addr::local(socket).ok());
        Request { socket, offer: offer.flatten(), frame: self.frame, local, peer: self.incoming.peer }
    }
}

impl Drop for Unfetched {
    fn drop(&mut self) {
        self.incoming.take();
    }
}

impl Incoming {
    /// Watches a connection that has been accepted. What it has sent already is read by the first
    /// [`Source::ready`].
    pub(super) fn start(listener: &Arc<Listener>, socket: Socket, peer: SocketAddr, place: Place) {
        let engine = &listener.engine;
        let (fd, token) = (socket.as_raw_fd(), engine.token());
        let incoming = Arc::new(Self { listener: listener.clone(), token, peer, state: Mutex::default() });
        let source: Arc<dyn Source> = incoming.clone();
        // Before anybody can find it: a listener that is closed on another thread, or a connection that needs
        // the room, takes the socket away and closes it.
        if engine.add(token, fd, libc::EPOLLIN as u32, source.clone()).is_err() {
            return;
        }
        {
            let mut state = lock(&incoming.state);
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
            for earlier in listener.expected() {
                if !earlier.is_requested() {
                    earlier.clone().ready(0);
                }
                if !earlier.is_requested() {
                    listener.expect(&earlier);
                }
            }
        }
        incoming.proceed(received);
        if !incoming.is_requested() {
            listener.expect(&incoming);
        }
        if let Some(state) = lock(&incoming.state).as_mut().filter(|state| !state.requested) {
            state.timer = Some(engine.schedule(Duration::from_secs(REQUEST_TIMEOUT_S), &source));
        }
    }

    /// Takes the socket, and removes it from the engine.
    fn take(&self) -> Option<State> {
        let state = lock(&self.state).take()?;
        self.listener.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }

    /// As [`Incoming::take`], unless the program has been told of it.
    fn take_stalled(&self) -> Option<State> {
        let state = lock(&self.state).take_if(|state| !state.requested)?;
        self.listener.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }

    /// Receives bytes. Returns the MPA Request and its private data when it is complete, `Ok(None)` before.
    fn receive(&self) -> Result<Option<(Frame, Vec<u8>)>, String> {
        let mut state = lock(&self.state);
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
                if let Some(_closed) = self.take_stalled() {
                    self.listener.log_limited(format_args!("incoming connection closed: {why}"));
                }
            }
        }
    }

    /// The MPA Request is complete: raises the event.
    fn requested(self: &Arc<Self>, frame: Frame, private_data: &[u8]) {
        if frame.markers {
            let Some(state) = self.take_stalled() else { return };
            self.listener.log_limited(format_args!(
                "connect request rejected: the peer requires MPA markers, which are not supported"
            ));
            send_reply(&state.socket, &negotiate::rejection(&frame), &[]);
            return;
        }
        if let Some(fault) = faults::plan().and_then(|plan| plan.event(Event::Accept)) {
            return self.reject_by(fault, &frame);
        }
        {
            let mut guard = lock(&self.state);
            let Some(state) = &mut *guard else { return };
            state.requested = true;
            state.offer = self.listener.offer(&state.socket);
            state.timer = None;
            state.place.stalls_no_more();
            // Before the program can take the socket away. Fails only if there is no memory, and then nobody
            // learns of a peer that goes.
            let _ = self.listener.engine.watch(self.token, state.socket.as_raw_fd(), END);
        }
        self.listener.request(Unfetched { incoming: self.clone(), frame }, private_data);
    }

    /// Rejects the request by a fault; the program is not told.
    #[cold]
    fn reject_by(&self, fault: Fault<'_>, frame: &Frame) {
        let Some(state) = self.take_stalled() else { return };
        fault.log(format_args!("connect request of {}", self.peer.ip()));
        send_reply(&state.socket, &negotiate::rejection(frame), &[]);
    }

    fn is_requested(&self) -> bool {
        lock(&self.state).as_ref().is_none_or(|state| state.requested)
    }
}

impl Pending for Incoming {
    fn dismiss(&self) -> bool {
        self.take_stalled().is_some()
    }
}

impl Source for Incoming {
    fn ready(self: Arc<Self>, events: u32) {
        if self.is_requested() {
            // Only its end is watched for. The engine may still have been told of bytes that were read for
            // the sake of another connection.
            if events & (END | (libc::EPOLLHUP | libc::EPOLLERR) as u32) != 0 && self.take().is_some() {
                self.listener.withdraw(&self);
            }
            return;
        }
        let received = self.receive();
        self.proceed(received);
    }

    fn timeout(self: Arc<Self>) {
        if let Some(_closed) = self.take_stalled() {
            self.listener.log_limited(format_args!(
                "incoming connection closed: no MPA Request within {REQUEST_TIMEOUT_S} s"
            ));
        }
    }
}
