// SPDX-License-Identifier: BSD-3-Clause
//! A connection, or the request for one: its labels, its counters, and its requests whose latency is
//! measured.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::counts::{Copied, Counts, Kind, STATUSES, Sums};

/// What a queue pair belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `soft` or `rdma-core`.
    pub provider: &'static str,
    /// The name of the device.
    pub device: String,
    /// `iwarp`, `roce`, `infiniband` or `unknown`.
    pub transport: &'static str,
    /// The link if it is not shared memory: `tcp`, `udp` or `device`.
    pub link: &'static str,
}

/// Memory that is shared with a peer, in which it counts its direct copies.
pub trait Copies: Send + Sync {
    /// The copies so far. The peer may write any numbers.
    fn copied(&self) -> Copied;
}

/// `IBV_WC_WR_FLUSH_ERR`: the request was not executed because the connection had ended.
const WR_FLUSH_ERR: u32 = 5;

/// The outstanding signalled requests, in posting order, which is also the order of their completions.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Option<Kind>)>,
    /// A request has failed, or there was no memory: the queue no longer matches the completions.
    is_lost: bool,
}

/// The states of a connection, as in the text. An ended one has its reason.
pub(super) const STATES: [&str; 7] =
    ["requested", "open", "closed", "lost", "rejected", "unreachable", "deleted"];
pub(super) const REQUESTED: u8 = 0;
pub(super) const OPEN: u8 = 1;
/// The first reason.
pub(super) const ENDED: u8 = 2;

/// Memory that is, or was, shared with the peer.
struct SharedMemory {
    /// The name of the link.
    link: &'static str,
    /// `None`: it is shared no more.
    copies: Option<Weak<dyn Copies>>,
}

/// A connection, or the request for one.
pub struct Connection {
    pub(super) number: AtomicU64,
    pub(super) peer: Mutex<Option<SocketAddr>>,
    /// The number of its queue pair.
    pub qp_num: u32,
    /// Its counters.
    pub counts: Counts,
    /// What its queue pair belongs to.
    pub(super) place: Place,
    shared: Mutex<Option<SharedMemory>>,
    /// An index of [`STATES`].
    pub(super) phase: AtomicU8,
    /// The first status of a failed completion that was not flushed, else of a flushed one; 0: none.
    pub(super) failure: AtomicU32,
    /// The local address of the reads with which librpma flushes.
    flush_target: AtomicU64,
    queue: Mutex<Queue>,
}

impl Connection {
    pub(super) fn new(number: u64, peer: Option<SocketAddr>, qp_num: u32, place: Place) -> Self {
        Self {
            number: AtomicU64::new(number),
            peer: Mutex::new(peer),
            qp_num,
            counts: Counts::new(),
            place,
            shared: Mutex::new(None),
            phase: AtomicU8::new(REQUESTED),
            failure: AtomicU32::new(0),
            flush_target: AtomicU64::new(0),
            queue: Mutex::default(),
        }
    }

    /// Sets the address of the remote peer.
    pub fn set_peer(&self, peer: SocketAddr) {
        *lock(&self.peer) = Some(peer);
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        *lock(&self.peer)
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase.load(Relaxed) == OPEN
    }

