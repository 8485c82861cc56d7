// SPDX-License-Identifier: BSD-3-Clause
//! The turn: the right to drive a connection.
//!
//! One word per connection. A thread that has work for it (a posted request, an event of its socket, a
//! finished flush, a disconnect) leaves a reason in the word and tries to take the turn, in one
//! read-modify-write. The thread that gets it takes the reasons, steps, and leaves; leaving fails while there
//! is a reason, so none is lost. A thread that does not get it returns at once: no thread waits, there is no
//! second driver and no lock order.
//!
//! ```text
//! enter(reason)      RUNNING | reason     ours if RUNNING was clear: drive
//!   take             reasons -> 0         before looking at any work
//!   stall            STALLED              then look at the receives once more
//!   leave            RUNNING -> 0         fails if a reason has come: take again
//!   hand_over        RUNNING -> LISTED    the engine steps next, unless another thread does before
//!                    RUNNING -> LATER     the engine steps after a delay, unless the poller returns before
//! enter_at_rest      RUNNING              ours if there was neither a driver nor a reason
//! defer(reason)      LATER | reason       without driving: the engine will, after a delay
//! close              CLOSED               permanently: no thread enters any more
//! ```
//!
//! A turn is held only by a thread that is stepping. A connection that has work and no driver is LISTED: it
//! is on the engine's run list exactly once, and the first thread that comes may drive it. So a thread that
//! loses its processor between two steps blocks no other. LATER is the same for the engine's list of deferred
//! connections; a connection may be on both. Work that is handed over goes to the deferred list only if a
//! poll has left it.

use super::sync::{AtomicU32, Ordering, fence};

const RUNNING: u32 = 1 << 31;
const LISTED: u32 = 1 << 30;
const STALLED: u32 = 1 << 29;
const CLOSED: u32 = 1 << 28;
const LATER: u32 = 1 << 27;
/// The bits of the word for reasons.
pub(crate) const REASONS: u32 = LATER - 1;

/// The work that a step has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// The reason for which the connection must be stepped again at once, or 0.
    pub again: u32,
    /// The connection waits for a posted receive.
    pub stalled: bool,
}

/// What brings a thread to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// These reasons, which it leaves.
    Reasons(u32),
    /// The engine has taken the connection off its run list. Reasons that another thread has taken since need
    /// no second look.
    Listed,
    /// The same for the list of those that were deferred.
    Deferred,
    /// The thread has the turn ([`Turn::enter_at_rest`]).
    Taken,
}

/// The turn of one connection.
#[derive(Debug)]
pub(crate) struct Turn(AtomicU32);

impl Turn {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the turn, and [runs](Turn::run) with it; `None`: another thread has it, or there is nothing left
    /// to do.
    #[inline]
    pub(crate) fn drive(
        &self,
        entry: Entry,
        rounds: u32,
        later: bool,
        receive: u32,
        step: impl FnMut(u32) -> Option<Left>,
        has_receive: impl Fn() -> bool,
    ) -> Option<bool> {
        let entered = match entry {
            Entry::Reasons(reasons) => self.enter(reasons),
            Entry::Listed => self.enter_listed(),
            Entry::Deferred => self.enter_deferred(),
            Entry::Taken => true,
        };
        entered.then(|| self.run(rounds, later, receive, step, has_receive))
    }

    /// Leaves reasons; true when the caller has the turn, and must [`Turn::run`].
    pub(super) fn enter(&self, reasons: u32) -> bool {
        self.0.fetch_or(RUNNING | reasons, Ordering::AcqRel) & (RUNNING | CLOSED) == 0
    }

