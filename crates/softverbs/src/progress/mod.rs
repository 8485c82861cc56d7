// SPDX-License-Identifier: BSD-3-Clause
//! Which thread moves the bytes, and when.
//!
//! - [`turn`]: one driver at a time for each connection. A program that posts or polls drives in its own
//!   thread; else the engine does.
//! - [`ring`]: posted requests wait here for the driver.
//! - [`watch`]: the sockets behind one completion queue; [`attention`]: which thread will look at them.
//! - [`sleep`]: a thread of the program that sleeps for completions and looks itself.
//! - [`engine`]: one thread a process, for what no thread of the program looks at: events, timers,
//!   connections that were handed over; [`wakeup`]: which thread wakes it.
//! - [`export`]: when a peer in another process may copy to and from memory of this one.
//! - [`liveness`]: whether the hosts of the peers still respond.
//!
//! The protocols among these threads, [`turn`], [`ring`], [`attention`], [`wakeup`] and [`export`], are
//! checked by `models`, with loom, for every order in which the threads can run.
//!
//! Four rules hold. No thread waits for a driver: the second one leaves a reason and returns. A driver checks
//! for reasons again before it leaves. A thread that will look arms first, then looks once more, then sleeps.
//! A misprediction of what the program does next may cost a system call. Where it may cost time, the time is
//! bounded: if a program stops polling, the engine finds that at its next tick; a request that is held back
//! for the next one waits for at most an eighth of the time for which the prediction has been right.
#![forbid(unsafe_code)]

pub(crate) mod attention;
pub(crate) mod engine;
pub(crate) mod export;
pub(crate) mod liveness;
pub(crate) mod ring;
pub(crate) mod sleep;
pub(crate) mod source;
mod sync;
pub(crate) mod timers;
pub(crate) mod turn;
pub(crate) mod wakeup;
pub(crate) mod watch;

#[cfg(all(test, loom))]
mod models;

/// Who drives: a program's own thread has a smaller budget, and then leaves the rest to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The program, in a call that posts or ends.
    Program,
    /// The program, in a poll that found no completion.
    Poller,
    /// A thread of the program that sleeps for completions and was woken by the socket.
    Sleeper,
    /// The engine's thread.
    Engine,
}

/// What a connection has outstanding for a completion queue: the least is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outstanding {
    Nothing,
    /// Unsignalled requests, which may be over: they have a completion only if they fail.
    Unsignalled,
    /// A signalled request, or a receive.
    Completion,
}

/// A connection, as those see it who have something for it to do.
pub(crate) trait Driven: Send + Sync {
    /// Leaves reasons, and steps the connection unless another thread does. Returns whether it stepped.
    fn drive(&self, reasons: u32, by: By) -> bool;
    /// Steps the connection if that is still to be done; the engine has taken it off its run list.
    fn drive_listed(&self);
    /// As [`Driven::drive_listed`], for what was deferred.
    fn drive_deferred(&self);
    /// The program waits for completions now: steps the connection if requests were deferred.
    fn flush_deferred(&self);
    /// What is outstanding whose completions go to the completion queue at this address. Only strict mode
    /// asks.
    fn outstanding(&self, _cq: usize) -> Outstanding {
        Outstanding::Completion
    }
}
