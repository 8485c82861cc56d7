// SPDX-License-Identifier: BSD-3-Clause
//! The engine: one thread a process that moves bytes while the program sleeps or computes.
//!
//! It is started by the first socket that needs it, never at load time, so a program that forks before that has an engine in both
//! processes; after a fork the child starts one of its own. It blocks all signals.
//!
//! A [`Source`] is a descriptor with something to do when it is ready: a listening socket, a connection being set up, a queue pair.
//! Sources are called on the engine thread without any lock of the engine held, so they may add and remove sources themselves.
//!
//! Locks, all leaves: `sources`, `timers`, `kicked`, `leased`. None is held across a call of a source.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::sys::{self, Epoll, Errno};
use crate::{config, lock};

/// Something that acts when its descriptor is ready or its time has come.
pub(crate) trait Source: Send + Sync {
    /// `events` are the epoll events of the descriptor, or 0 when another thread asked by [`Engine::kick`].
    fn ready(self: Arc<Self>, events: u32);
    /// The time given to [`Engine::schedule`] has come. It may no longer matter: the source looks for itself.
    fn timeout(self: Arc<Self>) {}
    /// Whether a polling program still serves this source; asked about once a millisecond after [`Engine::lease`].
    fn is_polled(&self) -> bool {
        false
    }
    /// The program no longer polls: the engine serves the source again.
    fn end_lease(self: Arc<Self>) {}
}

/// How often the engine looks whether a polling program still serves what it has taken over.
const LEASE_CHECK: Duration = Duration::from_millis(1);
const WAKE: u64 = 0;

/// Sources to be called at a time, by that time and a number of their own.
#[derive(Default)]
struct Timers {
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    sources: HashMap<u64, Weak<dyn Source>>,
}

pub(crate) struct Engine {
    epoll: Epoll,
    wake: OwnedFd,
    sources: Mutex<HashMap<u64, Arc<dyn Source>>>,
    next_token: AtomicU64,
    timers: Mutex<Timers>,
    kicked: Mutex<Vec<Arc<dyn Source>>>,
    leased: Mutex<Vec<Arc<dyn Source>>>,
}

static ENGINE: Mutex<Option<(u32, Arc<Engine>)>> = Mutex::new(None);

impl Engine {
    /// The engine of this process, started if there is none. The error is that of the descriptor or the thread that could not be had.
    pub(crate) fn get() -> Result<Arc<Engine>, Errno> {
        let pid = std::process::id();
        let mut running = lock(&ENGINE);
        match &*running {
            Some((owner, engine)) if *owner == pid => return Ok(engine.clone()),
            // The parent's engine is not ours to touch: its thread is not in this process, and its epoll would change the parent's.
            _ => {}
        }
        let engine = Arc::new(Engine::new().inspect_err(|&e| {
            log::error!("cannot set up the engine: {}", std::io::Error::from_raw_os_error(e));
        })?);
        let on_thread = engine.clone();
        let thread = std::thread::Builder::new().name("softverbs".into()).stack_size(256 * 1024);
        sys::without_signals(|| thread.spawn(move || on_thread.run())).map_err(|e| {
            log::error!("cannot start the engine thread: {e}");
            e.raw_os_error().unwrap_or(libc::EAGAIN)
        })?;
        *running = Some((pid, engine.clone()));
        Ok(engine)
    }

    fn new() -> Result<Self, Errno> {
        let engine = Self {
            epoll: Epoll::new()?,
            wake: sys::event_flag()?,
            sources: Mutex::default(),
            next_token: AtomicU64::new(WAKE + 1),
            timers: Mutex::default(),
            kicked: Mutex::default(),
            leased: Mutex::default(),
        };
        engine.epoll.add(engine.wake.as_raw_fd(), libc::EPOLLIN as u32, WAKE)?;
        Ok(engine)
    }

