// SPDX-License-Identifier: BSD-3-Clause
//! The programs above the two connections: what they post, poll and end.

use super::checker::Durability;
use super::memory::RECEIVES;
use super::plan::{Disk, Receives};
use super::request::Mix;
use super::world::{Sim, say};
use crate::host::Host;
use crate::iwarp::conn::Offered;
use crate::limits::MAX_SGE;
use crate::step::reason;
use crate::testing::queues::WorkQueue;
use crate::wr::{Op, RecvWr, SendWr};

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

    /// Posts a receive if the program of this schedule does so at this time.
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
        let entries = self.plan.sides[me].mix.entries(&mut self.draw, me, RECEIVES, len, MAX_SGE);
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
        let is_idle = self.sides[me].reasons == 0 && self.sides[me].queues.sends.len() == 1;
        if !(is_idle && self.plan.transfers && self.draw.below(2) == 0 && self.carry_out(me)) {
            self.sides[me].reasons |= reason::POSTED;
        }
        true
    }

    /// The driver offers the only posted request to the connection before it is taken. False if that does not
    /// complete it.
    fn carry_out(&mut self, me: usize) -> bool {
        let Some(mut conn) = self.conns[me].take() else { return false };
        let mut host = self.host(me);
        let wr = host.next_send().expect("it was posted");
        let offered = conn.carry_out(&mut host, &wr);
        let is_message = wr.op == Op::Send;
        match offered {
            Offered::Complete => self.carried_out += u64::from(!is_message),
            Offered::Taken => {}
            Offered::Refused => {
                self.sides[me].queues.give_back();
                self.checker.sides[me].taken -= 1;
            }
        }
        self.sent_alone += u64::from(is_message && offered != Offered::Refused);
        self.conns[me] = Some(conn);
        offered == Offered::Complete
    }

    fn request(&mut self, me: usize, index: usize) -> SendWr {
        let plan = &self.plan.sides[me];
        let last = self.checker.sides[me].requests.last().map(|posted| &posted.wr);
        let mix = if self.healed { Mix { bad_request: 0, ..plan.mix } } else { plan.mix };
        let wr = mix.request(&mut self.draw, &self.memories[me], me, index, last);
        if wr.is_answered() && plan.framing.ord == 0 {
            self.checker.sides[me].causes.no_reads = true;
        }
        wr
    }

    /// Polls one of the completion queues.
    pub(super) fn poll(&mut self, me: usize, which: usize, most: usize) -> bool {
        let side = &mut self.sides[me];
        let (count, waiting) = side.queues.poll([WorkQueue::Send, WorkQueue::Receive][which], most);
        side.reasons |= if waiting { reason::ROOM } else { 0 };
        count > 0
    }

    /// Any one of the flushes to persistence ends.
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
        self.checker.sides[me].causes.disconnected = true;
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
