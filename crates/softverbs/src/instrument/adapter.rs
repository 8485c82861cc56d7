// SPDX-License-Identifier: BSD-3-Clause
//! In strict mode: the entries of a send queue as an adapter counts them.
//!
//! An adapter frees entries when the program takes a completion: those of all requests up to the one that the
//! completion is for. Unsignalled requests behind it keep their entries, even long after they are complete.
//! In [`Strict::Adapter`] a queue is full when it is full for an adapter, in [`Strict::Warn`] this is only
//! reported.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::flight::Flight;
use super::strict::{self, Rule, Strict};
use crate::lock;
use crate::logged::Logged;
use crate::progress::Outstanding;
use crate::sys::Errno;
use transport::access::Accessor;
use transport::wr::SendWr;

/// The entries of a send queue as an adapter would count them.
pub(super) struct Adapter {
    mode: Strict,
    /// The number of the queue pair, for the log.
    num: u32,
    /// How many entries it has.
    max: u32,
    /// Entries in use; with [`Strict::Warn`] there may be more than the queue has.
    held: AtomicU64,
    done: Mutex<Done>,
    flight: Flight,
    /// A request whose memory was changed in flight, not reported yet.
    changed: Mutex<Option<u64>>,
    logged: Logged,
}

/// Complete requests whose entries are in use.
#[derive(Default)]
struct Done {
    /// Unsignalled requests after the last completion.
    unsignalled: u64,
    /// For each completion that was not polled, the oldest first, how many entries polling it frees.
    completions: VecDeque<u64>,
}

impl Adapter {
    /// Of a send queue with `max` entries, in a strict mode. `accessor` is its queue pair.
    pub(super) fn new(accessor: Accessor, max: u32, mode: Strict) -> Self {
        Self {
            mode,
            num: accessor.qp,
            max,
            held: AtomicU64::new(0),
            done: Mutex::default(),
            flight: Flight::new(accessor, max),
            changed: Mutex::default(),
            logged: Logged::new(),
        }
    }

    /// Takes an entry for a request that is posted by `push`. The request is given back if there is none.
    pub(super) fn post(
        &self,
        wr: SendWr,
        push: impl FnOnce(SendWr) -> Result<(), SendWr>,
    ) -> Result<(), SendWr> {
        if !self.take() {
            self.report();
            return Err(wr);
        }
        self.flight.begin(wr, push).inspect_err(|_| {
            self.held.fetch_sub(1, Ordering::Relaxed);
        })
    }

