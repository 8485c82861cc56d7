// SPDX-License-Identifier: BSD-3-Clause
//! The protocols of this room, run by loom in every order in which two or three threads can run, with every
//! value that a relaxed load may give.
//!
//! What a model must hold:
//!
//! 1. One driver: nobody steps a connection while another does, and each sees all that the one before has
//!    written.
//! 2. Each item posted is consumed once, in the order of its poster.
//! 3. At rest nothing is left: the word is 0 or closed, the ring is empty, the connection is on no list.
//! 4. Nobody waits: no model yields, and no call loops on what another thread has yet to do.
//! 5. What is written before a reason is left is seen by the step that is given the reason, also if the
//!    reason was there already.
//! 6. A half-published slot neither blocks nor is skipped for good.
//! 7. A connection that is handed over is on the run list exactly once.
//! 8. Nobody sleeps while there is work that nobody has promised to look at, and waking takes at most one
//!    system call a sleep.
//! 9. A receive posted while the driver decides to stall is not overlooked.
//! 10. After the end nobody steps, and nothing holds the connection.
//!
//! What a model counts and compares is relaxed as well: whatever order it sees is given by the protocol, not
//! by the model. The join at the end of a model orders everything, so what a driver must see is checked in
//! the step.
//!
//! Whatever the heuristics decide, all of this must hold: a model in which one decides is checked in all
//! their modes. What a prediction leads to is checked in the adaptive one alone.
//!
//! A test that fails prints the order only with `LOOM_LOG=trace`; `LOOM_MAX_PREEMPTIONS` (3) bounds how often
//! a thread is interrupted.

mod attention;
mod destroy;
mod export;
mod notify;
mod posting;
mod ring;
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

/// Checks a model in which heuristics decide, in each of their modes.
fn check_all<M: Fn() + Sync + Send + 'static>(model: impl Fn(Mode) -> M) {
    let modes = [Mode::Adaptive, Mode::Never, Mode::Always].into_iter().chain(random_modes(3));
    modes.for_each(|mode| check_in(mode, model(mode)));
}

/// Checks a model in which heuristics decide in this mode.
fn check_in(mode: Mode, model: impl Fn() + Sync + Send + 'static) {
    // Printed when the check fails: the last one is the mode.
    eprintln!("{mode:?}");
    check(model);
}

const NOTHING: Left = Left { again: 0, stalled: false };
/// The reason for a step that another one asked for, as it was cut short.
const AGAIN: u32 = 1 << 8;
/// The reason for a step because of a posted receive.
const RECEIVE: u32 = 1 << 9;

/// What only the holder of the turn touches.
struct Held {
    inside: AtomicBool,
    /// Steps so far, counted in one operation, and as a driver sees them who relies on the turn for their
    /// order.
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
        assert_eq!(self.known.load(Relaxed), steps, "a driver does not see what the one before has written");
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

/// The word and the list say the same, and neither says that there is something to do.
fn assert_at_rest(turn: &Turn, list: &RunList) {
    assert_eq!(turn.at_rest(), (0, false));
    assert!(list.is_empty());
}
