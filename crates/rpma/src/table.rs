// SPDX-License-Identifier: BSD-3-Clause
//! The operations of a connection, from the call that makes one until its result is taken.
//!
//! An operation is in a slot, whose number is the `wr_id` of its work requests. It owns its buffers from the
//! call on, even if the future is dropped or forgotten: nothing else can access memory that a device may
//! access. Every request is signalled, so an operation is complete when as many completions have been polled
//! as requests were posted.
//!
//! ```text
//! add ─▶ waiting ─next─▶ posted ─complete, for each request─▶ done ─take─▶ free
//!          detach: the same way, but an operation that is done is free at once
//! ```

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use crate::error::Error;
use crate::trace::Reports;

/// The queue of a queue pair that the requests of an operation use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send = 0,
    Receive = 1,
}

/// What a completion says of a message that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub len: usize,
    pub imm: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    Waiting,
    Posted,
    Done,
}

struct Slot<W> {
    stage: Stage,
    queue: Queue,
    /// Requests: all of them while it waits, then those without a completion.
    requests: u32,
    /// Nobody takes the result.
    is_detached: bool,
    work: Option<W>,
    arrived: Arrived,
    /// The first error.
    error: Option<Error>,
    waker: Option<Waker>,
}

/// What is left to do when the table is unlocked: a waker, the release of a buffer, or a subscriber to
/// reports may take locks.
#[must_use]
pub(crate) struct After<W> {
    wakers: Vec<Waker>,
    /// Wakers of those who do not wait any more.
    replaced: Vec<Waker>,
    dropped: Vec<W>,
    pub(crate) reports: Reports,
}

impl<W> Default for After<W> {
    fn default() -> Self {
        Self { wakers: Vec::new(), replaced: Vec::new(), dropped: Vec::new(), reports: Reports::default() }
    }
}

impl<W> After<W> {
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    pub(crate) fn run(self) {
        self.reports.run();
        drop((self.dropped, self.replaced));
        for waker in self.wakers {
            waker.wake();
        }
    }
}

/// The operations of a connection; `W` is what an operation owns.
pub(crate) struct Table<W> {
    slots: Vec<Slot<W>>,
    free: Vec<u32>,
    /// Operations that are not posted yet, in the order of their calls.
    waiting: [VecDeque<u32>; 2],
    /// How many more requests fit into each queue, and the size of each.
    room: [u32; 2],
    size: [u32; 2],
    /// Operations that are waiting or posted.
    busy: [usize; 2],
}

/// A finished operation.
pub(crate) struct Finished<W> {
    pub work: W,
    pub result: Result<Arrived, Error>,
}

