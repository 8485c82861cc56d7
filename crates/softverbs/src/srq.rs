// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::instrument::SharedReceives;
use crate::limits::MAX_SRQ_WR;
use crate::lock;
use crate::progress::{By, Driven};
use crate::sys::Errno;
use reserve::try_deque;
use transport::step::reason;
use transport::wr::RecvWr;

/// The error of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) pd: u32,
    /// Scatter/gather entries that a receive may have.
    pub(crate) max_sge: u32,
    inner: Mutex<Inner>,
    instruments: SharedReceives,
}

struct Inner {
    posted: VecDeque<RecvWr>,
    capacity: usize,
    /// Connections with a message that waits for a receive, and the number of their queue pair, oldest first.
    waiting: VecDeque<(u32, Weak<dyn Driven>)>,
    users: u32,
    /// When fewer receives than this are left, `reached` is called, once; 0: never.
    limit: usize,
    reached: Arc<dyn Fn() + Send + Sync>,
}

impl Srq {
    /// ENOMEM.
    pub(crate) fn new(pd: u32, capacity: u32, max_sge: u32) -> Result<Self, Errno> {
        let capacity = capacity as usize;
        let posted = try_deque(capacity).ok_or(libc::ENOMEM)?;
        let reached = Arc::new(|| ());
        let inner = Inner { posted, capacity, waiting: VecDeque::new(), users: 0, limit: 0, reached };
        let inner = Mutex::new(inner);
        Ok(Self { pd, max_sge, inner, instruments: SharedReceives::new() })
    }

    /// Adds a receive, and drives waiting connections as long as there are receives.
    pub(crate) fn post(&self, wr: RecvWr) -> Result<(), Full> {
        let mut rounds = {
            let mut inner = lock(&self.inner);
            if inner.posted.len() >= inner.capacity {
                return Err(Full);
            }
            inner.posted.push_back(wr);
            inner.waiting.len()
        };
        self.instruments.receive_posted();
        // Each connection once: one that finds no receive goes to the end of the list.
        while rounds > 0 {
            rounds -= 1;
            let waiting = {
                let mut inner = lock(&self.inner);
                if inner.posted.is_empty() { None } else { inner.waiting.pop_front() }
            };
            let Some((_, connection)) = waiting else { break };
            if let Some(connection) = connection.upgrade() {
                connection.drive(reason::RECEIVE, By::Program);
            }
        }
        Ok(())
    }

    /// Takes the oldest receive; if there is none, `connection` is driven when one is posted.
    pub(crate) fn take(&self, num: u32, connection: &Weak<dyn Driven>) -> Option<RecvWr> {
        let mut inner = lock(&self.inner);
        let wr = inner.posted.pop_front();
        if wr.is_none() && !inner.waiting.iter().any(|(waiting, _)| *waiting == num) {
            inner.waiting.push_back((num, connection.clone()));
        }
        Self::look_at_limit(inner);
        wr
    }

    fn look_at_limit(mut inner: MutexGuard<'_, Inner>) {
        if inner.posted.len() < inner.limit {
            inner.limit = 0;
            let reached = inner.reached.clone();
            drop(inner);
            reached();
        }
    }

    /// Sets the function that is called when fewer receives than the limit are left.
    pub(crate) fn on_limit(&self, reached: Arc<dyn Fn() + Send + Sync>) {
        lock(&self.inner).reached = reached;
    }

    /// The capacity and the limit.
    pub(crate) fn limits(&self) -> (u32, u32) {
        let inner = lock(&self.inner);
        (inner.capacity as u32, inner.limit as u32)
    }

    /// Changes the capacity and the limit. EINVAL: a capacity below the number of posted receives or above
    /// [`MAX_SRQ_WR`], or a limit above the capacity; ENOMEM. On error nothing is changed.
    pub(crate) fn modify(&self, room: Option<u32>, limit: Option<u32>) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        let room = room.map_or(inner.capacity, |room| room as usize);
        let limit = limit.map_or(inner.limit, |limit| limit as usize);
        if room == 0 || room > MAX_SRQ_WR as usize || room < inner.posted.len() || limit > room {
            return Err(libc::EINVAL);
        }
        let more = room.saturating_sub(inner.posted.len());
        inner.posted.try_reserve_exact(more).map_err(|_| libc::ENOMEM)?;
        inner.capacity = room;
        inner.limit = limit;
        Self::look_at_limit(inner);
        Ok(())
    }

    /// Adds `change` to the number of queue pairs that use this queue.
    pub(crate) fn add_user(&self, change: i32) {
        let mut inner = lock(&self.inner);
        inner.users = inner.users.saturating_add_signed(change);
    }

    /// The maximum number of posted receives.
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(lock(&self.inner).capacity).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_unused(&self) -> bool {
        lock(&self.inner).users == 0
    }
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Srq").finish_non_exhaustive()
    }
}

