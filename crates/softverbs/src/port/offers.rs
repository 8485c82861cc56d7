// SPDX-License-Identifier: BSD-3-Clause
//! Offers of shared memory from queue pairs of other processes, and of this one ([`Offer`]).
//!
//! The Unix socket of the slot is in a directory that no other user can enter ([`rendezvous`]).
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::Port;
use super::offer::{Offer, Read, name_of_slot};
use crate::limits::{BACKLOG, MAX_OFFERS, REQUEST_TIMEOUT_S};
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::rendezvous::{self, Listening};
use crate::socket::Socket;
use crate::{NOTICE, config, lock, unix};

/// Takes offers for the queue pairs of the process.
pub(super) struct Offers {
    port: Weak<Port>,
    listening: Listening,
    /// How many accepted connections have not sent their offer yet.
    silent: Mutex<usize>,
    /// Accepts again after a failure.
    retry: Mutex<Option<Timer>>,
}

/// The time after which accept(2) is tried again.
const PAUSE: Duration = Duration::from_millis(100);

impl Offers {
    /// Listens from now on. Without shared memory, or if that fails, packets go over UDP; the reason is
    /// logged.
    pub(super) fn listen(port: &Arc<Port>) {
        if !config::get().local {
            return;
        }
        let namespace = unix::namespace(port.slot.socket());
        let listening = match rendezvous::listen(namespace, name_of_slot(port.slot()), BACKLOG) {
            Ok(listening) => listening,
            Err(e) => {
                let why = std::io::Error::from_raw_os_error(e);
                log::info!(target: NOTICE, "RoCE connections to processes of this host use UDP: {why}");
                return;
            }
        };
        let (engine, fd) = (port.engine.clone(), listening.socket().as_raw_fd());
        let (silent, retry) = (Mutex::new(0), Mutex::default());
        let offers = Self { port: Arc::downgrade(port), listening, silent, retry };
        // Edge-triggered: without descriptors a connection stays in the backlog. It listens as long as the
        // process runs. A failure is logged.
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        let _ = engine.add(engine.token(), fd, events, Arc::new(offers));
    }
}

impl Source for Offers {
    fn ready(self: Arc<Self>, _events: u32) {
        let Some(port) = self.port.upgrade() else { return };
        // As many as the backlog holds: for later ones it is ready again.
        for _ in 0..=BACKLOG {
            let socket = match self.listening.socket().accept() {
                Ok(socket) => socket,
                Err(libc::EAGAIN) => return,
                Err(_) => {
                    let source: Arc<dyn Source> = self.clone();
                    *lock(&self.retry) = Some(port.engine.schedule(PAUSE, &source));
                    return;
                }
            };
            if !unix::is_of_same_user(&socket) || !socket.is_affordable() {
                continue;
            }
            match Offer::read(socket) {
                Read::Invalid => {}
                Read::Offer(offer) => port.deliver_offer(offer),
                Read::NotYet(socket) => Silent::wait(&self, &port.engine, socket),
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        self.ready(0);
    }
}

/// A connection whose offer has not arrived.
struct Silent {
    offers: Arc<Offers>,
    engine: Arc<Engine>,
    token: u64,
    state: Mutex<Option<(Socket, Timer)>>,
}

impl Silent {
    fn wait(offers: &Arc<Offers>, engine: &Arc<Engine>, socket: Socket) {
        {
            let mut count = lock(&offers.silent);
            if *count >= MAX_OFFERS {
                return;
            }
            *count += 1;
        }
        let (fd, token) = (socket.as_raw_fd(), engine.token());
        let silent =
            Arc::new(Self { offers: offers.clone(), engine: engine.clone(), token, state: Mutex::default() });
        let source: Arc<dyn Source> = silent.clone();
        let timer = engine.schedule(Duration::from_secs(REQUEST_TIMEOUT_S), &source);
        *lock(&silent.state) = Some((socket, timer));
        let _ = engine.add(token, fd, libc::EPOLLIN as u32, source);
    }
}

impl Source for Silent {
    fn ready(self: Arc<Self>, _events: u32) {
        let Some((socket, timer)) = lock(&self.state).take() else { return };
        // Before the socket may be closed.
        self.engine.remove(self.token, socket.as_raw_fd());
        match Offer::read(socket) {
            Read::NotYet(socket) => {
                let fd = socket.as_raw_fd();
                *lock(&self.state) = Some((socket, timer));
                let _ = self.engine.add(self.token, fd, libc::EPOLLIN as u32, self.clone());
            }
            Read::Invalid => {}
            Read::Offer(offer) => {
                if let Some(port) = self.offers.port.upgrade() {
                    port.deliver_offer(offer);
                }
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        if let Some((socket, _)) = lock(&self.state).take() {
            self.engine.remove(self.token, socket.as_raw_fd());
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        *lock(&self.offers.silent) -= 1;
    }
}

impl Port {
    /// Passes an offer to its queue pair, if that is in RTR with the one that makes it; otherwise drops it.
    fn deliver_offer(&self, offer: Offer) {
        let ends = offer.ends;
        match self.table.receiver(ends.to.0, ends.from.1, ends.to.1) {
            Ok(found) if !found.needs_header => found.endpoint.offered(offer),
            _ => {}
        }
    }
}
