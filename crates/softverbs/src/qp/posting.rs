// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests go out together.
//!
//! A post drives its connection, so a request is with the kernel when the call returns. An unsignalled request that is small on the wire and is
//! followed by another one at once need not be: a system call for each of the two would be most of the time. Whether one will be followed is
//! guessed from the ones before it. After some that were, such a request is left in the ring. The request behind it, a poll, or a full batch takes it along;
//! failing that, the engine does a moment later.
//!
//! So a program that does something else for once waits for that moment. It is at most an eighth of the time for which the guesses have been
//! right, and never more than 100 us: what is lost by wrong guesses stays a small share of what the right ones have saved.
#![forbid(unsafe_code)]

use once_cell::sync::Lazy;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{CONNECTED, Qp};
use crate::conn::reason;
use crate::conn::wr::{Op, SendWr};
use crate::limits::{BURST, CLOSE_NS, CLOSE_RUN, MAX_PATIENCE_NS, MIN_PATIENCE_NS, PATIENCE_SHARE, SMALL};
use crate::progress::{By, Driven};
use crate::sys::Errno;

/// Nanoseconds since a moment of its own.
fn clock() -> u64 {
    static START: Lazy<Instant> = Lazy::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// How closely small unsignalled requests have been followed by the next one. Only a guess rests on it, so it needs no order among threads.
#[derive(Default)]
pub(super) struct Pace {
    /// The last request was such a one, and its post returned at this time.
    small: AtomicBool,
    returned: AtomicU64,
    /// How many in a row were followed closely, and since when.
    run: AtomicU32,
    since: AtomicU64,
}

impl Pace {
    /// A post begins; `small`: it is a small unsignalled request. Gives how long it may wait for the next one.
    fn begins(&self, small: bool) -> Option<Duration> {
        let followed = self.small.swap(small, Ordering::Relaxed);
        if !followed && !small {
            return None;
        }
        let now = clock();
        if followed {
            if now.saturating_sub(self.returned.load(Ordering::Relaxed)) < CLOSE_NS {
                self.run.fetch_add(1, Ordering::Relaxed);
            } else {
                self.run.store(0, Ordering::Relaxed);
                self.since.store(now, Ordering::Relaxed);
            }
        }
        if !small || self.run.load(Ordering::Relaxed) < CLOSE_RUN {
            return None;
        }
        let right = now.saturating_sub(self.since.load(Ordering::Relaxed));
        Some(Duration::from_nanos((right / PATIENCE_SHARE).clamp(MIN_PATIENCE_NS, MAX_PATIENCE_NS)))
    }

    /// The post of a small unsignalled request returns.
    fn returns(&self) {
        self.returned.store(clock(), Ordering::Relaxed);
    }
}

/// Work requests on their way into the send queue; sent when dropped.
pub(crate) struct Posting<'a> {
    qp: &'a Qp,
    posted: bool,
    urgent: bool,
}

impl Qp {
    /// Begins to post to the send queue; EINVAL before there is a connection.
    pub(crate) fn posting(&self) -> Result<Posting<'_>, Errno> {
        match self.state.load(Ordering::Acquire) {
            CONNECTED => Ok(Posting { qp: self, posted: false, urgent: false }),
            _ => Err(libc::EINVAL),
        }
    }

    /// Takes a place in the send queue, which a signalled request keeps until its completion has been polled.
    fn take_place(&self) -> bool {
        let before = self.in_use.fetch_add(1, Ordering::Acquire);
        if before >= self.max_send_wr {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
        }
        before < self.max_send_wr
    }
}

impl Posting<'_> {
    /// Adds one request; ENOMEM when the queue is full.
    pub(crate) fn post(&mut self, wr: SendWr) -> Result<(), Errno> {
        self.urgent |= wr.signaled || (wr.len > SMALL && wr.op != Op::Read);
        let qp = self.qp;
        if !qp.take_place() {
            // Requests that were only left in the ring, or that another thread is sending now, still have their places.
            if !qp.drive(reason::POSTED, By::Program) {
                std::thread::yield_now();
            }
            if !qp.take_place() {
                return Err(libc::ENOMEM);
            }
        }
        self.posted = true;
        qp.sends.push(wr).map_err(|_| {
            qp.in_use.fetch_sub(1, Ordering::Relaxed);
            libc::ENOMEM
        })
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if !self.posted {
            return;
        }
        let qp = self.qp;
        let patience = qp.pace.begins(!self.urgent);
        // While the connection begins there may be no engine yet to leave it to.
        match (patience, qp.engine.get()) {
            (Some(patience), Some(engine)) if qp.sends.len() < BURST => {
                if qp.turn.defer(reason::POSTED) {
                    if let Some(this) = qp.this.upgrade() {
                        engine.list_later(this, patience);
                    }
                }
            }
            _ => {
                qp.drive(reason::POSTED, By::Program);
            }
        }
        if !self.urgent {
            qp.pace.returns();
        }
    }
}
