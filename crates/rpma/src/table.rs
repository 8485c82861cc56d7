// SPDX-License-Identifier: BSD-3-Clause
//! The operations of a connection, from the call that makes one until its result is taken.
//!
//! An operation is in a slot, whose number is the `wr_id` of its work requests, unless the post of its only
//! request has executed it ([`Table::place`]). It owns its buffers from the call on, even if the future is
//! dropped or forgotten: nothing else can access memory that a device may access. Every request is signalled,
//! so an operation is complete when as many completions have been polled as requests were posted, without
//! those that their posts have executed.
//!
//! All of it is behind the lock of the connection, and has no atomics: any order of calls is a schedule of
//! threads, and the tests run such orders, also under Miri; a model of the lock would add nothing.
//!
//! ```text
//! add ─▶ waiting ─next─▶ posted ─complete, for each request─▶ done ─take─▶ free
//!          detach: the same way, but an operation that is done is free at once
//! ```
//!
//! If completions can no longer be taken, posted operations are done without them (`abandon`); what a device
//! may still access is kept until the end of the table.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use crate::error::Error;
use crate::report::Reports;

/// The queue of a queue pair that the requests of an operation use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send = 0,
    Receive = 1,
}

/// What the completion of a receive says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The length of the message, or of the write.
    pub len: u32,
    pub imm: Option<u32>,
    /// A write with immediate data; the buffer of the receive has no message.
    pub is_write: bool,
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
    /// Requests that were posted, once it is.
    #[cfg(feature = "metrics")]
    posted: u32,
    /// The result is discarded.
    is_detached: bool,
    /// The default owns nothing: it is not dropped when another value takes its place.
    work: W,
    arrived: Arrived,
    /// The first error.
    error: Option<Error>,
    waker: Option<Waker>,
}

/// The work that remains when the table is unlocked: a waker, the release of a buffer, or a subscriber to
/// reports may take locks.
///
/// Most often that is nothing, or one waker.
#[must_use]
pub(crate) struct After<W> {
    waker: Option<Waker>,
    more: Option<Box<More<W>>>,
}

struct More<W> {
    wakers: Vec<Waker>,
    /// Wakers of tasks that no longer wait.
    replaced: Vec<Waker>,
    dropped: Vec<W>,
    reports: Reports,
}

impl<W> Default for After<W> {
    fn default() -> Self {
        Self { waker: None, more: None }
    }
}

impl<W> After<W> {
    #[inline]
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            match &self.waker {
                None => self.waker = Some(waker),
                Some(_) => self.more().wakers.push(waker),
            }
        }
    }

    /// Reports of this call, before anything else is done.
    pub(crate) fn reports(&mut self) -> &mut Reports {
        &mut self.more().reports
    }

    #[cold]
    fn more(&mut self) -> &mut More<W> {
        self.more.get_or_insert_with(|| {
            let reports = Reports::default();
            Box::new(More { wakers: Vec::new(), replaced: Vec::new(), dropped: Vec::new(), reports })
        })
    }

    fn replaced(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.more().replaced.push(waker);
        }
    }

    fn dropped(&mut self, work: W) {
        self.more().dropped.push(work);
    }

    #[inline(always)]
    pub(crate) fn run(self) {
        if self.waker.is_some() || self.more.is_some() {
            self.run_all();
        }
    }

    fn run_all(self) {
        let wakers = self.more.map(|more| more.run());
        for waker in self.waker.into_iter().chain(wakers.into_iter().flatten()) {
            waker.wake();
        }
    }
}

impl<W> More<W> {
    /// What is left: those to wake.
    fn run(self) -> Vec<Waker> {
        self.reports.run();
        drop((self.dropped, self.replaced));
        self.wakers
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
    /// What a device may still access of operations that [`Table::abandon`] has ended.
    abandoned: Vec<W>,
}

/// A free slot, for an operation of one request that is posted now ([`Table::place`]).
pub(crate) struct Place<'a, W> {
    table: &'a mut Table<W>,
    queue: Queue,
}

impl<W: Default> Place<'_, W> {
    /// The number of the slot.
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.table.free[self.table.free.len() - 1]
    }

    /// The request is posted. Returns the slot.
    #[inline(always)]
    pub(crate) fn keep(self, work: W) -> u32 {
        let Self { table, queue } = self;
        table.room[queue as usize] -= 1;
        let (number, slot) = table.start(queue, Stage::Posted, 1);
        // A free slot owns nothing that would have to be dropped.
        mem::forget(mem::replace(&mut slot.work, work));
        number
    }
}