impl<W> Table<W> {
    /// A table for queues of these sizes.
    pub(crate) fn new(send: u32, receive: u32) -> Self {
        let size = [send, receive];
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            waiting: [VecDeque::new(), VecDeque::new()],
            room: size,
            size,
            busy: [0; 2],
        }
    }

    /// The number of requests that fit into an empty queue.
    pub(crate) fn size(&self, queue: Queue) -> u32 {
        self.size[queue as usize]
    }

    /// Adds an operation of so many requests, which must fit into the empty queue.
    pub(crate) fn add(&mut self, queue: Queue, work: W, requests: u32) -> u32 {
        debug_assert!(requests > 0 && requests <= self.size(queue));
        let slot = Slot {
            stage: Stage::Waiting,
            queue,
            requests,
            is_detached: false,
            work: Some(work),
            arrived: Arrived::default(),
            error: None,
            waker: None,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.waiting[queue as usize].push_back(number);
        self.busy[queue as usize] += 1;
        number
    }

    /// What an operation owns, until its result is taken.
    pub(crate) fn work(&self, number: u32) -> Option<&W> {
        self.slots.get(number as usize)?.work.as_ref()
    }

    /// The next operation to be posted, if its requests fit: now it is posted.
    pub(crate) fn next(&mut self, queue: Queue) -> Option<(u32, &W)> {
        let number = *self.waiting[queue as usize].front()?;
        let slot = &mut self.slots[number as usize];
        let room = &mut self.room[queue as usize];
        *room = room.checked_sub(slot.requests)?;
        slot.stage = Stage::Posted;
        self.waiting[queue as usize].pop_front();
        slot.work.as_ref().map(|work| (number, work))
    }

    /// Only `posted` requests of an operation that [`Self::next`] returned could be posted.
    pub(crate) fn not_posted(&mut self, number: u32, posted: u32, error: Error, after: &mut After<W>) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        slot.error.get_or_insert(error);
        for _ in posted..slot.requests {
            self.one_less(number, after);
        }
    }

    /// A request of an operation is complete.
    pub(crate) fn complete(&mut self, number: u32, result: Result<Arrived, Error>, after: &mut After<W>) {
        let Some(slot) = self.slots.get_mut(number as usize).filter(|slot| slot.stage == Stage::Posted)
        else {
            debug_assert!(false, "a completion of slot {number}, which is not posted");
            return;
        };
        match result {
            Ok(arrived) => slot.arrived = arrived,
            Err(error) => drop(slot.error.get_or_insert(error)),
        }
        self.one_less(number, after);
    }

    fn one_less(&mut self, number: u32, after: &mut After<W>) {
        let slot = &mut self.slots[number as usize];
        self.room[slot.queue as usize] += 1;
        slot.requests -= 1;
        if slot.requests == 0 {
            self.end(number, after);
        }
    }

    fn end(&mut self, number: u32, after: &mut After<W>) {
        let slot = &mut self.slots[number as usize];
        self.busy[slot.queue as usize] -= 1;
        after.wake(slot.waker.take());
        if slot.is_detached {
            after.dropped.extend(slot.work.take());
            self.release(number);
        } else {
            slot.stage = Stage::Done;
        }
    }

    fn release(&mut self, number: u32) {
        self.slots[number as usize].stage = Stage::Free;
        self.slots[number as usize].error = None;
        self.free.push(number);
    }

    /// The operation's result, if it is over.
    pub(crate) fn take(&mut self, number: u32) -> Option<Finished<W>> {
        let slot = &mut self.slots[number as usize];
        if slot.stage != Stage::Done {
            return None;
        }
        let (work, error, arrived) = (slot.work.take()?, slot.error.take(), slot.arrived);
        self.release(number);
        Some(Finished { work, result: error.map_or(Ok(arrived), Err) })
    }

    /// `waker` is woken when an operation that is not over is, instead of an earlier one.
    pub(crate) fn wait(&mut self, number: u32, waker: &Waker, after: &mut After<W>) {
        let known = &mut self.slots[number as usize].waker;
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            after.replaced.extend(known.replace(waker.clone()));
        }
    }

    /// Wakes all who wait for a result.
    pub(crate) fn wake_all(&mut self, after: &mut After<W>) {
        after.wakers.extend(self.slots.iter_mut().filter_map(|slot| slot.waker.take()));
    }

    /// Nobody takes the operation's result.
    pub(crate) fn detach(&mut self, number: u32, after: &mut After<W>) {
        let slot = &mut self.slots[number as usize];
        slot.is_detached = true;
        after.replaced.extend(slot.waker.take());
        if slot.stage == Stage::Done {
            after.dropped.extend(slot.work.take());
            self.release(number);
        }
    }

    /// Operations that are not posted fail.
    pub(crate) fn fail_waiting(&mut self, error: impl Fn() -> Error, after: &mut After<W>) {
        for queue in [0, 1] {
            for number in mem::take(&mut self.waiting[queue]) {
                let slot = &mut self.slots[number as usize];
                (slot.requests, slot.error) = (0, Some(error()));
                self.end(number, after);
            }
        }
    }

    /// What all operations own; for the end of the table.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.slots.iter_mut().filter_map(|slot| slot.work.take()).collect()
    }

    /// Whether an operation of this queue is waiting or posted.
    pub(crate) fn is_busy(&self, queue: Queue) -> bool {
        self.busy[queue as usize] > 0
    }
}

#[cfg(test)]
mod tests;
