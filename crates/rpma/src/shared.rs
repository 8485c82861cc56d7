// SPDX-License-Identifier: BSD-3-Clause
//! A connection as its handles, its operations and the reactor share it.

#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rdma_sys::ibv_wc_status;
use rpma_core::abi::rpma_conn_event;

use crate::buf::Buf;
use crate::call::Call;
use crate::closed::Closed;
use crate::error::{Error, ErrorKind, Result};
use crate::link::{self, Completion, Entries, Link, Post};
use crate::meter::Began;
use crate::peer::Peer;
use crate::queues::Queues;
use crate::ready::{self, Driven, Registration};
use crate::report::{Reporter, Reports};
use crate::table::{After, Arrived, Finished, Queue, Table};
use crate::work::{Kept, Request};

/// How the reason of software RDMA ends if the first bytes of the peer are of another protocol.
const NOT_MPA: &str = "the peer does not speak MPA";

/// How far the connection is.
#[derive(Clone, Debug)]
enum Phase {
    Connecting,
    Established,
    /// The attempt failed, with this text.
    Failed(ErrorKind, Box<str>),
    /// How it ended, and the reason if it was lost.
    Ended(Closed, Box<str>),
}

pub(crate) struct State {
    table: Table<Kept>,
    entries: Entries,
    phase: Phase,
    is_closing: bool,
    /// Posted operations ended without completions, of which none is taken any more.
    is_abandoned: bool,
    /// The first operation that failed by itself: why those behind it are flushed.
    broken: Option<Box<str>>,
    /// Of those who wait for another phase, or until no operation is outstanding.
    waiting: Vec<Waker>,
    report: Reporter,
    peer: Option<SocketAddr>,
    is_incoming: bool,
}

/// An operation that was refused, with the reason.
pub(crate) type Refused = Box<(Kept, Error)>;

/// An operation that was added.
pub(crate) enum Added {
    /// It is in this slot.
    Slot(u32),
    /// The post has executed it, and it needs no slot.
    Complete(Kept),
}

