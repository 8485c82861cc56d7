// SPDX-License-Identifier: BSD-3-Clause
//! A message without a receive: the thread that posts the receive and the driver that decides to wait for it
//! do not miss each other.

use loom::sync::Arc;
use loom::thread;

use super::super::ring::Ring;
use super::super::sync::{AtomicU32, Ordering::Relaxed};
use super::super::turn::{Left, Turn};
use super::{Held, RECEIVE, RunList, assert_at_rest, check};

const READABLE: u32 = 1;

struct Line {
    turn: Turn,
    held: Held,
    receives: Ring<u32>,
    /// Messages that have arrived, and those that were given a receive.
    arrived: u32,
    delivered: AtomicU32,
}

impl Line {
    fn new(arrived: u32) -> Arc<Self> {
        let (turn, held) = (Turn::new(), Held::new());
        Arc::new(Self { turn, held, receives: Ring::new(2).unwrap(), arrived, delivered: AtomicU32::new(0) })
    }

    fn drive(&self, reason: u32) {
        if !self.turn.enter(reason) {
            return;
        }
        let step = |_| {
            self.held.step(|| {
                let mut delivered = self.delivered.load(Relaxed);
                while delivered < self.arrived && self.receives.pop().is_some() {
                    delivered += 1;
                }
                self.delivered.store(delivered, Relaxed);
                Some(Left { again: 0, stalled: delivered < self.arrived })
            })
        };
        assert!(!self.turn.run(8, false, RECEIVE, step, || self.receives.has_value()));
    }

    /// As `Qp::post_receive`.
    fn post_receive(&self) {
        assert!(self.receives.push(1).is_ok());
        if self.turn.awaits_receive() {
            self.drive(RECEIVE);
        }
    }
}

#[test]
fn a_receive_is_posted_while_the_driver_decides_to_stall() {
    check(|| {
        let line = Line::new(1);
        let thread = thread::spawn({
            let line = line.clone();
            move || line.post_receive()
        });
        line.drive(READABLE);
        thread.join().unwrap();
        assert_eq!(line.delivered.load(Relaxed), 1, "a posted receive was overlooked");
        // It does not wait any more.
        assert_at_rest(&line.turn, &RunList::new());
    });
}

#[test]
fn two_receives_are_posted_while_the_driver_decides_to_stall() {
    check(|| {
        let line = Line::new(2);
        let threads = [0, 1].map(|_| {
            let line = line.clone();
            thread::spawn(move || line.post_receive())
        });
        line.drive(READABLE);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(line.delivered.load(Relaxed), 2, "a posted receive was overlooked");
        assert_at_rest(&line.turn, &RunList::new());
    });
}

#[test]
fn a_connection_that_has_its_receives_is_not_entered_for_more() {
    check(|| {
        let line = Line::new(1);
        line.post_receive();
        line.drive(READABLE);
        let steps = line.held.steps.load(Relaxed);
        line.post_receive();
        assert_eq!(line.held.steps.load(Relaxed), steps);
    });
}