    /// Takes the turn without a reason, if no thread has it and there is none; the caller must
    /// [`Turn::leave`] it, or drive with [`Entry::Taken`].
    #[inline]
    pub(crate) fn enter_at_rest(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & (REASONS | RUNNING | CLOSED) == 0
            && self.0.compare_exchange(word, word | RUNNING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Called by the driver: steps until no work is left, at most `rounds` times, and releases the turn. True
    /// if the caller must put the connection on a list of the engine: its run list or, if `later`, the
    /// deferred list, for a driver that will probably return before.
    ///
    /// `step` is given the reasons, and gives `None` when the turn was closed before it. `receive` is the
    /// reason to give when `has_receive` finds one: one that was posted before the word said that it is
    /// waited for.
    pub(super) fn run(
        &self,
        rounds: u32,
        later: bool,
        receive: u32,
        mut step: impl FnMut(u32) -> Option<Left>,
        has_receive: impl Fn() -> bool,
    ) -> bool {
        for round in 1.. {
            let Some(Left { again, stalled }) = step(self.take()) else { break };
            self.set_stalled(stalled);
            if stalled && has_receive() {
                // This thread has the turn, so it must handle the receive.
                self.enter(receive);
            }
            if again != 0 || round >= rounds {
                return self.hand_over(again, if later { LATER } else { LISTED });
            }
            if self.leave() {
                return false;
            }
        }
        self.leave();
        false
    }

    /// Called by the driver: takes the reasons. [`Turn::leave`] sees those that come later.
    fn take(&self) -> u32 {
        self.0.fetch_and(!REASONS, Ordering::AcqRel) & REASONS
    }

    /// Called by the driver: sets whether threads that post a receive must enter. After `true` the driver
    /// must check for receives once more.
    fn set_stalled(&self, stalled: bool) {
        if stalled {
            self.0.fetch_or(STALLED, Ordering::AcqRel);
            fence(Ordering::SeqCst);
        } else if self.0.load(Ordering::Relaxed) & STALLED != 0 {
            self.0.fetch_and(!STALLED, Ordering::AcqRel);
        }
    }

    /// Called after a receive was put into the ring: whether the connection waits for it, so that the caller
    /// must enter.
    pub(crate) fn awaits_receive(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) & STALLED != 0
    }

    /// Called by the driver: releases the turn; false if new reasons have come, which the driver must take.
    /// True also if the turn was closed.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & REASONS != 0 && word & CLOSED == 0 {
                return false;
            }
            match self.0.compare_exchange(word, word & !RUNNING, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Called by the driver: releases the turn and leaves a reason; true if the caller must put the
    /// connection on this list of the engine.
    fn hand_over(&self, reason: u32, list: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let next = (word & !RUNNING) | list | reason;
            match self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return before & list == 0,
                Err(now) => word = now,
            }
        }
    }

    /// Leaves a reason for the driver if there is one, else for the engine after a delay; true if the caller
    /// must put the connection on the deferred list.
    pub(crate) fn defer(&self, reason: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            // A driver checks again before it leaves, so the engine need not.
            let later = if word & RUNNING != 0 { 0 } else { LATER };
            match self.0.compare_exchange(word, word | reason | later, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return later != 0 && before & LATER == 0,
                Err(now) => word = now,
            }
        }
    }

    /// [`Entry::Listed`]; true when the engine must drive it now.
    pub(super) fn enter_listed(&self) -> bool {
        self.enter_from(LISTED)
    }

    /// [`Entry::Deferred`]; true when the engine must drive it now.
    pub(super) fn enter_deferred(&self) -> bool {
        self.enter_from(LATER)
    }

    fn enter_from(&self, list: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let mine = word & (RUNNING | CLOSED) == 0 && word & REASONS != 0;
            let next = (word & !list) | if mine { RUNNING } else { 0 };
            match self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return mine,
                Err(now) => word = now,
            }
        }
    }

    /// Whether no thread drives the connection and there is no reason to.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.0.load(Ordering::Acquire) & (REASONS | RUNNING | CLOSED) == 0
    }

    /// Whether exactly these reasons have been left.
    pub(crate) fn has_just(&self, reasons: u32) -> bool {
        self.0.load(Ordering::Relaxed) & REASONS == reasons
    }

    /// Whether a deferred reason may be pending. Always true for one that the calling thread has deferred and
    /// no driver has taken.
    pub(crate) fn is_deferred(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & LATER != 0 && word & REASONS != 0
    }

    /// Ends all turns permanently. A driver that is stepping now finishes its step.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// The word, and whether it has the bit of a list.
    #[cfg(all(test, loom))]
    pub(super) fn at_rest(&self) -> (u32, bool) {
        let word = self.0.load(Ordering::SeqCst);
        (word & !(LISTED | LATER), word & (LISTED | LATER) != 0)
    }
}