/// A finished operation.
pub(crate) struct Finished<W> {
    pub work: W,
    pub result: Result<Arrived, Error>,
}

impl<W: Default> Table<W> {
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
            abandoned: Vec::new(),
        }
    }

    /// The number of requests that fit into an empty queue.
    pub(crate) fn size(&self, queue: Queue) -> u32 {
        self.size[queue as usize]
    }

    /// Adds an operation of `requests` requests, which must fit into the empty queue: it waits, see
    /// [`Self::next`].
    pub(crate) fn add(&mut self, queue: Queue, work: W, requests: u32) -> u32 {
        debug_assert!(requests > 0 && requests <= self.size(queue));
        let (number, slot) = self.start(queue, Stage::Waiting, requests);
        slot.work = work;
        self.waiting[queue as usize].push_back(number);
        number
    }

    /// A slot for an operation of one request that is posted now, unless it must wait for others or for room.
    /// It is in use from [`Place::keep`] on.
    #[inline(always)]
    pub(crate) fn place(&mut self, queue: Queue) -> Option<Place<'_, W>> {
        let index = queue as usize;
        if !self.waiting[index].is_empty() || self.room[index] == 0 {
            return None;
        }
        if self.free.is_empty() {
            let number = self.grow();
            self.free.push(number);
        }
        Some(Place { table: self, queue })
    }

    #[inline(always)]
    fn start(&mut self, queue: Queue, stage: Stage, requests: u32) -> (u32, &mut Slot<W>) {
        let number = self.free.pop().unwrap_or_else(|| self.grow());
        self.busy[queue as usize] += 1;
        let slot = &mut self.slots[number as usize];
        (slot.stage, slot.queue, slot.requests, slot.is_detached) = (stage, queue, requests, false);
        #[cfg(feature = "metrics")]
        {
            slot.posted = requests;
        }
        (number, slot)
    }

    /// Another slot.
    #[cold]
    fn grow(&mut self) -> u32 {
        self.slots.push(Slot {
            stage: Stage::Free,
            queue: Queue::Send,
            requests: 0,
            #[cfg(feature = "metrics")]
            posted: 0,
            is_detached: false,
            work: W::default(),
            arrived: Arrived::default(),
            error: None,
            waker: None,
        });
        (self.slots.len() - 1) as u32
    }

    /// Whether an operation waits to be posted.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting[0].is_empty() || !self.waiting[1].is_empty()
    }

    /// What an operation owns, until its result is taken.
    pub(crate) fn work(&self, number: u32) -> Option<&W> {
        Some(&self.slots.get(number as usize)?.work)
    }

    /// The operation whose request a completion belongs to, and how many of its requests are complete.
    /// Nothing if all that were posted are.
    #[cfg(feature = "metrics")]
    pub(crate) fn completing(&self, number: u32) -> Option<(&W, u32)> {
        let slot = self.slots.get(number as usize).filter(|slot| slot.stage == Stage::Posted)?;
        Some((&slot.work, slot.posted - slot.requests))
    }

    /// The number of operations of a queue that wait to be posted.
    pub(crate) fn count_waiting(&self, queue: Queue) -> usize {
        self.waiting[queue as usize].len()
    }

    /// What the operations that are not posted yet own.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().flatten().filter_map(|number| self.work(*number))
    }

    /// What the operations that are posted own.
    pub(crate) fn posted(&self) -> impl Iterator<Item = &W> {
        self.slots.iter().filter(|slot| slot.stage == Stage::Posted).map(|slot| &slot.work)
    }

    /// The next operation to be posted, if its requests fit: now it is posted.
    pub(crate) fn next(&mut self, queue: Queue) -> Option<(u32, &W)> {
        let number = *self.waiting[queue as usize].front()?;
        let slot = &mut self.slots[number as usize];
        let room = &mut self.room[queue as usize];
        *room = room.checked_sub(slot.requests)?;
        slot.stage = Stage::Posted;
        self.waiting[queue as usize].pop_front();
        Some((number, &slot.work))
    }

    /// Only `posted` requests of an operation that [`Self::next`] returned could be posted.
    pub(crate) fn not_posted(&mut self, number: u32, posted: u32, error: Error, after: &mut After<W>) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        slot.error.get_or_insert(error);
        #[cfg(feature = "metrics")]
        {
            slot.posted = posted;
        }
        for _ in posted..slot.requests {
            self.one_less(number, after);
        }
    }

    /// A request of an operation is complete.
    #[inline(always)]
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

    #[inline(always)]
    fn one_less(&mut self, number: u32, after: &mut After<W>) {
        let slot = &mut self.slots[number as usize];
        self.room[slot.queue as usize] += 1;
        slot.requests -= 1;
        if slot.requests == 0 {
            self.end(number, after);
        }
    }

    #[inline(always)]
    fn end(&mut self, number: u32, after: &mut After<W>) {
        let slot = &mut self.slots[number as usize];
        self.busy[slot.queue as usize] -= 1;
        after.wake(slot.waker.take());
        if slot.is_detached {
            after.dropped(mem::take(&mut slot.work));
            self.release(number);
        } else {
            slot.stage = Stage::Done;
        }
    }

    #[inline(always)]
    fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        (slot.stage, slot.error) = (Stage::Free, None);
        self.free.push(number);
    }

    /// Whether an operation is over.
    #[inline]
    pub(crate) fn is_done(&self, number: u32) -> bool {
        self.slots[number as usize].stage == Stage::Done
    }

    /// The operation's result, if it is over: what `succeeded` takes out of what it owns, which must be all
    /// that would have to be dropped, or the failure.
    #[inline(always)]
    pub(crate) fn take<R>(
        &mut self,
        number: u32,
        succeeded: impl FnOnce(&mut W, Arrived) -> R,
    ) -> Option<Result<R, Box<Finished<W>>>> {
        let slot = &mut self.slots[number as usize];
        if slot.stage != Stage::Done {
            return None;
        }
        if slot.error.is_some() {
            return self.take_whole(number).map(Err);
        }
        let taken = succeeded(&mut slot.work, slot.arrived);
        (slot.stage, slot.error) = (Stage::Free, None);
        self.free.push(number);
        Some(Ok(taken))
    }

    /// The result of an operation, and all that it owns, if it is over. In a box, because it is rarely
    /// needed, and the usual result is moved more cheaply if it is small.
    #[inline(never)]
    pub(crate) fn take_whole(&mut self, number: u32) -> Option<Box<Finished<W>>> {
        let slot = &mut self.slots[number as usize];
        if slot.stage != Stage::Done {
            return None;
        }
        let (work, error, arrived) = (mem::take(&mut slot.work), slot.error.take(), slot.arrived);
        self.release(number);
        Some(Box::new(Finished { work, result: error.map_or(Ok(arrived), Err) }))
    }

    /// `waker` is woken when an operation that is not over is, instead of an earlier one.
    pub(crate) fn wait(&mut self, number: u32, waker: &Waker, after: &mut After<W>) {
        let known = &mut self.slots[number as usize].waker;
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            after.replaced(known.replace(waker.clone()));
        }
    }

    /// Wakes all who wait for a result.
    pub(crate) fn wake_all(&mut self, after: &mut After<W>) {
        self.slots.iter_mut().for_each(|slot| after.wake(slot.waker.take()));
    }

    /// Discards the operation's result.
    pub(crate) fn detach(&mut self, number: u32, after: &mut After<W>) {
        let slot = &mut self.slots[number as usize];
        slot.is_detached = true;
        after.replaced(slot.waker.take());
        if slot.stage == Stage::Done {
            after.dropped(mem::take(&mut slot.work));
            self.release(number);
        }
    }

    /// Operations that are not posted fail.
    pub(crate) fn fail_waiting(&mut self, error: impl Fn(&W) -> Error, after: &mut After<W>) {
        for queue in [0, 1] {
            for number in mem::take(&mut self.waiting[queue]) {
                let slot = &mut self.slots[number as usize];
                (slot.requests, slot.error) = (0, Some(error(&slot.work)));
                self.end(number, after);
            }
        }
    }

    /// Posted operations fail without their completions, which may no longer arrive. `divide` returns what a
    /// device may still access, which is kept until [`Self::take_all`], and what the operation returns.
    pub(crate) fn abandon(
        &mut self,
        error: impl Fn(&W) -> Error,
        divide: impl Fn(W) -> (W, W),
        after: &mut After<W>,
    ) {
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            if slot.stage == Stage::Posted {
                let (kept, returned) = divide(mem::take(&mut slot.work));
                self.abandoned.push(kept);
                (slot.work, slot.requests) = (returned, 0);
                slot.error.get_or_insert_with(|| error(&slot.work));
                self.end(number as u32, after);
            }
        }
    }

    /// What all operations own; for the end of the table.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        let works = self.slots.iter_mut().map(|slot| mem::take(&mut slot.work));
        works.chain(mem::take(&mut self.abandoned)).collect()
    }

    /// Whether an operation of this queue is waiting or posted.
    pub(crate) fn is_busy(&self, queue: Queue) -> bool {
        self.busy[queue as usize] > 0
    }
}

#[cfg(test)]
mod tests;
