// SPDX-License-Identifier: BSD-3-Clause
//! The programs above the two connections: what they post, poll and end.

use super::checker::Durability;
use super::memory::{self, COUNTERS, PERSISTENT, PERSISTENT_LEN, READABLE, RECEIVES, SINKS, SOURCE, WORDS};
use super::plan::{Disk, Receives};
use super::world::{Sim, say};
use crate::limits::{MAX_INLINE, MAX_SGE};
use crate::step::reason;
use crate::testing::queues::WorkQueue;
use crate::wr::{Entries, Local, Op, RecvWr, SendWr, Sge};

const OPS: [Op; 8] = [
    Op::Write,
    Op::WriteWithImm,
    Op::Read,
    Op::Send,
    Op::SendWithImm,
    Op::SendWithInv,
    Op::FetchAdd,
    Op::CompareSwap,
];
/// The longest request, and what a receive has room for.
pub(super) const LONGEST: usize = 400;

impl Sim {
    /// The receives that a program has posted before anything arrives.
    pub(super) fn first_receives(&mut self, me: usize) {
        let needed = self.plan.sides[1 - me].requests;
        let count = match self.plan.sides[me].receives {
            Receives::Early => needed,
            Receives::Reposted => needed.min(2),
            Receives::Late => 0,
            Receives::TooFew => self.draw.below(needed / 2 + 1),
        };
        (0..count).for_each(|_| self.post_receive(me));
    }

    /// Posts a receive if the program is one that does so now.
    pub(super) fn receive_if_late(&mut self, me: usize) -> bool {
        let late = self.plan.sides[me].receives == Receives::Late || self.healed;
        let needed = self.plan.sides[1 - me].requests + self.sides[me].stolen;
        if !late || self.sides[me].receives_posted >= needed || self.checker.sides[me].destroyed {
            return false;
        }
        self.post_receive(me);
        true
    }

    /// A program that keeps up posts a receive for each that was completed.
    pub(super) fn repost(&mut self, me: usize) {
        if self.plan.sides[me].receives == Receives::Reposted && !self.checker.sides[me].closed {
            self.post_receive(me);
        }
    }

    pub(super) fn post_receive(&mut self, me: usize) {
        let index = self.sides[me].receives_posted;
        let short = self.fault(self.plan.sides[me].short_receive);
        let len = if short { self.draw.below(64) } else { LONGEST };
        let entries = self.entries(me, RECEIVES, len, MAX_SGE);
        let wr = RecvWr::new(20_000 + index as u64, &entries, len as u32).unwrap();
        say!(self, "side {me} posts receive {} of {len}", wr.wr_id);
        let shared = self.plan.sides[me].shared;
        let side = &mut self.sides[me];
        side.queues.receives.push_back(wr);
        side.receives_posted += 1;
        if if shared { std::mem::take(&mut side.srq_waits) } else { side.stalled } {
            side.reasons |= reason::RECEIVE;
        }
    }

    /// Where a request or a receive of `len` bytes has them: in one place of a region, or in several.
    fn entries(&mut self, me: usize, region: usize, len: usize, most: usize) -> Entries {
        let scattered = self.draw.chance(self.plan.sides[me].scatter);
        let count = if scattered { self.draw.between(1, most) } else { 1 };
        let mut entries = Entries::new();
        let mut left = len;
        for i in 0..count {
            // Some are empty: those are left out, as they are when a program posts them.
            let some = if i + 1 == count { left } else { self.draw.below(left + 1) };
            let from = self.draw.below(memory::len(region) - some + 1) as u64;
            if some > 0 {
                entries.push(Sge::new(
                    memory::base(me, region) + from,
                    some as u32,
                    memory::stag(me, region),
                ));
            }
            left -= some;
        }
        entries
    }

    /// Another connection takes a receive from the shared queue.
    pub(super) fn steal(&mut self, me: usize) -> bool {
        if !self.plan.sides[me].shared || self.sides[me].queues.receives.pop_front().is_none() {
            return false;
        }
        self.sides[me].stolen += 1;
        true
    }

