// SPDX-License-Identifier: BSD-3-Clause
//! The engine: one thread a process that moves bytes while the program sleeps or computes.
//!
//! It is started by the first socket that needs it, never at load time. After a fork the child starts
//! another. It blocks all signals.
//!
//! A [`Source`] is a descriptor with something to do when it is ready: a listening socket, a connection being
//! set up, the sockets of a completion queue. Sources are called on the engine thread without any lock of the
//! engine held, so they may add and remove sources.
//!
//! It has the CPU affinity of the process, not that of the thread that happened to start it. It requests
//! short slices of the scheduler: a thread that wakes up with a shorter slice than the running thread
//! preempts it, which matters when the program spins on its memory. It spins for more work before it sleeps
//! ([`Spin`]) only while no other thread wants its processor.
//!
//! Locks, all leaves but `later`, which is above that of `ticks`: `sources`, `timers`, `listed`, `later`,
//! `ticks`. None is held across a call of a source.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Driven;
use super::attention::Tick;
use super::source::{Source, Ticking};
use super::ticks::Ticks;
use super::timers::{Timer, Timers};
use super::wakeup::Wakeup;
use crate::lock::lock_until;
use crate::policy::Policy;
use crate::policy::spin::{Signs, Spin};
use crate::policy::trust::TICK;
use crate::process::PerProcess;
use crate::sys::{self, Epoll, Errno};
use crate::{config, fork, lock, probes, thread};

const WAKE: u64 = 0;
const LATER: u64 = 1;

/// The deferred connections.
#[derive(Default)]
struct Later {
    connections: Vec<Arc<dyn Driven>>,
    /// When the timer expires, if it is running.
    due: Option<Instant>,
}

/// A deferred connection for which the timer could not be started: drives it at once.
struct Now(Arc<dyn Driven>);

impl Source for Now {
    fn ready(self: Arc<Self>, _events: u32) {
        self.0.clone().drive_deferred();
    }
}

pub(crate) struct Engine {
    epoll: Epoll,
    /// [`fork::generation`] of its process. A child leaves the sources alone: another thread of the parent
    /// may have held their lock at the moment of the fork.
    generation: u32,
    wake: OwnedFd,
    /// Expires when the deferred connections are due.
    later_timer: OwnedFd,
    wakeup: Wakeup,
    sources: Mutex<HashMap<u64, Arc<dyn Source>>>,
    next_token: AtomicU64,
    timers: Arc<Timers>,
    kicked: Mutex<Vec<Arc<dyn Source>>>,
    listed: Mutex<VecDeque<Arc<dyn Driven>>>,
    later: Mutex<Later>,
    ticks: Ticks,
}

/// A child after fork(2) starts another engine: it has no engine thread, and shares the epoll of its parent.
static ENGINE: PerProcess<Arc<Engine>> = PerProcess::new();

impl Engine {
    /// The engine of this process, started if there is none. The error is that of a descriptor or of the
    /// thread.
    pub(crate) fn get() -> Result<Arc<Self>, Errno> {
        let mut running = lock(ENGINE.get());
        if let Some(engine) = &*running {
            return Ok(engine.clone());
        }
        let engine = Arc::new(Self::new().inspect_err(|&e| {
            log::error!("cannot set up the engine: {}", std::io::Error::from_raw_os_error(e));
        })?);
        let on_thread = engine.clone();
        thread::spawn(c"softverbs", Box::new(move || on_thread.run())).inspect_err(|&e| {
            log::error!("cannot start the engine thread: {}", std::io::Error::from_raw_os_error(e));
        })?;
        *running = Some(engine.clone());
        Ok(engine)
    }

