// SPDX-License-Identifier: BSD-3-Clause
//! The counters. Each connection has separate counters, so that threads with different connections write to
//! different memory. They are summed on request, and added to those of earlier connections when the
//! connection is deleted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// RDMA write, also with immediate data.
    Write,
    /// RDMA read.
    Read,
    /// Send.
    Send,
    /// Receive.
    Recv,
    /// Atomic write of librpma.
    AtomicWrite,
    /// Flush of librpma to visibility.
    FlushVisibility,
    /// Flush of librpma to persistence.
    FlushPersistent,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
}

/// An event of a connection, as reported to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is established.
    Established,
    /// One side has closed the connection.
    Closed,
    /// The connection has failed.
    Lost,
    /// The peer has rejected the request.
    Rejected,
    /// The request was not answered.
    Unreachable,
}

/// The names of the kinds in the text.
pub(super) const KINDS: [&str; 8] =
    ["write", "read", "send", "recv", "atomic_write", "flush_visibility", "flush_persistent", "atomic"];

/// The names of `enum ibv_wc_status` in the text; the last one is for any other value of a provider.
pub(super) const STATUSES: [&str; 25] = [
    "success",
    "loc_len_err",
    "loc_qp_op_err",
    "loc_eec_op_err",
    "loc_prot_err",
    "wr_flush_err",
    "mw_bind_err",
    "bad_resp_err",
    "loc_access_err",
    "rem_inv_req_err",
    "rem_access_err",
    "rem_op_err",
    "retry_exc_err",
    "rnr_retry_exc_err",
    "loc_rdd_viol_err",
    "rem_inv_rd_req_err",
    "rem_abort_err",
    "inv_eecn_err",
    "inv_eec_state_err",
    "fatal_err",
    "resp_timeout_err",
    "general_err",
    "tm_err",
    "tm_rndv_incomplete",
    "other",
];

/// The reasons for the end of a connection, as in the text.
pub(super) const REASONS: [&str; 5] = ["closed", "lost", "rejected", "unreachable", "deleted"];

/// The upper limits of the latency buckets, in nanoseconds; the last bucket has none.
pub(super) const BOUNDS: [u64; 43] = bounds();

const fn bounds() -> [u64; 43] {
    let mut bounds = [0; 43];
    let steps = [1000, 1500, 2000, 3000, 5000, 7000];
    let (mut at, mut scale) = (0, 1);
    while at < bounds.len() {
        bounds[at] = steps[at % steps.len()] * scale;
        at += 1;
        if at % steps.len() == 0 {
            scale *= 10;
        }
    }
    bounds
}

const BUCKETS: usize = BOUNDS.len() + 1;

fn zeros<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

/// Latencies of one kind.
struct Latencies {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// Live counters.
pub struct Counts {
    operations: [AtomicU64; KINDS.len()],
    bytes: [AtomicU64; KINDS.len()],
    statuses: [AtomicU64; STATUSES.len()],
    latencies: [Latencies; KINDS.len()],
}

impl Counts {
    pub fn new() -> Self {
        Self {
            operations: zeros(),
            bytes: zeros(),
            statuses: zeros(),
            latencies: std::array::from_fn(|_| Latencies { buckets: zeros(), nanos: AtomicU64::new(0) }),
        }
    }

    /// A request was posted.
    pub fn posted(&self, kind: Kind, bytes: u64) {
        self.operations[kind as usize].fetch_add(1, Relaxed);
        self.moved(kind, bytes);
    }

    pub fn moved(&self, kind: Kind, bytes: u64) {
        self.bytes[kind as usize].fetch_add(bytes, Relaxed);
    }

    /// A completion was polled.
    pub fn completed(&self, status: u32) {
        let at = usize::try_from(status).unwrap_or(usize::MAX).min(STATUSES.len() - 1);
        self.statuses[at].fetch_add(1, Relaxed);
    }

    fn took(&self, kind: Kind, nanos: u64) {
        let latencies = &self.latencies[kind as usize];
        latencies.buckets[BOUNDS.partition_point(|bound| *bound < nanos)].fetch_add(1, Relaxed);
        latencies.nanos.fetch_add(nanos, Relaxed);
    }
}

/// A snapshot of counters.
#[derive(Clone, Debug)]
pub struct Sums {
    pub operations: [u64; KINDS.len()],
    pub bytes: [u64; KINDS.len()],
    pub statuses: [u64; STATUSES.len()],
    pub latencies: [([u64; BUCKETS], u64); KINDS.len()],
}

impl Sums {
    pub const fn new() -> Self {
        Self {
            operations: [0; KINDS.len()],
            bytes: [0; KINDS.len()],
            statuses: [0; STATUSES.len()],
            latencies: [([0; BUCKETS], 0); KINDS.len()],
        }
    }

