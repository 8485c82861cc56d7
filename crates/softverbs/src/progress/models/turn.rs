// SPDX-License-Identifier: BSD-3-Clause
//! Who drives, and that no reason is lost.

use loom::sync::Arc;
use loom::thread;

use super::super::sync::{AtomicU32, Ordering::Relaxed};
use super::super::turn::{Left, Turn};
use super::{AGAIN, Held, NOTHING, RECEIVE, RunList, assert_at_rest, check};

/// A connection that is driven for what is noted in it.
struct Line {
    turn: Turn,
    held: Held,
    list: RunList,
    later: RunList,
    /// What each thread has written before it left its reason, and what the steps have read of it.
    notes: [AtomicU32; 3],
    seen: [AtomicU32; 3],
    rounds: u32,
    /// Steps that are cut short.
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
                    // The reasons are taken; what they stood for is still to be done.
                    return Some(Left { again: AGAIN | why, stalled: false });
                }
                for (i, note) in self.notes.iter().enumerate() {
                    let note = note.load(Relaxed);
                    assert!(why & (1 << i) == 0 || note > 0, "a reason without what was written before it");
                    self.seen[i].store(note, Relaxed);
                }
                Some(NOTHING)
            })
        };
        if self.turn.drive(self.rounds, false, RECEIVE, step, || false) {
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

#[test]
fn one_drives_and_no_reason_is_lost() {
    check(|| {
        let line = Line::new(8, 0);
        let other = line.clone();
        let thread = thread::spawn(move || {
            other.drive(0, 1);
            other.drive(0, 1);
        });
        line.drive(1, 2);
        thread.join().unwrap();
        line.assert_all_seen();
    });
}

#[test]
fn what_was_written_before_the_same_reason_by_two_is_seen() {
    check(|| {
        let line = Line::new(8, 0);
        // Both leave one reason; the step that is given it must see both notes in the end, whoever it is.
        let threads = [0, 1].map(|i| {
            let line = line.clone();
            thread::spawn(move || {
                line.note(i);
                if line.turn.enter(AGAIN) {
                    line.run();
                }
            })
        });
        line.drive(2, 4);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        line.assert_all_seen();
    });
}

#[test]
fn a_step_that_is_cut_short_goes_on_with_the_engine() {
    check(|| {
        let line = Line::new(8, 1);
        let threads = [
            thread::spawn({
                let line = line.clone();
                move || line.drive(0, 1)
            }),
            thread::spawn({
                let line = line.clone();
                move || {
                    line.engine();
                    line.engine();
                }
            }),
        ];
        line.drive(1, 2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        line.assert_all_seen();
    });
}

#[test]
fn the_last_round_hands_over_and_loses_nothing() {
    check(|| {
        let line = Line::new(1, 0);
        let threads = [
            thread::spawn({
                let line = line.clone();
                move || line.drive(0, 1)
            }),
            thread::spawn({
                let line = line.clone();
                move || line.engine()
            }),
        ];
        line.drive(1, 2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        line.assert_all_seen();
    });
}

#[test]
fn what_is_deferred_is_done_by_the_driver_or_by_the_engine() {
    check(|| {
        let line = Line::new(8, 0);
        let threads = [
            thread::spawn({
                let line = line.clone();
                move || {
                    line.defer(0, 1);
                    line.defer(0, 1);
                }
            }),
            thread::spawn({
                let line = line.clone();
                move || line.timer()
            }),
        ];
        line.drive(1, 2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        line.assert_all_seen();
    });
}

#[test]
fn what_is_handed_over_does_not_wait_for_what_is_deferred() {
    check(|| {
        let line = Line::new(8, 1);
        line.defer(0, 1);
        let thread = thread::spawn({
            let line = line.clone();
            move || line.timer()
        });
        // The first step is cut short; the driver hands over, whatever list the connection is on already.
        line.drive(1, 2);
        line.engine();
        thread.join().unwrap();
        line.engine();
        let notes = line.notes.each_ref().map(|note| note.load(Relaxed));
        assert_eq!(
            line.seen.each_ref().map(|seen| seen.load(Relaxed)),
            notes,
            "only the timer would have seen it"
        );
        line.assert_all_seen();
    });
}

#[test]
fn what_is_deferred_to_a_driver_does_not_wake_the_engine() {
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
