// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues.
//!
//! A completion is never lost: when the queue is full the queue pair keeps it back and delivers it once the program has polled. An event
//! is raised when a completion arrives at an armed queue. Completions that arrived while the queue was not armed and for which no event
//! was raised are announced at the moment of arming, so that a program that waits before it polls is not left waiting, and two threads
//! that share a queue both wake up; a completion that an event already stands for is not announced twice.
//!
//! Locks: `ring` is a leaf. `qps` is held while a poll moves the bytes of the queue's own connections, so it comes before every lock of
//! a queue pair.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::channel::EventQueue;
use crate::lock;
use crate::qp::Qp;

/// Status of a completion: the values of `enum ibv_wc_status`.
pub(crate) mod status {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const LOC_LEN_ERR: u32 = 1;
    pub(crate) const LOC_QP_OP_ERR: u32 = 2;
    pub(crate) const LOC_PROT_ERR: u32 = 4;
    pub(crate) const WR_FLUSH_ERR: u32 = 5;
    pub(crate) const REM_ACCESS_ERR: u32 = 10;
    pub(crate) const REM_OP_ERR: u32 = 11;
}

/// What a program learns of a work request that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completion {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    /// Immediate data as it was on the wire, if there was any.
    pub imm: Option<[u8; 4]>,
    pub qp_num: u32,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

/// A completion in the ring, and the send-queue account that it holds a place of until it is polled.
#[derive(Clone, Default)]
struct Entry {
    completion: Completion,
    account: Option<Arc<AtomicU32>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

struct Ring {
    entries: Box<[Entry]>,
    /// Completions ever taken and ever put; they index the ring modulo its length.
    taken: u64,
    put: u64,
    /// Completions up to here have been announced by an event.
    announced: u64,
    armed: Armed,
}

/// A completion queue.
pub(crate) struct Cq {
    ring: Mutex<Ring>,
    /// The address of the C object, which is what the channel's reader is given.
    handle: AtomicUsize,
    channel: Option<Arc<EventQueue<usize>>>,
    qps: Mutex<Vec<Arc<Qp>>>,
    /// A queue pair keeps completions back because the ring was full.
    waiting: AtomicBool,
}

impl Cq {
    pub(crate) fn new(entries: u32, channel: Option<Arc<EventQueue<usize>>>) -> Self {
        let entries = vec![Entry::default(); entries as usize].into_boxed_slice();
        Self {
            ring: Mutex::new(Ring { entries, taken: 0, put: 0, announced: 0, armed: Armed::No }),
            handle: AtomicUsize::new(0),
            channel,
            qps: Mutex::new(Vec::new()),
            waiting: AtomicBool::new(false),
        }
    }

    /// Tells the queue the address that its events carry.
    pub(crate) fn set_handle(&self, handle: usize) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    pub(crate) fn channel(&self) -> Option<&Arc<EventQueue<usize>>> {
        self.channel.as_ref()
    }

    /// Adds a queue pair whose bytes a poll of this queue moves.
    pub(crate) fn attach(&self, qp: &Arc<Qp>) {
        lock(&self.qps).push(qp.clone());
    }

    /// Takes a queue pair off.
    pub(crate) fn detach(&self, qp: &Arc<Qp>) {
        lock(&self.qps).retain(|other| !Arc::ptr_eq(other, qp));
    }

