// SPDX-License-Identifier: BSD-3-Clause
//! Operations: futures that own their buffers.

#![forbid(unsafe_code)]
#![expect(private_interfaces, reason = "the trait is sealed: no other crate calls its function")]

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::buf::Buf;
use crate::error::{Error, ErrorKind, Failed, Result};
use crate::link::Post;
use crate::ready::in_budget;
use crate::shared::{Added, Refused, Shared};
use crate::table::{Arrived, Finished};
use crate::work::{Kept, Request, Single};

/// A receive that is complete: by a message, or by the immediate data of a write.
///
/// A write with immediate data changes exposed memory and leaves the buffer as it was: `len` is 0, and
/// `written` is the length of the write.
#[derive(Debug)]
pub struct Received {
    /// The buffer of the receive; the message is at its beginning.
    pub buf: Buf,
    /// The length of the message in bytes, at most that of `buf`; 0 for a write with immediate data.
    pub len: usize,
    /// The immediate data, if there are any.
    pub imm: Option<u32>,
    /// For a write with immediate data, the number of bytes that it wrote to exposed memory.
    pub written: Option<usize>,
}

impl Received {
    /// The message; empty for a write with immediate data.
    pub fn message(&self) -> &[u8] {
        // The program may have divided the buffer.
        &self.buf[..self.len.min(self.buf.len())]
    }
}

mod sealed {
    use super::{Arrived, Kept};

    pub trait Output: Sized {
        /// What a failed operation gives back.
        type Kept;

        /// Takes it out of what the operation owns, with everything that would have to be dropped.
        fn take(work: &mut Kept, arrived: Arrived) -> Self;
        fn kept(work: Kept) -> Self::Kept;
    }
}
pub(crate) use sealed::Output;

impl Output for Buf {
    type Kept = Self;

    #[inline(always)]
    fn take(work: &mut Kept, _: Arrived) -> Self {
        work.take_buf()
    }

    fn kept(mut work: Kept) -> Self {
        work.take_buf()
    }
}

impl Output for Received {
    type Kept = Buf;

    #[inline(always)]
    fn take(work: &mut Kept, Arrived { len, imm, is_write }: Arrived) -> Self {
        let (buf, len) = (work.take_buf(), len as usize);
        if is_write {
            return Self { buf, len: 0, imm, written: Some(len) };
        }
        // A wrong length from a device must not cause a panic.
        Self { len: len.min(buf.len()), buf, imm, written: None }
    }

    fn kept(mut work: Kept) -> Buf {
        work.take_buf()
    }
}

impl Output for Vec<Buf> {
    type Kept = Self;

    fn take(work: &mut Kept, _: Arrived) -> Self {
        work.take_bufs()
    }

    fn kept(mut work: Kept) -> Self {
        work.take_bufs()
    }
}

impl Output for () {
    type Kept = ();

    fn take(work: &mut Kept, _: Arrived) {
        // Flushes and stores have no buffers.
        drop(work.take_bufs());
    }

    fn kept(_: Kept) {}
}

/// An operation, posted when it is made: awaiting it gives the result and the buffer, [`wait`](Self::wait)
/// does so on a thread.
///
/// An operation for which the queue has no room is posted as soon as there is some; operations are posted in
/// the order of the calls that make them. Dropping or forgetting it cancels nothing: the connection keeps the
/// buffer until the operation is complete. An operation that still waits for room is discarded, however, when
/// the last [`Conn`](crate::Conn) and `Op` of the connection are dropped; [`Conn::close`](crate::Conn::close)
/// waits for it.
///
/// The reactor of a runtime drives the connection from the first time on that one of its operations is
/// awaited there: that of tokio, and with the feature `async-io` that of async-io. Elsewhere the program
/// calls [`Conn::process`](crate::Conn::process) when the connection's descriptor is readable.
#[must_use = "its result says whether the operation was executed"]
pub struct Op<T> {
    state: State<T>,
}

enum State<T> {
    /// In a slot of the connection's table.
    Made(Arc<Shared>, u32),
    /// The post has executed it.
    Complete(T),
    /// Refused before it was added.
    Refused(Refused),
    Taken,
}

impl<T: Output> Op<T> {
    /// An operation, posted as soon as there is room, unless it is refused.
    #[inline(always)]
    pub(crate) fn make<R: Post>(shared: &Arc<Shared>, request: R, check: Result<()>) -> Self {
        match shared.add(request, check) {
            Ok(added) => Self::of(shared, added),
            Err(refused) => Self::refused(shared, refused),
        }
    }

    /// An operation that was added.
    #[inline(always)]
    pub(crate) fn of(shared: &Arc<Shared>, added: Added) -> Self {
        match added {
            Added::Slot(slot) => Self::in_slot(shared, slot),
            Added::Complete(mut work) => {
                let state = State::Complete(T::take(&mut work, Arrived::default()));
                // It owns nothing any more, and so need not be dropped.
                std::mem::forget(work);
                Self { state }
            }
        }
    }
}

