// SPDX-License-Identifier: BSD-3-Clause
//! The engine never sleeps with work on its list, and one system call a sleep wakes it.

use loom::sync::Arc;
use loom::thread;

use super::super::ring::Ring;
use super::super::sync::{AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use super::super::turn::{Left, Turn};
use super::super::wakeup::Wakeup;
use super::{Held, NOTHING, RECEIVE, RunList, assert_at_rest, check};

/// The descriptor on which the engine sleeps: unread writes, and the total number of writes.
struct Wake {
    raised: AtomicU32,
    writes: AtomicU32,
}

impl Wake {
    fn new() -> Self {
        Self { raised: AtomicU32::new(0), writes: AtomicU32::new(0) }
    }

    fn raise(&self) {
        self.writes.fetch_add(1, Relaxed);
        // A read of the descriptor is ordered after the writes that it takes: these are system calls.
        self.raised.fetch_add(1, AcqRel);
    }

    fn take(&self) -> bool {
        self.raised.swap(0, AcqRel) > 0
    }
}

/// An engine whose list is a counter. The real lists have locks, which would order more than the wakeup
/// guarantees.
struct Engine {
    wakeup: Wakeup,
    wake: Wake,
    list: AtomicU32,
    done: AtomicU32,
}

impl Engine {
    fn new() -> Arc<Self> {
        let (wakeup, wake) = (Wakeup::new(), Wake::new());
        Arc::new(Self { wakeup, wake, list: AtomicU32::new(0), done: AtomicU32::new(0) })
    }

    fn list(&self) {
        self.list.fetch_add(1, Relaxed);
        if self.wakeup.must_wake() {
            self.wake.raise();
        }
    }

    /// At most `rounds` rounds of the engine's loop. Returns how often it was about to sleep, and whether it
    /// sleeps at the end.
    fn run(&self, rounds: u32) -> (u32, bool) {
        for round in 1..=rounds {
            self.wakeup.about_to_sleep();
            let asleep = self.list.load(Relaxed) == 0;
            if asleep && !self.wake.take() {
                return (round, true);
            }
            self.wakeup.awake();
            self.wake.take();
            self.done.fetch_add(self.list.swap(0, Relaxed), Relaxed);
        }
        (rounds, false)
    }
}

#[test]
fn the_engine_does_not_sleep_with_work_on_its_list() {
    check(|| {
        let engine = Engine::new();
        let threads = [0, 1].map(|_| {
            let engine = engine.clone();
            thread::spawn(move || engine.list())
        });
        let (sleeps, asleep) = engine.run(2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let left = engine.list.load(Relaxed);
        assert_eq!(engine.done.load(Relaxed) + left, 2);
        assert!(!asleep || left == 0 || engine.wake.take(), "asleep with work");
        assert!(engine.wake.writes.load(Relaxed) <= sleeps, "more than one system call for a sleep");
    });
}

#[test]
fn an_engine_that_is_awake_is_not_woken() {
    check(|| {
        let engine = Engine::new();
        engine.list();
        assert_eq!(engine.wake.writes.load(Relaxed), 0);
        engine.wakeup.about_to_sleep();
        engine.list();
        engine.list();
        assert_eq!(engine.wake.writes.load(Relaxed), 1);
        engine.wakeup.about_to_sleep();
        engine.wakeup.awake();
        engine.list();
        assert_eq!(engine.wake.writes.load(Relaxed), 1);
    });
}

/// A connection with a ring, and the engine to which it is handed over.
struct Line {
    turn: Turn,
    held: Held,
    posted: Ring<u32>,
    list: RunList,
    wakeup: Wakeup,
    wake: Wake,
    next: AtomicU32,
}

impl Line {
    /// A post without budget: it hands over.
    fn post(&self, number: u32) {
        assert!(self.posted.push(number).is_ok());
        if !self.turn.enter(1) {
            return;
        }
        let step = |why| self.held.step(|| Some(Left { again: why, stalled: false }));
        if self.turn.run(8, false, RECEIVE, step, || false) {
            self.list.list();
            if self.wakeup.must_wake() {
                self.wake.raise();
            }
        }
    }

    fn drive_listed(&self) {
        if !(self.list.take() && self.turn.enter_listed()) {
            return;
        }
        let step = |_| {
            self.held.step(|| {
                while let Some(number) = self.posted.pop() {
                    assert_eq!(self.next.load(Relaxed), number);
                    self.next.store(number + 1, Relaxed);
                }
                Some(NOTHING)
            })
        };
        assert!(!self.turn.run(8, false, RECEIVE, step, || false));
    }
}

#[test]
fn no_handed_over_work_is_left_while_the_engine_sleeps() {
    check(|| {
        let line = Arc::new(Line {
            turn: Turn::new(),
            held: Held::new(),
            posted: Ring::new(2).unwrap(),
            list: RunList::new(),
            wakeup: Wakeup::new(),
            wake: Wake::new(),
            next: AtomicU32::new(0),
        });
        let engine = thread::spawn({
            let line = line.clone();
            move || {
                for _ in 0..2 {
                    line.wakeup.about_to_sleep();
                    if line.list.is_empty() && !line.wake.take() {
                        return true;
                    }
                    line.wakeup.awake();
                    line.drive_listed();
                }
                false
            }
        });
        line.post(0);
        line.post(1);
        let asleep = engine.join().unwrap();
        if asleep && !line.wake.take() {
            assert_eq!(line.next.load(Relaxed), 2, "asleep with work");
            assert_at_rest(&line.turn, &line.list);
        }
        line.drive_listed();
        assert_eq!(line.next.load(Relaxed), 2);
        assert_at_rest(&line.turn, &line.list);
    });
}