/// The result of an operation that has succeeded, or the operation if it failed or had to be waited for.
pub(crate) type Taken<R> = Result<R, Box<Finished<Kept>>>;

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
            is_abandoned: false,
            broken: None,
            waiting: Vec::new(),
            report: Reporter::new(link.peer_addr(), is_incoming),
            peer: link.peer_addr(),
            is_incoming,
        };
        Self { registration: Registration::default(), link, state: Mutex::new(state), peer }
    }

    #[inline(always)]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operation of one request, which is posted as soon as there is room. One that `check` refuses,
    /// or that cannot be posted, is returned with the error.
    ///
    /// Compiled for each kind of request where it is made, but for the unusual cases.
    #[inline(always)]
    pub(crate) fn add<R: Post>(&self, request: R, check: Result<()>) -> Result<Added, Refused> {
        let began = Began::now();
        let mut state = self.lock();
        if check.is_err() || state.has_ended() || self.is_foreign(request.buf()) {
            return Err(self.refused(&state, vec![request.into()], check));
        }
        let Some(place) = state.table.place(R::CALL.queue()) else {
            return Ok(Added::Slot(state.add_waiting(request.into())));
        };
        let posted = self.link.post(&request, place.number());
        let work = Kept::posted(request, began);
        if let Ok(true) = posted {
            #[cfg(feature = "metrics")]
            count(&state.report, &work, 0, Arrived::default());
            return Ok(Added::Complete(work));
        }
        // The device may access the buffer from here on.
        let slot = place.keep(work);
        if let Err(error) = posted {
            Self::not_posted(state, slot, error);
        }
        Ok(Added::Slot(slot))
    }

    /// Adds the requests of a batch: none of them, or all of them at once.
    pub(crate) fn add_batch(&self, requests: Vec<Request>, check: Result<()>) -> Result<u32, Refused> {
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        let mut state = self.lock();
        let is_foreign = requests.iter().any(|request| self.is_foreign(request.buf()));
        if check.is_err() || state.has_ended() || count > state.table.size(Queue::Send) || is_foreign {
            return Err(self.refused(&state, requests, check));
        }
        let mut after = After::default();
        let slot = state.table.add(Queue::Send, Kept::whole(requests), count);
        self.post_waiting(&mut state, Queue::Send, &mut after);
        drop(state);
        after.run();
        Ok(slot)
    }

    /// Whether a buffer is of another peer, which the device would refuse, ending the connection.
    #[inline(always)]
    fn is_foreign(&self, buf: Option<&Buf>) -> bool {
        buf.is_some_and(|buf| !buf.home().region().peer().is(&self.peer))
    }

    #[cold]
    fn refused(&self, state: &State, requests: Vec<Request>, check: Result<()>) -> Refused {
        let error = check.err().unwrap_or_else(|| self.refusal(state, &requests));
        Box::new((Kept::whole(requests), error))
    }

    #[cold]
    fn not_posted(mut state: MutexGuard<'_, State>, slot: u32, error: Error) {
        let mut after = After::default();
        state.not_posted(slot, 0, error, &mut after);
        drop(state);
        after.run();
    }

    /// Why an operation is refused.
    fn refusal(&self, state: &State, requests: &[Request]) -> Error {
        if state.has_ended() {
            return state.phase.end_of(requests.first().map_or(Call::Write, Request::call), state.peer);
        }
        match requests.iter().find(|request| self.is_foreign(request.buf())) {
            Some(request) => Error::new(
                ErrorKind::Invalid,
                format_args!(
                    "Conn::{}: the buffer is of another Peer object than the connection; a clone is the same",
                    request.call().name()
                ),
            ),
            None => Error::new(
                ErrorKind::Invalid,
                format_args!(
                    "Batch::submit: {} operations for a queue of {}; Connect::queues and \
                     Listener::set_queues make it longer",
                    requests.len(),
                    state.table.size(Queue::Send)
                ),
            ),
        }
    }

    /// Posts what fits of the operations that wait.
    fn post_waiting(&self, state: &mut State, queue: Queue, after: &mut After<Kept>) {
        while let Some((slot, work)) = state.table.next(queue) {
            let (complete, posted) = self.post_all(work, slot);
            if let Err((posted, error)) = posted {
                state.not_posted(slot, posted, error, after);
            }
            for _ in 0..complete {
                state.complete(slot, Arrived::default(), after);
            }
        }
    }

    /// Posts all requests of an operation. Returns how many the posts have executed, for which there are no
    /// work completions. Fails with the number of those that were posted.
    fn post_all(&self, work: &Kept, slot: u32) -> (u32, Result<(), (u32, Error)>) {
        let mut complete = 0;
        let posted = (0..).zip(work.requests()).try_for_each(|(posted, request)| {
            complete += u32::from(self.link.post_any(request, slot).map_err(|error| (posted, error))?);
            Ok(())
        });
        (complete, posted)
    }

    /// Takes the completions that are there; whether there was one.
    #[inline(always)]
    fn complete(&self, state: &mut State, after: &mut After<Kept>) -> bool {
        let mut found = false;
        if state.is_abandoned {
            return false;
        }
        loop {
            let count = match self.link.poll(&mut state.entries) {
                Ok(count) => count,
                Err(error) => {
                    self.lose(state, &error, after);
                    return false;
                }
            };
            for index in 0..count {
                let Completion { slot, result } = state.entries.get(index);
                match result {
                    Ok(arrived) => state.complete(slot, arrived, after),
                    Err(status) => self.fail(state, slot, status, after),
                }
            }
            found |= count > 0;
            if count < Entries::LEN {
                break;
            }
        }
        if found && (state.table.has_waiting() || !state.waiting.is_empty()) {
            self.go_on(state, after);
        }
        found
    }

    /// What completions permit: posting operations that wait, and waking those who wait for the last one.
    #[inline(never)]
    fn go_on(&self, state: &mut State, after: &mut After<Kept>) {
        self.post_waiting(state, Queue::Send, after);
        self.post_waiting(state, Queue::Receive, after);
        if !state.table.is_busy(Queue::Send) {
            state.wake_all(after);
        }
    }

    /// A request has a completion with this status.
    #[cold]
    fn fail(&self, state: &mut State, slot: u32, status: u32, after: &mut After<Kept>) {
        let error = self.failure(state, slot, status, after);
        state.table.complete(slot, Err(error), after);
    }

    fn failure(&self, state: &mut State, slot: u32, status: u32, after: &mut After<Kept>) -> Error {
        let call = state.table.work(slot).map_or(Call::Write, Kept::call);
        let name = call.name();
        if status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            let error = match self.loss(state) {
                Some(why) => because(ErrorKind::Lost, name, &why),
                None => closed(call, state.peer),
            };
            state.report.flushed(call, &error, after.reports());
            return error;
        }
        let error = link::failure(self.link.peer_addr(), name, status);
        state.report.failed(call, &error, after.reports());
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

    /// Completions or events cannot be taken: the connection is lost, and its operations end. A device may
    /// still access their buffers, which are kept until the queue pair is destroyed.
    #[cold]
    fn lose(&self, state: &mut State, error: &Error, after: &mut After<Kept>) {
        if std::mem::replace(&mut state.is_abandoned, true) {
            return;
        }
        if matches!(state.phase, Phase::Established) && !std::mem::replace(&mut state.is_closing, true) {
            // So that the peer gets the event.
            let _ = self.link.disconnect();
        }
        state.end(Closed::Lost, error.to_string(), after);
        state.abandon(after);
    }

    fn take_events(&self, state: &mut State, after: &mut After<Kept>) {
        loop {
            let (event, reason) = match self.link.next_event() {
                Ok(None) => return,
                Ok(Some(event)) => event,
                Err(error) => return self.lose(state, &error, after),
            };
            match event {
                rpma_conn_event::RPMA_CONN_ESTABLISHED => {
                    state.phase = Phase::Established;
                    state.report.established(after.reports());
                    state.wake_all(after);
                }
                rpma_conn_event::RPMA_CONN_REJECTED => state.fail(ErrorKind::Rejected, reason, after),
                rpma_conn_event::RPMA_CONN_UNREACHABLE => state.fail(ErrorKind::Unreachable, reason, after),
                rpma_conn_event::RPMA_CONN_CLOSED => {
                    let (how, reason) = self
                        .loss(state)
                        .map_or_else(|| (Closed::Closed, String::new()), |why| (Closed::Lost, why));
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

    /// Takes the result of an operation without driving more than the completion queue; see [`Table::take`].
    #[inline(always)]
    pub(crate) fn try_take<R>(
        &self,
        slot: u32,
        succeeded: impl FnOnce(&mut Kept, Arrived) -> R,
    ) -> Option<Taken<R>> {
        self.take(slot, None, succeeded)
    }

    /// The same; without a result, `waker` is woken when there is one.
    #[inline(always)]
    fn take<R>(
        &self,
        slot: u32,
        waker: Option<&Waker>,
        succeeded: impl FnOnce(&mut Kept, Arrived) -> R,
    ) -> Option<Taken<R>> {
        let mut after = After::default();
        let mut state = self.lock();
        if !state.table.is_done(slot) {
            self.complete(&mut state, &mut after);
        }
        match state.table.take(slot, succeeded) {
            Some(taken) => {
                drop(state);
                after.run();
                Some(taken)
            }
            None => {
                not_done(state, slot, waker, after);
                None
            }
        }
    }

    #[inline(always)]
    pub(crate) fn poll_for<R>(
        self: &Arc<Self>,
        slot: u32,
        waker: &Waker,
        succeeded: impl FnOnce(&mut Kept, Arrived) -> R,
    ) -> Option<Taken<R>> {
        self.take(slot, Some(waker), succeeded).or_else(|| self.watch_for(slot, waker).map(Err))
    }

    #[inline(never)]
    fn watch_for(self: &Arc<Self>, slot: u32, waker: &Waker) -> Option<Box<Finished<Kept>>> {
        ready::watch(self, waker);
        self.take_whole(slot, None)
    }

    #[inline(always)]
    pub(crate) fn wait_for<R>(&self, slot: u32, succeeded: impl FnOnce(&mut Kept, Arrived) -> R) -> Taken<R> {
        // Between processes of one host, most operations are complete when they are posted.
        self.take(slot, None, succeeded).unwrap_or_else(|| Err(self.block_for(slot)))
    }

    #[inline(never)]
    fn take_whole(&self, slot: u32, waker: Option<&Waker>) -> Option<Box<Finished<Kept>>> {
        let mut after = After::default();
        let mut state = self.lock();
        if !state.table.is_done(slot) {
            self.complete(&mut state, &mut after);
        }
        let finished = state.table.take_whole(slot);
        let waker = waker.filter(|_| finished.is_none());
        not_done(state, slot, waker, after);
        finished
    }

    #[cold]
    fn block_for(&self, slot: u32) -> Box<Finished<Kept>> {
        match ready::block_on(self, |waker| self.take_whole(slot, Some(waker))) {
            Ok(finished) => finished,
            // Without a descriptor to wait with, the thread polls.
            Err(_) => loop {
                self.drive();
                if let Some(finished) = self.take_whole(slot, None) {
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
    pub(crate) fn report_refused(&self, (work, error): &(Kept, Error)) {
        let mut reports = Reports::default();
        self.lock().report.failed(work.call(), error, &mut reports);
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

/// Counts the next request of an operation, which has succeeded; `complete` were before it.
#[cfg(feature = "metrics")]
fn count(report: &Reporter, work: &Kept, complete: u32, arrived: Arrived) {
    let (call, len, began) = work.request(complete);
    let len = if call == Call::Receive { arrived.len as usize } else { len };
    report.meter.done(call, len, began);
}

/// Unlocks the connection when the operation is not over; `waker` is woken when it is.
#[inline(never)]
fn not_done(mut state: MutexGuard<'_, State>, slot: u32, waker: Option<&Waker>, mut after: After<Kept>) {
    if let Some(waker) = waker {
        state.table.wait(slot, waker, &mut after);
    }
    drop(state);
    after.run();
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut reports = Reports::default();
        match state.table.count_waiting(Queue::Send) {
            0 => {}
            discarded => state.report.discarded(discarded, &mut reports),
        }
        if matches!(state.phase, Phase::Established) {
            if !state.is_closing {
                // So that the peer gets the event at once. A failure changes nothing: the connection is
                // dropped.
                let _ = self.link.disconnect();
            }
            state.report.ended(Closed::Closed, "", &mut reports);
        }
        reports.run();
        // Buffers that a device may access are released behind the queue pair.
        self.link.posted = state.table.take_all();
    }
}

impl State {
    /// A request has succeeded.
    #[inline(always)]
    fn complete(&mut self, slot: u32, arrived: Arrived, after: &mut After<Kept>) {
        #[cfg(feature = "metrics")]
        if let Some((work, complete)) = self.table.completing(slot) {
            count(&self.report, work, complete, arrived);
        }
        self.table.complete(slot, Ok(arrived), after);
    }

    /// Adds an operation of one request, for which there is no room.
    #[cold]
    fn add_waiting(&mut self, request: Request) -> u32 {
        self.table.add(request.call().queue(), Kept::whole(vec![request]), 1)
    }

    #[cold]
    fn not_posted(&mut self, slot: u32, posted: u32, error: Error, after: &mut After<Kept>) {
        let call = self.table.work(slot).map_or(Call::Write, Kept::call);
        self.report.failed(call, &error, after.reports());
        self.table.not_posted(slot, posted, error, after);
    }

    /// Posted operations end without their completions.
    fn abandon(&mut self, after: &mut After<Kept>) {
        let end_of = |work: &Kept| self.phase.end_of(work.call(), self.peer);
        for work in self.table.posted() {
            self.report.flushed(work.call(), &end_of(work), after.reports());
        }
        self.table.abandon(end_of, Kept::divided, after);
        self.wake_all(after);
    }

    fn wake_all(&mut self, after: &mut After<Kept>) {
        for waker in self.waiting.drain(..) {
            after.wake(Some(waker));
        }
    }

    fn fail(&mut self, kind: ErrorKind, reason: String, after: &mut After<Kept>) {
        let attempt = if self.is_incoming { "Incoming::accept" } else { "Peer::connect" };
        // The provider names the protocol, which users of this crate need not know.
        let hint =
            if reason.ends_with(NOT_MPA) { "; the program there is no RDMA peer over iWARP" } else { "" };
        let text = format!("{attempt}: {reason}{hint}");
        self.report.not_established(&Error::new(kind, &text), after.reports());
        self.phase = Phase::Failed(kind, text.into());
        self.wake_all(after);
    }

    fn end(&mut self, how: Closed, reason: String, after: &mut After<Kept>) {
        match self.phase {
            Phase::Connecting => return self.fail(ErrorKind::Lost, reason, after),
            Phase::Established => {
                self.report.ended(how, &reason, after.reports());
                self.phase = Phase::Ended(how, reason.into());
            }
            Phase::Failed(..) | Phase::Ended(..) => {}
        }
        let end_of = |work: &Kept| self.phase.end_of(work.call(), self.peer);
        for work in self.table.waiting() {
            self.report.not_posted(work.call(), &end_of(work), after.reports());
        }
        self.table.fail_waiting(end_of, after);
        self.wake_all(after);
    }

    /// Whether no operation can be made any more.
    #[inline]
    fn has_ended(&self) -> bool {
        self.is_closing || matches!(self.phase, Phase::Failed(..) | Phase::Ended(..))
    }

    /// Whether it has been established. One that has ended since still has what arrived.
    pub(crate) fn is_established(&self) -> Option<Result<()>> {
        match self.phase {
            Phase::Connecting => None,
            Phase::Established | Phase::Ended(..) => Some(Ok(())),
            Phase::Failed(kind, ref text) => Some(Err(Error::new(kind, text))),
        }
    }
}

impl Phase {
    /// Why an operation ends with the connection, which has ended or is being closed.
    fn end_of(&self, call: Call, peer: Option<SocketAddr>) -> Error {
        match self {
            Self::Failed(kind, reason) => because(*kind, call.name(), reason),
            Self::Ended(Closed::Lost, reason) => because(ErrorKind::Lost, call.name(), reason),
            Self::Ended(Closed::Closed, _) | Self::Connecting | Self::Established => closed(call, peer),
        }
    }
}

/// The failure of a function of the connection. The reason of a provider names the peer.
fn because(kind: ErrorKind, name: &str, reason: &str) -> Error {
    Error::new(kind, format_args!("Conn::{name}: {reason}"))
}

fn closed(call: Call, peer: Option<SocketAddr>) -> Error {
    Error::new(
        ErrorKind::Closed,
        format_args!("{}: the connection is closed", link::name_of(peer, call.name())),
    )
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
                Err(error) => break self.lose(&mut state, &error, &mut after),
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
            Phase::Ended(Closed::Lost, ref reason) => Some(Err(because(ErrorKind::Lost, "close", reason))),
            _ => (!self.table.is_busy(Queue::Send)).then_some(Ok(())),
        }
    }
}
