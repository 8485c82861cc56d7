// SPDX-License-Identifier: BSD-3-Clause
//! The harness of the fuzz target `connection`: the handshake, the connection and a table of memory regions
//! together, without a socket.
//!
//! An input contains the frame of the peer in the handshake ([`handshake`]), then the actions of a program,
//! its peer, the network and the clock in sequence. [`world`] asserts the invariants, which hold for every
//! input: requests and receives complete once and in order; no byte changes except by a permitted access; the
//! bytes sent are well-formed; and a connection that ends reports its end and completes all requests and
//! receives.

mod handshake;
pub(super) mod input;
pub mod memory;
mod peer;
#[cfg(test)]
mod tests;
mod world;

use crate::iwarp::cm::negotiate::Agreed;
use crate::iwarp::conn::{Conn, Framing, Role, Sizes, Terms};
use crate::limits::MAX_INLINE;
use crate::step::{Awaits, Budget, Quota, reason};
use crate::wr::{Entries, Local, Op, RecvWr, SendWr, Sge};
use input::Input;
use memory::{LOCAL, Table};
use peer::Peer;
use world::Fuzzed;

/// Places of the send queue.
const DEPTH: u32 = 4;
/// Receives that are posted at a time.
const RECEIVES: usize = 6;

/// One connection, from its handshake to its end, with memory in this table.
pub fn run<T: Table>(bytes: &[u8], table: impl FnOnce() -> T) {
    let mut input = Input::new(bytes);
    if let Some((agreed, early)) = handshake::run(&mut input) {
        connect(&mut input, agreed, &early, table());
    }
}

fn connect(input: &mut Input<'_>, agreed: Agreed, early: &[u8], table: impl Table) {
    let choice = input.byte();
    let framing = Framing {
        crc: agreed.crc,
        mulpdu: if choice & 1 != 0 { crate::iwarp::wire::stream::MIN_MULPDU } else { 300 },
        segment: (choice & 2 != 0).then_some(400),
        ord: agreed.ord.into(),
    };
    let sizes = match choice & 4 {
        0 => Sizes { first: 128, buffer: 600, direct: 100, behind_direct: 50 },
        _ => Sizes::default(),
    };
    let own_receives = choice & 8 == 0;
    let mut run = Run {
        conn: Conn::new(7, DEPTH, own_receives, sizes).expect("memory for a connection"),
        world: Fuzzed::new(table, agreed.crc, agreed.role == Role::RESPONDER_ANNOUNCED, choice & 16 != 0),
        peer: Peer::new(agreed.crc),
        own_receives,
        next_id: 0,
        again: 0,
    };
    let terms =
        Terms { framing, role: agreed.role, wait_for_receives: choice & 32 != 0, early, transfers: false };
    let now = run.world.now;
    run.conn.open(terms, now).expect("memory for a connection");
    run.step(reason::WRITABLE | reason::READABLE, 1 << 16);
    while !input.is_empty() {
        run.act(input);
        run.world.check_memory();
    }
    run.finish();
}

struct Run<T: Table> {
    conn: Conn,
    world: Fuzzed<T>,
    peer: Peer,
    own_receives: bool,
    next_id: u64,
    /// Reasons for the next step, from the last one or from what has happened since.
    again: u32,
}

