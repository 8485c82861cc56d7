// SPDX-License-Identifier: BSD-3-Clause
//! Channels: queues of events behind a descriptor that a program may poll, and may set O_NONBLOCK without telling us.
//!
//! The descriptor is an eventfd that counts the queued events, so that taking an event blocks, or fails with EAGAIN, or is interrupted,
//! just as a read of that descriptor is.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use crate::lock;
use crate::sys::{self, Errno};

/// A queue of events of type `T`; both completion channels and rdma_cm event channels are one.
pub(crate) struct EventQueue<T> {
    counter: OwnedFd,
    events: Mutex<Events<T>>,
}

struct Events<T> {
    queue: VecDeque<T>,
    /// Threads that will take an event before they return, and events that the counter was not raised for because of them.
    takers: usize,
    unraised: usize,
}

/// A thread that takes an event before it returns: an event that is queued meanwhile need not be told to the kernel.
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

impl<T> EventQueue<T> {
    /// A queue with a descriptor of its own; EMFILE, ENFILE or ENOMEM when the system has none left.
    pub(crate) fn new() -> Result<Self, Errno> {
        let counter = sys::event_counter().inspect_err(|&e| {
            log::error!("no descriptor for an event channel: {}", std::io::Error::from_raw_os_error(e));
        })?;
        Ok(Self { counter, events: Mutex::new(Events { queue: VecDeque::new(), takers: 0, unraised: 0 }) })
    }

    /// The descriptor, readable while an event is queued. It lives as long as the queue.
    pub(crate) fn fd(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// Queues an event and wakes one waiter.
    pub(crate) fn push(&self, event: T) {
        {
            let mut events = lock(&self.events);
            events.queue.push_back(event);
            if events.unraised < events.takers {
                events.unraised += 1;
                return;
            }
        }
        sys::event_raise(&self.counter);
    }

    /// Promises to take an event, if there is one, before the result is dropped. For a thread that is awake and on its way to do so.
    pub(crate) fn will_take(&self) -> Taker<'_, T> {
        lock(&self.events).takers += 1;
        Taker(self)
    }

    /// Takes the oldest event, waiting for one if the descriptor is a blocking one. The error is the descriptor's: EAGAIN or EINTR.
    pub(crate) fn take(&self) -> Result<T, Errno> {
        loop {
            sys::event_take(&self.counter)?;
            // An event may have been withdrawn between the two steps: then its count is gone and the wait goes on.
            if let Some(event) = lock(&self.events).queue.pop_front() {
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event if there is one, whatever the descriptor's flags.
    pub(crate) fn try_take(&self) -> Option<T> {
        let raised = {
            let mut events = lock(&self.events);
            let event = events.queue.pop_front()?;
            if events.unraised > 0 {
                events.unraised -= 1;
                return Some(event);
            }
            event
        };
        // Another reader may have its count already; that one finds no event and waits on.
        sys::event_try_take(&self.counter);
        Some(raised)
    }

    /// Withdraws the events that `of` selects and returns them, oldest first.
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
        sys::event_raise(&queue.counter);
        queue.push(9);
        assert_eq!(queue.take(), Ok(9), "a count without an event is skipped");
    }
}