/// A shared receive queue, owned by its C structure and its queue pairs.
pub(crate) type SharedSrq = Arc<Srq>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn wr(wr_id: u64) -> RecvWr {
        RecvWr::one(wr_id, 0, 0, 0)
    }

    #[test]
    fn a_shared_queue_refuses_when_full() {
        let srq = Srq::new(1, 1, 1).unwrap();
        assert_eq!(srq.post(wr(1)), Ok(()));
        assert_eq!(srq.post(wr(2)), Err(Full));
    }

    #[test]
    fn the_limit_is_reported_once() {
        let srq = Srq::new(1, 4, 1).unwrap();
        let raised = Arc::new(AtomicU32::new(0));
        let count = raised.clone();
        srq.on_limit(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        (0..3).for_each(|i| srq.post(wr(i)).unwrap());
        assert_eq!(srq.modify(None, Some(2)), Ok(()));
        let none: Weak<dyn Driven> = Weak::<Taker>::new();
        let raised = || raised.load(Ordering::Relaxed);
        for (left, expected) in [(2, 0), (1, 1), (0, 1)] {
            assert!(srq.take(1, &none).is_some());
            assert_eq!(raised(), expected, "{left} left");
        }
        assert_eq!(srq.limits(), (4, 0));
        assert_eq!(srq.modify(None, Some(1)), Ok(()));
        assert_eq!(raised(), 2, "there are fewer already");
        for (room, limit) in
            [(Some(0), None), (Some(MAX_SRQ_WR + 1), None), (None, Some(5)), (Some(2), Some(3))]
        {
            assert_eq!(srq.modify(room, limit), Err(libc::EINVAL));
        }
        (0..4).for_each(|i| srq.post(wr(i)).unwrap());
        assert_eq!(srq.modify(Some(3), None), Err(libc::EINVAL), "4 are posted");
        assert_eq!(srq.modify(Some(5), Some(1)), Ok(()));
        assert_eq!((srq.post(wr(5)), srq.post(wr(6)), srq.limits()), (Ok(()), Err(Full), (5, 1)));
    }

    /// Takes one receive when it is driven.
    struct Taker {
        srq: SharedSrq,
        num: u32,
        this: Weak<Self>,
        taken: AtomicU32,
    }

    impl Driven for Taker {
        fn drive(&self, _reasons: u32, _by: By) -> bool {
            let this: Weak<dyn Driven> = self.this.clone();
            let got = self.srq.take(self.num, &this).is_some();
            self.taken.fetch_add(u32::from(got), Ordering::Relaxed);
            true
        }

        fn drive_listed(&self) {}

        fn drive_deferred(&self) {}

        fn flush_deferred(&self) {}
    }

    #[test]
    fn every_receive_reaches_one_waiting_connection() {
        let srq = Arc::new(Srq::new(1, 8, 1).unwrap());
        let takers: Vec<_> = (0..3)
            .map(|num| {
                Arc::new_cyclic(|this| Taker {
                    srq: srq.clone(),
                    num,
                    this: this.clone(),
                    taken: AtomicU32::new(0),
                })
            })
            .collect();
        takers.iter().for_each(|taker| assert!(taker.drive(0, By::Program)));
        for i in 0..2 {
            srq.post(wr(i)).unwrap();
        }
        let taken: Vec<u32> = takers.iter().map(|taker| taker.taken.load(Ordering::Relaxed)).collect();
        assert_eq!(taken, [1, 1, 0]);
        drop(takers);
        assert_eq!(srq.post(wr(3)), Ok(()), "a dropped connection takes nothing");
        assert_eq!(lock(&srq.inner).posted.len(), 1);
    }
}
