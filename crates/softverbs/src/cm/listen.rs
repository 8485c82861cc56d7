// SPDX-License-Identifier: BSD-3-Clause
//! The passive side of connection establishment: a listening socket.
//!
//! Its connections are [`Incoming`](super::incoming) until the program fetches their connect requests,
//! limited in number and in time. One that sends anything else than an MPA Request is closed without a reply,
//! as RFC 5044 requires.
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::addr;
use super::id::{Id, Listening};
use super::incoming::{ConnectRequests, Incoming};
use super::offers::Offers;
use super::options::Options;
use super::pending::{Guests, Host, Limits, Waiting};
use crate::limits::BACKLOG;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{config, lock};

/// For how long at most a listener stops accepting, when it has no room or accept(2) has failed, for example
/// for want of descriptors.
const REST: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) struct Listener {
    /// `None` when closed.
    socket: Mutex<Option<Socket>>,
    engine: Arc<Engine>,
    token: u64,
    pending: Arc<Guests>,
    /// The engine does not watch the socket.
    rests: AtomicBool,
    requests: Arc<ConnectRequests>,
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
            token: engine.token(),
            requests: Arc::new(ConnectRequests::new(id, engine.clone(), offers)),
            engine,
            socket: Mutex::new(Some(socket)),
            pending: Guests::get(),
            rests: AtomicBool::new(false),
        });
        listener.engine.add(listener.token, fd, libc::EPOLLIN as u32, listener.clone())?;
        Ok(listener)
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
                self.requests.log_limited(format_args!("cannot accept a connection, will retry: {text}"));
                self.rest();
                return false;
            }
        }
        true
    }

    fn begin(self: &Arc<Self>, socket: Socket, limits: Limits) {
        if reserve::ready().is_err() {
            self.requests.log_limited(format_args!("incoming connection closed: out of memory"));
            return;
        }
        // Fails if the peer has gone.
        let Ok(peer) = addr::peer(&socket) else { return };
        let host = Host::of(peer.ip());
        let Some((place, dismissed)) = self.pending.admit(self.token, host, limits) else {
            self.requests.log_limited(format_args!(
                "the program has not fetched the connect requests of {}: refusing another one",
                peer.ip()
            ));
            return;
        };
        if dismissed > 0 {
            self.requests.log_limited(format_args!(
                "too many connections have not sent their MPA Request: the oldest one is closed"
            ));
        }
        Incoming::start(&self.requests, socket, peer, place);
        if self.is_closed() {
            // It may have come too late to be found there.
            self.pending.dismiss_all(self.token);
        }
    }
}

impl Listening for Listener {
    /// Stops listening; the port is free when this returns. Connections without a complete MPA Request are
    /// closed.
    fn close(&self) {
        // First: who listens on the port next has the same name.
        self.requests.close_offers();
        let socket = lock(&self.socket).take();
        if let Some(socket) = socket {
            self.engine.remove(self.token, socket.as_raw_fd());
        }
        self.pending.dismiss_all(self.token);
    }

    /// For the connections that it accepts from now on.
    fn apply_tos(&self, options: Options) {
        if let Some(socket) = &*lock(&self.socket) {
            options.apply_tos(socket);
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