    /// A token for a source that is about to be added.
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
        lock(&self.sources).insert(token, source);
        self.epoll.add(fd, events, token).inspect_err(|&e| {
            lock(&self.sources).remove(&token);
            log::error!("cannot watch a socket: {}", std::io::Error::from_raw_os_error(e));
        })
    }

    /// Gives the descriptor of `token` to another source, without a moment in which nobody watches it.
    pub(crate) fn replace(
        &self,
        token: u64,
        fd: RawFd,
        events: u32,
        source: Arc<dyn Source>,
    ) -> Result<(), Errno> {
        lock(&self.sources).insert(token, source);
        self.watch(token, fd, events)
    }

    /// Changes the events that are watched for.
    pub(crate) fn watch(&self, token: u64, fd: RawFd, events: u32) -> Result<(), Errno> {
        self.epoll.modify(fd, events, token)
    }

    /// Stops watching. Events already taken from the kernel may still reach the source.
    pub(crate) fn remove(&self, token: u64, fd: RawFd) {
        self.epoll.remove(fd);
        let source = lock(&self.sources).remove(&token);
        // The source may be dropped here, and its own locks with it: not under ours.
        drop(source);
    }

    /// Has `source` called with no events, on the engine thread, soon.
    pub(crate) fn kick(&self, source: Arc<dyn Source>) {
        lock(&self.kicked).push(source);
        sys::event_raise(&self.wake);
    }

    /// Has `source.timeout()` called after `delay`, if the source still lives then.
    pub(crate) fn schedule(&self, delay: Duration, source: &Arc<dyn Source>) {
        let id = self.token();
        let mut timers = lock(&self.timers);
        timers.queue.push(Reverse((Instant::now() + delay, id)));
        timers.sources.insert(id, Arc::downgrade(source));
        drop(timers);
        sys::event_raise(&self.wake);
    }

    /// Notes that a polling program serves `source` for now.
    pub(crate) fn lease(&self, source: Arc<dyn Source>) {
        lock(&self.leased).push(source);
    }

    fn run(&self) {
        let spin = config::get().spin;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut last_work = Instant::now();
        let mut last_lease_check = Instant::now();
        loop {
            let now = Instant::now();
            let timeout = if now.duration_since(last_work) < spin { 0 } else { self.sleep_ms(now) };
            let count = self.epoll.wait(&mut events, timeout);
            for event in &events[..count] {
                let (token, flags) = (event.u64, event.events);
                if token == WAKE {
                    // Non-blocking and only there to end the wait: an empty one is as good.
                    let _ = sys::event_take(&self.wake);
                    continue;
                }
                let source = lock(&self.sources).get(&token).cloned();
                if let Some(source) = source {
                    source.ready(flags);
                }
            }
            let kicked = std::mem::take(&mut *lock(&self.kicked));
            let worked = count > 0 || !kicked.is_empty();
            for source in kicked {
                source.ready(0);
            }
            let now = Instant::now();
            if worked {
                last_work = now;
            }
            self.run_timers(now);
            if now.duration_since(last_lease_check) >= LEASE_CHECK {
                last_lease_check = now;
                self.check_leases();
            }
        }
    }

    /// Milliseconds to sleep: until the next timer, or a millisecond while a polling program has to be looked after.
    fn sleep_ms(&self, now: Instant) -> i32 {
        if !lock(&self.leased).is_empty() {
            return LEASE_CHECK.as_millis() as i32;
        }
        match lock(&self.timers).queue.peek() {
            None => -1,
            Some(Reverse((at, _))) => {
                // Rounded up, so that the timer has come when the wait ends.
                i32::try_from(at.saturating_duration_since(now).as_millis() + 1).unwrap_or(i32::MAX)
            }
        }
    }

    fn run_timers(&self, now: Instant) {
        loop {
            let source = {
                let mut timers = lock(&self.timers);
                match timers.queue.peek() {
                    Some(Reverse((at, _))) if *at <= now => {}
                    _ => return,
                }
                let Some(Reverse((_, id))) = timers.queue.pop() else { return };
                timers.sources.remove(&id)
            };
            if let Some(source) = source.and_then(|weak| weak.upgrade()) {
                source.timeout();
            }
        }
    }

    fn check_leases(&self) {
        let leased = std::mem::take(&mut *lock(&self.leased));
        for source in leased {
            if source.is_polled() {
                self.lease(source);
            } else {
                source.end_lease();
            }
        }
    }
}
