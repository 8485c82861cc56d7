// SPDX-License-Identifier: BSD-3-Clause
//! Only one thread drives, and no reason is lost.

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use super::super::sync::{AtomicU32, Ordering::Relaxed};
use super::super::turn::{Left, Turn};
use super::{AGAIN, Held, NOTHING, RECEIVE, RunList, assert_at_rest, check};

/// A connection with notes to be read by its driver.
struct Line {
    turn: Turn,
    held: Held,
    list: RunList,
    later: RunList,
    /// The note that each thread writes before it leaves a reason, and what the steps have read of it.
    notes: [AtomicU32; 3],
    seen: [AtomicU32; 3],
    rounds: u32,
    /// The number of steps whose budget is used up at once.
    cut: AtomicU32,
}

impl Line {
    fn new(rounds: u32, cut: u32) -> Arc<Self> {
        let zero = || AtomicU32::new(0);
        Arc::new(Self {
            turn: Turn::new(),
            held: Held::new(),
            list: RunList::new(),
            later: RunList::new(),
            notes: [zero(), zero(), zero()],
            seen: [zero(), zero(), zero()],
            rounds,
            cut: AtomicU32::new(cut),
        })
    }

    fn run(&self) {
        let step = |why| {
            self.held.step(|| {
                let cut = self.cut.load(Relaxed);
                if cut > 0 {
                    self.cut.store(cut - 1, Relaxed);
                    // The reasons are taken, but their work is still to be done.
                    return Some(Left { again: AGAIN | why, stalled: false });
                }
                for (i, note) in self.notes.iter().enumerate() {
                    let note = note.load(Relaxed);
                    assert!(why & (1 << i) == 0 || note > 0, "a reason without the writes before it");
                    self.seen[i].store(note, Relaxed);
                }
                Some(NOTHING)
            })
        };
        if self.turn.run(self.rounds, false, RECEIVE, step, || false) {
            self.list.list();
        }
    }

    fn note(&self, i: usize) {
        let note = self.notes[i].load(Relaxed);
        self.notes[i].store(note + 1, Relaxed);
    }

    fn drive(&self, i: usize, reason: u32) {
        self.note(i);
        if self.turn.enter(reason) {
            self.run();
        }
    }

    fn defer(&self, i: usize, reason: u32) {
        self.note(i);
        if self.turn.defer(reason) {
            self.later.list();
        }
    }

    fn engine(&self) {
        if self.list.take() && self.turn.enter_listed() {
            self.run();
        }
    }

    fn timer(&self) {
        if self.later.take() && self.turn.enter_deferred() {
            self.run();
        }
    }

    /// Waits for the threads, and asserts that no reason was lost.
    fn end<const N: usize>(&self, threads: [JoinHandle<()>; N]) {
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.assert_all_seen();
    }

    fn assert_all_seen(&self) {
        while !self.list.is_empty() || !self.later.is_empty() {
            self.engine();
            self.timer();
        }
        assert!(self.later.is_empty());
        for (note, seen) in self.notes.iter().zip(&self.seen) {
            assert_eq!(note.load(Relaxed), seen.load(Relaxed), "a reason was overlooked");
        }
        assert_at_rest(&self.turn, &self.list);
    }
}

fn spawn(line: &Arc<Line>, run: impl FnOnce(&Line) + 'static) -> JoinHandle<()> {
    let line = line.clone();
    thread::spawn(move || run(&line))
}

#[test]
fn one_drives_and_no_reason_is_lost() {
    check(|| {
        let line = Line::new(8, 0);
        let thread = spawn(&line, |line| {
            line.drive(0, 1);
            line.drive(0, 1);
        });
        line.drive(1, 2);
        line.end([thread]);
    });
}

#[test]
fn writes_before_the_same_reason_of_two_threads_are_seen() {
    check(|| {
        let line = Line::new(8, 0);
        // Both leave the same reason; the last step that gets it must see both notes.
        let threads = [0, 1].map(|i| {
            spawn(&line, move |line| {
                line.note(i);
                if line.turn.enter(AGAIN) {
                    line.run();
                }
            })
        });
        line.drive(2, 4);
        line.end(threads);
    });
}

#[test]
fn a_step_without_budget_continues_on_the_engine() {
    check(|| {
        let line = Line::new(8, 1);
        let threads = [
            spawn(&line, |line| line.drive(0, 1)),
            spawn(&line, |line| {
                line.engine();
                line.engine();
            }),
        ];
        line.drive(1, 2);
        line.end(threads);
    });
}

#[test]
fn the_last_round_hands_over_and_loses_nothing() {
    check(|| {
        let line = Line::new(1, 0);
        let threads = [spawn(&line, |line| line.drive(0, 1)), spawn(&line, |line| line.engine())];
        line.drive(1, 2);
        line.end(threads);
    });
}

#[test]
fn deferred_work_is_done_by_the_driver_or_the_engine() {
    check(|| {
        let line = Line::new(8, 0);
        let threads = [
            spawn(&line, |line| {
                line.defer(0, 1);
                line.defer(0, 1);
            }),
            spawn(&line, |line| line.timer()),
        ];
        line.drive(1, 2);
        line.end(threads);
    });
}

#[test]
fn work_that_is_handed_over_does_not_wait_for_deferred_work() {
    check(|| {
        let line = Line::new(8, 1);
        line.defer(0, 1);
        let thread = spawn(&line, |line| line.timer());
        // The first step has no budget; the driver hands over, even if the connection is on the deferred
        // list.
        line.drive(1, 2);
        line.engine();
        thread.join().unwrap();
        line.engine();
        let notes = line.notes.each_ref().map(|note| note.load(Relaxed));
        assert_eq!(
            line.seen.each_ref().map(|seen| seen.load(Relaxed)),
            notes,
            "only the timer would have found it"
        );
        line.assert_all_seen();
    });
}

#[test]
fn work_deferred_to_a_driver_does_not_wake_the_engine() {
    check(|| {
        let line = Line::new(8, 0);
        assert!(line.turn.enter(1));
        assert!(!line.turn.defer(2), "the driver will see it");
        line.note(0);
        line.note(1);
        line.run();
        line.assert_all_seen();
        assert!(line.turn.defer(1));
        assert!(!line.turn.defer(2), "it is on the list already");
        line.later.list();
        line.assert_all_seen();
    });
}
