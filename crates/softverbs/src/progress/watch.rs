// SPDX-License-Identifier: BSD-3-Clause
//! The sockets of one completion queue, and which thread checks them.
//!
//! The sockets are in a separate epoll set, edge-triggered, until they close; only a connection whose socket
//! is full changes its events. The engine watches this epoll set as a whole, or not:
//!
//! - *armed*: the kernel wakes the engine when a socket is ready;
//! - *quiet*: another thread checks it. A thread that sleeps for completions waits for the epoll set directly
//!   and is woken instead of the engine. Or the program polls, and each poll moves bytes: then an engine that
//!   woke up for every segment would only compete with it. The engine checks at each tick instead, and arms
//!   when polls stop moving bytes or leave some unmoved.
//!
//! Only consecutive polls that moved bytes make a set quiet, and each misprediction raises their number: a
//! program that polls for its completion and then waits for its memory to change needs the engine, and may
//! occasionally wait for a tick. [`super::attention`] has the state.
//!
//! A peer on the same host may send through shared memory ([`PeerNotify`]). The kernel reports no event for
//! that, so the peer sends a notification over a socket in the set, but only on request. While the program
//! polls there is no request, and every check of the set includes the shared memory.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::attention::{Attention, Orders, Tick};
use super::engine::Engine;
use super::source::{Source, Ticking};
use super::{By, Driven};
use crate::sys::{Epoll, Errno};
use crate::{config, fork, lock};
use transport::access::Access;
use transport::step::reason;

const EDGES: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
const END: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const READ: u32 = libc::EPOLLIN as u32 | END;
const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// Events taken in one call.
const EVENTS: usize = 32;
/// The bit that marks the token of a notify socket.
const NOTIFY: u64 = 1 << 63;
/// The possible reasons for a notification.
const NOTIFIED: u32 = reason::READABLE | reason::WRITABLE;

/// Shared memory through which a peer on this host sends and receives.
pub(crate) trait PeerNotify: Send + Sync {
    /// Requests a notification of the peer when it puts bytes there, makes room for which this end waits, or
    /// revokes a key.
    /// If the peer misses the request, [`PeerNotify::has_news`] is true afterwards.
    fn request_notify(&self);
    /// Whether there are bytes to take, room for which this end waits, or changes of the peer's keys.
    fn has_news(&self) -> bool;
    /// Whether there is nothing to do: no news, and this is not a child after fork(2), which must end the
    /// connection.
    fn is_idle(&self) -> bool;
    /// Whether the connection does not use it any more.
    fn is_closed(&self) -> bool;
    /// Called when a notification has arrived: makes room for the next one.
    fn silence(&self);
    /// Called before a request with this access is posted, by the posting thread and outside the turn: waits
    /// briefly until the peer has acted on everything sent before, if the request can then be a direct copy.
    fn await_settled(&self, remote: Access);
}

/// A connection that shares memory with its peer.
struct LocalConnection {
    memory: Arc<dyn PeerNotify>,
    connection: Arc<dyn Driven>,
}

/// A connection with news but without a notification, to be driven by the engine.
struct News(Arc<dyn Driven>);

impl Source for News {
    fn ready(self: Arc<Self>, _events: u32) {
        self.0.drive(NOTIFIED, By::Engine);
    }
}

pub(crate) struct Watch {
    /// [`fork::generation`] of its process. A child leaves it alone: another thread of the parent may have
    /// held a lock at the moment of the fork.
    generation: u32,
    set: Epoll,
    engine: Arc<Engine>,
    token: u64,
    connections: Mutex<HashMap<u64, Arc<dyn Driven>>>,
    rings: Mutex<HashMap<u64, LocalConnection>>,
    /// The number of `rings`, readable without the lock.
    ring_count: AtomicUsize,
    next_token: AtomicU64,
    attention: Attention,
    /// Connections whose sockets are full.
    full: AtomicU32,
    /// The program has polled since the engine last checked.
    polls: AtomicBool,
}

impl Watch {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Arc<Self>, Errno> {
        let watch = Arc::new(Self {
            generation: fork::generation(),
            set: Epoll::new()?,
            token: engine.token(),
            engine,
            connections: Mutex::default(),
            rings: Mutex::default(),
            ring_count: AtomicUsize::new(0),
            next_token: AtomicU64::new(0),
            attention: Attention::new(config::get().policy),
            full: AtomicU32::new(0),
            polls: AtomicBool::new(false),
        });
        watch.engine.add(watch.token, watch.set.fd(), libc::EPOLLIN as u32, watch.clone())?;
        Ok(watch)
    }

