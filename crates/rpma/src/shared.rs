// SPDX-License-Identifier: BSD-3-Clause
//! A connection as its handles, its operations and the reactor share it.

#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rdma_sys::ibv_wc_status;
use rpma_core::abi::rpma_conn_event;

use crate::error::{Error, ErrorKind, Result};
use crate::link::{self, Completion, Entries, Link};
use crate::peer::Peer;
use crate::queues::Queues;
use crate::ready::{self, Driven, Registration};
use crate::table::{After, Finished, Queue, Table};
use crate::trace::{Reports, Trace};
use crate::work::{Kept, Request, Work};

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// One side closed it.
    Closed,
    /// It broke: the peer ended, or does not answer any more.
    Lost,
}

/// How far the connection is.
#[derive(Clone, Debug)]
enum Phase {
    Connecting,
    Established,
    /// The attempt failed.
    Failed(ErrorKind, Box<str>),
    Ended(Closed, Box<str>),
}

pub(crate) struct State {
    table: Table<Kept>,
    entries: Entries,
    phase: Phase,
    is_closing: bool,
    /// The first operation that failed by itself: why those behind it are flushed.
    broken: Option<Box<str>>,
    /// Of those who wait for another phase, or until no operation is outstanding.
    waiting: Vec<Waker>,
    trace: Trace,
}

/// A connection.
pub(crate) struct Shared {
    registration: Registration,
    pub(crate) link: Link,
    state: Mutex<State>,
    peer: Peer,
}

