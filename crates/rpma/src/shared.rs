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
use crate::link::{self, Link};
use crate::peer::Peer;
use crate::queues::Queues;
use crate::ready::{self, Driven, Registration};
use crate::table::{After, Finished, Queue, Table};
use crate::trace::{Reports, Trace};
use crate::work::{Request, Work};

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
    table: Table<Work>,
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
    /// be posted is returned with the error.
    pub(crate) fn add(&self, work: Work) -> Result<u32, Box<(Work, Error)>> {
        let queue = match work.requests() {
            [Request::Receive { .. }] => Queue::Receive,
            _ => Queue::Send,
        };
        let requests = work.requests().len() as u32;
        let mut after = After::default();
        let mut state = self.lock();
        let room = state.table.size(queue);
        let refused = state.ended_error().or_else(|| {
            (requests > room).then(|| {
                Error::new(
                    ErrorKind::Invalid,
                    format_args!(
                        "Batch::submit: {requests} operations for a queue of {room}; Connect::queues and \
                         Listener::set_queues make it longer"
                    ),
                )
            })
        });
        let refused = refused.or_else(|| self.refuse_foreign(&work));
        if let Some(error) = refused {
            return Err(Box::new((work, error)));
        }
        let slot = state.table.add(queue, work, requests);
        self.post(&mut state, queue, &mut after);
        drop(state);
        after.run();
        Ok(slot)
    }

    /// The error for a buffer of another peer, which the device would refuse, ending the connection.
    fn refuse_foreign(&self, work: &Work) -> Option<Error> {
        let is_foreign =
            |request: &&Request| request.buf().is_some_and(|buf| !buf.home().region().peer().is(&self.peer));
        work.requests().iter().find(is_foreign).map(|request| {
            Error::new(
                ErrorKind::Invalid,
                format_args!(
                    "Conn::{}: the buffer is of another Peer object than the connection; a clone is the same",
                    request.call()
                ),
            )
        })
    }

    /// Posts what fits.
    fn post(&self, state: &mut State, queue: Queue, after: &mut After<Work>) {
        while let Some((slot, work)) = state.table.next(queue) {
            let mut posted = 0;
            let failed = work.requests().iter().find_map(|request| {
                let error = self.link.post(request, slot).err();
                posted += u32::from(error.is_none());
                error
            });
            if let Some(error) = failed {
                state.trace.failed(&error, &mut after.reports);
                state.table.not_posted(slot, posted, error, after);
            }
        }
    }

    /// Takes the completions that are there; whether there was one.
    fn complete(&self, state: &mut State, after: &mut After<Work>) -> bool {
        let polled = self.link.poll(|completion| {
            let slot = completion.slot;
            let result = completion.result.map_err(|status| self.failure(state, slot, status, after));
            state.table.complete(slot, result, after);
        });
        let found = polled.unwrap_or_else(|error| {
            state.end(Closed::Lost, error.to_string(), after);
            false
        });
        if found {
            self.post(state, Queue::Send, after);
            self.post(state, Queue::Receive, after);
            if !state.waiting.is_empty() && !state.table.is_busy(Queue::Send) {
                state.wake_all(after);
            }
        }
        found
    }

    /// The failure of an operation whose completion has this status.
    #[cold]
    fn failure(&self, state: &mut State, slot: u32, status: u32, after: &mut After<Work>) -> Error {
        let request = state.table.work(slot).and_then(|work| work.requests().first());
        let Some(request) = request else {
            return Error::new(ErrorKind::Status(status), "an operation failed");
        };
        if status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            let call = request.call();
            let error = match self.loss(state) {
                Some(why) => Error::new(ErrorKind::Lost, format_args!("Conn::{call}: {why}")),
                None => Error::new(
                    ErrorKind::Closed,
                    format_args!(
                        "{}: the connection is closed",
                        link::name_of(self.link.peer_addr(), request)
                    ),
                ),
            };
            state.trace.flushed(&error, &mut after.reports);
            return error;
        }
        let error = link::failure(self.link.peer_addr(), request, status);
        state.trace.failed(&error, &mut after.reports);
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

    fn take_events(&self, state: &mut State, after: &mut After<Work>) {
        loop {
            let (event, reason) = match self.link.next_event() {
                Ok(None) => return,
                Ok(Some(event)) => event,
                Err(error) => return state.end(Closed::Lost, error.to_string(), after),
            };
            match event {
                rpma_conn_event::RPMA_CONN_ESTABLISHED => {
                    state.phase = Phase::Established;
                    state.trace.established(&mut after.reports);
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
    pub(crate) fn try_take(&self, slot: u32) -> Option<Finished<Work>> {
        self.take(slot, None)
    }

    fn take(&self, slot: u32, waker: Option<&Waker>) -> Option<Finished<Work>> {
        let mut after = After::default();
        let mut state = self.lock();
        let mut finished = state.table.take(slot);
        if finished.is_none() && self.complete(&mut state, &mut after) {
            finished = state.table.take(slot);
        }
        if let (None, Some(waker)) = (&finished, waker) {
            state.table.wait(slot, waker, &mut after);
        }
        drop(state);
        after.run();
        finished
    }

    pub(crate) fn poll_for(self: &Arc<Self>, slot: u32, waker: &Waker) -> Option<Finished<Work>> {
        self.take(slot, Some(waker)).or_else(|| {
            ready::watch(self, waker);
            self.try_take(slot)
        })
    }

    pub(crate) fn wait_for(&self, slot: u32) -> Finished<Work> {
        // Between processes of one host, most operations are complete when they are posted.
        self.try_take(slot).unwrap_or_else(|| {
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
        })
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
        poll_fn(|context| {
            let found = self.check(context.waker(), &check).or_else(|| {
                ready::watch(self, context.waker());
                self.check(context.waker(), &check)
            });
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
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
    fn wake_all(&mut self, after: &mut After<Work>) {
        for waker in self.waiting.drain(..) {
            after.wake(Some(waker));
        }
    }

    fn fail(&mut self, kind: ErrorKind, reason: String, after: &mut After<Work>) {
        self.trace.not_established(&reason, &mut after.reports);
        self.phase = Phase::Failed(kind, reason.into());
        self.wake_all(after);
    }

    fn end(&mut self, how: Closed, reason: String, after: &mut After<Work>) {
        match self.phase {
            Phase::Connecting => return self.fail(ErrorKind::Lost, reason, after),
            Phase::Established => {
                match how {
                    Closed::Closed => self.trace.closed(&mut after.reports),
                    Closed::Lost => self.trace.lost(&reason, &mut after.reports),
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

    /// Why no operation can be made any more.
    fn ended_error(&self) -> Option<Error> {
        match self.phase {
            Phase::Failed(..) | Phase::Ended(..) => Some(self.phase.error()),
            _ if self.is_closing => Some(self.phase.error()),
            Phase::Connecting | Phase::Established => None,
        }
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
