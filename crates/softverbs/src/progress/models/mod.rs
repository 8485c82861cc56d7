// SPDX-License-Identifier: BSD-3-Clause
//! Loom models of the protocols of this module: every interleaving of two or three threads, with every value
//! that a relaxed load may return.
//!
//! The properties that the models check:
//!
//! 1. One driver: no thread steps a connection while another does, and each driver sees all writes of the
//!    previous one.
//! 2. Each item posted is consumed once, in the order of its poster.
//! 3. At rest no work is left: the word is 0 or closed, the ring is empty, the connection is on no list.
//! 4. No thread waits: no model yields, and no call loops until another thread has done something.
//! 5. The step that gets a reason sees everything written before the reason was left, even if the reason was
//!    set already.
//! 6. A half-published slot neither blocks nor is skipped permanently.
//! 7. A connection that is handed over is on the run list exactly once.
//! 8. No thread sleeps while there is work for which no thread is responsible, and waking takes at most one
//!    system call a sleep.
//! 9. A receive posted while the driver decides to stall is not overlooked.
//! 10. After the end no thread steps, and nothing references the connection.
//! 11. A reader that keeps a copy of a value does not miss its last change.
//!
//! The counters of a model use relaxed accesses, so any order comes from the protocol, not from the model.
//! The join at the end of a model orders everything, so what a driver must see is checked in the step.
//!
//! All of this must hold whatever the heuristics decide: a model with a heuristic is checked in all of its
//! modes. The effect of a prediction is checked only in the adaptive mode.
//!
//! A test that fails prints the order only with `LOOM_LOG=trace`; `LOOM_MAX_PREEMPTIONS` (3) bounds how often
//! a thread is interrupted.

mod attention;
mod destroy;
mod export;
mod notify;
mod posting;
mod ring;
mod seen;
mod stall;
mod turn;
mod wakeup;

use super::sync::{AtomicBool, AtomicU32, Mutex, Ordering::Relaxed, lock};
use super::turn::{Left, Turn};
use crate::policy::mode::{Mode, random_modes};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// Checks a model with heuristics in each of their modes.
fn check_all<M: Fn() + Sync + Send + 'static>(model: impl Fn(Mode) -> M) {
    let modes = [Mode::Adaptive, Mode::Never, Mode::Always].into_iter().chain(random_modes(3));
    modes.for_each(|mode| check_in(mode, model(mode)));
}

/// Checks a model with heuristics in this mode.
fn check_in(mode: Mode, model: impl Fn() + Sync + Send + 'static) {
    // If the check fails, the last mode printed is the failing one.
    eprintln!("{mode:?}");
    check(model);
}

const NOTHING: Left = Left { again: 0, stalled: false };
/// The reason for another step because the budget of the last one was used up.
const AGAIN: u32 = 1 << 8;
/// The reason for a step because of a posted receive.
const RECEIVE: u32 = 1 << 9;

/// State that only the holder of the turn accesses.
struct Held {
    inside: AtomicBool,
    /// Steps so far: counted atomically, and as seen by a driver that relies on the turn for ordering.
    steps: AtomicU32,
    known: AtomicU32,
}

impl Held {
    fn new() -> Self {
        Self { inside: AtomicBool::new(false), steps: AtomicU32::new(0), known: AtomicU32::new(0) }
    }

    /// One step.
    fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        assert!(!self.inside.swap(true, Relaxed), "two drivers");
        let steps = self.steps.fetch_add(1, Relaxed);
        assert_eq!(self.known.load(Relaxed), steps, "a driver does not see the writes of the previous one");
        self.known.store(steps + 1, Relaxed);
        let result = step();
        self.inside.store(false, Relaxed);
        result
    }
}

/// The engine's run list, of one connection.
struct RunList(Mutex<bool>);

impl RunList {
    fn new() -> Self {
        Self(Mutex::new(false))
    }

    fn list(&self) {
        assert!(!std::mem::replace(&mut *lock(&self.0), true), "listed twice");
    }

    fn take(&self) -> bool {
        std::mem::take(&mut *lock(&self.0))
    }

    fn is_empty(&self) -> bool {
        !*lock(&self.0)
    }
}

/// The word and the list agree, and neither has work.
fn assert_at_rest(turn: &Turn, list: &RunList) {
    assert_eq!(turn.at_rest(), (0, false));
    assert!(list.is_empty());
}
