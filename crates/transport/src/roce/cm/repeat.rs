// SPDX-License-Identifier: BSD-3-Clause
//! The repetition of an unanswered message.
//!
//! Linux repeats a message only after seconds, which is long on a network where most losses are of a full
//! socket buffer. So a message is repeated early, after [`EARLY_US`] and then at doubled intervals, until the
//! first interval of the specification has passed. The number of retries and the time after which the peer is
//! considered unreachable are those of Linux.

use crate::roce::wire::cm::Mad;
use crate::units::Micros;

/// Microseconds after which a message is repeated for the first time: more than a program that accepts at
/// once needs.
const EARLY_US: Micros = 200_000;

/// A message that is repeated until it is answered.
pub(super) struct Repeat {
    pub mad: Mad,
    interval: Micros,
    /// The start of the current interval.
    began: Micros,
    /// The next early repetition, as an offset; none if it is not within the interval.
    early: Micros,
    retries_left: u8,
    /// The peer has sent an MRA. Only one is accepted, so that a peer cannot delay the outcome for ever.
    is_extended: bool,
}

impl Repeat {
    /// A message that is being sent.
    pub(super) fn new(mad: Mad, interval: Micros, retries: u8, now: Micros) -> Self {
        Self { mad, interval, began: now, early: EARLY_US, retries_left: retries, is_extended: false }
    }

    /// When the next repetition, or the end, is due.
    pub(super) fn due(&self) -> Micros {
        self.began + self.early.min(self.interval)
    }

    /// The timer has expired. Returns whether the message is sent again; if not, the peer is unreachable.
    pub(super) fn expired(&mut self, now: Micros) -> bool {
        while self.early < self.interval {
            self.early = 2 * self.early + EARLY_US;
            if self.due() > now {
                return true;
            }
        }
        if self.retries_left == 0 {
            return false;
        }
        self.retries_left -= 1;
        self.began = now;
        true
    }

    /// The peer needs more time: an MRA.
    pub(super) fn extend(&mut self, service_us: Micros, now: Micros) {
        if !self.is_extended {
            self.is_extended = true;
            self.early = self.interval;
            self.began = now + service_us;
        }
    }
}
