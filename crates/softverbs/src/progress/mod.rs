// SPDX-License-Identifier: BSD-3-Clause
//! Which thread moves bytes, and when.
//!
//! - [`turn`]: one driver at a time for each connection. A program that posts or polls drives in its own
//!   thread; else the engine does.
//! - [`ring`]: posted requests wait here for the driver.
//! - [`watch`]: the sockets of one completion queue; [`attention`]: which thread checks them.
//! - [`sleep`]: a thread of the program that sleeps for completions and checks the sockets itself.
//! - [`engine`]: one thread a process, for events and timers that no thread of the program handles, and for
//!   connections handed over to it; [`wakeup`]: which thread wakes it.
//! - [`export`]: when a peer process may copy to and from memory of this one.
//! - [`liveness`]: whether the hosts of the peers still respond.
//! - [`seen`]: what a poll reads without a lock.
//!
//! The protocols among these threads, [`turn`], [`ring`], [`attention`], [`wakeup`], [`seen`] and [`export`],
//! are checked by `models`, with loom, for every order in which the threads can run.
//!
//! Four rules hold. No thread waits for a driver: the second thread leaves a reason and returns. A driver
//! checks for reasons again before it leaves. A thread that will sleep arms first, then checks once more,
//! then sleeps. A misprediction of what the program does next may cost a system call. Where it may cost time,
//! the time is bounded: if a program stops polling, the engine detects that at its next tick; a request that
//! is deferred until the next one waits for at most an eighth of the time for which the prediction has been
//! right.
#![forbid(unsafe_code)]

pub(crate) mod attention;
pub(crate) mod engine;
pub(crate) mod export;
pub(crate) mod liveness;
pub(crate) mod ring;
pub(crate) mod seen;
pub(crate) mod sleep;
pub(crate) mod source;
mod sync;
mod ticks;
pub(crate) mod timers;
pub(crate) mod turn;
pub(crate) mod wakeup;
pub(crate) mod watch;

#[cfg(all(test, loom))]
mod models;

use seen::Seen;
use std::sync::Arc;
use transport::step::reason;
use watch::PeerNotify;

/// The kind of driver: a thread of the program has a smaller budget, and leaves the rest to the engine.
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

/// What a connection has outstanding for a completion queue, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outstanding {
    Nothing,
    /// Unsignalled requests, which may be complete: they create a completion only if they fail.
    Unsignalled,
    /// A signalled request, or a receive.
    Completion,
}

/// The memory that a connection shares with its peer, as a poll has last seen it.
pub(crate) type SeenMemory = Seen<Option<Arc<dyn PeerNotify>>>;

/// A connection, from the view of threads that have work for it.
pub(crate) trait Driven: Send + Sync {
    /// Leaves reasons, and steps the connection unless another thread does. Returns whether this call has
    /// stepped it.
    fn drive(&self, reasons: u32, by: By) -> bool;
    /// Drives it for a poll that found no completion. `memory`: the copy that the caller keeps between polls
    /// of what the connection shares with its peer. Returns as [`Driven::drive`].
    fn poll(&self, _memory: &mut SeenMemory) -> bool {
        self.drive(reason::READABLE | reason::WRITABLE, By::Poller)
    }
    /// Steps the connection if it still needs that; the engine has taken it off its run list.
    fn drive_listed(&self);
    /// As [`Driven::drive_listed`], for a connection with deferred requests.
    fn drive_deferred(&self);
    /// Steps the connection if requests were deferred; the program is about to wait for completions.
    fn flush_deferred(&self);
    /// What is outstanding for the completion queue at this address. It shows whether a thread waits in vain.
    fn outstanding(&self, _cq: usize) -> Outstanding {
        Outstanding::Completion
    }
}
