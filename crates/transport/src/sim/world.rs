// SPDX-License-Identifier: BSD-3-Clause
//! Two connections, the link between them, the memory and the queues around them.

use std::cell::Cell;

use super::checker::{Checker, OutboundStream};
use super::memory::{self, COUNTERS, PERSISTENT, READABLE, REGIONS, WRITABLE};
use super::plan::Plan;
use super::random::Draw;
use super::schedules::Simulation;
use crate::access::{REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::iwarp::conn::Conn;
use crate::step::reason;
use crate::testing::memory::{Placement, Regions};
use crate::testing::queues::Queues;
use crate::testing::stream::{Found, Pipe};
use crate::units::Micros;
use crate::wr::SendWr;

/// The driver of one connection, and the program above it.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Reasons for a step.
    pub reasons: u32,
    /// The events of the socket.
    pub due: u32,
    pub stalled: bool,
    pub srq_waits: bool,
    pub receives_posted: usize,
    pub timer: Option<Micros>,
    pub opened_at: Micros,
    pub batch: Vec<Placement>,
    pub queues: Queues,
    pub flushes: Vec<u64>,
    pub flushed: Vec<(u64, bool)>,
    /// An access has failed, so this step ends the connection.
    pub must_end: bool,
    /// Receives that other connections have taken from the shared queue.
    pub stolen: usize,
    /// Bytes from the link that its connection has acted on.
    pub acted: u64,
    /// For each region the rights that the peer has used, and may use by direct copy.
    pub exported: [u32; REGIONS],
}

pub(super) struct Sim {
    pub conns: [Option<Box<Conn>>; 2],
    pub sides: [Side; 2],
    pub pipes: [Pipe; 2],
    pub memories: [Regions; 2],
    pub checker: Checker<OutboundStream>,
    pub plan: Plan,
    pub draw: Draw,
    pub now: Micros,
    /// Phase 2: no faults any more.
    pub healed: bool,
    pub actions: usize,
    /// A digest of all that happened.
    pub print: u64,
    pub trace: bool,
    /// Transfers by direct copy, in all schedules.
    pub transfers: u64,
    /// Those of several requests.
    pub transferred_together: u64,
    /// Words accessed directly.
    pub words: u64,
    /// Requests that the connection has carried out without taking them.
    pub carried_out: u64,
    /// Messages sent without the send queue.
    pub sent_alone: u64,
    /// Wrong predictions of direct copies: those of no, and those of yes.
    pub mispredicted: [Cell<u64>; 2],
}

macro_rules! say {
    ($sim:expr, $($arg:tt)*) => { if $sim.trace { eprintln!("{:>5} {:>9} us  {}", $sim.actions, $sim.now, format!($($arg)*)) } };
}
pub(super) use say;

impl Simulation for Sim {
    fn new(trace: bool) -> Self {
        Self { trace, ..Self::new() }
    }

    fn run(&mut self, seed: u64) -> u64 {
        self.schedule(seed)
    }
}

impl Sim {
    pub(super) fn new() -> Self {
        Self {
            conns: [None, None],
            sides: Default::default(),
            pipes: Default::default(),
            memories: [memory::new(0), memory::new(1)],
            checker: Checker::default(),
            plan: Plan::default(),
            draw: Draw::new(0),
            now: 0,
            healed: false,
            actions: 0,
            print: 0,
            trace: false,
            transfers: 0,
            transferred_together: 0,
            words: 0,
            carried_out: 0,
            sent_alone: 0,
            mispredicted: Default::default(),
        }
    }

    /// Starts from nothing but a seed; only large allocations are kept.
    pub(super) fn begin(&mut self, plan: Plan, draw: Draw) {
        (self.plan, self.draw) = (plan, draw);
        (self.now, self.healed, self.actions, self.print) = (1_000, false, 0, 0);
        self.checker.begin();
        for (me, side) in self.sides.iter_mut().enumerate() {
            let of = &self.plan.sides[me];
            let queues = Queues::new(of.send_cq, of.recv_cq, of.one_cq);
            *side = Side { queues, ..Side::default() };
            if self.plan.exported {
                side.exported[WRITABLE] = REMOTE_WRITE;
                side.exported[PERSISTENT] = REMOTE_WRITE;
                side.exported[READABLE] = REMOTE_READ;
                side.exported[COUNTERS] = REMOTE_ATOMIC;
            }
            self.checker.sides[me].ord = of.framing.ord;
            self.pipes[me].begin(self.plan.capacity[me]);
            memory::begin(&mut self.memories[me], me);
            let conn = Conn::new(me as u32 + 1, of.max_send_wr, !of.shared, of.sizes).unwrap();
            self.conns[me] = Some(Box::new(conn));
        }
    }

    pub(super) fn note(&mut self, what: u64) {
        self.print = (self.print ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// A fault with this rate happens now.
    pub(super) fn fault(&mut self, rate: u32) -> bool {
        !self.healed && self.draw.chance(rate)
    }

    /// The events of the socket of `me`, as an edge-triggered epoll reports them: all current ones, at each
    /// change.
    pub(super) fn report(&mut self, me: usize) {
        let (incoming, outgoing) = (&self.pipes[1 - me], &self.pipes[me]);
        let mut due = 0;
        if incoming.look() != Found::Nothing {
            due |= reason::READABLE;
        }
        if outgoing.room() > 0 || outgoing.refused || outgoing.reset {
            due |= reason::WRITABLE;
        }
        if incoming.fin_arrived || incoming.reset {
            due |= reason::HANGUP | reason::READABLE;
        }
        self.sides[me].due |= due;
    }

    /// Bytes of side `from` were read, so it may have room for more.
    pub(super) fn was_read(&mut self, from: usize) {
        let pipe = &mut self.pipes[from];
        if pipe.wants_room && pipe.room() > 0 {
            pipe.wants_room = false;
            self.report(from);
        }
    }

    /// The connection is reset: both directions lose the bytes in flight.
    pub(super) fn reset(&mut self) {
        say!(self, "the link is reset");
        self.pipes.iter_mut().for_each(Pipe::cut);
        self.report(0);
        self.report(1);
    }

    /// Hands what a side has written to the checker.
    pub(super) fn handed(&mut self, me: usize, bytes: &[u8]) {
        let read = self.pipes[1 - me].bytes_read();
        self.checker.handed(me, bytes, read);
    }

    /// The program of a side posts a request.
    pub(super) fn posted(&mut self, me: usize, wr: SendWr) {
        self.checker.posted(me, wr.clone());
        self.sides[me].queues.sends.push_back(wr);
    }
}
