// SPDX-License-Identifier: BSD-3-Clause
//! The places of a send queue, and who holds them.
//!
//! A request of software RDMA is done with when the connection has completed it, so an unsignalled one gives
//! its place back by itself, and a signalled one when its completion is polled: a program whose completion
//! queue is as long as its send queue can never overrun it. An adapter learns of the program only what a
//! completion tells the program: all requests up to the one that a completion is for have their places back
//! when the program has taken that completion, and unsignalled ones behind it have not, however long they are
//! done. In strict mode the places are counted in that way, too: in [`Strict::Adapter`] a queue is full when
//! it is full for an adapter, in [`Strict::Warn`] this is only reported.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::flight::Flight;
use crate::lock;
use crate::process::PerProcess;
use crate::strict::{Places, Rule, Strict};
use crate::sys::Errno;

/// The places of one send queue.
pub(crate) struct Slots {
    max: u32,
    in_use: AtomicU32,
    adapter: Option<Box<Adapter>>,
}

/// What an adapter would count.
struct Adapter {
    mode: Strict,
    /// The number of the queue pair, for the log.
    num: u32,
    /// Places in use; with [`Strict::Warn`] there may be more than the queue has.
    held: AtomicU64,
    done: Mutex<Done>,
    flight: Flight,
    /// A request whose memory was changed in flight, which is not reported yet.
    changed: Mutex<Option<u64>>,
    places: Places,
}

/// The send queues of the process, in strict mode. A child after fork(2) has none.
static QUEUES: PerProcess<Vec<Weak<Slots>>> = PerProcess::new();

/// A memory region is being deregistered: reports the requests in flight that use it.
pub(crate) fn deregisters(stag: u32) {
    let queues: Vec<Arc<Slots>> = lock(QUEUES.get()).iter().flatten().filter_map(Weak::upgrade).collect();
    for adapter in queues.iter().filter_map(|slots| slots.adapter.as_ref()) {
        if let Some(wr_id) = adapter.flight.uses(stag) {
            adapter.remark_region(wr_id);
        }
    }
}

/// Requests that are over and have not given their places back.
#[derive(Default)]
struct Done {
    /// Unsignalled ones with no completion behind them.
    unsignalled: u64,
    /// For each completion that the program has not taken, the oldest first, how many places taking it gives
    /// back.
    completions: VecDeque<u64>,
}

impl Slots {
    pub(crate) fn new(num: u32, max: u32, mode: Strict) -> Self {
        let adapter = || Adapter {
            mode,
            num,
            held: AtomicU64::new(0),
            done: Mutex::default(),
            flight: Flight::new(max),
            changed: Mutex::default(),
            places: Places::new(),
        };
        let adapter = (mode != Strict::Off).then(|| Box::new(adapter()));
        Self { max, in_use: AtomicU32::new(0), adapter }
    }

    /// As [`Self::new`]; in strict mode [`deregisters`] knows it.
    pub(crate) fn of_queue_pair(num: u32, max: u32, mode: Strict) -> Arc<Self> {
        let slots = Arc::new(Self::new(num, max, mode));
        if slots.adapter.is_some() {
            let mut queues = lock(QUEUES.get());
            let queues = queues.get_or_insert_default();
            queues.retain(|slots| slots.strong_count() > 0);
            queues.push(Arc::downgrade(&slots));
        }
        slots
    }

    /// The requests in flight, if they are to be known: with [`Flight::begin`] a request is posted.
    #[inline]
    pub(crate) fn flight(&self) -> Option<&Flight> {
        self.adapter.as_ref().map(|adapter| &adapter.flight)
    }

    /// The program ends the connection: reports an unsignalled request in flight.
    pub(crate) fn disconnects(&self) {
        if let Some(adapter) = &self.adapter {
            if let Some(wr_id) = adapter.flight.unsignalled() {
                adapter.remark_disconnect(wr_id);
            }
        }
    }

