// SPDX-License-Identifier: BSD-3-Clause
//! The programs above the two connections: what they post, poll and end.

use super::world::Sim;
use crate::limits::MAX_SGE;
use crate::sim::memory::{self, RECEIVES};
use crate::sim::plan::{Disk, Receives};
use crate::sim::request::Mix;
use crate::sim::world::say;
use crate::step::reason;
use crate::testing::queues::WorkQueue;
use crate::wr::{RecvWr, Sge};

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
        if self.plan.sides[me].receives == Receives::Reposted && !self.checker.sides[me].ended {
            self.post_receive(me);
        }
    }

    fn post_receive(&mut self, me: usize) {
        let index = self.sides[me].receives_posted;
        let plan = self.plan.sides[me];
        let short = self.fault(plan.short_receive);
        let longest = self.plan.sides[1 - me].mix.longest;
        let len = if short { self.draw.below(64) } else { longest };
        let mut entries = plan.mix.entries(&mut self.draw, me, RECEIVES, len, MAX_SGE);
        let is_bad = self.fault(plan.bad_receive);
        if let Some(entry) = entries.last_mut().filter(|_| is_bad) {
            *entry = Sge::new(entry.addr, entry.len, memory::stag(me, memory::READABLE));
        }
        let wr = RecvWr::new(20_000 + index as u64, &entries, len as u32).unwrap();
        say!(self, "side {me} posts receive {} of {len}", wr.wr_id);
        let side = &mut self.sides[me];
        side.queues.receives.push_back(wr);
        side.receives_posted += 1;
        if side.stalled {
            side.reasons |= reason::RECEIVE;
        }
    }

    /// Another connection takes a receive from the shared queue.
    pub(super) fn steal(&mut self, me: usize) {
        if self.plan.sides[me].shared && self.sides[me].queues.receives.pop_front().is_some() {
            self.sides[me].stolen += 1;
        }
    }

    /// Posts the next request, if there is room for it.
    pub(super) fn post(&mut self, me: usize) -> bool {
        let plan = self.plan.sides[me];
        let model = &self.checker.sides[me];
        let index = model.requests.len();
        let in_use = self.sides[me].queues.in_use();
        if !model.sends || model.destroyed || index >= plan.requests || in_use >= plan.max_send_wr as usize {
            return false;
        }
        let mix = if self.healed { Mix { bad_request: 0, ..plan.mix } } else { plan.mix };
        let last = model.requests.last().map(|posted| &posted.wr);
        let wr = mix.request(&mut self.draw, &self.memories[me], me, index, last);
        say!(self, "side {me} posts {wr:x?}");
        self.checker.posted(me, wr.clone());
        self.sides[me].queues.sends.push_back(wr);
        self.sides[me].reasons |= reason::POSTED;
        true
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

    pub(super) fn disconnect(&mut self, me: usize) {
        if !self.checker.sides[me].destroyed && self.checker.sides[me].open {
            say!(self, "side {me} disconnects");
            self.sides[me].reasons |= reason::DISCONNECT;
        }
    }

    /// The program destroys its queue pair, or its process ends.
    pub(super) fn destroy(&mut self, me: usize) {
        let Some(mut conn) = self.conns[me].take() else { return };
        say!(self, "side {me} destroys its queue pair");
        conn.abandon(&mut self.host(me));
        let model = &mut self.checker.sides[me];
        (model.disconnected, model.destroyed) = (true, true);
        self.sides[me].timer = None;
        self.leave(me);
    }
}