    fn new() -> Result<Self, Errno> {
        let engine = Self {
            generation: fork::generation(),
            epoll: Epoll::new()?,
            wake: sys::event_flag()?,
            later_timer: sys::timer()?,
            wakeup: Wakeup::new(),
            sources: Mutex::default(),
            next_token: AtomicU64::new(LATER + 1),
            timers: Arc::default(),
            kicked: Mutex::default(),
            listed: Mutex::default(),
            later: Mutex::default(),
            ticks: Ticks::new(),
        };
        engine.epoll.add(engine.wake.as_raw_fd(), libc::EPOLLIN as u32, WAKE)?;
        // Edge-triggered, so it need not be read.
        engine.epoll.add(engine.later_timer.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, LATER)?;
        Ok(engine)
    }

    /// A unique token for a source.
    pub(crate) fn token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Watches `fd` for `events` on behalf of `source`, which lives until [`Engine::remove`].
    pub(crate) fn add(
        &self,
        token: u64,
        fd: RawFd,
        events: u32,
        source: Arc<dyn Source>,
    ) -> Result<(), Errno> {
        let watched = {
            // Hold the lock until the descriptor is in the epoll set: a thread that gets an event, and may
            // close it, waits for that.
            let mut sources = lock(&self.sources);
            sources
                .try_reserve(1)
                .map_err(|_| libc::ENOMEM)
                .and_then(|()| self.epoll.add(fd, events, token))
                .map(|()| drop(sources.insert(token, source)))
        };
        watched.inspect_err(|&e| {
            log::error!("cannot watch a socket: {}", std::io::Error::from_raw_os_error(e));
        })
    }

    /// Changes the events that are watched for.
    pub(crate) fn watch(&self, token: u64, fd: RawFd, events: u32) -> Result<(), Errno> {
        self.epoll.modify(fd, events, token)
    }

    /// Stops watching. Events already taken from the kernel may still reach the source.
    pub(crate) fn remove(&self, token: u64, fd: RawFd) {
        if self.generation != fork::generation() {
            return;
        }
        self.epoll.remove(fd);
        let source = lock(&self.sources).remove(&token);
        // This may drop the source, which may take locks: not under ours.
        drop(source);
    }

    /// Wakes the thread if it sleeps, with at most one system call a sleep. The work must be on its list
    /// already.
    fn wake(&self) {
        if self.wakeup.must_wake() {
            sys::event_raise(&self.wake);
        }
    }

    /// Whether the thread is running or runnable: it does not sleep, or the kernel has woken it and it has
    /// not run since.
    pub(crate) fn has_work(&self) -> bool {
        self.wakeup.is_awake() || sys::is_readable(self.epoll.fd())
    }

    /// Calls `source` on the engine thread soon, without events.
    pub(crate) fn kick(&self, source: Arc<dyn Source>) {
        lock(&self.kicked).push(source);
        self.wake();
    }

    /// As [`Engine::kick`], for a thread that must not wait for others. False: one has the lock by then.
    pub(crate) fn kick_until(&self, source: Arc<dyn Source>, deadline: Instant) -> bool {
        let Some(mut kicked) = lock_until(&self.kicked, deadline) else { return false };
        kicked.push(source);
        drop(kicked);
        self.wake();
        true
    }

    /// Puts a connection on the run list. The bit in its turn ensures that it is there only once.
    pub(crate) fn list(&self, connection: Arc<dyn Driven>) {
        lock(&self.listed).push_back(connection);
        self.wake();
    }

    /// Puts a connection on the deferred list, to be driven after at most `max_delay`. Its turn has the bit
    /// of this list. A timer wakes the engine, which would otherwise preempt the posting thread; one timer
    /// serves all connections deferred until it expires. If a tick comes before, none is started.
    pub(crate) fn list_later(&self, connection: Arc<dyn Driven>, max_delay: Duration) {
        let due = Instant::now() + max_delay;
        let mut later = lock(&self.later);
        later.connections.push(connection);
        // The engine takes a tick off its list before it takes these connections.
        if sys::waits_are_precise() && self.ticks.next().is_some_and(|at| at <= due) {
            return;
        }
        if later.due.is_none_or(|known| due < known) {
            later.due = Some(due);
            if sys::timer_start(&self.later_timer, max_delay).is_err() {
                later.due = None;
                let now = std::mem::take(&mut later.connections);
                drop(later);
                now.into_iter().for_each(|connection| self.kick(Arc::new(Now(connection))));
            }
        }
    }

