// SPDX-License-Identifier: BSD-3-Clause
//! Pushed values come out once, in the order of their poster, despite slots that are claimed and not filled
//! yet.

use loom::sync::Arc;
use loom::thread;

use super::super::ring::Ring;
use super::check;

/// Takes all values: (poster, number).
fn drain(ring: &Ring<(usize, u32)>, next: &mut [u32]) {
    while let Some((poster, number)) = ring.pop() {
        assert_eq!(number, next[poster], "out of order, lost or twice");
        next[poster] += 1;
    }
}

/// As [`drain`], for entries that stay in use.
fn take(ring: &Ring<(usize, u32)>, next: &mut [u32]) {
    while let Some((poster, number)) = ring.take() {
        assert_eq!(number, next[poster], "out of order, lost or twice");
        next[poster] += 1;
    }
}

#[test]
fn two_posters_and_a_driver() {
    check(|| {
        let ring = Arc::new(Ring::new(3).unwrap());
        let posters = [(0, 2), (1, 1)].map(|(poster, count)| {
            let ring = ring.clone();
            thread::spawn(move || (0..count).for_each(|i| assert!(ring.push((poster, i)).is_ok())))
        });
        let mut next = [0; 2];
        drain(&ring, &mut next);
        let seen = ring.has_value();
        let taken = ring.pop();
        assert!(!seen || taken.is_some(), "a value has disappeared");
        if let Some((poster, number)) = taken {
            assert_eq!(number, next[poster]);
            next[poster] += 1;
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        drain(&ring, &mut next);
        assert_eq!(next, [2, 1]);
        assert!(!ring.has_value());
        assert_eq!(ring.len(), 0);
    });
}

#[test]
fn a_slot_is_reused_and_a_full_ring_returns_the_value() {
    check(|| {
        let ring = Arc::new(Ring::new(1).unwrap());
        let posters = [0, 1].map(|poster| {
            let ring = ring.clone();
            thread::spawn(move || u32::from(ring.push((poster, 0)).is_ok()))
        });
        let mut next = [0; 2];
        drain(&ring, &mut next);
        let pushed = posters.map(|poster| poster.join().unwrap());
        drain(&ring, &mut next);
        assert_eq!(next, pushed);
        assert!(pushed[0] + pushed[1] > 0, "a ring with room has refused both");
    });
}

#[test]
fn a_slot_is_emptied_before_it_is_free() {
    check(|| {
        let ring = Arc::new(Ring::new(1).unwrap());
        ring.push((0, 0)).unwrap();
        let poster = thread::spawn({
            let ring = ring.clone();
            move || u32::from(ring.push((1, 0)).is_ok())
        });
        let mut next = [0; 2];
        drain(&ring, &mut next);
        let pushed = poster.join().unwrap();
        drain(&ring, &mut next);
        assert_eq!(next, [1, pushed]);
    });
}

#[test]
fn an_entry_that_another_thread_frees_is_used_again() {
    check(|| {
        let ring = Arc::new(Ring::new(2).unwrap());
        (0..2).for_each(|i| assert_eq!(ring.push((0, i)), Ok(i == 0)));
        let mut next = [0; 2];
        take(&ring, &mut next);
        // The program polls both completions, then posts; another thread posts at the same time.
        let polls = thread::spawn({
            let ring = ring.clone();
            move || {
                ring.free(1);
                ring.free(1);
                assert!(ring.push((0, 2)).is_ok(), "one entry is free whatever the other thread does");
            }
        });
        let posts = thread::spawn({
            let ring = ring.clone();
            move || u32::from(ring.push((1, 0)).is_ok())
        });
        take(&ring, &mut next);
        polls.join().unwrap();
        let pushed = posts.join().unwrap();
        take(&ring, &mut next);
        assert_eq!((next, ring.room()), ([3, pushed], 1 - pushed as usize));
    });
}
