// SPDX-License-Identifier: BSD-3-Clause
//! The harness of the fuzz target `ud`: a queue pair of type UD, which receives arbitrary packets from any
//! sender.
//!
//! The queues of [`super::queues`] assert that requests and receives complete once and in order; asserted
//! here is that only bytes of receives change, that no more datagrams succeed than have arrived with the
//! Q_Key, that packets sent are well-formed, that no packet ends the queue pair, and that all is complete
//! when the program ends it.

use std::sync::Arc;

use super::connection::input::Input;
use super::memory::{Region, State};
use super::packets::Packets;
use super::queues::request;
use super::recorder::{BASE, Call, Recorder};
use crate::access::LOCAL_WRITE;
use crate::roce::ud::{Terms, Ud};
use crate::roce::wire::{
    Bth, DEFAULT_PKEY, Deth, Extension, IP_HEADER_LEN, Opcode, Operation, Packet, PathMtu, Psn,
};
use crate::route::Route;
use crate::step::{Budget, Quota, reason};
use crate::wr::{Destination, Local, OWN_QKEY, Op, RecvWr, SendWr, Sge, status};

const MTU: PathMtu = PathMtu::Mtu256;
const DEPTH: u32 = 4;
const RECEIVES: usize = 4;
const NUMBER: u32 = 0x11_0001;

/// Of the program: what it sends and where it receives.
const OWN: u32 = 0x101;
/// Of the program, which only reads it.
const READABLE: u32 = 0x202;
/// The bytes of each region, in this order, with as many between them that belong to none.
const LEN: usize = 0x1000;

fn address(region: u8) -> (u32, u64) {
    if region % 2 == 0 { (OWN, BASE + LEN as u64) } else { (READABLE, BASE + 3 * LEN as u64) }
}

/// One queue pair to its end.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.bytes::<2>();
    let mut run = Run::new(choice);
    while !input.is_empty() {
        run.act(&mut input);
        run.check();
    }
    run.finish();
}

struct Run {
    qp: Ud,
    host: Recorder<Packets>,
    own_receives: bool,
    qkey: u32,
    /// Reasons for the next step.
    again: u32,
    next_id: u64,
    /// Datagrams that had the Q_Key when they were processed, and receives that have succeeded.
    good: usize,
    succeeded: usize,
    /// A send has failed, and the program has not moved the queue pair to RTS.
    is_failed: bool,
    /// The program has ended it, or has made the memory of a receive inaccessible.
    may_end: bool,
    before: Vec<u8>,
}

impl Run {
    fn new(choice: [u8; 2]) -> Self {
        let own_receives = choice[0] & 1 == 0;
        let qkey = u32::from(choice[1]);
        let mut qp = Ud::new(NUMBER, DEPTH, own_receives).expect("memory for a queue pair");
        qp.receive(Terms { mtu: MTU, qkey });
        if choice[0] & 2 == 0 {
            qp.send(Psn::new(0xff_fffe));
        }
        let mut host = Recorder::new(Packets::default());
        let rights = [LOCAL_WRITE, 0];
        host.memory.table = (0u8..2)
            .map(|region| {
                let (stag, addr) = address(region);
                let rights = rights[usize::from(region)];
                Region { stag, addr, len: LEN, rights, state: State::Mapped }
            })
            .collect();
        host.queues.drops_messages = true;
        let before = host.memory.bytes.clone();
        Self {
            qp,
            host,
            own_receives,
            qkey,
            again: reason::POSTED,
            next_id: 0,
            good: 0,
            succeeded: 0,
            is_failed: false,
            may_end: false,
            before,
        }
    }