impl<T> Op<T> {
    #[cold]
    fn refused(shared: &Shared, refused: Refused) -> Self {
        shared.report_refused(&refused);
        Self { state: State::Refused(refused) }
    }

    #[inline(always)]
    fn in_slot(shared: &Arc<Shared>, slot: u32) -> Self {
        Self { state: State::Made(shared.clone(), slot) }
    }

    /// Does not wait for the result: the same as dropping it, but explicit.
    /// [`Conn::close`](crate::Conn::close) waits for the operation; without it, one that still waits for room
    /// is discarded with the last handle of the connection.
    pub fn detach(self) {}
}

/// The result of an operation that was taken whole: it failed, or had to be waited for.
#[inline(never)]
#[expect(clippy::boxed_local, reason = "it comes in a box, and is moved out of it here alone")]
fn not_succeeded<T: Output>(finished: Box<Finished<Kept>>) -> Result<T, Failed<T::Kept>> {
    let Finished { mut work, result } = *finished;
    match result {
        Ok(arrived) => Ok(T::take(&mut work, arrived)),
        Err(error) => Err(failed::<T>(work, error)),
    }
}

#[cold]
fn failed<T: Output>(work: Kept, error: Error) -> Failed<T::Kept> {
    Failed { error, buf: T::kept(work) }
}

impl<T: Output> Op<T> {
    /// Waits for the result on this thread; not for use in a task of a runtime.
    ///
    /// # Errors
    /// The failure of the operation, with its buffer.
    pub fn wait(mut self) -> Result<T, Failed<T::Kept>> {
        let state = std::mem::replace(&mut self.state, State::Taken);
        // It owns nothing any more, and so need not be dropped.
        std::mem::forget(self);
        match state {
            State::Complete(output) => Ok(output),
            State::Made(shared, slot) => shared.wait_for(slot, T::take).or_else(not_succeeded),
            State::Refused(refused) => Err(failed::<T>(refused.0, refused.1)),
            State::Taken => unreachable!("it is consumed when it is taken"),
        }
    }

    /// The result, if it is there.
    ///
    /// # Errors
    /// The operation itself, if it is not complete yet.
    pub fn try_take(mut self) -> Result<Result<T, Failed<T::Kept>>, Self> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Complete(output) => Ok(Ok(output)),
            State::Made(shared, slot) => match shared.try_take(slot, T::take) {
                Some(taken) => Ok(taken.or_else(not_succeeded)),
                None => {
                    self.state = State::Made(shared, slot);
                    Err(self)
                }
            },
            State::Refused(refused) => Ok(Err(failed::<T>(refused.0, refused.1))),
            State::Taken => unreachable!("it is consumed when it is taken"),
        }
    }
}

impl<T: Output> Future for Op<T> {
    type Output = Result<T, Failed<T::Kept>>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        in_budget(context, |context| match std::mem::replace(&mut self.state, State::Taken) {
            State::Complete(output) => Poll::Ready(Ok(output)),
            State::Made(shared, slot) => match shared.poll_for(slot, context.waker(), T::take) {
                Some(taken) => Poll::Ready(taken.or_else(not_succeeded)),
                None => {
                    self.state = State::Made(shared, slot);
                    Poll::Pending
                }
            },
            State::Refused(refused) => Poll::Ready(Err(failed::<T>(refused.0, refused.1))),
            State::Taken => panic!("an operation was polled after it was ready"),
        })
    }
}

// Its output is moved, never pinned.
impl<T> Unpin for Op<T> {}

impl<T> Drop for Op<T> {
    fn drop(&mut self) {
        if let State::Made(shared, slot) = &self.state {
            shared.detach(*slot);
        }
    }
}

impl<T> fmt::Debug for Op<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Made(..) => "Op(made)",
            State::Complete(..) => "Op(complete)",
            State::Refused(..) => "Op(refused)",
            State::Taken => "Op(taken)",
        })
    }
}

/// Operations that are posted one after the other, with one result for all of them.
///
/// A write, a flush behind it and a store behind that arrive in this order, with one wait for all of them.
#[must_use = "nothing is posted before submit"]
pub struct Batch {
    shared: Arc<Shared>,
    requests: Vec<Request>,
    refused: Option<Error>,
}

impl Batch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, requests: Vec::new(), refused: None }
    }

    pub(crate) fn with(mut self, request: impl Single, check: Result<()>) -> Self {
        self.requests.push(request.into());
        if let Err(error) = check {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Posts them. If one of them is refused, none is posted; if one fails, those behind it fail, too.
    ///
    /// The result has the buffers in the order of the calls.
    pub fn submit(self) -> Op<Vec<Buf>> {
        let Self { shared, requests, refused } = self;
        let check = match refused {
            Some(error) => Err(error),
            None if requests.is_empty() => Err(Error::new(ErrorKind::Invalid, "Batch::submit: it is empty")),
            None => Ok(()),
        };
        match shared.add_batch(requests, check) {
            Ok(slot) => Op::in_slot(&shared, slot),
            Err(refused) => Op::refused(&shared, refused),
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} operations)", self.requests.len())
    }
}
