// SPDX-License-Identifier: BSD-3-Clause
//! Receive queues: of one queue pair, or shared by several.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use super::Qp;
use crate::cq::{Completion, Cq};
use crate::lock;

/// A posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecvWr {
    pub wr_id: u64,
    pub addr: u64,
    pub len: u32,
    pub lkey: u32,
}

/// Why a receive was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostError {
    Full,
}

/// The receives of one queue pair, and the completions of receives that its completion queue had no room for.
pub(crate) struct RecvQueue {
    posted: VecDeque<RecvWr>,
    capacity: usize,
    kept: VecDeque<Completion>,
    /// The connection is over: what is posted now completes at once.
    failed: bool,
}

impl RecvQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self { posted: VecDeque::with_capacity(capacity), capacity, kept: VecDeque::new(), failed: false }
    }

    /// Adds a receive. On a failed queue it becomes a flush completion, which [`Self::deliver`] hands on.
    pub(crate) fn post(
        &mut self,
        wr: RecvWr,
        flushed: impl FnOnce(&RecvWr) -> Completion,
    ) -> Result<(), PostError> {
        if self.posted.len() + self.kept.len() >= self.capacity {
            return Err(PostError::Full);
        }
        if self.failed {
            self.kept.push_back(flushed(&wr));
        } else {
            self.posted.push_back(wr);
        }
        Ok(())
    }

    /// Takes the oldest receive for an incoming message.
    pub(crate) fn take(&mut self) -> Option<RecvWr> {
        self.posted.pop_front()
    }

    /// Queues the completion of a receive; [`Self::deliver`] hands it on.
    pub(crate) fn complete(&mut self, completion: Completion) {
        self.kept.push_back(completion);
    }

    /// Turns all posted receives into flush completions, now and from now on.
    pub(crate) fn fail(&mut self, flushed: impl Fn(&RecvWr) -> Completion) {
        self.failed = true;
        let Self { posted, kept, .. } = self;
        kept.extend(posted.drain(..).map(|wr| flushed(&wr)));
    }

    /// Moves completions to the completion queue while there is room.
    pub(crate) fn deliver(&mut self, cq: &Cq) {
        while let Some(completion) = self.kept.front() {
            if !cq.push(*completion, None) {
                return;
            }
            self.kept.pop_front();
        }
    }

    /// Forgets everything: the queue pair is being destroyed.
    pub(crate) fn discard(&mut self) {
        self.failed = true;
        self.posted.clear();
        self.kept.clear();
    }
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) pd: u32,
    inner: Mutex<SrqInner>,
}

struct SrqInner {
    posted: VecDeque<RecvWr>,
    capacity: usize,
    /// Queue pairs that hold a message back for want of a receive.
    waiting: Vec<Weak<Qp>>,
    users: u32,
}

impl Srq {
    pub(crate) fn new(pd: u32, capacity: u32) -> Self {
        let capacity = capacity as usize;
        let posted = VecDeque::with_capacity(capacity);
        Self { pd, inner: Mutex::new(SrqInner { posted, capacity, waiting: Vec::new(), users: 0 }) }
    }

    /// Adds a receive and lets the queue pairs that wait for one go on.
    pub(crate) fn post(&self, wr: RecvWr) -> Result<(), PostError> {
        let waiting = {
            let mut inner = lock(&self.inner);
            if inner.posted.len() >= inner.capacity {
                return Err(PostError::Full);
            }
            inner.posted.push_back(wr);
            std::mem::take(&mut inner.waiting)
        };
        for qp in waiting.iter().filter_map(Weak::upgrade) {
            qp.receive_posted();
        }
        Ok(())
    }

    /// Takes the oldest receive; when there is none, `qp` is told of the next one.
    pub(crate) fn take(&self, qp: &Arc<Qp>) -> Option<RecvWr> {
        let mut inner = lock(&self.inner);
        let wr = inner.posted.pop_front();
        if wr.is_none() && !inner.waiting.iter().any(|w| w.as_ptr() == Arc::as_ptr(qp)) {
            inner.waiting.push(Arc::downgrade(qp));
        }
        wr
    }

    /// Counts a queue pair that uses this queue in (`+1`) or out (`-1`).
    pub(crate) fn add_user(&self, change: i32) {
        let mut inner = lock(&self.inner);
        inner.users = inner.users.saturating_add_signed(change);
    }

    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.inner).users == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cq::status::WR_FLUSH_ERR;

    fn wr(wr_id: u64) -> RecvWr {
        RecvWr { wr_id, addr: 0, len: 0, lkey: 0 }
    }

    fn flushed(wr: &RecvWr) -> Completion {
        Completion { wr_id: wr.wr_id, status: WR_FLUSH_ERR, ..Completion::default() }
    }

    #[test]
    fn receives_come_out_in_order_and_a_full_queue_refuses() {
        let mut rq = RecvQueue::new(2);
        assert_eq!(rq.post(wr(1), flushed), Ok(()));
        assert_eq!(rq.post(wr(2), flushed), Ok(()));
        assert_eq!(rq.post(wr(3), flushed), Err(PostError::Full));
        assert_eq!(rq.take(), Some(wr(1)));
        assert_eq!(rq.post(wr(3), flushed), Ok(()));
    }

    #[test]
    fn failing_completes_each_receive_once_also_later_ones() {
        let cq = Cq::new(2, None);
        let mut rq = RecvQueue::new(4);
        for id in 0..3 {
            rq.post(wr(id), flushed).unwrap();
        }
        rq.fail(flushed);
        rq.post(wr(3), flushed).unwrap();
        let mut got = Vec::new();
        for _ in 0..3 {
            rq.deliver(&cq);
            cq.poll(8, |_, c| got.push((c.wr_id, c.status)));
        }
        assert_eq!(got, (0..4).map(|id| (id, WR_FLUSH_ERR)).collect::<Vec<_>>());
        assert_eq!(rq.take(), None);
    }

    #[test]
    fn a_shared_queue_refuses_when_full() {
        let srq = Srq::new(1, 1);
        assert_eq!(srq.post(wr(1)), Ok(()));
        assert_eq!(srq.post(wr(2)), Err(PostError::Full));
    }
}
