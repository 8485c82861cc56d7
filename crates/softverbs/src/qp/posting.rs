// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests wait to go out with others.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::send::{Op, Wr};
use super::tx::Tx;
use super::watch::{BLOCKED, LEASED};
use super::{Qp, READY};
use crate::sys::Errno;

/// Unsignalled requests of one small write each that may wait for the next post or poll.
const MAX_DEFERRED: u32 = 16;
/// What is small: a write that costs less to copy than to send on its own.
const SMALL: u32 = 4096;

/// Work requests on their way into the send queue; sent when dropped.
///
/// Small unsignalled writes of a program that polls are sent with the next post or poll, in one call and mostly in one TCP segment; the
/// end of the lease sends them, too. So they are at most as late as the engine is in noticing that the program has stopped polling.
pub(crate) struct Posting<'a> {
    qp: &'a Arc<Qp>,
    tx: MutexGuard<'a, Tx>,
    urgent: bool,
}

impl<'a> Posting<'a> {
    pub(super) fn new(qp: &'a Arc<Qp>, tx: MutexGuard<'a, Tx>) -> Self {
        Self { qp, tx, urgent: false }
    }

    /// Adds one request; ENOMEM when the queue is full.
    pub(crate) fn post(&mut self, wr: Wr) -> Result<(), Errno> {
        self.urgent |= wr.signaled || wr.len > SMALL || wr.op != Op::Write;
        if self.tx.sq.post(wr) {
            return Ok(());
        }
        // Requests that were only deferred still have their places.
        if self.qp.deferred.load(Ordering::Relaxed) {
            self.qp.flush_tx(&mut self.tx);
            if self.tx.sq.post(wr) {
                return Ok(());
            }
        }
        Err(libc::ENOMEM)
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if self.qp.state.load(Ordering::Acquire) != READY {
            self.tx.sq.fail_all();
            self.tx.sq.retire(&self.qp.send_cq, self.qp.num);
            return;
        }
        // A full socket is watched by the engine, or asked by the poller; asking it again would only cost a call.
        if self.qp.watch.is(BLOCKED) {
            return;
        }
        if !self.urgent && self.qp.watch.is(LEASED) && self.tx.sq.waiting() < MAX_DEFERRED {
            self.qp.deferred.store(true, Ordering::Relaxed);
            return;
        }
        self.qp.flush_tx(&mut self.tx);
    }
}
