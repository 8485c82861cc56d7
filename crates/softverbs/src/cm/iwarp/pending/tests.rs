// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the limits: which connections are admitted, which are evicted for them, and which listeners are
//! resumed.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMITS: Limits = Limits { process: 8, listener: 5, address: 3 };

/// A connection whose MPA Request is incomplete.
struct Stalled {
    admission: Mutex<Option<Admission>>,
}

impl Stalled {
    fn is_open(&self) -> bool {
        lock(&self.admission).is_some()
    }
}

impl Pending for Stalled {
    fn evict(&self) -> bool {
        lock(&self.admission).take().is_some()
    }
}

/// A listener that counts how often it is resumed.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Counter {
    fn resumed(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Paused for Counter {
    fn resume(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn host(last: u8) -> RemoteHost {
    RemoteHost::of(IpAddr::from([10, 0, 0, last]))
}

/// Admits a connection whose request is complete.
fn admit(pending: &Arc<Admissions>, listener: u64, last: u8) -> Option<Admission> {
    let (admission, evicted) = pending.admit(listener, host(last), LIMITS)?;
    assert_eq!(evicted, 0);
    Some(admission)
}

/// Admits stalled connections of a host, for each of which `evicted` others are evicted.
fn stall<const N: usize>(
    pending: &Arc<Admissions>,
    listener: u64,
    last: u8,
    evicted: usize,
) -> [Arc<Stalled>; N] {
    std::array::from_fn(|_| {
        let (admission, gone) = pending.admit(listener, host(last), LIMITS).unwrap();
        assert_eq!(gone, evicted);
        let connection = Arc::new(Stalled { admission: Mutex::default() });
        admission.set_stalled(Arc::downgrade(&connection) as _);
        *lock(&connection.admission) = Some(admission);
        connection
    })
}

fn are_open(connections: &[Arc<Stalled>]) -> Vec<bool> {
    connections.iter().map(|connection| connection.is_open()).collect()
}

#[test]
fn a_host_at_its_limit_does_not_block_others() {
    let pending = Arc::new(Admissions::default());
    let mut admissions: Vec<Admission> = (0..3).map(|_| admit(&pending, 1, 1).unwrap()).collect();
    let others = stall::<1>(&pending, 1, 2, 0);
    assert!(admit(&pending, 1, 1).is_none());
    assert!(admit(&pending, 2, 1).is_none(), "at any listener");
    assert_eq!(are_open(&others), [true], "no other host's connection is evicted");
    admissions.push(admit(&pending, 1, 2).unwrap());
    admissions.remove(0);
    assert!(admit(&pending, 2, 1).is_some());
}

#[test]
fn complete_requests_are_never_evicted_and_the_counts_return_to_zero() {
    let pending = Arc::new(Admissions::default());
    let admissions: Vec<Admission> = (0..10).map(|i| admit(&pending, 1, i).unwrap()).collect();
    assert_eq!(lock(&pending.counts).at(1), 10);
    assert!(!pending.evict_one());
    drop(admissions);
    let counts = lock(&pending.counts);
    assert!(counts.total == 0 && counts.listeners.is_empty() && counts.hosts.is_empty());
}

#[test]
fn at_the_limit_of_a_host_its_oldest_stalled_connection_is_evicted() {
    let pending = Arc::new(Admissions::default());
    let others = stall::<2>(&pending, 1, 2, 0);
    let first = stall::<3>(&pending, 1, 1, 0);
    let second = stall::<2>(&pending, 2, 1, 1);
    assert_eq!((are_open(&first), are_open(&second)), (vec![false, false, true], vec![true, true]));
    assert_eq!(are_open(&others), [true, true]);
}

#[test]
fn at_the_limit_of_a_listener_the_oldest_of_the_host_with_most_is_evicted() {
    let pending = Arc::new(Admissions::default());
    let elsewhere = stall::<3>(&pending, 2, 9, 0);
    let one = stall::<1>(&pending, 1, 1, 0);
    let two = stall::<2>(&pending, 1, 2, 0);
    let _complete = [admit(&pending, 1, 3).unwrap(), admit(&pending, 1, 3).unwrap()];
    let new = stall::<1>(&pending, 1, 4, 1);
    assert_eq!((are_open(&one), are_open(&two), are_open(&new)), (vec![true], vec![false, true], vec![true]));
    assert_eq!(are_open(&elsewhere), [true; 3]);
}

#[test]
fn at_the_limit_of_the_process_the_oldest_of_the_host_with_most_is_evicted() {
    let pending = Arc::new(Admissions::default());
    let one = stall::<1>(&pending, 1, 1, 0);
    let two = stall::<2>(&pending, 2, 2, 0);
    let _complete = [3, 4, 5, 6].map(|last| admit(&pending, 1, last).unwrap());
    let eighth = stall::<1>(&pending, 3, 7, 0);
    let ninth = stall::<1>(&pending, 3, 8, 1);
    assert_eq!((are_open(&one), are_open(&two)), (vec![true], vec![false, true]));
    assert_eq!((are_open(&eighth), are_open(&ninth)), (vec![true], vec![true]));
}

#[test]
fn a_complete_request_is_not_stalled() {
    let pending = Arc::new(Admissions::default());
    let [one, two] = stall(&pending, 1, 1, 0);
    lock(&one.admission).as_ref().unwrap().set_complete();
    assert!(pending.evict_one());
    assert_eq!((one.is_open(), two.is_open()), (true, false));
    assert!(!pending.evict_one());
    assert!(lock(&pending.counts).stalled.is_empty());
    let [three] = stall(&pending, 1, 1, 0);
    drop(lock(&three.admission).take());
    assert!(lock(&pending.counts).stalled.is_empty(), "nor is a closed connection");
}

#[test]
fn a_closing_listener_closes_its_stalled_connections() {
    let pending = Arc::new(Admissions::default());
    let first = [&stall::<2>(&pending, 1, 1, 0)[..], &stall::<1>(&pending, 1, 2, 0)].concat();
    let second = stall::<1>(&pending, 2, 1, 0);
    pending.close_stalled(1);
    assert_eq!((are_open(&first), are_open(&second)), (vec![false; 3], vec![true]));
}

/// Each row: complete and stalled connections at listener 1 and at listener 2, and whether listener 1 has
/// room.
#[test]
fn there_is_room_below_the_limits_or_with_a_stalled_connection() {
    for (here, here_stalled, there, there_stalled, expected) in [
        (0, 0, 0, 0, true),
        (4, 0, 0, 0, true),
        (5, 0, 0, 0, false),
        (4, 1, 0, 0, true),
        (5, 0, 0, 1, false),
        (6, 0, 0, 0, false),
        (4, 0, 3, 0, true),
        (4, 0, 4, 0, false),
        (4, 0, 5, 0, false),
        (4, 0, 3, 1, true),
        (3, 1, 4, 0, true),
    ] {
        let pending = Arc::new(Admissions::default());
        let wide = Limits { process: 99, listener: 99, address: 99 };
        let mut connections = Vec::new();
        let mut admissions = Vec::new();
        for (listener, complete, stalled) in [(1, here, here_stalled), (2, there, there_stalled)] {
            admissions.extend((0..complete).map(|_| pending.admit(listener, host(1), wide).unwrap().0));
            for last in 0..stalled {
                connections.extend(stall::<1>(&pending, listener, 10 + last, 0));
            }
        }
        let listener = Arc::new(Counter::default());
        let case = (here, here_stalled, there, there_stalled);
        assert_eq!(pending.has_room(1, &listener, LIMITS), expected, "{case:?}");
        drop((admissions, connections));
        assert_eq!(listener.resumed(), usize::from(!expected), "{case:?}");
    }
}

#[test]
fn a_paused_listener_is_resumed_once_when_an_admission_is_released() {
    let pending = Arc::new(Admissions::default());
    let mut admissions: Vec<Admission> = (0..8).map(|i| admit(&pending, 1, i).unwrap()).collect();
    let (one, two) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    for _ in 0..3 {
        assert!(!pending.has_room(1, &one, LIMITS));
        assert!(!pending.has_room(2, &two, LIMITS));
    }
    assert_eq!((one.resumed(), two.resumed()), (0, 0));
    admissions.pop();
    assert_eq!((one.resumed(), two.resumed()), (1, 1));
    admissions.pop();
    assert_eq!((one.resumed(), two.resumed()), (1, 1));
}

#[test]
fn addresses_of_one_ipv6_prefix_are_one_host() {
    let of = |text: &str| RemoteHost::of(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::1"));
    assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
}

#[test]
fn limits_leave_the_process_most_of_its_descriptors() {
    let settings = Limits { process: 4096, listener: 2048, address: 1024 };
    // Each row: descriptors permitted, descriptors left, the limit of the process, the limit of a listener.
    for (most, left, process, listener) in [
        (1 << 20, 1 << 20, 4096, 2048),
        (16384, 16384, 4096, 2048),
        (16383, 16384, 4095, 2048),
        (1 << 20, 8191, 4095, 2048),
        (1024, 1000, 256, 128),
        (1024, 100, 50, 25),
        (1024, 10, 5, 3),
        (1024, 2, 1, 1),
        (1024, 0, 1, 1),
        (3, 3, 1, 1),
    ] {
        let expected = Limits { process, listener, address: 1024 };
        assert_eq!(settings.within(most, left), expected, "{most} {left}");
    }
    assert_eq!(Limits { listener: 7, ..settings }.within(1024, 1024).listener, 7);
    let (now, most) = (Limits::now(), sys::max_descriptors());
    assert!(now.process >= 1 && now.process <= (most / 4).max(1));
    assert!(now.listener <= now.process);
}

#[test]
fn a_process_has_one_count_of_pending_connections() {
    assert!(Arc::ptr_eq(&Admissions::get(), &Admissions::get()));
}
