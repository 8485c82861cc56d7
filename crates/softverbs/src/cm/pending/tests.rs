// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the limits: who is admitted, who has to go for it, and who is told that there is room again.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMITS: Limits = Limits { process: 8, listener: 5, address: 3 };

/// A connection without a complete request.
struct Stranger {
    place: Mutex<Option<Place>>,
}

impl Stranger {
    fn is_there(&self) -> bool {
        lock(&self.place).is_some()
    }
}

impl Pending for Stranger {
    fn dismiss(&self) -> bool {
        lock(&self.place).take().is_some()
    }
}

/// A listener that counts how often it is told to go on.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Counter {
    fn told(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Waiting for Counter {
    fn go_on(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn host(last: u8) -> Host {
    Host::of(IpAddr::from([10, 0, 0, last]))
}

/// A connection whose request is complete.
fn admit(pending: &Arc<Guests>, listener: u64, last: u8) -> Option<Place> {
    let (place, dismissed) = pending.admit(listener, host(last), LIMITS)?;
    assert_eq!(dismissed, 0);
    Some(place)
}

/// Stalled connections of a host, for each of which `dismissed` others must go.
fn stall<const N: usize>(
    pending: &Arc<Guests>,
    listener: u64,
    last: u8,
    dismissed: usize,
) -> [Arc<Stranger>; N] {
    std::array::from_fn(|_| {
        let (place, gone) = pending.admit(listener, host(last), LIMITS).unwrap();
        assert_eq!(gone, dismissed);
        let stranger = Arc::new(Stranger { place: Mutex::default() });
        place.stalls(Arc::downgrade(&stranger) as _);
        *lock(&stranger.place) = Some(place);
        stranger
    })
}

fn there(strangers: &[Arc<Stranger>]) -> Vec<bool> {
    strangers.iter().map(|stranger| stranger.is_there()).collect()
}

#[test]
fn an_address_has_a_limit_and_others_are_still_admitted() {
    let pending = Arc::new(Guests::default());
    let mut places: Vec<Place> = (0..3).map(|_| admit(&pending, 1, 1).unwrap()).collect();
    let others = stall::<1>(&pending, 1, 2, 0);
    assert!(admit(&pending, 1, 1).is_none());
    assert!(admit(&pending, 2, 1).is_none(), "at whichever listener");
    assert_eq!(there(&others), [true], "nobody else goes for it");
    places.push(admit(&pending, 1, 2).unwrap());
    places.remove(0);
    assert!(admit(&pending, 2, 1).is_some());
}

#[test]
fn complete_requests_are_never_dismissed_and_what_is_given_up_is_counted() {
    let pending = Arc::new(Guests::default());
    let places: Vec<Place> = (0..10).map(|i| admit(&pending, 1, i).unwrap()).collect();
    assert_eq!(lock(&pending.counts).at(1), 10);
    assert!(!pending.dismiss_one());
    drop(places);
    let counts = lock(&pending.counts);
    assert!(counts.total == 0 && counts.listeners.is_empty() && counts.hosts.is_empty());
}

#[test]
fn at_the_limit_of_its_address_the_oldest_goes() {
    let pending = Arc::new(Guests::default());
    let others = stall::<2>(&pending, 1, 2, 0);
    let first = stall::<3>(&pending, 1, 1, 0);
    let second = stall::<2>(&pending, 2, 1, 1);
    assert_eq!((there(&first), there(&second)), (vec![false, false, true], vec![true, true]));
    assert_eq!(there(&others), [true, true]);
}

#[test]
fn at_the_limit_of_a_listener_the_oldest_of_its_greatest_host_goes() {
    let pending = Arc::new(Guests::default());
    let elsewhere = stall::<3>(&pending, 2, 9, 0);
    let one = stall::<1>(&pending, 1, 1, 0);
    let two = stall::<2>(&pending, 1, 2, 0);
    let _complete = [admit(&pending, 1, 3).unwrap(), admit(&pending, 1, 3).unwrap()];
    let new = stall::<1>(&pending, 1, 4, 1);
    assert_eq!((there(&one), there(&two), there(&new)), (vec![true], vec![false, true], vec![true]));
    assert_eq!(there(&elsewhere), [true; 3]);
}

#[test]
fn at_the_limit_of_the_process_the_oldest_of_the_greatest_host_goes() {
    let pending = Arc::new(Guests::default());
    let one = stall::<1>(&pending, 1, 1, 0);
    let two = stall::<2>(&pending, 2, 2, 0);
    let _complete = [3, 4, 5, 6].map(|last| admit(&pending, 1, last).unwrap());
    let eighth = stall::<1>(&pending, 3, 7, 0);
    let ninth = stall::<1>(&pending, 3, 8, 1);
    assert_eq!((there(&one), there(&two)), (vec![true], vec![false, true]));
    assert_eq!((there(&eighth), there(&ninth)), (vec![true], vec![true]));
}

#[test]
fn a_complete_request_is_stalled_no_more() {
    let pending = Arc::new(Guests::default());
    let [one, two] = stall(&pending, 1, 1, 0);
    lock(&one.place).as_ref().unwrap().stalls_no_more();
    assert!(pending.dismiss_one());
    assert_eq!((one.is_there(), two.is_there()), (true, false));
    assert!(!pending.dismiss_one());
    assert!(lock(&pending.counts).stalled.is_empty());
    let [three] = stall(&pending, 1, 1, 0);
    drop(lock(&three.place).take());
    assert!(lock(&pending.counts).stalled.is_empty(), "nor is one that has gone");
}

#[test]
fn a_listener_that_closes_dismisses_its_own() {
    let pending = Arc::new(Guests::default());
    let first = [&stall::<2>(&pending, 1, 1, 0)[..], &stall::<1>(&pending, 1, 2, 0)].concat();
    let second = stall::<1>(&pending, 2, 1, 0);
    pending.dismiss_all(1);
    assert_eq!((there(&first), there(&second)), (vec![false; 3], vec![true]));
}

/// Connections at listener 1 and at listener 2, complete and stalled, and whether listener 1 has room then.
#[test]
fn there_is_room_below_the_limits_or_if_somebody_can_go() {
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
        let pending = Arc::new(Guests::default());
        let wide = Limits { process: 99, listener: 99, address: 99 };
        let mut strangers = Vec::new();
        let mut places = Vec::new();
        for (listener, complete, stalled) in [(1, here, here_stalled), (2, there, there_stalled)] {
            places.extend((0..complete).map(|_| pending.admit(listener, host(1), wide).unwrap().0));
            for last in 0..stalled {
                strangers.extend(stall::<1>(&pending, listener, 10 + last, 0));
            }
        }
        let listener = Arc::new(Counter::default());
        let case = (here, here_stalled, there, there_stalled);
        assert_eq!(pending.has_room(1, &listener, LIMITS), expected, "{case:?}");
        drop((places, strangers));
        assert_eq!(listener.told(), usize::from(!expected), "{case:?}");
    }
}

#[test]
fn a_listener_without_room_is_told_once_when_a_place_is_free() {
    let pending = Arc::new(Guests::default());
    let mut places: Vec<Place> = (0..8).map(|i| admit(&pending, 1, i).unwrap()).collect();
    let (one, two) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    for _ in 0..3 {
        assert!(!pending.has_room(1, &one, LIMITS));
        assert!(!pending.has_room(2, &two, LIMITS));
    }
    assert_eq!((one.told(), two.told()), (0, 0));
    places.pop();
    assert_eq!((one.told(), two.told()), (1, 1));
    places.pop();
    assert_eq!((one.told(), two.told()), (1, 1));
}

#[test]
fn the_owner_of_a_network_is_one_host() {
    let of = |text: &str| Host::of(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::1"));
    assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
}

#[test]
fn a_process_keeps_most_of_its_descriptors() {
    let settings = Limits { process: 4096, listener: 2048, address: 1024 };
    // Descriptors that the process may have, those that are left, the limits of the process and of a
    // listener.
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
fn a_process_counts_all_its_guests_together() {
    assert!(Arc::ptr_eq(&Guests::get(), &Guests::get()));
}