    pub fn add(&mut self, counts: &Counts) {
        self.add_by(counts, |count| count.load(Relaxed));
    }

    /// Moves the counts here.
    fn take(&mut self, counts: &Counts) {
        self.add_by(counts, |count| count.swap(0, Relaxed));
    }

    fn add_by(&mut self, counts: &Counts, value: impl Fn(&AtomicU64) -> u64) {
        let each = |sums: &mut [u64], counts: &[AtomicU64]| {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += value(count);
            }
        };
        each(&mut self.operations, &counts.operations);
        each(&mut self.bytes, &counts.bytes);
        each(&mut self.statuses, &counts.statuses);
        for ((buckets, nanos), latencies) in self.latencies.iter_mut().zip(&counts.latencies) {
            each(buckets, &latencies.buckets);
            *nanos += value(&latencies.nanos);
        }
    }
}

/// The outstanding signalled requests, in posting order, which is also the order of their completions.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Option<Kind>)>,
    /// A request has failed, or there was no memory: the queue no longer matches the completions.
    is_lost: bool,
}

const REQUESTED: u8 = 0;
const OPEN: u8 = 1;
const ENDED: u8 = 2;

/// A connection, or the request for one.
pub struct Connection {
    number: AtomicU64,
    peer: Mutex<Option<SocketAddr>>,
    /// The number of its queue pair.
    pub qp_num: u32,
    /// Its counters.
    pub counts: Counts,
    phase: AtomicU8,
    /// The local address of the reads with which librpma flushes.
    flush_target: AtomicU64,
    queue: Mutex<Queue>,
}

impl Connection {
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

    /// A request of the send queue, signalled or not, has failed.
    pub fn failed(&self) {
        *self.queue() = Queue { waiting: VecDeque::new(), is_lost: true };
    }

