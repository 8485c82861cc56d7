// SPDX-License-Identifier: BSD-3-Clause
//! What a connection asks of the world around it.
//!
//! A step of a connection is a sequence of calls of this trait, in the order in which their effects must be
//! seen. Each says at once whether it worked, so the first failure stops the sequence: nothing that rests on
//! an effect happens before the effect has, and there is no list of effects whose tail would have to be taken
//! back. The driver of a real connection implements the trait with a socket and the table of memory regions,
//! the simulation with byte arrays.

use std::fmt;

use crate::access::{Access, Bind, Denied, Unchanged, Unreachable};
use crate::units::{Errno, Micros};
use crate::wr::{Completion, RecvWr, SendWr};

/// A piece of what is sent in one call.
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

/// Why the link did not take or give bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// Not now.
    Blocked,
    /// Registered memory of the part with this index cannot be reached; nothing was moved.
    Memory(usize, Unreachable),
    /// The link has failed.
    Broken(Errno),
}

/// When the bytes that a persistent flush covers are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// They are.
    Now,
    /// `durable` of the connection is called with the number that was given.
    Later,
}

/// The end of a connection.
#[derive(Clone, Copy)]
pub struct Ending<'a> {
    /// The request of this side that ended the connection or was refused by the peer, and its status.
    pub failed: Option<(&'a SendWr, u32)>,
    /// Neither side has closed the connection.
    pub is_failure: bool,
    /// The operation that failed, of this side or of the peer.
    pub operation: Option<&'static str>,
    /// The cause, if it is an error of the link.
    pub errno: Option<Errno>,
    /// The cause in words.
    pub why: &'a dyn fmt::Display,
}

/// The world around a connection.
pub trait Host {
    /// The time, asked for only where a deadline is set or awaited.
    fn now(&mut self) -> Micros;

    /// Gives bytes to the link; says how many it took. `boundary`: what is sent next does not go into the TCP
    /// segment that these end in.
    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError>;
    /// Takes bytes from the link; 0 is the end of the stream.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;
    /// Takes bytes from the link, first into registered memory, then into `rest`.
    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError>;
    /// Lets go of the link: `Some`: these bytes still go out, then the end of the stream, and what the peer
    /// sends meanwhile is thrown away; `None`: at once.
    fn close(&mut self, last: Option<&[u8]>);

    /// Copies bytes between memory of the peer and memory of this side, at once, as direct copies: for RDMA
    /// Writes from `local` to `remote`, for RDMA Reads the other way, as the rights of `remote` say, which
    /// are the same for all of it, as is the STag. The two lists are of one length in bytes, and are gone
    /// through in order. Gives how many bytes were copied, from the first one on; 0: the link is the way, and
    /// will say what is wrong if something is. Called only where [`crate::iwarp::conn::Terms::transfers`]
    /// says so, and while no request before these is outstanding; the host sees to it that the peer has acted
    /// on all that the link was given.
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize;
    /// Whether [`Host::transfer`] will most probably carry this out, once nothing before it is outstanding.
    fn may_transfer(&self, remote: Access) -> bool;
    /// All that the link has given so far has been acted on: it is placed, delivered to the program, or an
    /// answer is on its way.
    fn acted(&mut self) {}

    /// Checks an access: for a whole segment, before a byte of it is placed.
    fn check(&mut self, access: Access) -> Result<(), Denied>;
    /// Adds a placement to the batch: `access.len` bytes at `from` of the input that [`Host::settle`] will be
    /// given.
    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied>;
    /// Carries out the batch in order. `Err(k)`: the memory of the k-th placement is gone; none behind it was
    /// carried out.
    fn settle(&mut self, input: &[u8]) -> Result<(), usize>;
    /// Copies bytes out of registered memory.
    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable>;
    /// Replaces eight bytes, a number in the byte order of this host, by `update` of them in one atomic
    /// operation, and returns the previous number. `update` may be called more than once. The batch is empty.
    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged>;
    /// Whether a read of this region must find earlier writes durable, and then has that done for the whole
    /// region.
    fn make_durable(&mut self, read: Access, number: u64) -> Result<Durable, Denied>;

    /// Binds a memory window on behalf of this connection.
    fn bind(&mut self, window: Bind) -> Result<(), Denied>;
    /// Invalidates a memory window of this connection.
    fn invalidate(&mut self, stag: u32) -> Result<(), Denied>;

    /// The next posted work request of the send queue.
    fn next_send(&mut self) -> Option<SendWr>;
    /// The next posted receive. After `None` the connection is stepped again when there is one.
    fn next_receive(&mut self) -> Option<RecvWr>;
    /// Hands a completion of the send queue to the program; false when there is no room. Then the connection
    /// is stepped again when there is.
    fn complete_send(&mut self, completion: Completion) -> bool;
    /// As [`Host::complete_send`], for the receive queue.
    fn complete_receive(&mut self, completion: Completion) -> bool;
    /// An unsignalled work request has succeeded: its place in the send queue is free.
    fn release_send(&mut self);

    /// The connection is established; called at most once, and only for a role in which the peer's first
    /// message decides that.
    fn established(&mut self);
    /// The connection ends; called once, before anything is completed because of it.
    fn ends(&mut self, _ending: Ending<'_>) {}
    /// The connection has ended; called once, after all that came before it was delivered. `failed`: neither
    /// side has closed it.
    fn ended(&mut self, failed: bool);
}