    fn step(&mut self, why: u32, operations: usize) {
        let quota = Quota { bytes: usize::MAX, operations };
        let arrived = self.host.link.arrived.clone();
        let before = self.host.link.sent.len();
        let stepped = self.qp.step(&mut self.host, why | self.again, Budget { send: quota, receive: quota });
        self.again = if stepped.again { reason::AGAIN } else { 0 };
        let taken = arrived.len() - self.host.link.arrived.len();
        self.good += arrived.iter().take(taken).filter(|packet| is_good(packet, self.qkey)).count();
        for packet in &self.host.link.sent[before..] {
            let packet = Packet::parse(packet).expect("a packet that is well-formed");
            let (Extension::Deth(deth) | Extension::DethImm(deth, _)) = packet.extension else {
                panic!("{packet:?}")
            };
            assert!(deth.source_qp == NUMBER && packet.payload.len() <= MTU.bytes(), "{packet:?}");
        }
        for call in std::mem::take(&mut self.host.calls) {
            match call {
                Call::RecvDone(completion) => {
                    self.succeeded += usize::from(completion.status == status::SUCCESS);
                }
                Call::SendFailed => self.is_failed = true,
                _ => {}
            }
        }
        assert!(self.succeeded <= self.good, "a datagram succeeds without the Q_Key");
        assert!(self.may_end || self.qp.is_open(), "the queue pair has ended");
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        match kind & 15 {
            0 | 1 => self.post(input),
            2 | 3 => self.post_receive(input),
            4..=7 => self.arrive(input, kind & 0x70 == 0x10),
            8 => {
                let bytes = input.take(usize::from(kind >> 4) * 8 + 12).to_vec();
                self.host.link.arrived.push_back(bytes);
                self.step(reason::READABLE, 20);
            }
            9 => {
                let why = u32::from(input.byte()) & (reason::ALL & !reason::DISCONNECT);
                self.step(why, 1 + usize::from(kind >> 4));
            }
            10 if self.is_failed => {
                self.is_failed = false;
                self.qp.resume();
                self.host.queues.resume();
                self.step(reason::POSTED, 20);
            }
            11 => {
                let room = input.byte();
                self.host.link.room = (room < 200).then_some(usize::from(room & 7));
                self.again |= reason::WRITABLE;
            }
            12 => {
                self.host.queues.send_cq.room = usize::from(input.byte() & 3);
                self.host.queues.recv_cq.room = usize::from(input.byte() & 3);
                self.again |= reason::ROOM;
            }
            13 => {
                // What has arrived is processed with the Q_Key that it has met.
                self.step(reason::READABLE, usize::MAX);
                self.qkey = u32::from(input.byte());
                self.qp.set_qkey(self.qkey);
            }
            14 => {
                let state = [State::Mapped, State::Unmapped, State::Deregistered, State::Foreign];
                self.host.memory.table[0].state = state[usize::from(kind >> 4) % 4];
                self.may_end = true;
            }
            _ => {
                self.qp.drain(kind & 16 != 0);
                self.qp.send(Psn::new(u32::from(kind)));
                self.step(reason::POSTED, 20);
            }
        }
    }

    /// A datagram arrives: often a right one.
    fn arrive(&mut self, input: &mut Input<'_>, is_changed: bool) {
        let [len, flags, qkey] = input.bytes();
        let deth = Deth {
            qkey: if flags & 0xe0 == 0 { u32::from(qkey) } else { self.qkey },
            source_qp: 0x22_0000 + u32::from(qkey),
        };
        let extension =
            if flags & 1 == 0 { Extension::Deth(deth) } else { Extension::DethImm(deth, [1, 2, 3, 4]) };
        let operation = if flags & 1 == 0 { Operation::SendOnly } else { Operation::SendOnlyImm };
        let len = usize::from(len) * 2;
        let pad = (len.next_multiple_of(4) - len) as u8;
        let bth = Bth {
            pkey: if flags & 0x1c == 0x1c { 0x1234 } else { DEFAULT_PKEY },
            solicited: flags & 2 != 0,
            pad,
            ..Bth::new(Opcode::Ud(operation), NUMBER, Psn::new(u32::from(qkey)))
        };
        let mut packet = vec![if flags & 0x80 == 0 { 0x45 } else { 0x60 }; IP_HEADER_LEN];
        packet.extend_from_slice(&Packet::encode_headers(&bth, &extension));
        packet.resize(packet.len() + len + usize::from(pad), flags);
        if is_changed {
            let [at, value] = input.bytes();
            if let Some(byte) = packet.get_mut(usize::from(at)) {
                *byte = value;
            }
        }
        self.host.link.arrived.push_back(packet);
        if flags & 0x10 == 0 {
            self.step(reason::READABLE, 20);
        }
    }

