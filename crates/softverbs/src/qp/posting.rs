// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests go out together.
//!
//! A post drives its connection, so a request is with the kernel when the call returns. An unsignalled small write that comes right behind
//! others of its kind need not be: in a burst one call for each would be most of the time. From the fifth on such a write is left in the
//! ring, and the engine will send what it finds there a moment later; the next request that is not of this kind, or a full batch, is
//! faster. So what is left waits for about as long as two calls would have taken, whatever the program does next.
#![forbid(unsafe_code)]

use once_cell::sync::Lazy;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::{CONNECTED, Qp};
use crate::conn::reason;
use crate::conn::wr::{Op, SendWr};
use crate::limits::{BURST, BURST_AFTER, BURST_NS, SMALL};
use crate::progress::{By, Driven};
use crate::sys::Errno;

/// Nanoseconds since a moment of its own.
fn clock() -> u64 {
    static START: Lazy<Instant> = Lazy::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// How closely posts have followed one another. Only a guess rests on it, so it needs no order among threads.
#[derive(Default)]
pub(super) struct Burst {
    /// When the last post returned.
    returned: AtomicU64,
    length: AtomicU32,
}

impl Burst {
    /// A post begins: whether it continues a burst.
    fn goes_on(&self) -> bool {
        let close = clock().saturating_sub(self.returned.load(Ordering::Relaxed)) < BURST_NS;
        let length = if close { self.length.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.length.store(length, Ordering::Relaxed);
        length >= BURST_AFTER
    }

    fn post_returns(&self) {
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
        self.urgent |= wr.signaled || wr.len > SMALL || wr.op != Op::Write;
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
        // While the connection begins there may be no engine yet to leave it to.
        let left = !self.urgent && qp.burst.goes_on() && qp.sends.len() < BURST && qp.engine.get().is_some();
        if !left {
            qp.drive(reason::POSTED, By::Program);
        } else if qp.turn.defer(reason::POSTED) {
            qp.list_burst();
        }
        qp.burst.post_returns();
    }
}
