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

/// One element of a gathered send.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Registered memory.
    Memory(Access),
}

impl Part<'_> {
    /// Bytes.
    pub fn byte_len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Memory(access) => access.len,
        }
    }
}

/// Why the link sent or received nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// It would block.
    Blocked,
    /// The registered memory of the part with this index is not accessible; no bytes were transferred.
    Memory(usize, Unreachable),
    /// The link has failed.
    Broken(Errno),
}

/// When the bytes that a persistent flush covers are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// They are durable already.
    Now,
    /// Not yet. The driver calls `durable` of the connection with the number that it was given.
    Later,
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

/// What a connection calls to transfer bytes, access memory, and take and complete work requests.
pub trait Host {
    /// The current time. Called only to set or to check a deadline.
    fn now(&mut self) -> Micros;

    /// Sends bytes to the link and returns how many it accepted. `boundary`: the TCP segment ends with these
    /// bytes; later ones start a new segment.
    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError>;
    /// Receives bytes from the link; 0 is the end of the stream.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;
    /// Receives bytes from the link, first into registered memory, then into `rest`.
    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError>;
    /// Closes the link. `Some`: after these bytes and the end of the stream have been sent; bytes that the
    /// peer sends meanwhile are discarded. `None`: at once.
    fn close(&mut self, last: Option<&[u8]>);

    /// Copies bytes directly between the memory of the peer and local memory: from `local` to `remote` for
    /// RDMA Writes, in the other direction for RDMA Reads. The rights of `remote` distinguish the two; all
    /// its ranges have the same rights and STag. Both lists have the same total length and are processed in
    /// order. Returns the number of bytes that were copied, counted from the start; with 0 the request goes
    /// over the link, which reports any error. Called only if [`crate::iwarp::conn::Terms::transfers`] is set
    /// and no earlier request is outstanding. The host must ensure that the peer has acted on everything that
    /// was sent over the link.
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize;
    /// Whether [`Host::transfer`] is likely to succeed for this access once no earlier request is
    /// outstanding.
    fn may_transfer(&self, remote: Access) -> bool;
    /// Everything received so far has been acted on: placed, delivered to the program, or answered.
    fn acted(&mut self) {}

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
    /// If a read of this region must find earlier writes durable, starts a flush of the whole region to
    /// persistence. `number` identifies the read when the flush completes.
    fn make_durable(&mut self, read: Access, number: u64) -> Result<Durable, Denied>;

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

    /// The connection is established. Called at most once, and only for a role that is not established before
    /// the peer's first message.
    fn established(&mut self);
    /// The connection is ending. Called once, before the requests that fail with it complete.
    fn ends(&mut self, _ending: Ending<'_>) {}
    /// The connection has ended. Called once, after everything received before the end was delivered.
    /// `failed`: neither side has closed it.
    fn ended(&mut self, failed: bool);
}
