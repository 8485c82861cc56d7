// SPDX-License-Identifier: BSD-3-Clause
//! Whether the engine looks for more work before it sleeps.
//!
//! Waking a thread takes longer than most of what the engine does, so right after some work it pays to look for more. But the processor
//! that it looks with may be wanted by a thread of the program, perhaps the very one that waits for what the engine has just placed or
//! announced. Two signs tell:
//!
//! - a thread of the process was displaced while the engine woke up: then the engine took the processor from it;
//! - the engine has raised an event: then a thread of the program has been woken, and may have to run here.
//!
//! In both cases the engine sleeps at once. It does not offer its processor by yielding: what takes it may belong to anybody, and has it for
//! milliseconds.

use std::time::{Duration, Instant};

use crate::sys;

/// Sleeps after which it is asked again whether threads are displaced: the question is a system call, and where one thread was there is mostly
/// one that spins.
const DISPLACED: u32 = 32;

pub(super) struct Spin {
    length: Duration,
    until: Option<Instant>,
    /// Sleeps for which threads are taken to be displaced.
    displaced: u32,
    preemptions: i64,
    raised: u32,
    slept: bool,
}

impl Spin {
    /// `length`: how long to look after the last work.
    pub(super) fn new(length: Duration) -> Self {
        Self { length, until: None, displaced: 0, preemptions: 0, raised: 0, slept: false }
    }

    /// The engine has slept.
    pub(super) fn slept(&mut self) {
        self.slept = true;
    }

    /// There was work, and it is done.
    pub(super) fn worked(&mut self, now: Instant) {
        self.until = None;
        let raised = sys::events_raised();
        if std::mem::replace(&mut self.raised, raised) != raised || self.length.is_zero() {
            return;
        }
        if std::mem::take(&mut self.slept) {
            self.displaced = self.displaced.saturating_sub(1);
            if self.displaced == 0 {
                let preemptions = sys::preemptions();
                if std::mem::replace(&mut self.preemptions, preemptions) != preemptions {
                    self.displaced = DISPLACED;
                }
            }
        }
        if self.displaced > 0 {
            return;
        }
        self.until = Some(now + self.length);
    }

    /// Whether to look once more instead of sleeping.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}
