// SPDX-License-Identifier: BSD-3-Clause
//! Event channels: queues of events with a file descriptor that a program may poll and may switch to
//! O_NONBLOCK.
//!
//! The descriptor is an eventfd semaphore that counts the queued events, so taking an event blocks, fails
//! with EAGAIN or is interrupted exactly as a read of the descriptor is. An event for which there is a
//! [`Taker`] is not counted: its thread takes the event from the queue without a system call. Events that
//! takers leave are counted when the takers are dropped.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use crate::sys::{self, Errno};
use crate::{cancel, lock};

/// A queue of events of type `T`: a completion channel or an rdma_cm event channel.
pub(crate) struct EventQueue<T> {
    counter: OwnedFd,
    events: Mutex<Events<T>>,
}

struct Events<T> {
    queue: VecDeque<T>,
    /// Live [`Taker`]s.
    takers: usize,
    /// Events left to the takers: queued, but not counted. Never more than `takers`.
    unraised: usize,
}

/// A thread that is about to take an event, if there is one: an event queued meanwhile is not counted in the
/// eventfd.
pub(crate) struct Taker<'a, T>(&'a EventQueue<T>);

impl<T> Drop for Taker<'_, T> {
    fn drop(&mut self) {
        let mut events = lock(&self.0.events);
        events.takers -= 1;
        while events.unraised > events.takers {
            events.unraised -= 1;
            sys::event_raise(&self.0.counter);
        }
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

impl<T> EventQueue<T> {
    /// Creates a queue and its descriptor. EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new() -> Result<Self, Errno> {
        let counter = sys::event_counter().inspect_err(|&e| {
            log::error!(
                "cannot create the descriptor of an event channel: {}",
                std::io::Error::from_raw_os_error(e)
            );
        })?;
        Ok(Self { counter, events: Mutex::new(Events { queue: VecDeque::new(), takers: 0, unraised: 0 }) })
    }

    /// The descriptor, which is readable while an event is queued. It is closed with the queue.
    pub(crate) fn fd(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// Makes room for one more event; false if there is no memory for it.
    pub(crate) fn make_room(&self) -> bool {
        lock(&self.events).queue.try_reserve(1).is_ok()
    }

    /// Queues an event, and wakes a waiting thread unless a [`Taker`] is going to take it.
    pub(crate) fn push(&self, event: T) {
        self.queue(&mut lock(&self.events), event);
    }

    /// Counts the event while the queue is locked: a thread that took it in between would find no count to
    /// take, and the descriptor would stay readable.
    fn queue(&self, events: &mut Events<T>, event: T) {
        events.queue.push_back(event);
        if events.unraised < events.takers {
            events.unraised += 1;
        } else {
            sys::event_raise(&self.counter);
        }
    }

    /// As [`Self::push`], but replaces a queued event that `of` selects: the queue has one of these at most.
    pub(crate) fn push_latest(&self, event: T, of: impl FnMut(&T) -> bool) {
        let mut events = lock(&self.events);
        // The event that it replaces was counted, or left to a taker.
        if let Some(position) = events.queue.iter().position(of) {
            events.queue.remove(position);
            events.queue.push_back(event);
        } else {
            self.queue(&mut events, event);
        }
    }

    /// Announces that this thread is awake and calls [`Self::try_take`] before it drops the result.
    pub(crate) fn will_take(&self) -> Taker<'_, T> {
        lock(&self.events).takers += 1;
        Taker(self)
    }

    /// Takes the oldest event; waits for one unless the descriptor has O_NONBLOCK: a cancellation point.
    /// EAGAIN, EINTR.
    pub(crate) fn take(&self) -> Result<T, Errno> {
        self.take_keeping(None::<()>)
    }

    /// As [`Self::take`]; `keep` is dropped after the wait, also if the thread is cancelled.
    pub(crate) fn take_keeping<K: 'static>(&self, mut keep: Option<K>) -> Result<T, Errno> {
        let take = || sys::event_take(&self.counter);
        loop {
            match keep.take() {
                // This needs no allocation.
                None => cancel::waiting((), take).1?,
                Some(kept) => {
                    let (kept, taken) = cancel::waiting(kept, take);
                    keep = Some(kept);
                    taken?;
                }
            }
            // If the event was withdrawn or taken by another thread after the read, keep waiting.
            if let Some(event) = lock(&self.events).queue.pop_front() {
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event, if any. Never blocks, whatever the flags of the descriptor.
    pub(crate) fn try_take(&self) -> Option<T> {
        let counted = {
            let mut events = lock(&self.events);
            let event = events.queue.pop_front()?;
            if events.unraised > 0 {
                events.unraised -= 1;
                return Some(event);
            }
            event
        };
        // If another thread has already read the count of this event, it finds no event and keeps waiting.
        sys::event_try_take(&self.counter);
        Some(counted)
    }

    /// Whether an event that `of` selects is queued.
    pub(crate) fn contains(&self, of: impl FnMut(&T) -> bool) -> bool {
        lock(&self.events).queue.iter().any(of)
    }

    /// Removes the first event that `of` selects, unless it is the only one that is queued.
    pub(crate) fn withdraw_unless_last(&self, of: impl FnMut(&T) -> bool) -> Option<T> {
        let mut events = lock(&self.events);
        if events.queue.len() < 2 {
            return None;
        }
        let position = events.queue.iter().position(of)?;
        let gone = events.queue.remove(position);
        if events.unraised > 0 {
            events.unraised -= 1;
        } else {
            sys::event_try_take(&self.counter);
        }
        gone
    }

    /// Removes the events that `of` selects and returns them, oldest first.
    pub(crate) fn withdraw(&self, mut of: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut events = lock(&self.events);
        let (gone, kept): (VecDeque<T>, VecDeque<T>) = events.queue.drain(..).partition(|e| of(e));
        events.queue = kept;
        for _ in &gone {
            if events.unraised > 0 {
                events.unraised -= 1;
            } else {
                sys::event_try_take(&self.counter);
            }
        }
        gone.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_in_order_and_withdrawn_ones_never() {
        let queue = EventQueue::new().unwrap();
        for i in 0..5 {
            queue.push(i);
        }
        assert_eq!(queue.withdraw(|i| i % 2 == 1), vec![1, 3]);
        assert_eq!(queue.take(), Ok(0));
        assert_eq!(queue.take(), Ok(2));
        assert_eq!(queue.take(), Ok(4));
        queue.push(5);
        assert_eq!(queue.withdraw_unless_last(|_| true), None, "the descriptor may have been found readable");
        queue.push(6);
        assert_eq!(queue.withdraw_unless_last(|i| *i == 6), Some(6));
        assert_eq!(queue.withdraw_unless_last(|i| *i == 5), None);
        assert_eq!(queue.take(), Ok(5));
        sys::event_raise(&queue.counter);
        queue.push(9);
        assert_eq!(queue.take(), Ok(9), "a count without an event is skipped");
    }

    #[test]
    fn an_event_replaces_one_that_is_queued() {
        let queue = EventQueue::new().unwrap();
        for i in [12, 7, 13, 14, 8] {
            queue.push_latest(i, |queued| queued / 10 == i / 10);
        }
        assert_eq!([queue.take(), queue.take()], [Ok(14), Ok(8)], "the latest ones, in their order");
        assert!(!sys::is_readable(queue.fd()), "as many counts as events");
        queue.push_latest(1, |_| true);
        assert_eq!(queue.take(), Ok(1));
    }

    /// A count that no event has would make every wait on the descriptor return at once.
    #[test]
    fn an_event_taken_while_it_is_queued_leaves_no_count() {
        const EVENTS: u32 = 20_000;
        let queue = EventQueue::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..EVENTS).for_each(|i| queue.push(i)));
            let mut taken = 0;
            while taken < EVENTS {
                taken += queue.try_take().map_or(0, |_| 1);
            }
        });
        assert!(!sys::is_readable(queue.fd()), "as many counts as events");
    }
}