    /// Checks the sockets of a completion queue at each tick, until its watch returns [`Tick::Over`].
    pub(crate) fn tick(&self, watch: Arc<dyn Ticking>) {
        self.ticks.add(Instant::now(), TICK, watch);
        self.wake();
    }

    /// Starts a timer: `source.timeout()` is called after `delay`, if the source still exists then and the
    /// timer was not cancelled.
    pub(crate) fn schedule(&self, delay: Duration, source: &Arc<dyn Source>) -> Timer {
        let (timer, is_first) = self.timers.add(Instant::now() + delay, Arc::downgrade(source));
        // Otherwise it wakes up early enough.
        if is_first {
            self.wake();
        }
        timer
    }

    fn run(&self) {
        sys::run_where_the_process_may();
        sys::ask_for_short_slices();
        sys::ask_for_precise_waits();
        let mut spin = Spin::new(config::get().policy).with_length(config::get().spin);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut now = Instant::now();
        loop {
            let timeout = if spin.goes_on(now) { Some(Duration::ZERO) } else { self.rest(now) };
            let count = self.epoll.wait(&mut events, timeout);
            self.wakeup.awake();
            if timeout != Some(Duration::ZERO) {
                spin.slept();
                probes::wake(count);
            }
            for event in &events[..count] {
                let (token, flags) = (event.u64, event.events);
                if token == WAKE {
                    // Non-blocking; it only ends the wait, so its value does not matter.
                    let _ = sys::event_take(&self.wake);
                    continue;
                }
                if token == LATER {
                    lock(&self.later).due = None;
                    self.run_later();
                    continue;
                }
                let source = lock(&self.sources).get(&token).cloned();
                if let Some(source) = source {
                    source.ready(flags);
                }
            }
            let worked = self.run_lists() || count > 0;
            now = Instant::now();
            if worked {
                spin.worked(
                    now,
                    Signs { raised: sys::events_raised(), received: sys::bytes_received() },
                    sys::preemptions,
                );
            }
            self.run_timers(now);
            if self.run_ticks(now) {
                self.run_later();
            }
        }
    }

    /// How long to sleep: zero if there is work, else until the next timer or tick. `None`: until an event.
    fn rest(&self, now: Instant) -> Option<Duration> {
        self.wakeup.about_to_sleep();
        if !lock(&self.listed).is_empty() || !lock(&self.kicked).is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.timers.next().into_iter().chain(self.ticks.next()).min();
        next.map(|at| at.saturating_duration_since(now))
    }

    /// Calls the kicked sources and steps the listed connections, each once; one that is listed again waits
    /// for the others.
    fn run_lists(&self) -> bool {
        let kicked = std::mem::take(&mut *lock(&self.kicked));
        let listed = std::mem::take(&mut *lock(&self.listed));
        let worked = !kicked.is_empty() || !listed.is_empty();
        for source in kicked {
            source.ready(0);
        }
        for connection in listed {
            connection.drive_listed();
        }
        worked
    }

    /// Steps deferred connections, unless another thread has done so.
    fn run_later(&self) {
        let connections = std::mem::take(&mut lock(&self.later).connections);
        for connection in connections {
            connection.drive_deferred();
        }
    }

    fn run_timers(&self, now: Instant) {
        while let Some(source) = self.timers.due(now) {
            if let Some(source) = source.upgrade() {
                source.timeout();
            }
        }
    }

    /// Checks what is due; whether there was anything.
    fn run_ticks(&self, now: Instant) -> bool {
        let due = self.ticks.take_due(now);
        let any = !due.is_empty();
        for watch in due {
            if let Tick::Again(interval) = watch.clone().tick() {
                self.ticks.add(now, interval, watch);
            }
        }
        any
    }
}