    fn post(&mut self, input: &mut Input<'_>) {
        if self.host.queues.requests().count() >= DEPTH as usize {
            return;
        }
        let [what, flags, at, len] = input.bytes();
        // Now and then an operation that datagrams do not have, or no destination.
        let op = match what % 16 {
            0 => Op::Write,
            1 => Op::Read,
            2..=8 => Op::SendWithImm,
            _ => Op::Send,
        };
        let local = [10, 80, 0, 1].into();
        let peer = [10, 80, 0, what >> 6].into();
        let route = Route { local, peer, scope: 0, traffic_class: 0, hop_limit: 64 };
        let qkey = u32::from(at) | if flags & 8 == 0 { 0 } else { OWN_QKEY };
        let to = Destination { route: Arc::new(route), qp: 0x22_0002, qkey };
        let (lkey, addr) = address(u8::from(flags & 0xc0 == 0xc0));
        let addr = addr + u64::from(at) * 8;
        // Up to twice the MTU.
        let len = u32::from(len) * 2;
        self.next_id += 1;
        self.host.queues.sends.push_back(SendWr {
            solicited: flags & 4 != 0,
            local: Local::memory(&[Sge::new(addr, len, lkey)]).expect("an entry"),
            len,
            to: (flags & 0x30 != 0x30).then_some(to),
            ..request(self.next_id, op, flags & 1 == 0)
        });
        self.again |= reason::POSTED;
    }

    fn post_receive(&mut self, input: &mut Input<'_>) {
        if self.host.queues.posted_receives().count() >= RECEIVES {
            return;
        }
        let [at, len] = input.bytes();
        let (lkey, addr) = address(0);
        let (addr, len) = (addr + u64::from(at) * 8, u32::from(len) * 4);
        // It may be behind the end, which fails the queue pair when it is used.
        self.may_end |= addr + u64::from(len) > address(0).1 + LEN as u64;
        self.next_id += 1;
        self.host.queues.receives.push_back(RecvWr::one(self.next_id, addr, len, lkey));
        self.again |= reason::RECEIVE;
    }

    fn check(&self) {
        let now = &self.host.memory.bytes;
        let own = LEN..2 * LEN;
        assert!(now[..own.start] == self.before[..own.start], "memory in front of that of receives");
        assert!(now[own.end..] == self.before[own.end..], "memory behind that of receives");
    }

    fn finish(&mut self) {
        self.may_end = true;
        self.host.link.room = None;
        (self.host.queues.send_cq.room, self.host.queues.recv_cq.room) = (1 << 20, 1 << 20);
        self.step(reason::DISCONNECT | reason::WRITABLE | reason::ROOM, 20);
        for _ in 0..10_000 {
            if self.again == 0 {
                break;
            }
            self.step(0, 20);
        }
        assert!(self.again == 0 && self.qp.is_over(), "the queue pair does not come to its end");
        let queues = &self.host.queues;
        assert!(queues.ended && queues.requests().count() == 0, "a request is not complete");
        let left =
            if self.own_receives { queues.posted_receives().count() } else { queues.taken_receives.len() };
        assert_eq!(left, 0, "a receive is not complete");
        self.check();
    }
}

/// Whether a packet is a datagram for the queue pair with this Q_Key.
fn is_good(packet: &[u8], qkey: u32) -> bool {
    let parsed = packet.get(IP_HEADER_LEN..).map(Packet::parse);
    let Some(Ok(Packet { extension: Extension::Deth(deth) | Extension::DethImm(deth, _), .. })) = parsed
    else {
        return false;
    };
    deth.qkey == qkey
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_inputs() {
        crate::testing::random_inputs(4_000, 600, super::run);
    }
}
