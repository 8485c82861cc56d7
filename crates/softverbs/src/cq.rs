// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues.
//!
//! No completion is lost: if the queue is full, the connection keeps the completion and delivers it after the
//! program has polled. A completion that is added to an armed queue generates an event. Arming the queue for
//! every completion also generates one if the queue holds completions that no event has announced, so that
//! neither a program that waits before it polls nor a second thread that waits for the same queue misses
//! them. No completion is announced twice.
//!
//! A poll that finds no completion drives the connections of the queue in the calling thread. The queue
//! has them only as [`Driven`], and the watches ([`Watch`]) that hold their sockets. A queue pair adds its
//! completions as a [`Producer`]. Polling one frees an entry of the send queue; which one's, the index of the
//! producer says.
//!
//! A poll of an empty queue takes one lock if its connections share memory with their peers: what else it
//! needs are words, and copies that it keeps ([`Seen`]).
//!
//! Locks: `connections` is held while a poll drives the connections, so it comes before the session of a
//! connection. `home` is above `ring` and the tables of the engine. Under `ring` only the channel is locked.
#![forbid(unsafe_code)]

mod completions;
mod producer;

use once_cell::race::OnceBox;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::channel::EventQueue;
use crate::limits::ENDINGS;
use crate::logged::Logged;
use crate::policy::Policy;
use crate::policy::yielding::Yielding;
use crate::port::Port;
use crate::progress::engine::Engine;
use crate::progress::seen::{Seen, Version};
use crate::progress::sleep::Watches;
use crate::progress::watch::Watch;
use crate::progress::{By, Driven, Outstanding, SeenMemory};
use crate::sys::Errno;
use crate::{clock, config, lock, probes};
pub(crate) use completions::PollObserver;
use completions::{Armed, Completions, Entry, Unlocked, Watched};
pub(crate) use producer::Producer;
use transport::step::reason;
use transport::wr::{Completion, status};

/// Up to this many connections an empty poll reads each socket. With more, one epoll_wait(2) finds those that
/// are ready. A fixed trade-off of system calls, no prediction: both find the same.
const POLL_DIRECTLY: usize = 4;

/// What [`Cq::take`] has found.
struct Taken {
    got: usize,
    /// The program polls: the queue was not armed.
    polls: bool,
}

/// A connection of a queue, and what polls have seen of its memory.
struct Attached {
    connection: Arc<dyn Driven>,
    /// After the end of the connection it stays mapped until the next empty poll that checks this connection
    /// by itself (at most [`POLL_DIRECTLY`] of them, no socket full), or until the queue pair is destroyed.
    memory: SeenMemory,
}

/// What an empty poll drives.
struct Connections {
    list: Vec<Attached>,
    /// As in [`Completions`].
    watches: Seen<Arc<Vec<Watched>>>,
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW.
pub(crate) type Time = u64;

/// A completion queue.
pub(crate) struct Cq {
    ring: Mutex<Completions>,
    /// The address of the C structure, which an event carries.
    handle: AtomicUsize,
    channel: Option<Arc<EventQueue<usize>>>,
    connections: Mutex<Connections>,
    /// The watch for the sockets of connections whose receive completion queue this is.
    home: Mutex<Option<Arc<Watch>>>,
    /// The port at which the packets of its RoCE connections arrive, once it has one.
    port: OnceBox<Arc<Port>>,
    yielding: Yielding,
    /// The number of completions in `ring`, readable without the lock; so is `armed`.
    count: AtomicUsize,
    armed: AtomicBool,
    /// The version of the watches in `ring`.
    watches_version: Version,
    /// The last poll left completions in the queue.
    has_more: AtomicBool,
    /// Requests of a connection were deferred.
    deferred: AtomicBool,
    /// The queue was full, and a connection keeps completions.
    waiting: AtomicBool,
    ignores_overruns: AtomicBool,
    /// See [`Self::logged`].
    logged: Logged,
    /// How connections of this queue have ended, the last ones.
    endings: Mutex<VecDeque<Ending>>,
}

/// How a connection has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// The number of its queue pair.
    num: u32,
    pub text: String,
    /// Neither side has disconnected.
    pub is_failure: bool,
    wr_id: Option<u64>,
}

/// Called with a text about a failed completion, in the thread that polls it.
static ON_FAILED: OnceBox<fn(&str)> = OnceBox::new();

/// Sets the function that is called for each poll that returns a failed completion, with a text about it, in
/// the thread that polls; only once.
pub fn on_failed_completion(report: fn(&str)) {
    let _ = ON_FAILED.set(Box::new(report));
}

