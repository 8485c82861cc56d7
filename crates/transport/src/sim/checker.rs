// SPDX-License-Identifier: BSD-3-Clause
//! The properties of every schedule, checked by a model that gets the same calls as the host and never reads
//! the state of a connection.
//!
//! For each side it records what was posted, follows what was sent over the link ([`Outbound`]), and
//! determines by the addresses and the contents of placements how far the other side has executed it.

mod completed;
mod placed;
mod stream;
mod transferred;

pub(super) use stream::OutboundStream;

use crate::wr::{Op, RecvWr, SendWr};

#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub wr: SendWr,
    /// Which message, or which read or atomic operation of its side it is.
    number: usize,
    /// How many atomic operations were posted before.
    atomics: usize,
    /// How many messages of the peer had been received when it was posted.
    knows: usize,
    /// It was carried out by direct copy, all of it.
    transferred: bool,
}

impl Posted {
    /// It uses up a receive of the peer.
    fn is_message(&self) -> bool {
        matches!(self.wr.op, Op::Send | Op::SendWithImm | Op::SendWithInv | Op::WriteWithImm)
    }

    fn is_write(&self) -> bool {
        matches!(self.wr.op, Op::Write | Op::WriteWithImm)
    }

    /// Its answer comes over the link.
    fn is_answered(&self) -> bool {
        self.wr.is_answered() && !self.transferred
    }

    fn overruns(&self, receive: &RecvWr) -> bool {
        self.wr.op != Op::WriteWithImm && self.wr.len > receive.capacity()
    }

    /// Bytes that are placed at the peer.
    fn carries(&self) -> usize {
        if self.wr.is_answered() { 0 } else { self.wr.len as usize }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Durability {
    #[default]
    NotAsked,
    Pending,
    Reported,
}

/// The causes for which a connection may end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Causes {
    /// The program ended or destroyed it, or it was never opened.
    pub disconnected: bool,
    /// An access to memory was refused or failed.
    pub memory: bool,
    /// The link failed.
    pub broken: bool,
    /// The stream's end was read, or seen while messages waited.
    pub end_read: bool,
    /// There was no receive, and the connection was not to wait for one.
    pub no_receive: bool,
    /// A message was longer than its receive.
    pub too_long: bool,
    pub disk: bool,
    /// The peer has violated the protocol.
    pub forgery: bool,
    pub no_reads: bool,
    /// Messages waited too long for receives or for room.
    pub starved: bool,
}

impl Causes {
    /// What this side itself ended the connection for.
    pub(super) fn own(&self) -> bool {
        self.disconnected
            || self.memory
            || self.no_receive
            || self.too_long
            || self.disk
            || self.no_reads
            || self.forgery
    }
}

/// The bytes that a side has sent over its link. Each transport has its own type, which parses them.
pub(super) trait Outbound: Default {
    /// Another schedule begins.
    fn begin(&mut self);
    /// The first request that is not on the link as a whole.
    fn next(&self) -> usize;
    /// Whether the link has so much of a request that it may succeed.
    fn has_sent(&self, index: usize, posted: &Posted) -> bool;
    /// Nothing of the next request is on the link, nor a part of another message.
    fn is_between(&self) -> bool;
    /// The next request is carried out without the link.
    fn skip(&mut self);
    /// Answers to the peer's reads and atomic operations that are complete in what the peer has read.
    fn answers(&self, read: u64) -> usize;
    /// Whether a request is complete in what the peer has read.
    fn has_arrived(&self, index: usize, read: u64) -> bool;
    /// Whether the peer may receive this message: nothing before it violates the protocol.
    fn is_genuine(&self, message: usize) -> bool;
    /// Messages on the link; panics if it does not end with one.
    fn whole_messages(&self) -> usize;
}

/// One side.
#[derive(Debug, Default)]
pub(super) struct Model<O> {
    pub requests: Vec<Posted>,
    messages: Vec<usize>,
    /// Reads and atomic operations.
    reads: Vec<usize>,
    atomics: Vec<usize>,
    pub taken: usize,
    pub done: usize,
    pub outbound: O,
    /// A request, and how many of its bytes were transferred by direct copy.
    part_transferred: (usize, usize),
    // What it received.
    pub taken_receives: Vec<RecvWr>,
    pub received: usize,
    pub delivered: usize,
    /// How many windows were invalidated for messages of the peer.
    invalidated: usize,
    placed_request: usize,
    placed_bytes: usize,
    placed_read: usize,
    read_bytes: usize,
    /// The original values of the words that the peer's atomic operations have changed.
    originals: Vec<u64>,
    pub durability: Vec<Durability>,
    // Its end.
    pub causes: Causes,
    /// Reads that the peer permits at a time.
    pub ord: u32,
    pub open: bool,
    pub closed: bool,
    /// What the link had been given by the end, and whether all of that still goes out.
    pub graceful: Option<usize>,
    pub ended: bool,
    pub destroyed: bool,
    pub send_refused: bool,
    pub receive_refused: bool,
}

impl<O: Outbound> Model<O> {
    fn begin(&mut self) {
        let mut old = std::mem::take(self);
        macro_rules! reuse {
            ($($field:ident),*) => { $(old.$field.clear(); self.$field = old.$field;)* };
        }
        reuse!(requests, messages, reads, atomics, originals, taken_receives, durability);
        self.outbound = old.outbound;
        self.outbound.begin();
    }

    /// All posted requests have completed.
    pub(super) fn sends_are_over(&self) -> bool {
        self.done == self.requests.len()
    }

    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Atomic operations posted.
    pub(super) fn atomics(&self) -> usize {
        self.atomics.len()
    }

    /// Atomic operations of the peer carried out.
    pub(super) fn changes(&self) -> usize {
        self.originals.len()
    }
}

#[derive(Debug, Default)]
pub(super) struct Checker<O> {
    pub sides: [Model<O>; 2],
}

impl<O: Outbound> Checker<O> {
    pub(super) fn begin(&mut self) {
        self.sides.iter_mut().for_each(Model::begin);
    }

    pub(super) fn posted(&mut self, side: usize, wr: SendWr) {
        let knows = self.sides[side].delivered;
        let model = &mut self.sides[side];
        let index = model.requests.len();
        let mut posted =
            Posted { wr, number: model.reads.len(), atomics: model.atomics.len(), knows, transferred: false };
        if posted.wr.is_answered() {
            model.reads.push(index);
            if posted.wr.is_atomic() {
                model.atomics.push(index);
            }
        } else if posted.is_message() {
            posted.number = model.messages.len();
            model.messages.push(index);
        }
        model.requests.push(posted);
    }

    /// The connection releases the link; `whole`: the stream ends after these bytes.
    pub(super) fn closed(&mut self, side: usize, whole: bool) {
        let model = &mut self.sides[side];
        assert!(!model.closed, "side {side} closes its link twice");
        model.closed = true;
        if whole {
            model.graceful = Some(model.outbound.whole_messages());
        }
    }
}