    /// Adds a connection's socket, whose present and later bytes cause events. Returns the token for
    /// [`Watch::remove`].
    pub(crate) fn add(&self, socket: &OwnedFd, connection: Arc<dyn Driven>) -> Result<u64, Errno> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        // Hold the lock until the socket is in the epoll set: a thread that gets an event, and may close it,
        // waits for that.
        let mut connections = lock(&self.connections);
        connections.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        self.set.add(socket.as_raw_fd(), EDGES, token)?;
        connections.insert(token, connection);
        Ok(token)
    }

    /// Also reports when the socket becomes writable, or stops that. Not always on: a writable socket would
    /// cause an event at every check of the set.
    pub(crate) fn await_room(&self, socket: &OwnedFd, token: u64, wanted: bool) {
        if wanted {
            self.full.fetch_add(1, Ordering::Relaxed);
        } else {
            self.full.fetch_sub(1, Ordering::Relaxed);
        }
        let events = if wanted { EDGES | libc::EPOLLOUT as u32 } else { EDGES };
        // Cannot fail: the socket is in the set, and the change allocates no memory.
        let _ = self.set.modify(socket.as_raw_fd(), events, token);
    }

    /// Whether a socket is full. The kernel reports when a good part of its buffer is free. A polling thread
    /// reads this and does not send before, since the socket would accept only a few bytes each time.
    pub(crate) fn awaits_room(&self) -> bool {
        self.full.load(Ordering::Relaxed) > 0
    }

    /// Whether the engine has work, for this set or others.
    pub(crate) fn engine_has_work(&self) -> bool {
        self.engine.has_work()
    }

    /// Removes a socket, which may then be closed; `full`: it [awaits room](Watch::await_room).
    pub(crate) fn remove(&self, socket: &OwnedFd, token: u64, full: bool) {
        if self.is_left_behind() {
            return;
        }
        if full {
            self.full.fetch_sub(1, Ordering::Relaxed);
        }
        self.set.remove(socket.as_raw_fd());
        let connection = lock(&self.connections).remove(&token);
        drop(connection);
    }

    /// Adds a connection's shared memory and its notify socket. Returns the token for [`Watch::remove_ring`].
    pub(crate) fn add_ring(
        &self,
        notify: &OwnedFd,
        memory: Arc<dyn PeerNotify>,
        connection: Arc<dyn Driven>,
    ) -> Result<u64, Errno> {
        let token = NOTIFY | self.next_token.fetch_add(1, Ordering::Relaxed);
        // Hold the lock until the socket is in the epoll set, as in `add`.
        let mut rings = lock(&self.rings);
        rings.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        self.set.add(notify.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, token)?;
        rings.insert(token, LocalConnection { memory, connection });
        self.ring_count.store(rings.len(), Ordering::SeqCst);
        Ok(token)
    }

    /// Removes the shared memory and its notify socket, which may then be closed.
    pub(crate) fn remove_ring(&self, notify: &OwnedFd, token: u64) {
        if self.is_left_behind() {
            return;
        }
        self.set.remove(notify.as_raw_fd());
        let ring = {
            let mut rings = lock(&self.rings);
            let ring = rings.remove(&token);
            self.ring_count.store(rings.len(), Ordering::SeqCst);
            ring
        };
        drop(ring);
    }

    fn is_left_behind(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Whether a peer that shares memory must notify. Read after a check that found too few bytes.
    pub(crate) fn notify_requested(&self) -> bool {
        self.attention.notify_requested()
    }

    /// The connection of a notify socket that has a notification. Consumes the notification.
    fn notified(&self, token: u64) -> Option<Arc<dyn Driven>> {
        let (memory, connection) = {
            let rings = lock(&self.rings);
            let ring = rings.get(&token)?;
            (ring.memory.clone(), ring.connection.clone())
        };
        // Before the drive: bytes that are put there later cause another notification.
        memory.silence();
        Some(connection)
    }

    /// The connections whose shared memory has news.
    fn with_news(&self) -> Vec<Arc<dyn Driven>> {
        let rings = lock(&self.rings);
        rings.values().filter(|ring| ring.memory.has_news()).map(|ring| ring.connection.clone()).collect()
    }

    /// Drives connections with news but without a notification.
    fn look_at_rings(&self, by: By) -> bool {
        if self.ring_count.load(Ordering::SeqCst) == 0 || self.attention.notify_requested() {
            return false;
        }
        let connections = self.with_news();
        for connection in &connections {
            connection.drive(NOTIFIED, by);
        }
        !connections.is_empty()
    }

    /// Removes the whole set from the engine: the completion queue is being destroyed.
    pub(crate) fn close(&self) {
        self.engine.remove(self.token, self.set.fd());
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.fd()
    }

    /// Drives the connections whose sockets are ready. Returns whether there were any.
    pub(crate) fn look(&self, by: By) -> bool {
        if self.is_left_behind() {
            return false;
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut found = self.look_at_rings(by);
        // A bounded number of rounds: others wait for the engine, too.
        for _ in 0..4 {
            let count = self.set.wait(&mut events, Some(std::time::Duration::ZERO));
            for event in &events[..count] {
                let (token, flags) = (event.u64, event.events);
                if token & NOTIFY != 0 {
                    if let Some(connection) = self.notified(token) {
                        found = true;
                        connection.drive(NOTIFIED, by);
                    }
                    continue;
                }
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

    // ---- attention -----------------------------------------------------------------------------------------------------------------

    /// Arms: from now on the kernel wakes the engine, also for bytes that are there already.
    pub(crate) fn arm(self: &Arc<Self>) {
        self.attention.arm(self);
    }

    /// The program polls and has not requested an event. [`Watch::polled`] reports that a poll has moved
    /// bytes.
    pub(crate) fn polls(&self) {
        // Only the first poll writes: that costs less, and threads do not contend for the cache line.
        if !self.polls.load(Ordering::Relaxed) {
            self.polls.store(true, Ordering::Relaxed);
        }
    }

    /// A poll of the program has moved bytes.
    pub(crate) fn polled(self: &Arc<Self>) {
        self.attention.polled(self);
    }

    /// A thread is about to sleep on the set.
    pub(crate) fn sleep(self: &Arc<Self>) {
        self.attention.sleep(self);
    }

    /// The thread woke up.
    pub(crate) fn wake(self: &Arc<Self>) {
        self.attention.wake(self);
    }
}

impl Orders for Arc<Watch> {
    fn wake_engine(&self, wanted: bool) -> bool {
        let events = if wanted { libc::EPOLLIN as u32 } else { 0 };
        // Arming reports a set that is ready already; without events the set is not reported.
        match self.engine.watch(self.token, self.set.fd(), events) {
            Ok(()) => true,
            // The set was closed, so there is nothing to check.
            Err(e) => e == libc::ENOENT,
        }
    }

    fn tick(&self) {
        self.engine.tick(self.clone());
    }

    fn request_notifications(&self) {
        if self.ring_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        lock(&self.rings).values().for_each(|ring| ring.memory.request_notify());
        // Left to the engine, since the caller holds the lock of the attention and perhaps others.
        for connection in self.with_news() {
            self.engine.kick(Arc::new(News(connection)));
        }
    }
}

impl Ticking for Watch {
    /// The engine's check of a quiet set.
    fn tick(self: Arc<Self>) -> Tick {
        self.attention.tick(&self, || self.look(By::Engine))
    }
}

impl Source for Watch {
    fn ready(self: Arc<Self>, _events: u32) {
        let polls = self.polls.swap(false, Ordering::Relaxed);
        if self.look(By::Engine) {
            if polls {
                // The program polls between any two messages, and would have moved these bytes if the engine
                // had not been first.
                self.attention.would_poll(&self);
            } else {
                self.attention.waits_otherwise();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::policy::trust::{MIN_TRUST, TICK};

    #[test]
    fn the_engine_releases_a_quiet_set_that_was_closed() {
        let watch = Watch::new(Engine::get().unwrap()).unwrap();
        (0..MIN_TRUST).for_each(|_| watch.polled());
        watch.close();
        let left = Arc::downgrade(&watch);
        drop(watch);
        let began = Instant::now();
        while left.strong_count() > 0 {
            assert!(began.elapsed() < 10_000 * TICK, "it is still checked at each tick");
            std::thread::yield_now();
        }
    }

    /// As does a connection of the parent that ends in a child, which has no sockets.
    #[test]
    fn a_child_does_not_wait_for_locks_of_its_parent() {
        let watch = Watch::new(Engine::get().unwrap()).unwrap();
        let socket = crate::sys::event_flag().unwrap();
        let _held = (lock(&watch.connections), lock(&watch.rings));
        assert!(fork::tests::in_child(|| {
            watch.remove(&socket, 0, false);
            watch.remove_ring(&socket, NOTIFY);
            true
        }));
    }
}