impl Cq {
    /// ENOMEM.
    pub(crate) fn new(entries: u32, channel: Option<Arc<EventQueue<usize>>>) -> Result<Self, Errno> {
        Ok(Self {
            ring: Mutex::new(Completions::new(entries as usize)?),
            handle: AtomicUsize::new(0),
            channel,
            connections: Mutex::new(Connections { list: Vec::new(), watches: Seen::new(Arc::default()) }),
            home: Mutex::default(),
            port: OnceBox::new(),
            yielding: Yielding::new(config::get().policy),
            count: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            watches_version: Version::new(),
            has_more: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            ignores_overruns: AtomicBool::new(false),
            logged: Logged::new(),
            endings: Mutex::default(),
        })
    }

    /// Sets the address that events carry.
    pub(crate) fn set_handle(&self, handle: usize) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    pub(crate) fn handle(&self) -> usize {
        self.handle.load(Ordering::Relaxed)
    }

    /// The program ignores overruns (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
    pub(crate) fn ignore_overruns(&self) {
        self.ignores_overruns.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ignores_overruns(&self) -> bool {
        self.ignores_overruns.load(Ordering::Relaxed)
    }

    /// Records from now on when completions are added. ENOMEM.
    pub(crate) fn record_times(&self) -> Result<(), Errno> {
        lock(&self.ring).record_times()
    }

    /// The number of entries.
    pub(crate) fn entries(&self) -> usize {
        lock(&self.ring).capacity
    }

    /// The conditions that instruments have logged for this queue.
    pub(crate) fn logged(&self) -> &Logged {
        &self.logged
    }

    /// A connection of this queue pair ends; because of the request with this `wr_id`, if there is one.
    pub(crate) fn note_ending(&self, num: u32, text: &str, is_failure: bool, wr_id: Option<u64>) {
        let mut endings = lock(&self.endings);
        endings.retain(|ending| ending.num != num);
        if endings.len() == ENDINGS {
            endings.pop_front();
        }
        endings.push_back(Ending { num, text: text.to_owned(), is_failure, wr_id });
    }

    /// How the connection of this queue pair has ended, if it is one of the last that have.
    pub(crate) fn ending(&self, num: u32) -> Option<Ending> {
        lock(&self.endings).iter().find(|ending| ending.num == num).cloned()
    }

    /// The program has polled a failed completion.
    #[cold]
    fn report_failed(&self, completion: &Completion) {
        let Some(report) = ON_FAILED.get() else { return };
        let Completion { wr_id, status, qp_num, .. } = *completion;
        let failed =
            || format!("work request with wr_id {wr_id:#x} failed: {}", rdma_sys::wc_status_text(status));
        match self.ending(qp_num) {
            Some(ending) if ending.wr_id == Some(wr_id) && status != status::WR_FLUSH_ERR => {
                report(&ending.text)
            }
            Some(ending) => report(&format!("{}; {}", failed(), ending.text)),
            None => report(&format!("queue pair {qp_num}: {}", failed())),
        }
    }

    pub(crate) fn channel(&self) -> Option<&Arc<EventQueue<usize>>> {
        self.channel.as_ref()
    }

    /// Changes the number of entries; the completions in the queue stay. EINVAL if there are more of them,
    /// ENOMEM.
    pub(crate) fn resize(&self, entries: u32) -> Result<(), Errno> {
        lock(&self.ring).resize(entries as usize)?;
        // A connection may keep completions for which there is room now.
        self.give_room();
        Ok(())
    }

    /// Adds a connection, which an empty poll then drives.
    pub(crate) fn attach(&self, connection: Arc<dyn Driven>) -> Result<(), Errno> {
        let mut connections = lock(&self.connections);
        connections.list.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        connections.list.push(Attached { connection, memory: Seen::new(None) });
        Ok(())
    }

    /// Removes a connection.
    pub(crate) fn detach(&self, connection: &dyn Driven) {
        let same = |other: &Arc<dyn Driven>| std::ptr::addr_eq(Arc::as_ptr(other), connection);
        lock(&self.connections).list.retain(|other| !same(&other.connection));
    }

    /// What the connections of this queue have outstanding for it. A completion in the queue counts as
    /// outstanding. So does a queue without queue pairs, since another thread may create one.
    pub(crate) fn outstanding(&self) -> Outstanding {
        // Another thread polls, and takes what arrives.
        let Ok(connections) = self.connections.try_lock() else { return Outstanding::Completion };
        let own = std::ptr::from_ref(self).addr();
        let outstanding = connections.list.iter().map(|attached| attached.connection.outstanding(own)).max();
        // Afterwards, as what was outstanding may be in the queue now.
        let ring = lock(&self.ring);
        match outstanding {
            Some(outstanding) if ring.entries.is_empty() => outstanding,
            _ => Outstanding::Completion,
        }
    }

    /// Whether no queue pair uses this queue.
    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.connections).list.is_empty()
    }

    /// The watch for the sockets of connections whose receive completion queue this is; the first call
    /// creates it.
    pub(crate) fn home(&self, engine: &Arc<Engine>) -> Result<Arc<Watch>, Errno> {
        let mut home = lock(&self.home);
        if let Some(watch) = &*home {
            return Ok(watch.clone());
        }
        let watch = Watch::new(engine.clone())?;
        *home = Some(watch.clone());
        self.use_watch(&watch);
        Ok(watch)
    }

    /// Has polls check a watch, which holds the socket of one more queue pair that sends to this queue.
    pub(crate) fn use_watch(&self, watch: &Arc<Watch>) {
        lock(&self.ring).use_watch(watch);
        self.watches_version.changed();
    }

    /// The queue pair is destroyed.
    pub(crate) fn release_watch(&self, watch: &Arc<Watch>) {
        let unused = lock(&self.ring).release_watch(watch);
        self.watches_version.changed();
        // Perhaps no poll follows.
        let seen = lock(&self.connections).watches.take();
        drop((unused, seen));
    }

    /// The watches that hold the sockets of all connections of this queue.
    fn watches(&self) -> Arc<Vec<Watched>> {
        lock(&self.ring).watches.clone()
    }

    /// Has polls receive at `port`, for a RoCE connection of this queue.
    pub(crate) fn receive_at(&self, port: &Arc<Port>) {
        if self.port.get().is_none() {
            let _ = self.port.set(Box::new(port.clone()));
        }
    }

    /// The port at which the packets of its RoCE connections arrive. A child after fork(2) does not use that
    /// of its parent.
    #[inline]
    fn port(&self) -> Option<&Port> {
        self.port.get().filter(|port| port.is_own()).map(|port| &**port)
    }

    /// Adds the watches that hold the sockets of its connections; false if they are too many.
    pub(crate) fn add_watches(&self, to: &mut Watches) -> bool {
        let known = |to: &Watches, watch| to.iter().any(|other| Arc::ptr_eq(other, watch));
        self.watches()
            .iter()
            .all(|Watched { watch, .. }| known(to, watch) || to.try_push(watch.clone()).is_ok())
    }

    /// As [`Producer::push`].
    fn push(&self, completion: Completion, owner: u32) -> bool {
        let mut ring = lock(&self.ring);
        if ring.entries.len() >= ring.capacity {
            self.waiting.store(true, Ordering::Release);
            return false;
        }
        probes::complete(&completion);
        ring.entries.push_back(Entry { completion, owner });
        self.note_count(&ring);
        if let Some(times) = &mut ring.times {
            times.push_back(clock::raw());
        }
        ring.unannounced += 1;
        let wanted = match ring.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => completion.solicited || completion.status != status::SUCCESS,
        };
        if wanted {
            self.announce(&mut ring);
        }
        true
    }

    fn note_count(&self, ring: &Completions) {
        self.count.store(ring.entries.len(), Ordering::Relaxed);
    }

    fn announce(&self, ring: &mut Completions) {
        ring.armed = Armed::No;
        self.armed.store(false, Ordering::Relaxed);
        ring.unannounced = 0;
        if let Some(channel) = &self.channel {
            channel.push(self.handle());
        }
    }

    /// Takes up to `max` completions and passes each to `out`, with its [`Time`]. If there are none, drives
    /// the connections of the queue and tries again.
    #[inline]
    pub(crate) fn poll(&self, max: usize, mut out: impl FnMut(usize, &Completion, Time)) -> usize {
        let Taken { got, polls } = match self.is_empty() && !self.is_armed() {
            true => Taken { got: 0, polls: true },
            false => self.take(max, true, &mut out),
        };
        if let Some(port) = self.port().filter(|_| polls) {
            port.polls();
        }
        match got {
            0 => self.poll_empty(max, polls, out),
            _ => {
                self.give_room();
                got
            }
        }
    }

    /// As [`Self::poll`], for a queue that had no completion.
    #[inline(never)]
    fn poll_empty(&self, max: usize, polls: bool, mut out: impl FnMut(usize, &Completion, Time)) -> usize {
        if max == 0 {
            return 0;
        }
        let stepped = self.progress(polls);
        let got = if self.is_empty() { 0 } else { self.take(max, false, &mut out).got };
        self.maybe_yield(got > 0, stepped);
        if got > 0 {
            self.give_room();
        }
        got
    }

    /// There is room: drives the connections, if one of them keeps completions because there was none.
    #[inline]
    fn give_room(&self) {
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::AcqRel) {
            self.deliver_kept();
        }
    }

    #[cold]
    fn deliver_kept(&self) {
        for Attached { connection, .. } in &lock(&self.connections).list {
            connection.drive(reason::ROOM, By::Program);
        }
    }

    /// Takes completions. `is_first`: for the first time in a poll.
    #[inline(always)]
    fn take(&self, max: usize, is_first: bool, out: &mut impl FnMut(usize, &Completion, Time)) -> Taken {
        let mut guard = lock(&self.ring);
        let ring = &mut *guard;
        let available = ring.entries.len();
        let got = available.min(max);
        self.has_more.store(available > got, Ordering::Relaxed);
        let polls = is_first && ring.armed == Armed::No;
        if got == 0 {
            return Taken { got, polls };
        }
        if polls {
            ring.watches.iter().for_each(|watched| watched.watch.polls());
        }
        let mut after = None;
        for i in 0..got {
            let Some((entry, time)) = ring.pop() else { break };
            let Entry { completion, owner } = &entry;
            out(i, completion, time);
            let owner = &ring.owners[*owner as usize];
            if let Some(sends) = &owner.sends {
                sends.free(1);
            }
            if completion.status != status::SUCCESS || owner.observer.is_some() || owner.left.is_some() {
                ring.polled(entry, after.get_or_insert_default());
            }
        }
        ring.unannounced = ring.unannounced.min(ring.entries.len());
        self.note_count(ring);
        drop(guard);
        if let Some(after) = after {
            self.finish(after);
        }
        Taken { got, polls }
    }

    /// Does what follows a poll.
    #[cold]
    fn finish(&self, Unlocked { observers, owners, failed }: Unlocked) {
        observers.iter().for_each(|observer| observer.report());
        drop(owners);
        if let Some(failed) = failed {
            self.report_failed(&failed);
        }
    }

    /// After a poll: yields the processor to the engine if that may need it ([`crate::policy::yielding`]).
    fn maybe_yield(&self, got: bool, stepped: bool) {
        let is_due = self.yielding.polled(got, stepped);
        // Only to the engine: another thread may keep the processor for milliseconds.
        if is_due && (!stepped || self.watches().iter().any(|watched| watched.watch.engine_has_work())) {
            std::thread::yield_now();
        }
    }

    /// Drives the connections. `polls`: [`Taken::polls`]. False if another thread is driving all of them.
    fn progress(&self, polls: bool) -> bool {
        // The packets of all RoCE connections arrive at one port.
        if let Some(port) = self.port() {
            port.poll();
        }
        // Another thread is doing the same for this queue.
        let Ok(mut connections) = self.connections.try_lock() else { return true };
        let Connections { list, watches } = &mut *connections;
        let watches = watches.latest(&self.watches_version, || self.watches());
        let mut full = false;
        for Watched { watch, .. } in watches.iter().filter(|_| polls) {
            watch.polls();
            full |= watch.awaits_room();
        }
        if full || list.len() > POLL_DIRECTLY {
            self.flush_deferred(list);
            // One system call finds the sockets that are ready. What they lead to pushes completions, so not
            // under the lock of the ring.
            if let [only] = &watches[..] {
                only.watch.look(By::Poller);
                return true;
            }
            if list.len() > POLL_DIRECTLY {
                return true;
            }
        }
        let mut stepped = list.is_empty();
        for Attached { connection, memory } in list {
            stepped |= connection.poll(memory);
        }
        stepped
    }

    /// Requests an event for the next completion, or for the next solicited or failed one.
    pub(crate) fn arm(&self, solicited_only: bool) {
        {
            let mut ring = lock(&self.ring);
            if !solicited_only && ring.unannounced > 0 {
                self.announce(&mut ring);
            } else if !solicited_only || ring.armed == Armed::No {
                ring.armed = if solicited_only { Armed::Solicited } else { Armed::Any };
                self.armed.store(true, Ordering::Relaxed);
            }
        }
        for watched in self.watches().iter() {
            watched.watch.arm();
        }
        if let Some(port) = self.port() {
            port.arm();
        }
        self.flush_deferred(&lock(&self.connections).list);
    }

    /// Whether the last poll left completions in the queue: then the program polls again soon.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Relaxed)
    }

    /// Whether the queue has no completion.
    #[inline]
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Whether the queue is armed.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Requests of one of its connections were deferred: a thread that waits for completions sends them
    /// first. The engine sends those of which another thread learns too late.
    pub(crate) fn note_deferred(&self) {
        if !self.deferred.load(Ordering::Relaxed) {
            self.deferred.store(true, Ordering::Relaxed);
        }
    }

    fn flush_deferred(&self, connections: &[Attached]) {
        if self.deferred.load(Ordering::Relaxed) && self.deferred.swap(false, Ordering::Relaxed) {
            connections.iter().for_each(|attached| attached.connection.flush_deferred());
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if let Some(watch) = lock(&self.home).take() {
            watch.close();
        }
    }
}

#[cfg(test)]
mod tests;