impl<T: Table> Run<T> {
    fn step(&mut self, why: u32, bytes: usize) {
        let budget = Budget { send: Quota::of_bytes(bytes), receive: Quota::of_bytes(bytes) };
        let stepped = self.conn.step(&mut self.world, why | self.again, budget);
        self.again = if stepped.again { reason::AGAIN } else { 0 };
        assert!(!(stepped.again && self.world.closed), "a connection that is over has nothing to go on with");
        // Who waits for a receive is driven when one is posted.
        if stepped.awaits == Awaits::Receive && !self.world.queues.receives.is_empty() && !self.world.closed {
            self.again |= reason::RECEIVE;
        }
        self.world.after_step();
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        match kind % 16 {
            0 | 1 => {
                let bytes = input.take(usize::from(kind >> 4) + 1).to_vec();
                self.receive(&bytes);
            }
            2..=5 => {
                let bytes = self.peer.bytes(input, &mut self.world);
                self.receive(&bytes);
                if kind & 0x40 != 0 {
                    self.step(reason::READABLE, 1 << 16);
                }
            }
            6 | 7 => self.post(input),
            8 => self.post_receive(input),
            9 | 10 => {
                let why = u32::from(input.byte()) & (reason::ALL & !reason::DISCONNECT);
                let budget = usize::from(input.byte()) * if kind & 0x80 != 0 { 64 } else { 1 };
                self.step(why, budget);
            }
            11 => {
                self.world.out.set_room(usize::from(input.byte()) * 8);
                self.again |= reason::WRITABLE;
            }
            12 => {
                self.world.queues.send_cq.room = usize::from(input.byte() & 7);
                self.again |= reason::ROOM;
            }
            13 => {
                self.world.now += u64::from(input.byte()) * 20_000;
                self.step(reason::TIME, 1 << 16);
            }
            14 => self.world.memory.change(usize::from(input.byte())),
            _ => self.event(input),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let incoming = &mut self.world.incoming;
        if !incoming.fin && !incoming.reset {
            incoming.write(bytes);
            incoming.arrive(usize::MAX);
            self.again |= reason::READABLE;
        }
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let which = input.byte();
        match which % 8 {
            0..=2 => {
                if let Some(number) = self.world.flushes.pop() {
                    self.conn.durable(&mut self.world, number, which & 0x80 == 0);
                    self.step(reason::DURABLE, 1 << 16);
                }
            }
            3 => {
                self.world.incoming.fin = true;
                self.world.incoming.arrive(usize::MAX);
                self.step(reason::READABLE | reason::HANGUP, 1 << 16);
            }
            4 => {
                self.world.out.cut();
                self.world.incoming.cut();
                self.step(reason::HANGUP, 1 << 16);
            }
            5 => self.step(reason::DISCONNECT, 1 << 16),
            6 => self.step(reason::DISCONNECT | reason::POSTED, 1 << 16),
            _ => {
                let deadline = self.conn.deadline();
                self.world.now = self.world.now.max(deadline.unwrap_or(0));
                self.step(reason::TIME, 1 << 16);
            }
        }
    }

    fn post(&mut self, input: &mut Input<'_>) {
        if self.world.queues.requests().count() >= DEPTH as usize {
            return;
        }
        let [what, flags, region, at, len] = input.bytes();
        let op = match what % 8 {
            0 | 1 => Op::Write,
            2 => Op::WriteWithImm,
            3 if flags & 0x88 == 0x80 => Op::FetchAdd,
            4 if flags & 0x88 == 0x80 => Op::CompareSwap,
            3..=5 => Op::Read,
            6 if flags & 64 != 0 => Op::SendWithInv,
            6 => Op::Send,
            _ => Op::SendWithImm,
        };
        let mut len = u32::from(len) * if flags & 8 != 0 { 3 } else { 1 };
        let atomic = matches!(op, Op::FetchAdd | Op::CompareSwap);
        let local = if atomic {
            len = 8;
            let (lkey, addr) = self.world.memory.place(region, at);
            Local::Atomic { addr, lkey, compare_add: u64::from(what), swap: u64::MAX }
        } else if flags & 1 != 0 && op != Op::Read {
            len = len.min(MAX_INLINE as u32);
            Local::inline(&vec![what; len as usize]).expect("memory for inline data")
        } else {
            Local::memory(&self.entries(region, at, len, 1 + 5 * u32::from(flags >> 6)))
                .expect("memory for entries")
        };
        let wr = SendWr {
            wr_id: self.next_id,
            op,
            signaled: flags & 2 != 0,
            fence: flags & 4 != 0,
            solicited: flags & 16 != 0,
            imm: *b"imme",
            local,
            len,
            remote_addr: 0x9000,
            rkey: 0x99,
            to: None,
        };
        self.next_id += 1;
        self.world.queues.sends.push_back(wr);
        self.again |= reason::POSTED;
        if flags & 32 != 0 {
            self.step(0, 1 << 16);
        }
    }

    /// `len` bytes in so many entries: all but the last one are in the same region, one byte long and far
    /// from each other.
    fn entries(&self, region: u8, at: u8, len: u32, several: u32) -> Entries {
        let mut entries = Entries::new();
        let short = (several - 1).min(len);
        for i in 0..short {
            let (lkey, addr) = self.world.memory.place(region, at.wrapping_add(11 * i as u8));
            entries.push(Sge::new(addr, 1, lkey));
        }
        if len > short {
            let (lkey, addr) = self.world.memory.place(region, at);
            entries.push(Sge::new(addr, len - short, lkey));
        }
        entries
    }

    fn post_receive(&mut self, input: &mut Input<'_>) {
        if self.world.queues.posted_receives().count() >= RECEIVES {
            return;
        }
        let [region, at, len] = input.bytes();
        let several = if region & 0xf0 == 0x60 { 1 + u32::from(region & 0x0f) } else { 1 };
        let region = if region & 0x80 != 0 { region } else { LOCAL as u8 };
        let entries = self.entries(region, at, u32::from(len), several);
        let wr = RecvWr::new(self.next_id, &entries, u32::from(len)).expect("memory for entries");
        self.world.queues.receives.push_back(wr);
        self.next_id += 1;
        self.again |= reason::RECEIVE;
    }

    /// Whatever happened, the end of the connection completes everything.
    fn finish(&mut self) {
        self.world.queues.send_cq.room = usize::MAX;
        self.world.out.set_room(usize::MAX);
        self.step(reason::DISCONNECT | reason::ROOM, 1 << 16);
        self.step(reason::ROOM | reason::POSTED | reason::RECEIVE, 1 << 16);
        self.world.check_memory();
        self.world.check_end(self.own_receives);
        // Whatever comes later changes nothing.
        self.conn.abandon(&mut self.world);
        assert_eq!(self.conn.deadline(), None);
    }
}