impl Shared {
    pub(crate) fn new(peer: Peer, link: Link, queues: Queues, is_incoming: bool) -> Self {
        let state = State {
            table: Table::new(queues.send, queues.receive),
            entries: Entries::default(),
            phase: Phase::Connecting,
            is_closing: false,
            broken: None,
            waiting: Vec::new(),
            trace: Trace::new(link.peer_addr(), is_incoming),
        };
        Self { registration: Registration::default(), link, state: Mutex::new(state), peer }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operation, which is posted as soon as there is room, and returns its slot. One that can never
    /// be posted, or that `check` refuses, is returned with the error.
    pub(crate) fn add(&self, work: Work, check: Result<()>) -> Result<u32, Box<(Kept, Error)>> {
        let (queue, requests) = match &work {
            Work::One(Request::Receive { .. }) => (Queue::Receive, 1),
            Work::One(_) => (Queue::Send, 1),
            Work::Batch(requests) => (Queue::Send, requests.len() as u32),
        };
        let mut after = After::default();
        let mut state = self.lock();
        let room = state.table.size(queue);
        if check.is_err() || state.has_ended() || requests > room || self.is_foreign(&work) {
            let error = check.err().unwrap_or_else(|| self.refusal(&state, &work, room));
            return Err(Box::new((Kept::whole(work), error)));
        }
        let slot = match work {
            Work::One(request) => match state.table.add_posted(queue) {
                Some(slot) => {
                    let posted = self.link.post(&request, slot);
                    // The device may access the buffer from here on.
                    state.table.keep(slot, Kept::posted(request));
                    if let Err(error) = posted {
                        state.not_posted(slot, 0, error, &mut after);
                    }
                    slot
                }
                None => state.table.add(queue, Kept::whole(Work::One(request)), 1),
            },
            batch @ Work::Batch(_) => {
                let slot = state.table.add(queue, Kept::whole(batch), requests);
                self.post_waiting(&mut state, queue, &mut after);
                slot
            }
        };
        drop(state);
        after.run();
        Ok(slot)
    }

    /// Whether a buffer is of another peer, which the device would refuse, ending the connection.
    fn is_foreign(&self, work: &Work) -> bool {
        match work {
            Work::One(request) => self.has_foreign(request),
            Work::Batch(requests) => requests.iter().any(|request| self.has_foreign(request)),
        }
    }

    fn has_foreign(&self, request: &Request) -> bool {
        request.buf().is_some_and(|buf| !buf.home().region().peer().is(&self.peer))
    }

    /// Why an operation is refused.
    #[cold]
    fn refusal(&self, state: &State, work: &Work, room: u32) -> Error {
        if let Some(error) = state.ended_error() {
            return error;
        }
        match work.requests().iter().find(|request| self.has_foreign(request)) {
            Some(request) => Error::new(
                ErrorKind::Invalid,
                format_args!(
                    "Conn::{}: the buffer is of another Peer object than the connection; a clone is the same",
                    request.call()
                ),
            ),
            None => Error::new(
                ErrorKind::Invalid,
                format_args!(
                    "Batch::submit: {} operations for a queue of {room}; Connect::queues and \
                     Listener::set_queues make it longer",
                    work.requests().len()
                ),
            ),
        }
    }

    /// Posts what fits of the operations that wait.
    fn post_waiting(&self, state: &mut State, queue: Queue, after: &mut After<Kept>) {
        while let Some((slot, work)) = state.table.next(queue) {
            if let Err((posted, error)) = self.post_all(work, slot) {
                state.not_posted(slot, posted, error, after);
            }
        }
    }

    /// Posts all requests of an operation. Fails with the number of those that were posted.
    fn post_all(&self, work: &Kept, slot: u32) -> Result<(), (u32, Error)> {
        (0..)
            .zip(work.requests())
            .try_for_each(|(posted, request)| self.link.post(request, slot).map_err(|error| (posted, error)))
    }

    /// Takes the completions that are there; whether there was one.
    fn complete(&self, state: &mut State, after: &mut After<Kept>) -> bool {
        let mut found = false;
        loop {
            let count = match self.link.poll(&mut state.entries) {
                Ok(count) => count,
                Err(error) => {
                    state.end(Closed::Lost, error.to_string(), after);
                    return false;
                }
            };
            for index in 0..count {
                let Completion { slot, result } = state.entries.get(index);
                let result = result.map_err(|status| self.failure(state, slot, status, after));
                state.table.complete(slot, result, after);
            }
            found |= count > 0;
            if count < Entries::LEN {
                break;
            }
        }
        if found {
            if state.table.has_waiting() {
                self.post_waiting(state, Queue::Send, after);
                self.post_waiting(state, Queue::Receive, after);
            }
            if !state.waiting.is_empty() && !state.table.is_busy(Queue::Send) {
                state.wake_all(after);
            }
        }
        found
    }

    /// The failure of an operation whose completion has this status.
    #[cold]
    fn failure(&self, state: &mut State, slot: u32, status: u32, after: &mut After<Kept>) -> Error {
        let call = state.table.work(slot).map_or("operation", Kept::call);
        if status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            let error = match self.loss(state) {
                Some(why) => Error::new(ErrorKind::Lost, format_args!("Conn::{call}: {why}")),
                None => Error::new(
                    ErrorKind::Closed,
                    format_args!("{}: the connection is closed", link::name_of(self.link.peer_addr(), call)),
                ),
            };
            state.trace.flushed(&error, after.reports());
            return error;
        }
        let error = link::failure(self.link.peer_addr(), call, status);
        state.trace.failed(&error, after.reports());
        state.broken.get_or_insert_with(|| error.to_string().into());
        error
    }

    /// Why the connection broke, unless one side closed it.
    fn loss(&self, state: &State) -> Option<String> {
        if let Phase::Ended(Closed::Lost, reason) = &state.phase {
            return Some(reason.to_string());
        }
        match self.link.ending() {
            Some((why, is_failure)) => is_failure.then_some(why),
            None if state.is_closing => None,
            // A device does not say; no operation is flushed before the first one that fails.
            None => state.broken.as_deref().map(str::to_owned),
        }
    }

    fn take_events(&self, state: &mut State, after: &mut After<Kept>) {
        loop {
            let (event, reason) = match self.link.next_event() {
                Ok(None) => return,
                Ok(Some(event)) => event,
                Err(error) => return state.end(Closed::Lost, error.to_string(), after),
            };
            match event {
                rpma_conn_event::RPMA_CONN_ESTABLISHED => {
                    state.phase = Phase::Established;
                    state.trace.established(after.reports());
                    state.wake_all(after);
                }
                rpma_conn_event::RPMA_CONN_REJECTED => state.fail(ErrorKind::Rejected, reason, after),
                rpma_conn_event::RPMA_CONN_UNREACHABLE => state.fail(ErrorKind::Unreachable, reason, after),
                rpma_conn_event::RPMA_CONN_CLOSED => {
                    let (how, reason) = match self.loss(state) {
                        Some(why) => (Closed::Lost, why),
                        None => (Closed::Closed, "the connection is closed".to_owned()),
                    };
                    // This side ends, too, which flushes what is still posted.
                    if !std::mem::replace(&mut state.is_closing, true) {
                        let _ = self.link.disconnect();
                    }
                    state.end(how, reason, after);
                }
                _ => state.end(Closed::Lost, reason, after),
            }
        }
    }

