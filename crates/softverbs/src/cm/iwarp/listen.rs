// SPDX-License-Identifier: BSD-3-Clause
//! The listener: the listening socket of an identifier, on the passive side of connection establishment.
//!
//! It is a [`Source`] of the engine. Each accepted connection is an [`Incoming`] until the program fetches
//! its connect request; [`super::pending`] limits how many there are, and a timeout limits how long. A
//! connection that sends anything but an MPA Request is closed without a reply, as RFC 5044 requires. While
//! there is no room, the listener does not accept, and connections wait in the kernel's backlog.
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::incoming::{ConnectRequests, Incoming};
use super::offers::Offers;
use super::pending::{Admissions, Limits, Paused, RemoteHost};
use crate::cm::addr;
use crate::cm::id::{Id, Listening};
use crate::cm::options::Options;
use crate::limits::BACKLOG;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{config, lock};

/// How long a listener stops accepting at most after it has run out of room, or after accept(2) has failed,
/// for example because no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) struct Listener {
    /// `None` when closed.
    open: Mutex<Option<Open>>,
    engine: Arc<Engine>,
    token: u64,
    pending: Arc<Admissions>,
    requests: Arc<ConnectRequests>,
}

struct Open {
    socket: Socket,
    /// Accepting is paused: the engine does not watch the socket. Changed under the lock together with the
    /// events that are watched for.
    is_paused: bool,
}

impl Listener {
    /// Starts listening on a bound socket. EADDRINUSE and other errors of listen(2); EMFILE, ENOMEM: the
    /// engine cannot be started or cannot watch the socket.
    pub(crate) fn start(id: &Arc<Id>, socket: Socket, backlog: i32) -> Result<Arc<Self>, Errno> {
        let engine = Engine::get()?;
        // Accepted sockets inherit the options.
        super::socket::prepare(&socket);
        super::socket::limit_intervals(&socket);
        sys::listen(&socket, if backlog > 0 { backlog } else { BACKLOG })?;
        let fd = socket.as_raw_fd();
        // Before the first connection is accepted: its peer may have made an offer.
        let offers = config::get().local.then(|| Offers::listen(&socket)).flatten().map(Arc::new);
        let listener = Arc::new(Self {
            token: engine.token(),
            requests: Arc::new(ConnectRequests::new(id, engine.clone(), offers)),
            engine,
            open: Mutex::new(Some(Open { socket, is_paused: false })),
            pending: Admissions::get(),
        });
        listener.engine.add(listener.token, fd, libc::EPOLLIN as u32, listener.clone())?;
        Ok(listener)
    }

    fn is_closed(&self) -> bool {
        lock(&self.open).is_none()
    }

    fn set_paused(&self, is_paused: bool) {
        let mut open = lock(&self.open);
        if let Some(open) = open.as_mut().filter(|open| open.is_paused != is_paused) {
            open.is_paused = is_paused;
            let events = if is_paused { 0 } else { libc::EPOLLIN as u32 };
            // Cannot fail: the socket is registered, and the kernel needs no memory to change its events.
            let _ = self.engine.watch(self.token, open.socket.as_raw_fd(), events);
        }
    }

    /// Pauses accepting for [`PAUSE`] at most; connections wait in the kernel's backlog.
    fn pause(self: &Arc<Self>) {
        self.set_paused(true);
        let source: Arc<dyn Source> = self.clone();
        self.engine.schedule(PAUSE, &source).detach();
    }

    /// Accepts one connection. False if there is none, if there is no room, or if accept(2) failed.
    fn accept(self: &Arc<Self>, limits: Limits) -> bool {
        if !self.pending.has_room(self.token, self, limits) {
            self.pause();
            return false;
        }
        let accepted = match &*lock(&self.open) {
            Some(open) => open.socket.accept(),
            None => return false,
        };
        match accepted {
            Ok(socket) => self.begin(socket, limits),
            Err(libc::ECONNABORTED | libc::EINTR) => {}
            Err(libc::EAGAIN) => return false,
            Err(libc::EMFILE | libc::ENFILE) if self.pending.evict_one() => {}
            Err(e) => {
                let text = std::io::Error::from_raw_os_error(e);
                self.requests.log_limited(format_args!("cannot accept a connection, will retry: {text}"));
                self.pause();
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
        // Fails if the peer has already closed the connection.
        let Ok(peer) = addr::peer(&socket) else { return };
        let host = RemoteHost::of(peer.ip());
        let Some((admission, evicted)) = self.pending.admit(self.token, host, limits) else {
            self.requests.log_limited(format_args!(
                "incoming connection refused: the program has not fetched the earlier connect requests of {}",
                peer.ip()
            ));
            return;
        };
        if evicted > 0 {
            self.requests.log_limited(format_args!(
                "incoming connection closed: it is the oldest of too many without a complete MPA Request"
            ));
        }
        Incoming::start(&self.requests, socket, peer, admission);
        if self.is_closed() {
            // `close` may have run before the connection was registered as pending.
            self.pending.close_stalled(self.token);
        }
    }
}

impl Listening for Listener {
    /// Stops listening; the port is free when this returns. Connections without a complete MPA Request are
    /// closed. Others stay until their events are discarded.
    fn close(&self) {
        // First, because the next listener on the port uses the same name for its Unix socket.
        self.requests.close_offers();
        let open = lock(&self.open).take();
        if let Some(Open { socket, .. }) = open {
            self.engine.remove(self.token, socket.as_raw_fd());
        }
        self.pending.close_stalled(self.token);
    }

    /// Applies the type of service to connections accepted from now on.
    fn apply_tos(&self, options: Options) {
        if let Some(open) = &*lock(&self.open) {
            options.apply_tos(&open.socket);
        }
    }
}

impl Paused for Listener {
    fn resume(&self) {
        self.set_paused(false);
    }
}

impl Source for Listener {
    fn ready(self: Arc<Self>, _events: u32) {
        // Read once: the limits hardly change within one batch, and cost four system calls.
        let limits = Limits::now();
        // At most 16 at a time, because the engine also serves established connections.
        for _ in 0..16 {
            if !self.accept(limits) {
                return;
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        self.resume();
    }
}

#[cfg(test)]
mod tests;
