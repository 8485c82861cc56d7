// SPDX-License-Identifier: BSD-3-Clause
//! Every posted item whose poster has left a reason is consumed, whichever thread drives.

use loom::sync::Arc;
use loom::thread;

use super::super::ring::Ring;
use super::super::sync::{AtomicU32, Ordering::Relaxed};
use super::super::turn::{Left, Turn};
use super::{AGAIN, Held, RECEIVE, RunList, assert_at_rest, check, check_in};
use crate::policy::Policy;
use crate::policy::mode::{Mode, random_modes};
use crate::policy::poller::Poller;

const POSTED: u32 = 1;

struct Line {
    turn: Turn,
    held: Held,
    list: RunList,
    later: RunList,
    posted: Ring<(usize, u32)>,
    /// The number of the next item of each poster.
    next: [AtomicU32; 2],
    rounds: u32,
    /// Items that a step consumes.
    budget: u32,
    /// The program polls instead of posting: the work that it leaves goes to the deferred list.
    polls: bool,
    poller: Poller,
}

impl Line {
    fn new(rounds: u32, budget: u32) -> Arc<Self> {
        Arc::new(Self::line(rounds, budget, false, Mode::Adaptive))
    }

    fn of_a_poller(rounds: u32, budget: u32, mode: Mode) -> Arc<Self> {
        Arc::new(Self::line(rounds, budget, true, mode))
    }

    fn line(rounds: u32, budget: u32, polls: bool, mode: Mode) -> Self {
        let next = [AtomicU32::new(0), AtomicU32::new(0)];
        let (turn, held, list, later) = (Turn::new(), Held::new(), RunList::new(), RunList::new());
        let (posted, poller) = (Ring::new(2).unwrap(), Poller::new(mode));
        Self { turn, held, list, later, posted, next, rounds, budget, polls, poller }
    }

    /// As `Qp::run`.
    fn run(&self, polls: bool) {
        let step = |_| {
            self.held.step(|| {
                for _ in 0..self.budget {
                    let Some(item) = self.posted.pop() else { break };
                    self.consume(item);
                }
                let again = if self.posted.has_value() { AGAIN } else { 0 };
                Some(Left { again, stalled: false })
            })
        };
        if self.turn.run(self.rounds, polls, RECEIVE, step, || false) {
            if polls { self.later.list() } else { self.list.list() }
        }
        if polls {
            self.poller.polled();
        }
    }

    fn consume(&self, (poster, number): (usize, u32)) {
        assert_eq!(self.next[poster].load(Relaxed), number, "out of order, lost or twice");
        self.next[poster].store(number + 1, Relaxed);
    }

    /// As `Qp::carry_out_in_turn`; `is_copied`: without the ring, if the connection is idle.
    fn post_alone(&self, poster: usize, number: u32, is_copied: bool) {
        if !self.turn.enter_at_rest() {
            return self.post(poster, number);
        }
        match self.posted.claim() {
            Some(entry) if is_copied => {
                self.held.step(|| self.consume((poster, number)));
                // Its completion may be polled before.
                self.posted.free(1);
                entry.taken();
            }
            Some(entry) => entry.push((poster, number)),
            None => assert!(self.posted.push((poster, number)).is_ok()),
        }
        if !self.turn.leave() {
            self.run(self.polls);
        }
        if self.turn.enter(POSTED) {
            self.run(self.polls);
        }
    }

    fn post(&self, poster: usize, number: u32) {
        assert!(self.posted.push((poster, number)).is_ok());
        if self.turn.enter(POSTED) {
            self.run(self.polls);
        }
    }

    fn post_later(&self, poster: usize, number: u32) {
        assert!(self.posted.push((poster, number)).is_ok());
        if self.turn.defer(POSTED) {
            self.later.list();
        }
    }

    fn engine(&self) {
        if self.list.take() && self.turn.enter_listed() {
            self.run(false);
        }
        if self.later.take() {
            // As `Qp::drive_deferred`.
            if self.turn.has_just(AGAIN) && self.poller.will_return() {
                self.later.list();
            } else if self.turn.enter_deferred() {
                self.run(false);
            }
        }
    }

    fn assert_all_consumed(&self, posted: [u32; 2]) {
        while !self.list.is_empty() || !self.later.is_empty() {
            self.engine();
        }
        assert_eq!([0, 1].map(|poster| self.next[poster].load(Relaxed)), posted);
        assert!(!self.posted.has_value());
        assert_at_rest(&self.turn, &self.list);
    }
}

#[test]
fn two_post_and_drive() {
    check(|| {
        let line = Line::new(8, 8);
        let thread = thread::spawn({
            let line = line.clone();
            move || line.post(0, 0)
        });
        line.post(1, 0);
        thread.join().unwrap();
        line.assert_all_consumed([1, 1]);
    });
}

#[test]
fn what_goes_without_the_ring_keeps_the_order() {
    for is_copied in [true, false] {
        check(move || {
            let line = Line::new(8, 8);
            let thread = thread::spawn({
                let line = line.clone();
                move || line.post_alone(0, 0, is_copied)
            });
            line.post_alone(1, 0, is_copied);
            thread.join().unwrap();
            line.assert_all_consumed([1, 1]);
            line.post(1, 1);
            line.assert_all_consumed([1, 2]);
        });
    }
}

#[test]
fn a_slot_is_reused_by_another_driver() {
    check(|| {
        let line = Line::new(8, 8);
        line.post(0, 0);
        let thread = thread::spawn({
            let line = line.clone();
            move || line.post(0, 1)
        });
        line.post(1, 0);
        thread.join().unwrap();
        line.assert_all_consumed([2, 1]);
    });
}

fn two_post_beside_the_engine(line: &Arc<Line>) {
    let threads = [
        thread::spawn({
            let line = line.clone();
            move || line.post(0, 0)
        }),
        thread::spawn({
            let line = line.clone();
            move || line.engine()
        }),
    ];
    line.post(1, 0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    line.assert_all_consumed([1, 1]);
}

#[test]
fn work_beyond_a_small_budget_is_consumed_by_the_engine() {
    check(|| two_post_beside_the_engine(&Line::new(1, 1)));
}

#[test]
fn deferred_items_are_consumed_in_order() {
    check(|| {
        let line = Line::new(8, 8);
        let thread = thread::spawn({
            let line = line.clone();
            move || line.engine()
        });
        line.post_later(0, 0);
        line.post(0, 1);
        thread.join().unwrap();
        line.assert_all_consumed([2, 0]);
    });
}

#[test]
fn items_deferred_by_two_are_consumed_without_another_reason() {
    check(|| {
        let line = Line::new(8, 8);
        let threads = [
            thread::spawn({
                let line = line.clone();
                move || line.engine()
            }),
            thread::spawn({
                let line = line.clone();
                move || line.post_later(1, 0)
            }),
        ];
        line.post_later(0, 0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        line.assert_all_consumed([1, 1]);
    });
}

#[test]
fn work_that_a_poll_leaves_is_consumed_by_the_engine_or_the_next_poll() {
    // Two polls are followed by two decisions at most.
    for mode in random_modes(2) {
        check_in(mode, move || two_post_beside_the_engine(&Line::of_a_poller(1, 1, mode)));
    }
}