    /// Takes the result of an operation without driving more than the completion queue.
    pub(crate) fn try_take(&self, slot: u32) -> Option<Finished<Kept>> {
        self.take(slot, None)
    }

    #[inline]
    fn take(&self, slot: u32, waker: Option<&Waker>) -> Option<Finished<Kept>> {
        let mut after = After::default();
        let mut state = self.lock();
        let is_done = state.table.is_done(slot) || {
            self.complete(&mut state, &mut after);
            state.table.is_done(slot)
        };
        let finished = if is_done { state.table.take(slot) } else { None };
        if let (None, Some(waker)) = (&finished, waker) {
            state.table.wait(slot, waker, &mut after);
        }
        drop(state);
        after.run();
        finished
    }

    pub(crate) fn poll_for(self: &Arc<Self>, slot: u32, waker: &Waker) -> Option<Finished<Kept>> {
        self.take(slot, Some(waker)).or_else(|| {
            ready::watch(self, waker);
            self.try_take(slot)
        })
    }

    pub(crate) fn wait_for(&self, slot: u32) -> Finished<Kept> {
        // Between processes of one host, most operations are complete when they are posted.
        match self.take(slot, None) {
            Some(finished) => finished,
            None => self.block_for(slot),
        }
    }

    #[cold]
    fn block_for(&self, slot: u32) -> Finished<Kept> {
        match ready::block_on(self, |waker| self.take(slot, Some(waker))) {
            Ok(finished) => finished,
            // Without a descriptor to wait with, the thread polls.
            Err(_) => loop {
                self.drive();
                if let Some(finished) = self.try_take(slot) {
                    break finished;
                }
                std::thread::yield_now();
            },
        }
    }

    pub(crate) fn detach(&self, slot: u32) {
        let mut after = After::default();
        self.lock().table.detach(slot, &mut after);
        after.run();
    }

    /// An operation was refused before it was posted.
    #[cold]
    pub(crate) fn report_refused(&self, error: &Error) {
        let mut reports = Reports::default();
        self.lock().trace.failed(error, &mut reports);
        reports.run();
    }

    /// The result of `check`; without one, `waker` is woken when the state changes.
    fn check<T>(&self, waker: &Waker, check: impl Fn(&State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        let found = check(&state);
        if found.is_none() && !state.waiting.iter().any(|known| known.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        found
    }

    pub(crate) async fn until<T>(self: &Arc<Self>, check: impl Fn(&State) -> Option<T>) -> T {
        poll_fn(|context| self.poll_until(context.waker(), &check).map_or(Poll::Pending, Poll::Ready)).await
    }

    /// The result of `check` after all progress that is possible now; without one, `waker` is woken when the
    /// state changes.
    pub(crate) fn poll_until<T>(
        self: &Arc<Self>,
        waker: &Waker,
        check: impl Fn(&State) -> Option<T>,
    ) -> Option<T> {
        self.check(waker, &check).or_else(|| {
            ready::watch(self, waker);
            self.check(waker, &check)
        })
    }

    /// The result of `check` after all progress that is possible now.
    #[cfg(feature = "soft")]
    pub(crate) fn now<T>(&self, check: impl Fn(&State) -> Option<T>) -> Option<T> {
        self.drive();
        check(&self.lock())
    }

    pub(crate) fn block_until<T>(&self, check: impl Fn(&State) -> Option<T>) -> Result<T> {
        ready::block_on(self, |waker| self.check(waker, &check))
    }

    /// Disconnects, unless one side has; whether the connection still exists.
    pub(crate) fn begin_close(&self) -> Result<bool> {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Established) {
            return Ok(false);
        }
        if !std::mem::replace(&mut state.is_closing, true) {
            if let Err(error) = self.link.disconnect() {
                // No event will follow: nobody may wait for one.
                let mut after = After::default();
                state.end(Closed::Lost, error.to_string(), &mut after);
                drop(state);
                after.run();
                return Err(error);
            }
        }
        Ok(true)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if matches!(state.phase, Phase::Established) && !state.is_closing {
            // So that the peer gets the event at once. A failure changes nothing: the connection is dropped.
            let _ = self.link.disconnect();
            let mut reports = Reports::default();
            state.trace.closed(&mut reports);
            reports.run();
        }
        // Buffers that a device may access are released behind the queue pair.
        self.link.posted = state.table.take_all();
    }
}

impl State {
    #[cold]
    fn not_posted(&mut self, slot: u32, posted: u32, error: Error, after: &mut After<Kept>) {
        self.trace.failed(&error, after.reports());
        self.table.not_posted(slot, posted, error, after);
    }