    /// Posts the next request, if there is room for it.
    pub(super) fn post(&mut self, me: usize) -> bool {
        let plan = &self.plan.sides[me];
        let model = &self.checker.sides[me];
        let index = model.requests.len();
        if !model.open
            || model.destroyed
            || index >= plan.requests
            || self.sides[me].queues.in_use() >= plan.max_send_wr as usize
        {
            return false;
        }
        let wr = self.request(me, index);
        say!(self, "side {me} posts {wr:x?}");
        self.posted(me, wr);
        self.sides[me].reasons |= reason::POSTED;
        true
    }

    fn request(&mut self, me: usize, index: usize) -> SendWr {
        let plan = self.plan.sides[me];
        let draw = &mut self.draw;
        let last = self.checker.sides[me].requests.last().map(|posted| posted.wr.clone());
        let last = last.filter(|last| matches!(last.op, Op::Write | Op::Read) && draw.chance(plan.alike));
        let op = loop {
            let op = last.as_ref().map_or_else(|| OPS[draw.below(OPS.len())], |last| last.op);
            if last.is_some()
                || OPS.iter().position(|one| *one == op).is_some_and(|i| plan.opcodes & 1 << i != 0)
            {
                break op;
            }
        };
        let mut len = match draw.below(4) {
            0 => draw.below(17),
            1 => 8 * draw.below(9),
            _ => draw.below(plan.longest + 1),
        }
        .min(plan.longest);
        let atomic = matches!(op, Op::FetchAdd | Op::CompareSwap);
        if atomic {
            len = 8;
        }
        let peer = 1 - me;
        let persistent = match &last {
            Some(last) => last.rkey == memory::stag(peer, PERSISTENT),
            None => op != Op::WriteWithImm && !atomic && draw.below(3) == 0,
        };
        let region = match op {
            _ if persistent => PERSISTENT,
            Op::Read => READABLE,
            _ if atomic => COUNTERS,
            _ => memory::WRITABLE,
        };
        let is_send = matches!(op, Op::Send | Op::SendWithImm | Op::SendWithInv);
        if persistent && !is_send {
            len = len.min(if op == Op::Read { 16 } else { PERSISTENT_LEN });
        }
        let room = (memory::len(region) - len.min(memory::len(region))) / 4;
        let at = if atomic { 8 * draw.below(WORDS) } else { 4 * draw.below(room + 1) };
        let mut remote_addr = memory::base(peer, region) + at as u64;
        let mut rkey = memory::stag(peer, region);
        let own = if op == Op::Read || atomic { SINKS } else { SOURCE };
        let inline = own == SOURCE && len <= MAX_INLINE && draw.chance(plan.inline);
        let mut entries = self.entries(me, own, len, if atomic { 1 } else { MAX_SGE });
        if let Some(last) = last.filter(|_| self.draw.below(2) == 0) {
            // It goes on where that one ended, at the peer and maybe here.
            let next = last.remote_addr.wrapping_add(u64::from(last.len));
            let end = memory::base(peer, region) + memory::len(region) as u64;
            if last.rkey == rkey && next.checked_add(len as u64).is_some_and(|next| next <= end) {
                remote_addr = next;
            }
            if let Local::Memory { addr, lkey } = last.local {
                // That one may have been out of bounds.
                let (next, begin) = (addr + u64::from(last.len), memory::base(me, own));
                let is_within = begin <= next && next + len as u64 <= begin + memory::len(own) as u64;
                if lkey == memory::stag(me, own) && len > 0 && is_within {
                    entries = Entries::from_iter([Sge::new(next, len as u32, lkey)]);
                }
            }
        }
        let contents = inline.then(|| {
            let bytes_of = |entry: &Sge| self.memories[me].at(entry.addr, entry.len as usize);
            let bytes: Vec<u8> = entries.iter().flat_map(bytes_of).copied().collect();
            Local::inline(&bytes).unwrap()
        });
        if op == Op::SendWithInv {
            rkey = memory::window(peer, index);
        }
        if !self.healed && self.draw.chance(plan.bad_request) {
            match self.draw.below(8) {
                0 => rkey = 0x999,
                1 => remote_addr = memory::base(peer, region) + memory::len(region) as u64,
                2 => remote_addr = u64::MAX - 3,
                3 => rkey = memory::stag(peer, RECEIVES),
                7 if atomic => remote_addr += 4,
                wrong if !entries.is_empty() => {
                    let which = self.draw.below(entries.len());
                    let Sge { addr, len, .. } = entries[which];
                    entries[which] = match wrong {
                        4 => Sge::new(addr, len, 0x998),
                        5 => Sge::new(memory::base(me, own) - 4, len, memory::stag(me, own)),
                        _ => Sge::new(addr, len, memory::stag(me, SOURCE)),
                    };
                }
                _ => {}
            }
        }
        let draw = &mut self.draw;
        // Few different values, so that a comparison succeeds now and then.
        let (compare_add, swap) = (draw.below(3) as u64, draw.below(3) as u64);
        let contents = match entries.first() {
            Some(sink) if atomic => {
                Some(Local::Atomic { addr: sink.addr, lkey: sink.lkey(), compare_add, swap })
            }
            _ => contents,
        };
        if (op == Op::Read || atomic) && plan.framing.ord == 0 {
            self.checker.sides[me].causes.no_reads = true;
        }
        SendWr {
            wr_id: 10_000 + index as u64,
            op,
            signaled: !draw.chance(plan.unsignaled),
            fence: draw.chance(plan.fence),
            solicited: draw.below(2) == 0,
            imm: (index as u32 * 77 + me as u32).to_be_bytes(),
            local: contents.unwrap_or_else(|| Local::memory(&entries).unwrap()),
            len: len as u32,
            remote_addr,
            rkey,
        }
    }