    /// No request is outstanding, and no completion is left to poll: the queue pair was reset.
    pub fn discarded(&self) {
        *self.queue() = Queue::default();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable. Linux always has this clock (clock_gettime(2)).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

struct Connections {
    /// The connections that are not deleted.
    present: Vec<Arc<Connection>>,
    past: Sums,
    created: u64,
    opened: u64,
    ended: [u64; REASONS.len()],
}

/// The counters of a process.
pub struct Counters {
    connections: Mutex<Connections>,
    /// Counters of shared receive queues, which belong to no single connection.
    pub shared: Counts,
    regions: AtomicU64,
    region_bytes: AtomicU64,
}

/// A snapshot of all counters.
pub struct Snapshot {
    pub sums: Sums,
    pub requested: u64,
    pub open: u64,
    pub opened: u64,
    pub ended: [u64; REASONS.len()],
    pub regions: u64,
    pub region_bytes: u64,
    /// The open connections, oldest first, up to the requested number.
    pub connections: Vec<(Arc<Connection>, Sums)>,
}

impl Counters {
    pub fn new() -> Self {
        Self {
            connections: Mutex::new(Connections {
                present: Vec::new(),
                past: Sums::new(),
                created: 0,
                opened: 0,
                ended: [0; REASONS.len()],
            }),
            shared: Counts::new(),
            regions: AtomicU64::new(0),
            region_bytes: AtomicU64::new(0),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        lock(&self.connections)
    }

    /// A queue pair was created, for a connection to be requested or one that a peer has requested.
    pub fn connection(&self, peer: Option<SocketAddr>, qp_num: u32) -> Arc<Connection> {
        let mut connections = self.connections();
        connections.created += 1;
        let connection = Arc::new(Connection {
            number: AtomicU64::new(connections.created),
            peer: Mutex::new(peer),
            qp_num,
            counts: Counts::new(),
            phase: AtomicU8::new(REQUESTED),
            flush_target: AtomicU64::new(0),
            queue: Mutex::default(),
        });
        connections.present.push(connection.clone());
        connection
    }

    /// An event of the connection was reported to the program.
    pub fn event(&self, connection: &Connection, event: Event) {
        let reason = match event {
            Event::Established => {
                if connection.phase.swap(OPEN, Relaxed) == REQUESTED {
                    self.connections().opened += 1;
                }
                return;
            }
            Event::Closed => 0,
            Event::Lost => 1,
            Event::Rejected => 2,
            Event::Unreachable => 3,
        };
        if connection.phase.swap(ENDED, Relaxed) != ENDED {
            self.connections().ended[reason] += 1;
        }
    }

    /// The queue pair was reset, and is for another connection from now on: the counts of the former one are
    /// added to those of deleted connections.
    pub fn reset(&self, connection: &Connection) {
        let mut connections = self.connections();
        connections.past.take(&connection.counts);
        connections.created += 1;
        connection.number.store(connections.created, Relaxed);
        *lock(&connection.peer) = None;
        if connection.phase.swap(REQUESTED, Relaxed) == OPEN {
            connections.ended[REASONS.len() - 1] += 1;
        }
    }

    /// The connection, or the request for it, is deleted.
    pub fn deleted(&self, connection: &Arc<Connection>) {
        let mut connections = self.connections();
        // In a child of fork(2) the parent's connections are not listed.
        let Some(at) = connections.present.iter().position(|other| Arc::ptr_eq(other, connection)) else {
            return;
        };
        connections.present.swap_remove(at);
        connections.past.add(&connection.counts);
        if connection.phase.swap(ENDED, Relaxed) == OPEN {
            connections.ended[REASONS.len() - 1] += 1;
        }
    }

    pub fn registered(&self, bytes: usize) {
        self.regions.fetch_add(1, Relaxed);
        self.region_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn deregistered(&self, bytes: usize) {
        self.regions.fetch_sub(1, Relaxed);
        self.region_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Takes a snapshot with at most this many connections listed separately.
    pub fn snapshot(&self, connections: usize) -> Snapshot {
        let all = self.connections();
        let mut sums = all.past.clone();
        sums.add(&self.shared);
        let mut phases = [0; 3];
        let mut open = Vec::new();
        for connection in &all.present {
            sums.add(&connection.counts);
            phases[usize::from(connection.phase.load(Relaxed))] += 1;
            if connection.is_open() {
                open.push(connection.clone());
            }
        }
        let (opened, ended) = (all.opened, all.ended);
        drop(all);
        open.sort_unstable_by_key(|connection| connection.number());
        open.truncate(connections);
        let alone = |connection: Arc<Connection>| {
            let mut sums = Sums::new();
            sums.add(&connection.counts);
            (connection, sums)
        };
        Snapshot {
            sums,
            requested: phases[usize::from(REQUESTED)],
            open: phases[usize::from(OPEN)],
            opened,
            ended,
            regions: self.regions.load(Relaxed),
            region_bytes: self.region_bytes.load(Relaxed),
            connections: open.into_iter().map(alone).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_rise_to_ten_seconds_and_every_latency_has_a_bucket() {
        assert!(BOUNDS.is_sorted() && BOUNDS[0] == 1000 && BOUNDS[42] == 10_000_000_000);
        let counts = Counts::new();
        for nanos in [0, 1000, 1001, u64::from(u32::MAX), u64::MAX / 8] {
            counts.took(Kind::Read, nanos);
        }
        let mut sums = Sums::new();
        sums.add(&counts);
        let (buckets, _) = &sums.latencies[Kind::Read as usize];
        assert_eq!((buckets[0], buckets[1], buckets[43], buckets.iter().sum()), (2, 1, 1, 5));
    }

    #[test]
    fn the_counts_of_a_deleted_connection_stay() {
        let counters = Counters::new();
        let connection = counters.connection(None, 7);
        assert_eq!((counters.snapshot(9).requested, counters.snapshot(9).open), (1, 0));
        for _ in 0..2 {
            counters.event(&connection, Event::Established);
        }
        assert_eq!(connection.post(Some(Kind::Write), 64, true, || Ok::<_, i32>(())), Ok(()));
        assert_eq!(connection.post(Some(Kind::Read), 8, true, || Err(12)), Err(12));
        assert_eq!(connection.post(Some(Kind::Read), 8, false, || Ok::<_, i32>(())), Ok(()));
        connection.succeeded();
        connection.counts.completed(0);
        connection.counts.completed(99);
        let check = |open, ended| {
            let now = counters.snapshot(9);
            assert_eq!(
                (now.open, now.connections.len() as u64, now.opened, now.ended),
                (open, open, 1, ended)
            );
            assert_eq!(now.sums.operations, [1, 1, 0, 0, 0, 0, 0, 0]);
            assert_eq!(now.sums.bytes, [64, 8, 0, 0, 0, 0, 0, 0]);
            assert_eq!((now.sums.statuses[0], now.sums.statuses[24]), (1, 1));
            assert_eq!(now.sums.latencies[0].0.iter().sum::<u64>(), 1);
            assert_eq!(now.sums.latencies[1].0.iter().sum::<u64>(), 0);
        };
        check(1, [0; 5]);
        counters.deleted(&connection);
        check(0, [0, 0, 0, 0, 1]);
        counters.deleted(&connection);
        check(0, [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_reset_queue_pair_is_for_another_connection() {
        let counters = Counters::new();
        let connection = counters.connection(None, 7);
        let post = || connection.post(Some(Kind::Write), 64, false, || Ok::<_, i32>(())).unwrap();
        let peer = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        connection.set_peer(peer("192.0.2.1:4791").unwrap());
        counters.event(&connection, Event::Established);
        post();
        counters.reset(&connection);
        let now = counters.snapshot(9);
        assert_eq!((now.requested, now.open, now.ended, connection.peer()), (1, 0, [0, 0, 0, 0, 1], None));
        assert_eq!((now.sums.operations[0], now.connections.len()), (1, 0));

        connection.set_peer(peer("192.0.2.2:4791").unwrap());
        counters.event(&connection, Event::Established);
        post();
        let now = counters.snapshot(9);
        let (listed, sums) = &now.connections[0];
        assert_eq!((listed.number(), listed.peer(), sums.operations[0]), (2, peer("192.0.2.2:4791"), 1));
        assert_eq!((now.opened, now.sums.operations[0]), (2, 2));
        counters.event(&connection, Event::Closed);
        counters.reset(&connection);
        assert_eq!(counters.snapshot(9).ended, [1, 0, 0, 0, 1]);
    }

    #[test]
    fn requests_after_a_reset_have_latencies() {
        let counters = Counters::new();
        let connection = counters.connection(None, 7);
        let post = |kind| connection.post(Some(kind), 8, true, || Ok::<_, i32>(())).unwrap();
        let latencies = |kind: Kind| counters.snapshot(0).sums.latencies[kind as usize].0.iter().sum::<u64>();
        post(Kind::Read);
        connection.discarded();
        post(Kind::Write);
        connection.succeeded();
        assert_eq!((latencies(Kind::Read), latencies(Kind::Write)), (0, 1));
        connection.failed();
        connection.discarded();
        post(Kind::Write);
        connection.succeeded();
        assert_eq!((latencies(Kind::Read), latencies(Kind::Write)), (0, 2));
    }

    #[test]
    fn each_end_has_its_reason_and_counts_once() {
        let counters = Counters::new();
        for event in [Event::Closed, Event::Lost, Event::Rejected, Event::Unreachable] {
            let connection = counters.connection(None, 0);
            counters.event(&connection, event);
            counters.event(&connection, Event::Closed);
            counters.deleted(&connection);
        }
        assert_eq!(counters.snapshot(0).ended, [1, 1, 1, 1, 0]);
    }

    #[test]
    fn no_latencies_are_recorded_after_a_failure() {
        let connection = Counters::new().connection(None, 0);
        for _ in 0..3 {
            connection.post(Some(Kind::Send), 1, true, || Ok::<_, i32>(())).unwrap();
        }
        connection.succeeded();
        connection.failed();
        connection.succeeded();
        connection.post(Some(Kind::Send), 1, true, || Ok::<_, i32>(())).unwrap();
        connection.succeeded();
        let mut sums = Sums::new();
        sums.add(&connection.counts);
        assert_eq!(sums.latencies[Kind::Send as usize].0.iter().sum::<u64>(), 1);
        assert_eq!(sums.operations[Kind::Send as usize], 4);
    }

    #[test]
    fn regions_are_added_and_removed() {
        let counters = Counters::new();
        counters.registered(10);
        counters.registered(4096);
        counters.deregistered(10);
        let now = counters.snapshot(0);
        assert_eq!((now.regions, now.region_bytes), (1, 4096));
    }
}