    fn take(&self) -> bool {
        if self.held.fetch_add(1, Ordering::Acquire) < u64::from(self.max) {
            return true;
        }
        if self.mode == Strict::Adapter {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.report();
        true
    }

    /// The program ends the connection: reports an unsignalled request in flight.
    pub(super) fn disconnects(&self) {
        if let Some(wr_id) = self.flight.unsignalled() {
            self.remark_disconnect(wr_id);
        }
    }

    /// A memory region is being deregistered: reports a request in flight that uses it.
    pub(super) fn deregisters(&self, stag: u32) {
        if let Some(wr_id) = self.flight.uses(stag) {
            self.remark_region(wr_id);
        }
    }

    /// The connection has ended, or the queue pair is destroyed.
    pub(super) fn ends(&self) {
        self.flight.ends_all();
    }

    /// The send queue is empty, without a connection; no completion is left to poll.
    pub(super) fn reset(&self) {
        *lock(&self.done) = Done::default();
        self.held.store(0, Ordering::Release);
        self.flight.reset();
    }

    pub(super) fn outstanding(&self) -> Outstanding {
        self.flight.outstanding()
    }

    /// An unsignalled request is complete.
    pub(super) fn released(&self) {
        lock(&self.done).unsignalled += 1;
    }

    /// A completion is about to be added to its queue.
    pub(super) fn completes(&self) {
        let mut done = lock(&self.done);
        let places = 1 + std::mem::take(&mut done.unsignalled);
        done.completions.push_back(places);
    }

    /// It was not added: the queue is full.
    pub(super) fn does_not_complete(&self) {
        let mut done = lock(&self.done);
        done.unsignalled += done.completions.pop_back().unwrap_or(1) - 1;
    }

    /// The program has polled the oldest completion. True if [`Self::tell`] has something to report, once the
    /// caller holds no lock.
    pub(super) fn taken(&self) -> bool {
        let places = lock(&self.done).completions.pop_front().unwrap_or(0);
        self.held.fetch_sub(places, Ordering::Release);
        let changed = self.flight.end(places);
        if changed.is_some() {
            *lock(&self.changed) = changed;
        }
        changed.is_some()
    }

    /// Reports what [`Self::taken`] has found.
    pub(super) fn tell(&self) {
        let changed = lock(&self.changed).take();
        if let Some(wr_id) = changed {
            self.remark_bytes(wr_id);
        }
    }

    /// Whether that many requests can be posted. Reports it if not.
    pub(super) fn has_room(&self, count: usize) -> bool {
        let has_room = self.mode != Strict::Adapter || self.room() >= count as u64;
        if !has_room {
            self.report();
        }
        has_room
    }

    fn room(&self) -> u64 {
        u64::from(self.max).saturating_sub(self.held.load(Ordering::Acquire))
    }

    /// A post is refused, or an adapter would refuse it: no entry is free.
    fn report(&self) {
        let Self { num, max, .. } = self;
        strict::report(
            &self.logged,
            self.mode,
            Rule::SendQueue,
            format_args!(
                "queue pair {num}: all {max} places of the send queue are held by requests up to which the program has taken no \
                 completion"
            ),
            format_args!(
                "post at least every {max}th request with IBV_SEND_SIGNALED (RPMA_F_COMPLETION_ALWAYS), and take its completion with \
                 ibv_poll_cq (rpma_cq_get_wc), before the queue is full"
            ),
        );
    }

    /// A read or an atomic operation is posted with IBV_SEND_INLINE. EINVAL in [`Strict::Adapter`].
    pub(super) fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        let num = self.num;
        strict::report(
            &self.logged,
            self.mode,
            Rule::Inline,
            format_args!(
                "queue pair {num}: work request {wr_id:#x} is a read or an atomic operation with IBV_SEND_INLINE"
            ),
            format_args!("post only sends and writes with IBV_SEND_INLINE"),
        );
        if self.mode == Strict::Adapter { Err(libc::EINVAL) } else { Ok(()) }
    }

    /// A request was posted whose access the remote region does not permit; librpma logs it.
    pub(super) fn denied(&self, wr_id: u64) {
        let num = self.num;
        strict::note(
            &self.logged,
            Rule::Remote,
            format_args!(
                "queue pair {num}: work request {wr_id:#x} accesses a remote memory region past its end or without the right to"
            ),
            format_args!("the log of librpma names the range and the usage of the region"),
        );
    }

    fn remark_bytes(&self, wr_id: u64) {
        let num = self.num;
        strict::remark(
            &self.logged,
            Rule::Bytes,
            format_args!(
                "queue pair {num}: the memory of work request {wr_id:#x} was changed before the program took its completion or a \
                 later one"
            ),
            format_args!(
                "leave it alone until ibv_poll_cq (rpma_cq_get_wc) has returned the completion, or post the request with \
                 IBV_SEND_INLINE"
            ),
        );
    }

    fn remark_disconnect(&self, wr_id: u64) {
        let num = self.num;
        strict::remark(
            &self.logged,
            Rule::Disconnect,
            format_args!(
                "queue pair {num}: disconnecting while the unsignalled work request {wr_id:#x} is in flight; its data may be lost"
            ),
            format_args!(
                "post the last request with IBV_SEND_SIGNALED (RPMA_F_COMPLETION_ALWAYS), and take its completion with ibv_poll_cq \
                 (rpma_cq_get_wc) before rdma_disconnect (rpma_conn_disconnect)"
            ),
        );
    }

    fn remark_region(&self, wr_id: u64) {
        let num = self.num;
        strict::remark(
            &self.logged,
            Rule::Region,
            format_args!(
                "queue pair {num}: a memory region was deregistered that work request {wr_id:#x} uses, of which the program has \
                 taken no completion"
            ),
            format_args!(
                "call ibv_dereg_mr (rpma_mr_dereg) after ibv_poll_cq (rpma_cq_get_wc) has returned the completion of the last \
                 request that uses the region, or when the connection has ended"
            ),
        );
    }
}

#[cfg(test)]
mod tests;
