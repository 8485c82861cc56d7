// SPDX-License-Identifier: BSD-3-Clause
//! The passive side of connection establishment: a listening socket.
//!
//! Its connections are [`Incoming`](super::incoming) until the program fetches their connect requests,
//! limited in number and in time. One that sends anything else than an MPA Request is closed without a reply,
//! as RFC 5044 requires.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::addr;
use super::event::Event;
use super::id::Id;
use super::incoming::{Incoming, Unfetched};
use super::limited_log::LimitedLog;
use super::offers::{Offer, Offers};
use super::options::Options;
use super::pending::{Guests, Host, Limits, Waiting};
use crate::limits::{BACKLOG, YOUNGEST};
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{config, lock};
use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;

/// For how long at most a listener stops accepting, when it has no room or accept(2) has failed, for example
/// for want of descriptors.
const REST: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) struct Listener {
    id: Weak<Id>,
    /// `None` when closed.
    socket: Mutex<Option<Socket>>,
    /// `None` when closed, or where there are no offers.
    offers: Mutex<Option<Arc<Offers>>>,
    pub(super) engine: Arc<Engine>,
    token: u64,
    pending: Arc<Guests>,
    limited_log: Arc<LimitedLog>,
    /// The engine does not watch the socket.
    rests: AtomicBool,
    /// The connections that were accepted last and have not sent their request yet, oldest first.
    youngest: Mutex<VecDeque<Weak<Incoming>>>,
}

impl Listener {
    /// Listens on a bound socket. EADDRINUSE and other errors of listen(2).
    pub(crate) fn start(id: &Arc<Id>, socket: Socket, backlog: i32) -> Result<Arc<Self>, Errno> {
        let engine = Engine::get()?;
        // What is accepted inherits its options.
        super::socket::prepare(&socket);
        super::socket::limit_intervals(&socket);
        sys::listen(&socket, if backlog > 0 { backlog } else { BACKLOG })?;
        let fd = socket.as_raw_fd();
        // Before anybody's request is looked at.
        let offers = config::get().local.then(|| Offers::listen(&socket)).flatten().map(Arc::new);
        let listener = Arc::new(Self {
            id: Arc::downgrade(id),
            token: engine.token(),
            engine,
            socket: Mutex::new(Some(socket)),
            offers: Mutex::new(offers),
            pending: Guests::get(),
            limited_log: Arc::default(),
            rests: AtomicBool::new(false),
            youngest: Mutex::default(),
        });
        listener.engine.add(listener.token, fd, libc::EPOLLIN as u32, listener.clone())?;
        Ok(listener)
    }

    /// Stops listening; the port is free when this returns. Connections without a complete MPA Request are
    /// closed.
    pub(crate) fn close(&self) {
        // First: who listens on the port next has the same name.
        let offers = lock(&self.offers).take();
        drop(offers);
        let socket = lock(&self.socket).take();
        if let Some(socket) = socket {
            self.engine.remove(self.token, socket.as_raw_fd());
        }
        self.pending.dismiss_all(self.token);
    }

    /// The shared memory that was offered for a connection, whose MPA Request is there.
    pub(super) fn offer(&self, socket: &Socket) -> Option<Offer> {
        let offers = lock(&self.offers).clone();
        offers.and_then(|offers| offers.take(socket))
    }

    /// For the connections that it accepts from now on.
    pub(crate) fn apply_tos(&self, options: Options) {
        if let Some(socket) = &*lock(&self.socket) {
            options.apply_tos(socket);
        }
    }

    fn is_closed(&self) -> bool {
        lock(&self.socket).is_none()
    }

    fn watch(&self, events: u32) {
        if let Some(socket) = &*lock(&self.socket) {
            // The socket is registered, and the kernel needs no memory to change that.
            let _ = self.engine.watch(self.token, socket.as_raw_fd(), events);
        }
    }

    /// Leaves connections in the queue of the kernel for a while.
    fn rest(self: &Arc<Self>) {
        self.rests.store(true, Ordering::Release);
        self.watch(0);
        let source: Arc<dyn Source> = self.clone();
        self.engine.schedule(REST, &source).detach();
    }

    /// Logs what strangers have done, if it is not too much.
    pub(super) fn log_limited(&self, what: Arguments<'_>) {
        self.limited_log.warn(&self.engine, what);
    }

    /// Notes a connection whose request is still to come.
    pub(super) fn expect(&self, incoming: &Arc<Incoming>) {
        let mut youngest = lock(&self.youngest);
        if youngest.len() == YOUNGEST {
            youngest.pop_front();
        }
        youngest.push_back(Arc::downgrade(incoming));
    }

    /// The noted connections, oldest first, which are not noted any more.
    pub(super) fn expected(&self) -> Vec<Arc<Incoming>> {
        lock(&self.youngest).drain(..).filter_map(|incoming| incoming.upgrade()).collect()
    }

    /// Accepts a connection; false if there is none, or no room for one.
    fn accept(self: &Arc<Self>, limits: Limits) -> bool {
        if !self.pending.has_room(self.token, self, limits) {
            self.rest();
            return false;
        }
        let accepted = match &*lock(&self.socket) {
            Some(socket) => socket.accept(),
            None => return false,
        };
        match accepted {
            Ok(socket) => self.begin(socket, limits),
            Err(libc::ECONNABORTED | libc::EINTR) => {}
            Err(libc::EAGAIN) => return false,
            Err(libc::EMFILE | libc::ENFILE) if self.pending.dismiss_one() => {}
            Err(e) => {
                let text = std::io::Error::from_raw_os_error(e);
                self.log_limited(format_args!("cannot accept a connection, will retry: {text}"));
                self.rest();
                return false;
            }
        }
        true
    }

    fn begin(self: &Arc<Self>, socket: Socket, limits: Limits) {
        if reserve::ready().is_err() {
            self.log_limited(format_args!("incoming connection closed: out of memory"));
            return;
        }
        // Fails if the peer has gone.
        let Ok(peer) = addr::peer(&socket) else { return };
        let host = Host::of(peer.ip());
        let Some((place, dismissed)) = self.pending.admit(self.token, host, limits) else {
            self.log_limited(format_args!(
                "the program has not fetched the connect requests of {}: refusing another one",
                peer.ip()
            ));
            return;
        };
        if dismissed > 0 {
            self.log_limited(format_args!(
                "too many connections have not sent their MPA Request: the oldest one is closed"
            ));
        }
        Incoming::start(self, socket, peer, place);
        if self.is_closed() {
            // It may have come too late to be found there.
            self.pending.dismiss_all(self.token);
        }
    }

    /// Tells the program of a connect request.
    pub(super) fn request(&self, request: Unfetched, private_data: &[u8]) {
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
    pub(super) fn withdraw(&self, incoming: &Arc<Incoming>) {
        if let Some(id) = self.id.upgrade() {
            id.withdraw_request(|request| request.is_of(incoming));
        }
    }
}

impl Waiting for Listener {
    fn go_on(&self) {
        if self.rests.swap(false, Ordering::AcqRel) {
            self.watch(libc::EPOLLIN as u32);
        }
    }
}

impl Source for Listener {
    fn ready(self: Arc<Self>, _events: u32) {
        // They hardly change while so few are accepted, and cost four system calls.
        let limits = Limits::now();
        // A limited number, because established connections need the engine as well.
        for _ in 0..16 {
            if !self.accept(limits) {
                return;
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        self.go_on();
    }
}
