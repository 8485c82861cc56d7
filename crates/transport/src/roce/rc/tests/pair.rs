// SPDX-License-Identifier: BSD-3-Clause
//! Two connections and the network between them.

use crate::access::{FLUSH_GLOBAL, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::policy::mode::Mode;
use crate::roce::rc::{Rc, ReceiveTerms, SendTerms};
use crate::roce::wire::{DEFAULT_PKEY, Opcode, Operation, Packet, PathMtu, Psn};
use crate::step::{Budget, Quota, Stepped, reason};
use crate::testing::packets::Packets;
use crate::testing::queues::request;
use crate::testing::recorder::{BASE, Call, Recorder, STAG};
use crate::wr::{Completion, Local, Op, RecvWr, SendWr, Sge};

pub(super) const MTU: usize = 256;
/// The local ACK timeout: code 14.
pub(super) const TIMEOUT_US: u64 = 67_108;
const NUMBERS: [u32; 2] = [0x11_0001, 0x22_0002];
/// PSNs that wrap around soon.
pub(super) const FIRST: [u32; 2] = [0xff_fffa, 0x00_0010];

const ACCESS: u32 =
    LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT;

/// What happens to a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    Lost,
    Twice,
}

pub(super) struct Pair {
    pub conns: [Rc; 2],
    pub hosts: [Recorder<Packets>; 2],
    /// Operations that were carried, by sender.
    pub carried: [Vec<Operation>; 2],
}

/// A request with payload at an offset of the memory, and a remote offset.
pub(super) fn wr(id: u64, op: Op, local: u64, len: u32, remote: u64) -> SendWr {
    let memory = Local::memory(&[Sge::new(BASE + local, len, STAG)]).unwrap();
    SendWr {
        imm: [1, 2, 3, 4],
        local: memory,
        len,
        remote_addr: BASE + remote,
        rkey: STAG,
        ..request(id, op, true)
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(|_, _| {})
    }

    pub(super) fn with(change: impl Fn(&mut ReceiveTerms, &mut SendTerms)) -> Self {
        Self::in_mode(Mode::Adaptive, change)
    }

    pub(super) fn in_mode(mode: Mode, change: impl Fn(&mut ReceiveTerms, &mut SendTerms)) -> Self {
        let mut conns = NUMBERS.map(|num| Rc::new(num, 16, true, mode).unwrap());
        for (me, conn) in conns.iter_mut().enumerate() {
            let mut path = ReceiveTerms {
                mtu: PathMtu::Mtu256,
                dest_qp: NUMBERS[1 - me],
                pkey: DEFAULT_PKEY,
                rq_psn: Psn::new(FIRST[1 - me]),
                reads: 4,
                rnr_timer: 14,
                access: ACCESS,
            };
            let mut terms =
                SendTerms { sq_psn: Psn::new(FIRST[me]), timeout: 14, retries: 7, rnr_retries: 7, reads: 4 };
            change(&mut path, &mut terms);
            conn.receive(path).unwrap();
            conn.send(terms);
        }
        let hosts = [(); 2].map(|()| Recorder::new(Packets::default()));
        Self { conns, hosts, carried: Default::default() }
    }

    pub(super) fn post(&mut self, me: usize, wr: SendWr) {
        self.hosts[me].queues.sends.push_back(wr);
    }

    pub(super) fn post_receive(&mut self, me: usize, id: u64, at: u64, len: u32) {
        self.hosts[me].queues.receives.push_back(RecvWr::one(id, BASE + at, len, STAG));
    }

    pub(super) fn step(&mut self, me: usize, why: u32) {
        self.step_within(me, why, usize::MAX);
    }

    /// A step with a budget of so many operations in each direction.
    pub(super) fn step_within(&mut self, me: usize, why: u32, operations: usize) -> Stepped {
        let quota = Quota { bytes: usize::MAX, operations };
        self.conns[me].step(&mut self.hosts[me], why, Budget { send: quota, receive: quota })
    }

    /// Carries what `from` has sent.
    pub(super) fn carry(&mut self, from: usize, fate: &mut impl FnMut(usize, Operation) -> Fate) -> bool {
        let sent = std::mem::take(&mut self.hosts[from].link.sent);
        let any = !sent.is_empty();
        for packet in sent {
            let parsed = Packet::parse(&packet).unwrap();
            assert_eq!(parsed.bth.dest_qp, NUMBERS[1 - from]);
            let Opcode::Rc(operation) = parsed.bth.opcode else { panic!("{:?}", parsed.bth) };
            self.carried[from].push(operation);
            let times = match fate(from, operation) {
                Fate::Arrives => 1,
                Fate::Lost => 0,
                Fate::Twice => 2,
            };
            for _ in 0..times {
                self.hosts[1 - from].link.arrived.push_back(packet.clone());
            }
        }
        any
    }

    /// Steps and carries until nothing moves.
    pub(super) fn settle_with(&mut self, mut fate: impl FnMut(usize, Operation) -> Fate) {
        for _ in 0..1_000 {
            (0..2).for_each(|me| self.step(me, reason::POSTED | reason::READABLE));
            let moved = (0..2).filter(|&me| self.carry(me, &mut fate)).count();
            if moved == 0 {
                return;
            }
        }
        panic!("packets without an end");
    }

    pub(super) fn settle(&mut self) {
        self.settle_with(|_, _| Fate::Arrives);
    }

    /// Both sides use another link.
    pub(super) fn change_link(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.link.has_changed = true);
    }

    /// Lets the next timer of a side expire; false if there is none.
    pub(super) fn expire(&mut self, me: usize) -> bool {
        let Some(deadline) = self.conns[me].deadline() else { return false };
        self.hosts.iter_mut().for_each(|host| host.now = host.now.max(deadline));
        self.step(me, reason::TIME);
        true
    }

    /// Loses everything that a side sends until its connection has ended.
    pub(super) fn lose_until_the_end(&mut self, me: usize) {
        while !self.conns[me].is_over() {
            assert!(self.expire(me), "no timer");
            self.carry(me, &mut |_, _| Fate::Lost);
        }
    }

    /// The completions of requests and of receives since the last call, as id and status.
    pub(super) fn done(&mut self, me: usize) -> Vec<(u64, u32)> {
        self.completions(me).into_iter().map(|done| (done.wr_id, done.status)).collect()
    }

    pub(super) fn completions(&mut self, me: usize) -> Vec<Completion> {
        let calls = std::mem::take(&mut self.hosts[me].calls);
        let done = |call| match call {
            Call::SendDone(done) | Call::RecvDone(done) => Some(done),
            _ => None,
        };
        calls.into_iter().filter_map(done).collect()
    }

    pub(super) fn bytes(&self, me: usize, at: u64, len: usize) -> &[u8] {
        self.hosts[me].bytes(BASE + at, len)
    }

    /// Fills memory of a side with a pattern.
    pub(super) fn fill(&mut self, me: usize, at: usize, len: usize, seed: u8) {
        for (i, byte) in self.hosts[me].memory.bytes[at..][..len].iter_mut().enumerate() {
            *byte = seed.wrapping_add((i * 7 + i / 256) as u8);
        }
    }
}
