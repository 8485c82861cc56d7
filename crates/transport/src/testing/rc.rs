// SPDX-License-Identifier: BSD-3-Clause
//! The harness of the fuzz targets `rc` and `uc`: a RoCE connection, reliable or unreliable, whose peer, or
//! an attacker on the path, sends arbitrary packets.
//!
//! Two connections exchange packets, so that PSNs, messages and reads are those of a real peer. The input
//! changes, repeats, drops and adds packets to the first one. The queues of [`super::queues`] assert that
//! requests and receives complete once and in order; asserted here is that only permitted bytes change, that
//! packets sent are well-formed and within the budget, and that all requests complete when the connection
//! ends.

use super::connection::input::Input;
use super::memory::{Region, State};
use super::packets::Packets;
use super::recorder::{BASE, Recorder};
use crate::access::{FLUSH_GLOBAL, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::host::Durable;
use crate::policy::mode::Mode;
use crate::roce::rc::{Rc, ReceiveTerms, SendTerms};
use crate::roce::uc::Uc;
use crate::roce::wire::{DEFAULT_PKEY, Opcode, PSN_AT, Packet, PathMtu, Psn, psn_of};
use crate::step::{Budget, Connection, Quota, reason};
use crate::wr::{Local, Op, RecvWr, SendWr, Sge};

const MTU: usize = 256;
const DEPTH: u32 = 4;
const RECEIVES: usize = 4;
const NUMBERS: [u32; 2] = [0x11_0001, 0x22_0002];

/// For the peer: reads, writes and atomic operations.
const OPEN: u32 = 0x101;
/// For the peer: reads. Its bytes never change.
const READABLE: u32 = 0x202;
/// Of the program alone: receives and what its requests use.
const OWN: u32 = 0x303;
/// The bytes of each region, in this order, with as many between them that belong to none.
const LEN: usize = 0x1000;
/// What may change: the first region and the third.
const CHANGES: [std::ops::Range<usize>; 2] = [LEN..2 * LEN, 5 * LEN..6 * LEN];

fn address(region: u8) -> (u32, u64) {
    match region % 3 {
        0 => (OPEN, BASE + LEN as u64),
        1 => (READABLE, BASE + 3 * LEN as u64),
        _ => (OWN, BASE + 5 * LEN as u64),
    }
}

/// A connection under test.
pub trait Tested: Connection<Recorder<Packets>> + Sized {
    /// In RTS.
    fn open(num: u32, own_receives: bool, path: ReceiveTerms, terms: SendTerms) -> Self;
    /// Whether this is an opcode of its service.
    fn has(opcode: Opcode) -> bool;
    /// A receive may fail with its message alone.
    fn drops_messages(own_receives: bool) -> bool;
    /// From SQE to RTS.
    fn resume(&mut self);
}

impl Tested for Rc {
    fn open(num: u32, own_receives: bool, path: ReceiveTerms, terms: SendTerms) -> Self {
        let mut conn = Self::new(num, DEPTH, own_receives, Mode::Adaptive).expect("memory for a connection");
        conn.receive(path).expect("memory for a connection");
        conn.send(terms);
        conn
    }

    fn has(opcode: Opcode) -> bool {
        matches!(opcode, Opcode::Rc(_))
    }

    fn drops_messages(_own_receives: bool) -> bool {
        false
    }

    fn resume(&mut self) {
        unreachable!("a reliable connection never enters SQE")
    }
}

impl Tested for Uc {
    fn open(num: u32, own_receives: bool, path: ReceiveTerms, terms: SendTerms) -> Self {
        let mut conn = Self::new(num, DEPTH, own_receives).expect("memory for a connection");
        conn.receive(path);
        conn.send(terms.sq_psn);
        conn
    }

    fn has(opcode: Opcode) -> bool {
        matches!(opcode, Opcode::Uc(_))
    }

    fn drops_messages(own_receives: bool) -> bool {
        !own_receives
    }

    fn resume(&mut self) {
        self.resume();
    }
}

/// One connection to its end.
pub fn run<C: Tested>(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.bytes::<4>();
    let mut run = Run::<C>::new(choice);
    while !input.is_empty() {
        run.act(&mut input);
        run.check();
    }
    run.finish();
}

struct Run<C> {
    conns: [C; 2],
    hosts: [Recorder<Packets>; 2],
    own_receives: bool,
    /// Reasons for the next step, from the last one or from what has happened since.
    again: [u32; 2],
    next_id: u64,
    /// What never changes, of the first side.
    before: Vec<u8>,
    flushes: Vec<u64>,
    /// In SQE.
    has_failed: [bool; 2],
}

impl<C: Tested> Run<C> {
    fn new(choice: [u8; 4]) -> Self {
        let own_receives = choice[0] & 1 == 0;
        let first = [0xff_fff0 + u32::from(choice[1]), u32::from(choice[2]) << 16];
        let conns = [0, 1].map(|me| {
            let path = ReceiveTerms {
                mtu: PathMtu::Mtu256,
                dest_qp: NUMBERS[1 - me],
                pkey: DEFAULT_PKEY,
                rq_psn: Psn::new(first[1 - me]),
                reads: 1 + u16::from(choice[3] & 3),
                rnr_timer: choice[3] >> 3,
                access: LOCAL_WRITE
                    | REMOTE_WRITE
                    | REMOTE_READ
                    | REMOTE_ATOMIC
                    | FLUSH_GLOBAL
                    | FLUSH_PERSISTENT,
            };
            let terms = SendTerms {
                sq_psn: Psn::new(first[me]),
                timeout: choice[0] >> 3,
                retries: choice[2] & 7,
                rnr_retries: choice[1] & 7,
                reads: 1 + u16::from(choice[3] & 3),
            };
            C::open(NUMBERS[me], own_receives, path, terms)
        });
        let hosts = [(); 2].map(|()| {
            let mut host = Recorder::new(Packets::default());
            let all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL;
            let flush = if choice[0] & 2 != 0 { FLUSH_PERSISTENT } else { 0 };
            let rights = [all | flush, REMOTE_READ, LOCAL_WRITE];
            host.memory.table = (0u8..3)
                .map(|region| {
                    let (stag, addr) = address(region);
                    let rights = rights[usize::from(region)];
                    Region { stag, addr, len: LEN, rights, state: State::Mapped }
                })
                .collect();
            host.queues.drops_messages = C::drops_messages(own_receives);
            host.durable = if choice[0] & 4 != 0 { Durable::Later } else { Durable::Now };
            host
        });
        let before = hosts[0].memory.bytes.clone();
        let again = [reason::POSTED; 2];
        Self {
            conns,
            hosts,
            own_receives,
            again,
            next_id: 0,
            before,
            flushes: Vec::new(),
            has_failed: [false; 2],
        }
    }

    fn step(&mut self, me: usize, why: u32, operations: usize) {
        let quota = Quota { bytes: usize::MAX, operations };
        let (conn, host) = (&mut self.conns[me], &mut self.hosts[me]);
        let before = host.link.sent.len();
        let stepped = conn.step(host, why | self.again[me], Budget { send: quota, receive: quota });
        self.again[me] = if stepped.again { reason::AGAIN } else { 0 };
        let sent = host.link.sent.len() - before;
        // The step in which it ends has the budget twice.
        assert!(sent <= 2 * operations, "{sent} packets in a step of {operations}");
        for packet in &host.link.sent[before..] {
            let packet = Packet::parse(packet).expect("a packet that is well-formed");
            assert_eq!(packet.bth.dest_qp, NUMBERS[1 - me]);
            assert!(packet.payload.len() <= MTU && C::has(packet.bth.opcode));
        }
        for call in std::mem::take(&mut host.calls) {
            match call {
                super::recorder::Call::Flushed(_, number) if me == 0 => self.flushes.push(number),
                super::recorder::Call::Flushed(_, number) => {
                    self.conns[1].durable(&mut self.hosts[1], number, true);
                    self.again[1] |= reason::DURABLE;
                }
                super::recorder::Call::SendFailed => self.has_failed[me] = true,
                _ => {}
            }
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let me = usize::from(kind >> 7);
        match kind & 15 {
            0 | 1 => self.post(me, input),
            2 => self.post_receive(me, input),
            3..=5 => self.carry(1, input, kind & 0x70 == 0x10),
            6 => self.carry(1, input, true),
            7 | 8 => self.carry(0, input, false),
            9 => self.step(
                me,
                u32::from(input.byte()) & (reason::ALL & !reason::DISCONNECT),
                1 + usize::from(kind >> 4),
            ),
            10 => {
                if let Some(deadline) = self.conns[me].deadline() {
                    self.hosts.iter_mut().for_each(|host| host.now = host.now.max(deadline));
                    self.step(me, reason::TIME, 100);
                }
            }
            11 => {
                let room = input.byte();
                self.hosts[me].link.room = (room < 200).then_some(usize::from(room & 7));
                self.again[me] |= reason::WRITABLE;
            }
            12 => {
                self.hosts[me].queues.send_cq.room = usize::from(input.byte() & 3);
                self.hosts[me].queues.recv_cq.room = usize::from(input.byte() & 3);
                self.again[me] |= reason::ROOM;
            }
            13 => {
                let bytes = input.take(usize::from(kind >> 4) * 8 + 12).to_vec();
                self.hosts[0].link.arrived.push_back(bytes);
                self.step(0, reason::READABLE, 20);
            }
            14 => self.memory(input),
            _ => {
                if let Some(number) = self.flushes.pop() {
                    self.conns[0].durable(&mut self.hosts[0], number, kind & 16 == 0);
                    self.step(0, reason::DURABLE, 20);
                } else if kind & 0x70 == 0x70 {
                    self.step(me, reason::DISCONNECT, 20);
                }
            }
        }
    }

    /// Takes the next packet that a side has sent to the other one.
    fn carry(&mut self, from: usize, input: &mut Input<'_>, changes: bool) {
        self.step(from, reason::POSTED | reason::READABLE, 20);
        let sent = &mut self.hosts[from].link.sent;
        let count = sent.len().min(usize::from(input.byte() % 8) + 1);
        let mut packets: Vec<Vec<u8>> = sent.drain(..count).collect();
        if changes {
            if let Some(packet) = packets.first().cloned() {
                packets.insert(usize::from(input.byte()) % 2, change(packet, input));
            }
        }
        if from == 1 && input.byte() % 8 == 0 && !packets.is_empty() {
            packets.remove(0);
        }
        self.hosts[1 - from].link.arrived.extend(packets);
        self.step(1 - from, reason::READABLE, 20);
    }

    fn post(&mut self, me: usize, input: &mut Input<'_>) {
        if self.hosts[me].queues.requests().count() >= DEPTH as usize {
            return;
        }
        let is_flushed = self.hosts[me].queues.requests().count() == 0;
        if is_flushed && std::mem::take(&mut self.has_failed[me]) {
            self.conns[me].resume();
            self.hosts[me].queues.resume();
        }
        let [what, flags, local, remote, len] = input.bytes();
        let op = match what % 8 {
            0 if what & 0x80 != 0 => Op::Flush,
            1 if what & 0x80 != 0 => Op::AtomicWrite,
            0 | 1 => Op::Write,
            2 => Op::WriteWithImm,
            3 => Op::Read,
            4 => Op::FetchAdd,
            5 => Op::CompareSwap,
            6 => Op::SendWithImm,
            _ => Op::Send,
        };
        let is_atomic = matches!(op, Op::FetchAdd | Op::CompareSwap);
        let range = u32::from(len) * 4;
        let len = match op {
            Op::Flush => 0,
            _ if is_atomic || op == Op::AtomicWrite => 8,
            _ => range,
        };
        // Now and then memory that does not permit it, and that is behind the end.
        let (lkey, addr) = address(if flags & 0xc0 == 0xc0 { local } else { 2 });
        let addr = addr + u64::from(local) * 8;
        let (rkey, remote_addr) = address(if flags & 0x30 == 0x30 { remote } else { 0 });
        let local = match is_atomic {
            _ if op == Op::Flush => {
                Local::Flush { len: range, rights: FLUSH_GLOBAL << (flags & 1), whole: flags & 8 != 0 }
            }
            true => Local::Atomic { addr, lkey, compare_add: u64::from(what), swap: 7 },
            false => Local::memory(&[Sge::new(addr, len, lkey)]).expect("an entry"),
        };
        self.next_id += 1;
        let host = &mut self.hosts[me];
        host.queues.sends.push_back(SendWr {
            wr_id: self.next_id,
            op,
            signaled: flags & 1 == 0,
            fence: flags & 2 != 0,
            solicited: flags & 4 != 0,
            imm: [1, 2, 3, 4],
            local,
            len,
            remote_addr: remote_addr + u64::from(remote) * 8,
            rkey,
            to: None,
        });
        self.again[me] |= reason::POSTED;
    }

    fn post_receive(&mut self, me: usize, input: &mut Input<'_>) {
        if self.hosts[me].queues.posted_receives().count() >= RECEIVES {
            return;
        }
        let [at, len] = input.bytes();
        let (lkey, addr) = address(2);
        self.next_id += 1;
        let wr = RecvWr::one(self.next_id, addr + u64::from(at) * 8, u32::from(len) * 8, lkey);
        self.hosts[me].queues.receives.push_back(wr);
        self.again[me] |= reason::RECEIVE;
    }

    /// A region is deregistered, not mapped any more, or as it was.
    fn memory(&mut self, input: &mut Input<'_>) {
        let byte = input.byte();
        let state = [State::Mapped, State::Unmapped, State::Deregistered, State::Foreign];
        let region = usize::from(byte >> 4) % 3;
        self.hosts[0].memory.table[region].state = state[usize::from(byte & 3)];
    }

    fn check(&self) {
        let now = &self.hosts[0].memory.bytes;
        let mut from = 0;
        for range in CHANGES {
            assert!(now[from..range.start] == self.before[from..range.start], "memory that is not writable");
            from = range.end;
        }
        assert!(now[from..] == self.before[from..], "memory that is not writable");
    }

    fn finish(&mut self) {
        for me in 0..2 {
            self.hosts[me].link.room = None;
            let queues = &mut self.hosts[me].queues;
            (queues.send_cq.room, queues.recv_cq.room) = (1 << 20, 1 << 20);
            self.step(me, reason::DISCONNECT | reason::WRITABLE | reason::ROOM, 20);
            for _ in 0..10_000 {
                if self.again[me] == 0 {
                    break;
                }
                self.step(me, 0, 20);
            }
            assert_eq!(self.again[me], 0, "the connection does not come to its end");
            assert!(self.conns[me].is_over() && self.conns[me].deadline().is_none());
            let queues = &self.hosts[me].queues;
            assert!(queues.ended && queues.requests().count() == 0, "a request is not complete");
            let receives = if self.own_receives {
                queues.posted_receives().count()
            } else {
                queues.taken_receives.len()
            };
            assert_eq!(receives, 0, "a receive is not complete");
        }
        self.check();
    }
}

/// A packet as an attacker on the path makes it of another one.
fn change(mut packet: Vec<u8>, input: &mut Input<'_>) -> Vec<u8> {
    for _ in 0..=input.byte() % 3 {
        let [what, value] = input.bytes();
        let service = packet.first().map_or(0, |opcode| opcode & 0xe0);
        let psn = psn_of(&packet).map_or(0, Psn::get);
        let mut set = |at: usize, value: u8| {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        };
        match what % 10 {
            // The opcode, mostly of the same service.
            0 | 1 => set(0, if what & 0x80 == 0 { service | (value % 32) } else { value }),
            // The PSN: near, or anywhere.
            2 | 3 => {
                let delta = i32::from(value as i8) << if what & 0x80 == 0 { 0 } else { 16 };
                let psn = psn.wrapping_add_signed(delta).to_be_bytes();
                (1..4).for_each(|i| set(PSN_AT - 1 + i, psn[i]));
            }
            // Pad and flags, the P_Key, and that an acknowledgement is requested.
            4 => set([1, 2, 3, 8][usize::from(what >> 4) % 4], value),
            // An extension header: an address, a key, a length, a syndrome.
            5 | 6 => set(12 + usize::from(what >> 3), value),
            7 => packet.truncate(usize::from(value)),
            8 => packet.resize(packet.len() + usize::from(value) * 4, what),
            _ => {
                // A key and an address that are right.
                let (key, addr) = address(value);
                let reth = [&(addr + u64::from(what)).to_be_bytes()[..], &key.to_be_bytes()].concat();
                for (i, byte) in reth.into_iter().enumerate() {
                    set(12 + i, byte);
                }
            }
        }
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::roce::rc::Rc;
    use crate::roce::uc::Uc;

    #[test]
    fn random_inputs() {
        crate::testing::random_inputs(2_000, 600, |bytes| {
            run::<Rc>(bytes);
            run::<Uc>(bytes);
        });
    }
}
