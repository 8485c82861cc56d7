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
//! A stream of messages is no reason to look either: while the engine sleeps they gather, and one call takes many.
//!
//! In all these cases the engine sleeps at once. It does not offer its processor by yielding: what takes it may belong to anybody, and has it for
//! milliseconds.

use std::time::{Duration, Instant};

use crate::sys;

/// Sleeps after which it is asked again whether threads are displaced: the question is two system calls, and where one thread was there is
/// mostly one that spins.
const DISPLACED: u32 = 32;
/// The same where none was.
const ALONE: u32 = 8;
/// Bytes received at a time beyond which it is a stream, and not one that waits for an answer.
const STREAM: u64 = 1024;

pub(super) struct Spin {
    length: Duration,
    until: Option<Instant>,
    /// Whether threads are taken to be displaced, and for how many more sleeps.
    displacing: bool,
    unasked: u32,
    preemptions: i64,
    raised: u32,
    received: u64,
    slept: bool,
}

impl Spin {
    /// `length`: how long to look after the last work.
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            until: None,
            displacing: false,
            unasked: 0,
            preemptions: 0,
            raised: 0,
            received: 0,
            slept: false,
        }
    }

    /// The engine has slept.
    pub(super) fn slept(&mut self) {
        self.slept = true;
    }

    /// There was work, and it is done.
    pub(super) fn worked(&mut self, now: Instant) {
        self.until = None;
        let (raised, received) = (sys::events_raised(), sys::bytes_received());
        let woke_others = std::mem::replace(&mut self.raised, raised) != raised;
        let stream = received.wrapping_sub(std::mem::replace(&mut self.received, received)) > STREAM;
        let slept = std::mem::take(&mut self.slept);
        if self.length.is_zero() || (slept && self.displaces()) || woke_others || stream {
            return;
        }
        self.until = Some(now + self.length);
    }

    /// The engine has slept: whether its waking up has displaced a thread.
    fn displaces(&mut self) -> bool {
        if self.unasked > 0 {
            self.unasked -= 1;
            return self.displacing;
        }
        let preemptions = sys::preemptions();
        let changed = std::mem::replace(&mut self.preemptions, preemptions) != preemptions;
        if std::mem::take(&mut self.displacing) {
            // What was counted while it was not asked says nothing of this time; the next answer does.
            return true;
        }
        self.displacing = changed;
        self.unasked = if changed { DISPLACED - 1 } else { ALONE - 1 };
        changed
    }

    /// Whether to look once more instead of sleeping.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}