    pub(super) fn state(&self) -> &'static str {
        STATES[usize::from(self.phase.load(Relaxed)).min(STATES.len() - 1)]
    }

    /// The link that is used; the last one if the connection has ended.
    pub(super) fn link(&self) -> &'static str {
        let shared = lock(&self.shared);
        let used = shared.as_ref().filter(|shared| shared.copies.is_some() || !self.is_open());
        used.map_or(self.place.link, |shared| shared.link)
    }

    /// The name of the status of its first failed completion.
    pub(super) fn failure(&self) -> Option<&'static str> {
        let status = self.failure.load(Relaxed) as usize;
        (status != 0).then(|| STATUSES[status.min(STATUSES.len() - 1)])
    }

    /// Adds its counts to sums, and those of the direct copies of its peer.
    pub(super) fn add_to(&self, sums: &mut Sums) {
        // Locked meanwhile: otherwise copies could be counted twice when the memory is no longer shared.
        let shared = lock(&self.shared);
        sums.add(&self.counts);
        let copies = shared.as_ref().and_then(|shared| shared.copies.as_ref()?.upgrade());
        if let Some(copied) = copies.map(|copies| copies.copied()) {
            for (kind, (completed, bytes)) in copied.kinds() {
                // The peer may have written any number.
                let [count, sum] = [&mut sums.served[kind as usize], &mut sums.served_bytes[kind as usize]];
                (*count, *sum) = (count.wrapping_add(completed), sum.wrapping_add(bytes));
            }
        }
    }

    /// The connection uses the link with this name, over shared memory in which the peer counts its direct
    /// copies.
    pub fn shares(&self, link: &'static str, copies: Weak<dyn Copies>) {
        *lock(&self.shared) = Some(SharedMemory { link, copies: Some(copies) });
    }

    /// The memory is no longer shared: adds the copies to the counters of the connection.
    pub fn shares_no_more(&self, copies: &dyn Copies) {
        let mut shared = lock(&self.shared);
        if shared.as_mut().is_some_and(|shared| shared.copies.take().is_some()) {
            self.counts.copied(copies.copied());
        }
    }

    /// Forgets memory that is shared no more: another connection begins.
    pub(super) fn forget_shared(&self) {
        lock(&self.shared).take_if(|shared| shared.copies.is_none());
    }

    /// Sets the local address of the reads with which librpma flushes.
    pub fn flushes_by(&self, target: u64) {
        self.flush_target.store(target, Relaxed);
    }

    /// Whether its program uses librpma.
    pub fn is_of_librpma(&self) -> bool {
        self.flush_target.load(Relaxed) != 0
    }

    /// Whether a read to this address is a flush.
    pub fn is_flush(&self, target: u64) -> bool {
        self.flush_target.load(Relaxed) == target
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Posts a request with `post`; one without a kind is not counted. Posts of signalled requests are
    /// serialized, so that the queue has the order of the send queue: the provider serializes them anyway.
    pub fn post<E>(
        &self,
        kind: Option<Kind>,
        bytes: u64,
        signaled: bool,
        post: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        if signaled {
            let mut queue = self.queue();
            if !queue.is_lost && queue.waiting.try_reserve(1).is_err() {
                *queue = Queue { waiting: VecDeque::new(), is_lost: true };
            }
            let is_waiting = !queue.is_lost;
            if is_waiting {
                queue.waiting.push_back((now(), kind));
            }
            post().inspect_err(|_| {
                if is_waiting {
                    queue.waiting.pop_back();
                }
            })?;
        } else {
            post()?;
        }
        if let Some(kind) = kind {
            self.counts.posted(kind, bytes);
        }
        Ok(())
    }

    /// A request of the send queue has completed successfully.
    pub fn succeeded(&self) {
        let oldest = self.queue().waiting.pop_front();
        if let Some((began, Some(kind))) = oldest {
            self.counts.took(kind, now().saturating_sub(began));
        }
    }

    /// A request of the send queue, signalled or not, or a receive, has failed with this status.
    pub fn failed(&self, status: u32) {
        let known = self.failure.load(Relaxed);
        if known == 0 || known == WR_FLUSH_ERR {
            self.failure.store(status, Relaxed);
        }
        *self.queue() = Queue { waiting: VecDeque::new(), is_lost: true };
    }

    /// No request is outstanding, and no completion is left to poll: the queue pair was reset.
    pub fn discarded(&self) {
        *self.queue() = Queue::default();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not by rustix, which panics if the call fails.
    // SAFETY: `now` is writable. Linux always has this clock (clock_gettime(2)).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
