// SPDX-License-Identifier: BSD-3-Clause
//! The counters. Each connection has separate counters, so that threads with different connections write to
//! different memory. They are summed on request, and added to those of earlier connections when the
//! connection is deleted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use super::connection::{Connection, ENDED, OPEN, Place, REQUESTED, STATES, lock};
use super::counts::{Counts, Sums};

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

/// The reasons for the end of a connection, as in the text.
pub(super) const REASONS: [&str; 5] = ["closed", "lost", "rejected", "unreachable", "deleted"];

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
    /// The connections, first the open ones, oldest first, up to the requested number.
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
    pub fn connection(&self, peer: Option<SocketAddr>, qp_num: u32, place: Place) -> Arc<Connection> {
        let mut connections = self.connections();
        connections.created += 1;
        let connection = Arc::new(Connection::new(connections.created, peer, qp_num, place));
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
        let ended = |phase: u8| (phase < ENDED).then_some(ENDED + reason as u8);
        if connection.phase.fetch_update(Relaxed, Relaxed, ended).is_ok() {
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
        connection.forget_shared();
        connection.failure.store(0, Relaxed);
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
        connection.add_to(&mut connections.past);
        if connection.phase.swap(ENDED + REASONS.len() as u8 - 1, Relaxed) == OPEN {
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
        let mut phases = [0; STATES.len()];
        for connection in &all.present {
            connection.add_to(&mut sums);
            phases[usize::from(connection.phase.load(Relaxed))] += 1;
        }
        let mut listed = all.present.clone();
        let (opened, ended) = (all.opened, all.ended);
        drop(all);
        listed.sort_unstable_by_key(|connection| (!connection.is_open(), connection.number()));
        listed.truncate(connections);
        let alone = |connection: Arc<Connection>| {
            let mut sums = Sums::new();
            connection.add_to(&mut sums);
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
            connections: listed.into_iter().map(alone).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::connection::Copies;
    use super::super::counts::{BOUNDS, Copied, Kind, ServedKind};
    use super::*;

    pub(in super::super) fn place() -> Place {
        Place { provider: "soft", device: "soft0".to_owned(), transport: "roce", link: "udp" }
    }

    struct Memory(AtomicU64);

    impl Copies for Memory {
        fn copied(&self) -> Copied {
            let count = self.0.load(Relaxed);
            Copied { write: (count, 10 * count), read: (1, 2), atomic: (3, 24) }
        }
    }

    #[test]
    fn direct_copies_of_the_peer_are_counted_once() {
        let counters = Counters::new();
        let connection = counters.connection(None, 7, place());
        connection.counts.served(ServedKind::Write, 1, 8);
        connection.counts.served(ServedKind::Atomic, 1, 8);
        let served = || {
            let Sums { served, served_bytes, .. } = counters.snapshot(9).sums;
            (served, served_bytes)
        };
        counters.event(&connection, Event::Established);
        let memory = Arc::new(Memory(AtomicU64::new(5)));
        let copies: Arc<dyn Copies> = memory.clone();
        connection.shares("direct_copy", Arc::downgrade(&copies));
        assert_eq!((connection.link(), served()), ("direct_copy", ([6, 1, 4], [58, 2, 32])));
        memory.0.store(7, Relaxed);
        assert_eq!(served(), ([8, 1, 4], [78, 2, 32]));
        for _ in 0..2 {
            connection.shares_no_more(&*copies);
            assert_eq!((connection.link(), served()), ("udp", ([8, 1, 4], [78, 2, 32])));
        }
        counters.event(&connection, Event::Closed);
        assert_eq!(connection.link(), "direct_copy");
        counters.deleted(&connection);
        assert_eq!(served(), ([8, 1, 4], [78, 2, 32]));
        // Whatever a peer writes there.
        let wrong = counters.connection(None, 8, place());
        let copies: Arc<dyn Copies> = Arc::new(Memory(AtomicU64::new(u64::MAX / 10)));
        wrong.shares("direct_copy", Arc::downgrade(&copies));
        served();
        wrong.shares_no_more(&*copies);
        counters.deleted(&wrong);
        served();
    }

    #[test]
    fn a_connection_has_a_state_and_its_first_failure() {
        let counters = Counters::new();
        let connection = counters.connection(None, 7, place());
        let state = || (connection.state(), connection.failure());
        assert_eq!(state(), ("requested", None));
        counters.event(&connection, Event::Established);
        connection.failed(5);
        assert_eq!(state(), ("open", Some("wr_flush_err")));
        connection.failed(10);
        connection.failed(12);
        counters.event(&connection, Event::Lost);
        counters.event(&connection, Event::Closed);
        assert_eq!(state(), ("lost", Some("rem_access_err")));
        counters.reset(&connection);
        assert_eq!(state(), ("requested", None));
        connection.failed(77);
        assert_eq!(state(), ("requested", Some("other")));
    }

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
        let connection = counters.connection(None, 7, place());
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
        let connection = counters.connection(None, 7, place());
        let post = || connection.post(Some(Kind::Write), 64, false, || Ok::<_, i32>(())).unwrap();
        let peer = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        connection.set_peer(peer("192.0.2.1:4791").unwrap());
        counters.event(&connection, Event::Established);
        post();
        counters.reset(&connection);
        let now = counters.snapshot(9);
        assert_eq!((now.requested, now.open, now.ended, connection.peer()), (1, 0, [0, 0, 0, 0, 1], None));
        assert_eq!((now.sums.operations[0], now.connections.len()), (1, 1));

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
        let connection = counters.connection(None, 7, place());
        let post = |kind| connection.post(Some(kind), 8, true, || Ok::<_, i32>(())).unwrap();
        let latencies = |kind: Kind| counters.snapshot(0).sums.latencies[kind as usize].0.iter().sum::<u64>();
        post(Kind::Read);
        connection.discarded();
        post(Kind::Write);
        connection.succeeded();
        assert_eq!((latencies(Kind::Read), latencies(Kind::Write)), (0, 1));
        connection.failed(12);
        connection.discarded();
        post(Kind::Write);
        connection.succeeded();
        assert_eq!((latencies(Kind::Read), latencies(Kind::Write)), (0, 2));
    }

    #[test]
    fn each_end_has_its_reason_and_counts_once() {
        let counters = Counters::new();
        for event in [Event::Closed, Event::Lost, Event::Rejected, Event::Unreachable] {
            let connection = counters.connection(None, 0, place());
            counters.event(&connection, event);
            counters.event(&connection, Event::Closed);
            counters.deleted(&connection);
        }
        assert_eq!(counters.snapshot(0).ended, [1, 1, 1, 1, 0]);
    }

    #[test]
    fn no_latencies_are_recorded_after_a_failure() {
        let connection = Counters::new().connection(None, 0, place());
        for _ in 0..3 {
            connection.post(Some(Kind::Send), 1, true, || Ok::<_, i32>(())).unwrap();
        }
        connection.succeeded();
        connection.failed(12);
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
