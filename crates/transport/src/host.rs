// SPDX-License-Identifier: BSD-3-Clause
//! The interface through which a connection reaches its link, registered memory and queues.
//!
//! A step of a connection is a sequence of calls of this trait, in the order in which their effects must
//! become visible. Each call returns its result at once, so the first failure stops the sequence: nothing
//! that depends on an effect happens before that effect, and no list of pending effects has to be rolled
//! back. The driver of a real connection implements the trait with a socket and the table of memory regions,
//! the simulation with byte arrays.

use std::fmt;

use crate::access::{Access, Bind, Denied, Unchanged, Unreachable};
use crate::units::{Errno, Micros};
use crate::wr::{Completion, RecvWr, SendWr};

/// Placements in one system call. The kernel accepts 1024, but each needs entries in two arrays on the stack.
pub const PLACE_BATCH: usize = 128;

/// When the bytes that a persistent flush covers are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// They are durable already.
    Now,
    /// Not yet. The driver calls `durable` of the connection with the number that it was given.
    Later,
}

/// A one-sided operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// RDMA write, also with immediate data, and atomic write.
    Write,
    /// RDMA read.
    Read,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
}

/// The end of a connection.
#[derive(Clone, Copy)]
pub struct Ending<'a> {
    /// The local request that ended the connection or was refused by the peer, and its status.
    pub failed: Option<(&'a SendWr, u32)>,
    /// Neither side has closed the connection.
    pub is_failure: bool,
    /// The operation that failed, whichever side requested it.
    pub operation: Option<&'static str>,
    /// The cause, if it is an error of the link.
    pub errno: Option<Errno>,
    /// The cause as text.
    pub why: &'a dyn fmt::Display,
}

/// How a connection has ended, as far as the program gets events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// One of the sides has closed it.
    Closed,
    /// It has failed.
    Failed,
    /// A completion has the error.
    Completed,
    /// A request of the peer for memory was refused, for its key, its range or a missing right.
    AccessRefused,
    /// Another request of the peer was refused.
    RequestRefused,
}

impl Ended {
    /// Neither side has closed the connection.
    pub fn is_failure(self) -> bool {
        self != Self::Closed
    }
}

/// What a connection calls to transfer bytes, access memory, and take and complete work requests.
pub trait Host {
    /// The current time. Called only to set or to check a deadline.
    fn now(&mut self) -> Micros;

    /// Checks an access. Called for a whole segment before any byte of it is placed.
    fn check(&mut self, access: Access) -> Result<(), Denied>;
    /// Adds a placement to the batch: `access.len` bytes from offset `from` of the input of the next
    /// [`Host::settle`].
    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied>;
    /// Carries out the batch in order. `Err(k)`: the memory of the k-th placement is no longer accessible;
    /// neither it nor any placement after it was carried out.
    fn settle(&mut self, input: &[u8]) -> Result<(), usize>;
    /// Copies bytes out of registered memory.
    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable>;
    /// Atomically replaces eight bytes, a number in host byte order, with the result of `update`, and returns
    /// the previous number. `update` may be called more than once. The batch must be empty.
    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged>;
    /// Stores eight bytes with a single store. The batch must be empty.
    fn store(&mut self, access: Access, word: [u8; 8]) -> Result<(), Unchanged>;
    /// The access with these rights to all bytes of a region or window.
    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied>;
    /// If an access must find earlier writes durable, starts a flush to persistence: of its range, if it has
    /// the right to flush, else, for a read of a region for flush to persistence, of the whole region.
    /// `number` identifies the request when the flush completes.
    fn make_durable(&mut self, access: Access, number: u64) -> Result<Durable, Denied>;

    /// Binds a memory window on behalf of this connection.
    fn bind(&mut self, window: Bind) -> Result<(), Denied>;
    /// Invalidates a memory window of this connection.
    fn invalidate(&mut self, stag: u32) -> Result<(), Denied>;

    /// The next posted work request of the send queue.
    fn next_send(&mut self) -> Option<SendWr>;
    /// The next posted receive. After `None` the driver steps the connection again when one is posted.
    fn next_receive(&mut self) -> Option<RecvWr>;
    /// Adds a completion to the completion queue of the send queue; false if that is full. The driver then
    /// steps the connection again when there is room.
    fn complete_send(&mut self, completion: Completion) -> bool;
    /// Like [`Host::complete_send`], for the receive queue.
    fn complete_receive(&mut self, completion: Completion) -> bool;
    /// An unsignalled work request has succeeded: its send queue entry is free.
    fn release_send(&mut self);

    /// One-sided operations of the peer were executed, which the program does not see: `completed` operations
    /// with `bytes` of payload. A long write is reported in parts, of which only the last one completes an
    /// operation.
    fn served(&mut self, _operation: Served, _completed: u64, _bytes: u64) {}

    /// The connection is established. Called at most once, and only for a role that is not established before
    /// the peer's first message.
    fn established(&mut self);
    /// The connection is ending. Called once, before the requests that fail with it complete.
    fn ends(&mut self, _ending: Ending<'_>) {}
    /// The connection has ended. Called once, after everything received before the end was delivered.
    fn ended(&mut self, how: Ended);
}