    /// The connection has ended, or there is no queue pair any more.
    pub(crate) fn ends(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.flight.ends_all();
        }
    }

    /// Takes a place for a request that is posted.
    pub(crate) fn take(&self) -> bool {
        let before = self.in_use.fetch_add(1, Ordering::Acquire);
        if before >= self.max || !self.adapter.as_ref().is_none_or(|adapter| adapter.take(self.max)) {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Gives back what [`Self::take`] took: the request was not posted.
    pub(crate) fn untake(&self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        if let Some(adapter) = &self.adapter {
            adapter.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether no request is outstanding, and no completion either that the program has not taken.
    #[inline]
    pub(crate) fn are_free(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) == 0
    }

    /// How many requests can be posted.
    pub(crate) fn room(&self) -> usize {
        let room = self.max.saturating_sub(self.in_use.load(Ordering::Acquire)) as usize;
        match &self.adapter {
            Some(adapter) if adapter.mode == Strict::Adapter => room.min(adapter.room(self.max)),
            _ => room,
        }
    }

    /// An unsignalled request is over.
    pub(crate) fn release(&self) {
        self.in_use.fetch_sub(1, Ordering::Release);
        if let Some(adapter) = &self.adapter {
            adapter.released();
        }
    }

    /// A completion is about to be added to its queue.
    #[inline]
    pub(crate) fn completes(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.completes();
        }
    }

    /// It was not: the queue has no room.
    pub(crate) fn does_not_complete(&self) {
        if let Some(adapter) = &self.adapter {
            let mut done = lock(&adapter.done);
            done.unsignalled += done.completions.pop_back().unwrap_or(1) - 1;
        }
    }

    /// The program has taken the oldest completion. True if [`Self::tell`] has something to say, when the
    /// caller holds no lock.
    #[inline]
    pub(crate) fn taken(&self) -> bool {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        self.adapter.as_ref().is_some_and(|adapter| adapter.taken())
    }

    /// Reports what [`Self::taken`] has found.
    #[cold]
    pub(crate) fn tell(&self) {
        if let Some(adapter) = &self.adapter {
            let changed = lock(&adapter.changed).take();
            if let Some(wr_id) = changed {
                adapter.remark_bytes(wr_id);
            }
        }
    }

    /// A read or an atomic operation is posted with IBV_SEND_INLINE. EINVAL in strict mode.
    #[cold]
    pub(crate) fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        match &self.adapter {
            Some(adapter) => adapter.check_inline(wr_id),
            None => Ok(()),
        }
    }

    /// A post is refused for want of room: says so, if there is room for requests of software RDMA.
    pub(crate) fn refused(&self) {
        if let Some(adapter) = &self.adapter {
            if self.in_use.load(Ordering::Relaxed) < self.max {
                adapter.report(self.max);
            }
        }
    }
}

impl Adapter {
    #[cold]
    fn take(&self, max: u32) -> bool {
        if self.held.fetch_add(1, Ordering::Acquire) < u64::from(max) {
            return true;
        }
        if self.mode == Strict::Adapter {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.report(max);
        true
    }

    #[cold]
    fn released(&self) {
        lock(&self.done).unsignalled += 1;
    }

    #[cold]
    fn completes(&self) {
        let mut done = lock(&self.done);
        let places = 1 + std::mem::take(&mut done.unsignalled);
        done.completions.push_back(places);
    }

    #[cold]
    fn taken(&self) -> bool {
        let places = lock(&self.done).completions.pop_front().unwrap_or(0);
        self.held.fetch_sub(places, Ordering::Release);
        let changed = self.flight.end(places);
        if changed.is_some() {
            *lock(&self.changed) = changed;
        }
        changed.is_some()
    }

    fn room(&self, max: u32) -> usize {
        u64::from(max).saturating_sub(self.held.load(Ordering::Acquire)) as usize
    }

    fn report(&self, max: u32) {
        let num = self.num;
        self.places.report(
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

    fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        let num = self.num;
        self.places.report(
            self.mode,
            Rule::Inline,
            format_args!("queue pair {num}: work request {wr_id:#x} is a read or an atomic operation with IBV_SEND_INLINE"),
            format_args!("post only sends and writes with IBV_SEND_INLINE"),
        );
        if self.mode == Strict::Adapter { Err(libc::EINVAL) } else { Ok(()) }
    }

    fn remark_bytes(&self, wr_id: u64) {
        let num = self.num;
        self.places.remark(
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
        self.places.remark(
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
        self.places.remark(
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
