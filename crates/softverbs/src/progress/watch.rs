// SPDX-License-Identifier: BSD-3-Clause
//! The sockets behind one completion queue, and who has promised to look at them.
//!
//! The sockets are in one epoll of their own, edge-triggered and for good; only a connection whose socket is full changes what it is watched
//! for. That epoll as a whole is watched by the engine, or not:
//!
//! - *armed*: the kernel wakes the engine when a socket has something;
//! - *quiet*: somebody else looks. A thread that sleeps for completions waits for the epoll itself and is woken in the engine's place.
//!   Or the program polls, and each poll moves the bytes: then an engine that woke up for every segment would only be in the way. It looks
//!   with each tick instead, and arms when the polls no longer move anything, or have left something unmoved.
//!
//! Only polls that moved bytes make a queue quiet, several in a row, and more of them after each time that this was wrong: a program that
//! polls for its own completion and then waits for its memory to change needs the engine, and gets a tick late at most once in a while.
//! Who has promised to look is kept in [`super::attention`].

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::attention::{Attention, Orders, Tick};
use super::engine::{Engine, Source};
use super::{By, Driven};
use crate::conn::reason;
use crate::lock;
use crate::sys::{Epoll, Errno};

const EDGES: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const END: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const READ: u32 = libc::EPOLLIN as u32 | END;
const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// Events taken in one call.
const EVENTS: usize = 32;

pub(crate) struct Watch {
    set: Epoll,
    engine: Arc<Engine>,
    token: u64,
    connections: Mutex<HashMap<u64, Arc<dyn Driven>>>,
    next_token: AtomicU64,
    attention: Attention,
    /// Connections whose sockets are full.
    full: AtomicU32,
    /// Polls of the program since the engine last looked.
    polls: AtomicU32,
}

impl Watch {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Arc<Self>, Errno> {
        let watch = Arc::new(Self {
            set: Epoll::new()?,
            token: engine.token(),
            engine,
            connections: Mutex::default(),
            next_token: AtomicU64::new(0),
            attention: Attention::new(),
            full: AtomicU32::new(0),
            polls: AtomicU32::new(0),
        });
        watch.engine.add(watch.token, watch.set.fd(), libc::EPOLLIN as u32, watch.clone())?;
        Ok(watch)
    }

    /// Adds a connection's socket. The engine is told by what the socket has, now and later. Gives the token to remove it by.
    pub(crate) fn add(&self, socket: &OwnedFd, connection: Arc<dyn Driven>) -> Result<u64, Errno> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        // The lock is kept until the kernel knows the socket: whoever is told of an event, and may close it, comes after that.
        let mut connections = lock(&self.connections);
        connections.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        self.set.add(socket.as_raw_fd(), EDGES, token)?;
        connections.insert(token, connection);
        Ok(token)
    }

    /// Reports also when the socket takes bytes again, or no more. It is not asked for all the time: a socket that could be written to would
    /// make every look at the set find something.
    pub(crate) fn await_room(&self, socket: &OwnedFd, token: u64, wanted: bool) {
        if wanted {
            self.full.fetch_add(1, Ordering::Relaxed);
        } else {
            self.full.fetch_sub(1, Ordering::Relaxed);
        }
        let events = if wanted { EDGES | libc::EPOLLOUT as u32 } else { EDGES };
        // It is in the set, and the kernel needs no memory to change it.
        let _ = self.set.modify(socket.as_raw_fd(), events, token);
    }

    /// Whether a socket is full. The kernel says when it has room for a good part of what it can hold. Whoever polls asks it, and does not
    /// push on: the socket would take a few bytes each time.
    pub(crate) fn awaits_room(&self) -> bool {
        self.full.load(Ordering::Relaxed) > 0
    }

    /// Whether the engine has something to do, be it for others.
    pub(crate) fn engine_has_work(&self) -> bool {
        self.engine.has_work()
    }

    /// Takes a socket out, which may then be closed; `full`: it [awaits room](Watch::await_room).
    pub(crate) fn remove(&self, socket: &OwnedFd, token: u64, full: bool) {
        if full {
            self.full.fetch_sub(1, Ordering::Relaxed);
        }
        self.set.remove(socket.as_raw_fd());
        let connection = lock(&self.connections).remove(&token);
        drop(connection);
    }

    /// Takes the whole set from the engine: the completion queue is destroyed.
    pub(crate) fn close(&self) {
        self.engine.remove(self.token, self.set.fd());
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.fd()
    }

    /// Drives the connections whose sockets have something. Says whether there were any.
    pub(crate) fn look(&self, by: By) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut found = false;
        // No more rounds than there are connections: others wait for the engine, too.
        for _ in 0..4 {
            let count = self.set.wait(&mut events, Some(std::time::Duration::ZERO));
            for event in &events[..count] {
                let (token, flags) = (event.u64, event.events);
                let connection = lock(&self.connections).get(&token).cloned();
                let Some(connection) = connection else { continue };
                found = true;
                let read = if flags & READ != 0 { reason::READABLE } else { 0 };
                let write = if flags & WRITE != 0 { reason::WRITABLE } else { 0 };
                let end = if flags & END != 0 { reason::HANGUP } else { 0 };
                connection.drive(read | write | end, by);
            }
            if count < EVENTS {
                break;
            }
        }
        found
    }

    // ---- who looks -----------------------------------------------------------------------------------------------------------------

    /// The kernel wakes the engine from now on, for what is there already, too.
    pub(crate) fn arm(self: &Arc<Self>) {
        self.attention.arm(self);
    }

    /// The program polls, and has not asked for an event. That a poll moves bytes is said by [`Watch::polled`].
    pub(crate) fn polls(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// A poll of the program has moved bytes.
    pub(crate) fn polled(self: &Arc<Self>) {
        self.attention.polled(self);
    }

    /// A thread is about to sleep on the set.
    pub(crate) fn sleep(self: &Arc<Self>) {
        self.attention.sleep(self);
    }

    /// The thread sleeps no more.
    pub(crate) fn wake(self: &Arc<Self>) {
        self.attention.wake(self);
    }

    /// The engine's look at a quiet set.
    pub(crate) fn tick(self: &Arc<Self>) -> Tick {
        self.attention.tick(self, || self.look(By::Engine))
    }
}

impl Orders for Arc<Watch> {
    fn wake_engine(&self, wanted: bool) -> bool {
        let events = if wanted { libc::EPOLLIN as u32 } else { 0 };
        // An epoll reports nothing but what it was asked for; a set that has something when it is armed is reported at once.
        self.engine.watch(self.token, self.set.fd(), events).is_ok()
    }

    fn tick(&self) {
        self.engine.tick(self.clone());
    }
}

impl Source for Watch {
    fn ready(self: Arc<Self>, _events: u32) {
        let polls = self.polls.swap(0, Ordering::Relaxed);
        if self.look(By::Engine) {
            if polls > 0 {
                // The program polls between any two messages, and would have done this itself if the engine had not been first.
                self.attention.would_poll(&self);
            } else {
                self.attention.waits_otherwise();
            }
        }
    }
}
