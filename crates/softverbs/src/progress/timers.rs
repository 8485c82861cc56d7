// SPDX-License-Identifier: BSD-3-Clause
//! The timers of the engine. Most never expire: the connection is established in time, the peer responds, and
//! the holder of the [`Timer`] cancels it. The memory of its source is freed then and not at its deadline,
//! which matters for a thousand new connections a second.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use super::source::Source;
use crate::lock;

/// Sources to be called, by deadline and number.
#[derive(Default)]
struct Queue {
    /// Includes cancelled timers until they reach the front.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    sources: HashMap<u64, Weak<dyn Source>>,
    next: u64,
}

impl Queue {
    /// The first deadline of a timer that was not cancelled.
    fn front(&mut self) -> Option<Instant> {
        loop {
            let Reverse((at, number)) = self.deadlines.peek()?;
            if self.sources.contains_key(number) {
                return Some(*at);
            }
            self.deadlines.pop();
        }
    }
}

#[derive(Default)]
pub(super) struct Timers(Mutex<Queue>);

/// A running timer, which is cancelled when this is dropped.
#[must_use]
pub(crate) struct Timer {
    timers: Arc<Timers>,
    /// `None`: the timer is detached.
    number: Option<u64>,
}

impl Timer {
    /// Detaches the timer from this handle. It expires if the source still exists then.
    pub(crate) fn detach(mut self) {
        self.number = None;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // This drops only a weak reference: others own the source.
            lock(&self.timers.0).sources.remove(&number);
        }
    }
}

impl Timers {
    /// Starts a timer; also returns whether it is the first one to expire.
    pub(super) fn add(self: &Arc<Self>, at: Instant, source: Weak<dyn Source>) -> (Timer, bool) {
        let mut queue = lock(&self.0);
        let is_first = queue.front().is_none_or(|first| at < first);
        queue.next += 1;
        let number = queue.next;
        queue.deadlines.push(Reverse((at, number)));
        queue.sources.insert(number, source);
        (Timer { timers: self.clone(), number: Some(number) }, is_first)
    }

    /// When the next timer expires.
    pub(super) fn next(&self) -> Option<Instant> {
        lock(&self.0).front()
    }

    /// Removes an expired timer and returns its source.
    pub(super) fn due(&self, now: Instant) -> Option<Weak<dyn Source>> {
        let mut queue = lock(&self.0);
        queue.front().filter(|at| *at <= now)?;
        let Reverse((_, number)) = queue.deadlines.pop()?;
        queue.sources.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Idle;

    impl Source for Idle {
        fn ready(self: Arc<Self>, _events: u32) {}
    }

    fn idle() -> (Arc<Idle>, Weak<dyn Source>) {
        let source = Arc::new(Idle);
        let weak: Weak<dyn Source> = Arc::downgrade(&(source.clone() as Arc<dyn Source>));
        (source, weak)
    }

    #[test]
    fn timers_expire_in_order_unless_they_were_cancelled() {
        let (timers, begin) = (Arc::new(Timers::default()), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        let (source, weak) = idle();
        let (second, is_first) = timers.add(at(20), weak.clone());
        assert!(is_first);
        let (first, is_first) = timers.add(at(10), weak.clone());
        assert!(is_first);
        let (third, is_first) = timers.add(at(30), weak);
        assert!(!is_first, "the engine sleeps until an earlier one");
        assert_eq!(timers.next(), Some(at(10)));
        assert!(timers.due(at(9)).is_none());
        drop(first);
        assert_eq!(timers.next(), Some(at(20)), "the first was cancelled");
        assert!(timers.due(at(10)).is_none());
        assert!(timers.due(at(20)).is_some_and(|source| source.upgrade().is_some()));
        drop(second);
        third.detach();
        assert!(timers.due(at(25)).is_none());
        assert!(timers.due(at(30)).is_some());
        assert_eq!(timers.next(), None);
        assert_eq!(Arc::weak_count(&source), 0, "the source is no longer referenced");
    }

    #[test]
    fn cancelling_frees_the_memory_of_the_source() {
        let timers = Arc::new(Timers::default());
        let (source, weak) = idle();
        let (timer, _) = timers.add(Instant::now() + Duration::from_secs(3600), weak);
        assert_eq!(Arc::weak_count(&source), 1);
        drop(timer);
        assert_eq!(Arc::weak_count(&source), 0);
    }
}
