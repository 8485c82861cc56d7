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
//!
//! The lock `armed` is held while the kernel is told, so that what the word says and what the kernel does cannot part.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::engine::{Engine, Source};
use super::{By, Driven};
use crate::conn::reason;
use crate::limits::{MAX_TRUST, MIN_TRUST};
use crate::lock;
use crate::sys::{Epoll, Errno};

const EDGES: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const END: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const READ: u32 = libc::EPOLLIN as u32 | END;
const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// Events taken in one call.
const EVENTS: usize = 32;

/// What the engine does with a watch after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tick {
    /// It looks again with the next one.
    Again,
    /// The kernel, or a thread that sleeps, has taken over.
    Over,
}

pub(crate) struct Watch {
    set: Epoll,
    engine: Arc<Engine>,
    token: u64,
    connections: Mutex<HashMap<u64, Arc<dyn Driven>>>,
    next_token: AtomicU64,
    /// The engine is woken by the kernel.
    armed: Mutex<bool>,
    /// As `armed`, to be looked at without the lock.
    quiet: AtomicBool,
    /// On the engine's list of those to look at with each tick; changed under `armed`.
    ticking: AtomicBool,
    /// Threads that sleep on the set.
    sleepers: AtomicU32,
    /// The program has moved bytes since the last tick.
    fresh: AtomicBool,
    /// Polls in a row that moved bytes, and how many are needed to be believed.
    streak: AtomicU32,
    trust: AtomicU32,
}

impl Watch {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Arc<Self>, Errno> {
        let watch = Arc::new(Self {
            set: Epoll::new()?,
            token: engine.token(),
            engine,
            connections: Mutex::default(),
            next_token: AtomicU64::new(0),
            armed: Mutex::new(true),
            quiet: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            fresh: AtomicBool::new(false),
            streak: AtomicU32::new(0),
            trust: AtomicU32::new(MIN_TRUST),
        });
        watch.engine.add(watch.token, watch.set.fd(), libc::EPOLLIN as u32, watch.clone())?;
        Ok(watch)
    }

    /// Adds a connection's socket. The engine is told by what the socket has, now and later. Gives the token to remove it by.
    pub(crate) fn add(&self, socket: &OwnedFd, connection: Arc<dyn Driven>) -> Result<u64, Errno> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        lock(&self.connections).insert(token, connection);
        self.set.add(socket.as_raw_fd(), EDGES, token).inspect_err(|_| {
            lock(&self.connections).remove(&token);
        })?;
        Ok(token)
    }

    /// Reports also when the socket takes bytes again, or no more. It is not asked for all the time: a socket that could be written to would
    /// make every look at the set find something.
    pub(crate) fn await_room(&self, socket: &OwnedFd, token: u64, wanted: bool) {
        let events = if wanted { EDGES | libc::EPOLLOUT as u32 } else { EDGES };
        // It is in the set, and the kernel needs no memory to change it.
        let _ = self.set.modify(socket.as_raw_fd(), events, token);
    }

    /// Takes a socket out, which may then be closed.
    pub(crate) fn remove(&self, socket: &OwnedFd, token: u64) {
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

    fn set_armed(&self, armed: &mut bool, wanted: bool) {
        if *armed == wanted {
            return;
        }
        let events = if wanted { libc::EPOLLIN as u32 } else { 0 };
        // An epoll reports nothing but what it was asked for; a set that has something when it is armed is reported at once.
        if self.engine.watch(self.token, self.set.fd(), events).is_ok() {
            *armed = wanted;
            self.quiet.store(!wanted, Ordering::Release);
        }
    }

    /// The kernel wakes the engine from now on, for what is there already, too.
    pub(crate) fn arm(&self) {
        if self.quiet.load(Ordering::Acquire) && self.sleepers.load(Ordering::Acquire) == 0 {
            self.set_armed(&mut lock(&self.armed), true);
        }
    }

    /// A poll of the program has moved bytes.
    pub(crate) fn polled(self: &Arc<Self>) {
        self.fresh.store(true, Ordering::Relaxed);
        if self.quiet.load(Ordering::Relaxed) {
            return;
        }
        let streak = self.streak.fetch_add(1, Ordering::Relaxed) + 1;
        if streak >= self.trust.load(Ordering::Relaxed) {
            self.streak.store(0, Ordering::Relaxed);
            let mut armed = lock(&self.armed);
            self.set_armed(&mut armed, false);
            self.tick_on();
        }
    }

    /// Has the engine tick. Under `armed`.
    fn tick_on(self: &Arc<Self>) {
        if !self.ticking.swap(true, Ordering::AcqRel) {
            self.engine.tick(self.clone());
        }
    }

    /// A thread is about to sleep on the set: it is the one that the kernel wakes.
    pub(crate) fn sleep(&self) {
        let mut armed = lock(&self.armed);
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        self.set_armed(&mut armed, false);
    }

    /// The thread sleeps no more. It has probably come to poll, which the next tick will show; where there is none the kernel is asked.
    pub(crate) fn wake(&self) {
        let mut armed = lock(&self.armed);
        if self.sleepers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fresh.store(true, Ordering::Relaxed);
            if !self.ticking.load(Ordering::Acquire) {
                self.set_armed(&mut armed, true);
            }
        }
    }

    /// The engine's look at a quiet set.
    pub(crate) fn tick(self: &Arc<Self>) -> Tick {
        if self.fresh.swap(false, Ordering::Relaxed) {
            let trust = self.trust.load(Ordering::Relaxed);
            self.trust.store((trust / 2).max(MIN_TRUST), Ordering::Relaxed);
            return Tick::Again;
        }
        let mut armed = lock(&self.armed);
        self.ticking.store(false, Ordering::Release);
        if self.sleepers.load(Ordering::Acquire) > 0 {
            return Tick::Over;
        }
        self.set_armed(&mut armed, true);
        drop(armed);
        if self.look(By::Engine) {
            let trust = self.trust.load(Ordering::Relaxed);
            self.trust.store((trust * 2).min(MAX_TRUST), Ordering::Relaxed);
        }
        Tick::Over
    }
}

impl Source for Watch {
    fn ready(self: Arc<Self>, _events: u32) {
        self.look(By::Engine);
    }
}