    /// Whether no queue pair uses this queue.
    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.qps).is_empty()
    }

    /// Puts a completion; false when the ring is full: the caller keeps it and is asked again ([`Qp::deliver_kept`]) after a poll.
    pub(crate) fn push(&self, completion: Completion, account: Option<&Arc<AtomicU32>>) -> bool {
        let mut ring = lock(&self.ring);
        let capacity = ring.entries.len() as u64;
        if ring.put - ring.taken == capacity {
            self.waiting.store(true, Ordering::Release);
            return false;
        }
        if let Some(account) = account {
            account.fetch_add(1, Ordering::Relaxed);
        }
        let at = (ring.put % capacity) as usize;
        ring.entries[at] = Entry { completion, account: account.cloned() };
        ring.put += 1;
        let wanted = match ring.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => completion.solicited || completion.status != status::SUCCESS,
        };
        if wanted {
            self.announce(&mut ring);
        }
        true
    }

    fn announce(&self, ring: &mut Ring) {
        ring.armed = Armed::No;
        ring.announced = ring.put;
        if let Some(channel) = &self.channel {
            channel.push(self.handle.load(Ordering::Relaxed));
        }
    }

    /// Takes up to `max` completions, giving each to `out`. When there are none it first moves the bytes of the queue's connections.
    pub(crate) fn poll(&self, max: usize, mut out: impl FnMut(usize, &Completion)) -> usize {
        let mut got = self.take(max, &mut out);
        if got == 0 && max > 0 {
            self.progress();
            got = self.take(max, &mut out);
        }
        if got > 0 && self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::AcqRel) {
            for qp in lock(&self.qps).iter() {
                qp.deliver_kept();
            }
        }
        got
    }

    fn take(&self, max: usize, out: &mut impl FnMut(usize, &Completion)) -> usize {
        let mut ring = lock(&self.ring);
        let available = (ring.put - ring.taken) as usize;
        let count = available.min(max);
        let capacity = ring.entries.len() as u64;
        for i in 0..count {
            let at = (ring.taken % capacity) as usize;
            let entry = &mut ring.entries[at];
            out(i, &entry.completion);
            if let Some(account) = entry.account.take() {
                account.fetch_sub(1, Ordering::Relaxed);
            }
            ring.taken += 1;
        }
        count
    }

    fn progress(&self) {
        // A second poller of the same queue has nothing to add to the first one's work.
        let Ok(qps) = self.qps.try_lock() else { return };
        if qps.len() <= crate::limits::POLL_QPS {
            let sleeps = lock(&self.ring).armed != Armed::No;
            for qp in qps.iter() {
                qp.progress_by_poller(sleeps);
            }
        }
    }

    /// Asks for an event at the next completion (or the next solicited or failed one).
    pub(crate) fn arm(&self, solicited_only: bool) {
        {
            let mut ring = lock(&self.ring);
            if !solicited_only && ring.put > ring.announced.max(ring.taken) {
                self.announce(&mut ring);
            } else if !solicited_only || ring.armed == Armed::No {
                ring.armed = if solicited_only { Armed::Solicited } else { Armed::Any };
            }
        }
        for qp in lock(&self.qps).iter() {
            qp.program_sleeps();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(wr_id: u64) -> Completion {
        Completion { wr_id, ..Completion::default() }
    }

    fn poll_one(cq: &Cq) -> Option<u64> {
        let mut id = None;
        cq.poll(1, |_, c| id = Some(c.wr_id));
        id
    }

    fn events(channel: &EventQueue<usize>) -> usize {
        channel.withdraw(|_| true).len()
    }

    #[test]
    fn completions_come_out_in_order_and_a_full_queue_refuses() {
        let cq = Cq::new(2, None);
        let account = Arc::new(AtomicU32::new(0));
        assert!(cq.push(done(1), Some(&account)));
        assert!(cq.push(done(2), None));
        assert!(!cq.push(done(3), Some(&account)));
        assert_eq!(account.load(Ordering::Relaxed), 1);
        assert_eq!(poll_one(&cq), Some(1));
        assert_eq!(account.load(Ordering::Relaxed), 0);
        assert!(cq.push(done(3), None));
        assert_eq!(poll_one(&cq), Some(2));
        assert_eq!(poll_one(&cq), Some(3));
        assert_eq!(poll_one(&cq), None);
    }

    #[test]
    fn an_event_is_neither_lost_nor_invented() {
        let channel = Arc::new(EventQueue::new().unwrap());
        let cq = Cq::new(8, Some(channel.clone()));
        cq.push(done(1), None);
        assert_eq!(events(&channel), 0, "not armed");
        cq.arm(false);
        assert_eq!(events(&channel), 1, "the completion that nobody was told of");
        cq.arm(false);
        assert_eq!(events(&channel), 0, "told already");
        cq.push(done(2), None);
        assert_eq!(events(&channel), 1);
        cq.push(done(3), None);
        assert_eq!(events(&channel), 0, "one event for each arming");
        while poll_one(&cq).is_some() {}
        cq.arm(false);
        assert_eq!(events(&channel), 0, "nothing is left to announce");
    }

    #[test]
    fn solicited_arming_waits_for_a_solicited_or_failed_completion() {
        let channel = Arc::new(EventQueue::new().unwrap());
        let cq = Cq::new(8, Some(channel.clone()));
        cq.arm(true);
        cq.push(done(1), None);
        assert_eq!(events(&channel), 0);
        cq.push(Completion { solicited: true, ..done(2) }, None);
        assert_eq!(events(&channel), 1);
        cq.arm(true);
        cq.push(Completion { status: status::WR_FLUSH_ERR, ..done(3) }, None);
        assert_eq!(events(&channel), 1);
    }
}