    fn wake_all(&mut self, after: &mut After<Kept>) {
        for waker in self.waiting.drain(..) {
            after.wake(Some(waker));
        }
    }

    fn fail(&mut self, kind: ErrorKind, reason: String, after: &mut After<Kept>) {
        self.trace.not_established(&reason, after.reports());
        self.phase = Phase::Failed(kind, reason.into());
        self.wake_all(after);
    }

    fn end(&mut self, how: Closed, reason: String, after: &mut After<Kept>) {
        match self.phase {
            Phase::Connecting => return self.fail(ErrorKind::Lost, reason, after),
            Phase::Established => {
                match how {
                    Closed::Closed => self.trace.closed(after.reports()),
                    Closed::Lost => self.trace.lost(&reason, after.reports()),
                }
                self.phase = Phase::Ended(how, reason.into());
            }
            Phase::Failed(..) | Phase::Ended(..) => {}
        }
        let error = self.ended_error();
        if error.is_some() {
            self.table.fail_waiting(|| self.phase.error(), after);
        }
        self.wake_all(after);
    }

    /// Whether no operation can be made any more.
    #[inline]
    fn has_ended(&self) -> bool {
        self.is_closing || matches!(self.phase, Phase::Failed(..) | Phase::Ended(..))
    }

    /// Why no operation can be made any more.
    fn ended_error(&self) -> Option<Error> {
        self.has_ended().then(|| self.phase.error())
    }

    /// Whether it has been established. One that has ended since still has what arrived.
    pub(crate) fn is_established(&self) -> Option<Result<()>> {
        match self.phase {
            Phase::Connecting => None,
            Phase::Established | Phase::Ended(..) => Some(Ok(())),
            Phase::Failed(..) => Some(Err(self.phase.error())),
        }
    }
}

impl Phase {
    fn error(&self) -> Error {
        match self {
            Self::Failed(kind, reason) => Error::new(*kind, reason),
            Self::Ended(Closed::Lost, reason) => Error::new(ErrorKind::Lost, reason),
            Self::Ended(Closed::Closed, reason) => Error::new(ErrorKind::Closed, reason),
            Self::Connecting | Self::Established => Error::new(ErrorKind::Closed, "the connection is closed"),
        }
    }
}

impl Driven for Shared {
    fn drive(&self) {
        let mut after = After::default();
        let mut state = self.lock();
        loop {
            self.complete(&mut state, &mut after);
            match self.link.take_completion_event() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => break state.end(Closed::Lost, error.to_string(), &mut after),
            }
        }
        self.take_events(&mut state, &mut after);
        drop(state);
        after.run();
    }

    fn wake_all(&self) {
        let mut after = After::default();
        let mut state = self.lock();
        state.wake_all(&mut after);
        state.table.wake_all(&mut after);
        drop(state);
        after.run();
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.link.fds().into()
    }

    fn registration(&self) -> &Registration {
        &self.registration
    }
}

impl State {
    pub(crate) fn how(&self) -> Option<Closed> {
        match self.phase {
            Phase::Ended(how, _) => Some(how),
            Phase::Failed(..) => Some(Closed::Lost),
            Phase::Connecting | Phase::Established => None,
        }
    }

    /// Whether nothing but receives is left to do.
    pub(crate) fn is_quiet(&self) -> Option<Result<()>> {
        match self.phase {
            Phase::Ended(Closed::Lost, _) => Some(Err(self.phase.error())),
            _ => (!self.table.is_busy(Queue::Send)).then_some(Ok(())),
        }
    }
}