    /// Polls one of the completion queues.
    pub(super) fn poll(&mut self, me: usize, which: usize, most: usize) -> bool {
        let side = &mut self.sides[me];
        let (count, waiting) = side.queues.poll([WorkQueue::Send, WorkQueue::Receive][which], most);
        side.reasons |= if waiting { reason::ROOM } else { 0 };
        count > 0
    }

    /// A flush to persistence is over, whichever.
    pub(super) fn disk(&mut self, me: usize) -> bool {
        let count = self.sides[me].flushes.len();
        if count == 0 {
            return false;
        }
        let which = self.draw.below(count);
        let number = self.sides[me].flushes.swap_remove(which);
        let fails = !self.healed && self.plan.sides[me].disk == Disk::Failing && self.draw.below(2) == 0;
        say!(self, "side {me}: flush {number} is over: {}", !fails);
        self.sides[me].flushed.push((number, !fails));
        self.sides[me].reasons |= reason::DURABLE;
        true
    }

    /// The driver hands over which flushes have ended.
    pub(super) fn report_flushed(&mut self, me: usize, number: u64, durable: bool) {
        let model = &mut self.checker.sides[me];
        if durable {
            model.durability[number as usize] = Durability::Reported;
        } else {
            model.causes.disk = true;
        }
    }

    pub(super) fn disconnect(&mut self, me: usize) -> bool {
        if self.conns[me].is_none() && !self.stepping(me) {
            return false;
        }
        say!(self, "side {me} disconnects");
        self.sides[me].reasons |= reason::DISCONNECT;
        true
    }

    /// The program destroys its queue pair.
    pub(super) fn destroy(&mut self, me: usize) -> bool {
        let Some(mut conn) = self.conns[me].take() else { return false };
        say!(self, "side {me} destroys its queue pair");
        self.checker.sides[me].causes.told = true;
        conn.abandon(&mut self.host(me));
        self.checker.sides[me].destroyed = true;
        if !self.checker.sides[me].open {
            // The link was not the connection's yet.
            self.reset();
        }
        true
    }

    /// The process of a closed connection is over, and its socket with it.
    pub(super) fn exit(&mut self, me: usize) -> bool {
        if !self.checker.sides[me].closed || self.pipes[1 - me].refused {
            return false;
        }
        say!(self, "the socket of side {me} is gone");
        self.pipes[1 - me].refused = true;
        if !self.pipes[me].fin_arrived {
            self.pipes[me].cut();
        }
        self.report(1 - me);
        true
    }
}
