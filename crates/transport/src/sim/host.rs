// SPDX-License-Identifier: BSD-3-Clause
//! The worlds of the two simulated connections: each call may fail according to the plan, or another event
//! may happen during it; then it is checked.

use super::checker::Durability;
use super::memory::PERSISTENT;
use super::plan::Disk;
use super::random::mix;
use super::world::{Side, Sim, say};
use crate::access::{Access, Denied, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::direct::{Part, WordAccess};
use crate::host::{Durable, Ended};
use crate::iwarp::link::LinkError;
use crate::policy::mode::Mode;
use crate::testing::memory::{Memory, Regions, State};
use crate::testing::queues::WorkQueue;
use crate::testing::stream::Pipe;
use crate::testing::world::{Parts, StreamWorld, World};
use crate::units::{Errno, Micros};
use crate::wr::{Completion, RecvWr, WORD, status};

/// An error number that the link fails with.
const LOST: Errno = libc::ECONNRESET;

impl Sim {
    pub(super) fn host(&mut self, me: usize) -> At<'_> {
        At { sim: self, me }
    }
}

/// The world of one of the two connections.
pub(super) struct At<'a> {
    pub sim: &'a mut Sim,
    me: usize,
}

impl World for At<'_> {
    type Memory = Regions;

    fn parts(&mut self) -> Parts<'_, Regions> {
        let side = &mut self.sim.sides[self.me];
        Parts { memory: &mut self.sim.memories[self.me], queues: &mut side.queues, batch: &mut side.batch }
    }

    fn time(&mut self) -> Micros {
        self.sim.now
    }

    fn uses(&self, call: &str) {
        let model = &self.sim.checker.sides[self.me];
        assert!(model.open && !model.closed, "side {} {call} without a link", self.me);
    }

    fn elsewhere(&mut self) {
        if self.sim.fault(self.sim.plan.inside) {
            self.sim.inside();
        }
    }

    fn failed(&mut self, access: Access, why: &dyn std::fmt::Debug, inbound: bool) {
        say!(self.sim, "side {}: {access:x?} fails: {why:?}", self.me);
        self.sim.checker.sides[self.me].causes.memory = true;
        self.side().must_end |= inbound;
    }

    fn checked(&mut self, access: Access) {
        let Some(region) = self.sim.memories[self.me].find(access.stag) else { return };
        // Such a read makes earlier writes durable, which a direct copy does not.
        if !(region == PERSISTENT && access.rights == REMOTE_READ) {
            self.side().exported[region] |= access.rights & (REMOTE_READ | REMOTE_WRITE);
        }
    }

    fn placed(&mut self, access: Access, bytes: &[u8], _directly: bool) {
        let (me, sim) = (self.me, &mut *self.sim);
        sim.checker.placed(me, access, bytes, &sim.memories);
        say!(sim, "side {me}: {} bytes placed at {:x}", bytes.len(), access.addr);
        sim.note(access.addr ^ (bytes.len() as u64) << 32);
    }

    fn changed(&mut self, access: Access, original: u64, now: u64) {
        let (me, sim) = (self.me, &mut *self.sim);
        if let Some(region) = sim.memories[me].find(access.stag) {
            sim.sides[me].exported[region] |= REMOTE_ATOMIC;
        }
        sim.checker.changed(me, access, original, now);
        say!(sim, "side {me}: {:x} was {original} and is {now}", access.addr);
        sim.note(access.addr ^ original << 32);
    }

    fn flush(&mut self, read: Access, number: u64) -> Durable {
        say!(self.sim, "side {}: flush for read {number}", self.me);
        self.sim.checker.flush_begins(self.me, number as usize, read);
        if self.sim.plan.sides[self.me].disk == Disk::Fast {
            self.sim.checker.sides[self.me].durability[number as usize] = Durability::Reported;
            return Durable::Now;
        }
        self.side().flushes.push(number);
        Durable::Later
    }

    /// The programs of the simulation bind no windows: those that are invalidated exist from the beginning.
    fn invalidate_window(&mut self, stag: u32) -> Result<(), Denied> {
        say!(self.sim, "side {}: window {stag:x} is invalidated", self.me);
        if self.sim.checker.invalidated(self.me, stag) { Ok(()) } else { Err(Denied::Stag) }
    }

    fn took_send(&mut self) {
        self.sim.checker.sides[self.me].taken += 1;
    }

    fn took_receive(&mut self, wr: Option<&RecvWr>) {
        let me = self.me;
        if let Some(wr) = wr {
            return self.sim.checker.took_receive(me, wr.clone());
        }
        let plan = &self.sim.plan.sides[me];
        self.sim.sides[me].srq_waits |= plan.shared;
        let model = &mut self.sim.checker.sides[me];
        let over = model.closed || !model.open;
        model.causes.no_receive |= !over && !plan.wait;
    }

    fn completes(&mut self, queue: WorkQueue, completion: &Completion) {
        let (me, sim) = (self.me, &mut *self.sim);
        say!(sim, "side {me} completes {} of {queue:?}: {}", completion.wr_id, completion.status);
        let read = sim.pipes[1 - me].bytes_read();
        match queue {
            WorkQueue::Send => {
                sim.checker.sides[me].send_refused = false;
                sim.checker.send_completed(me, completion, read);
            }
            WorkQueue::Receive => {
                sim.checker.sides[me].receive_refused = false;
                sim.checker.receive_completed(me, completion, read);
            }
        }
        sim.note(completion.wr_id ^ u64::from(completion.status) << 48);
        if queue == WorkQueue::Receive && completion.status == status::SUCCESS {
            sim.repost(me);
        }
    }

    fn no_room(&mut self, queue: WorkQueue) {
        let model = &mut self.sim.checker.sides[self.me];
        match queue {
            WorkQueue::Send => model.send_refused = true,
            WorkQueue::Receive => model.receive_refused = true,
        }
    }

    fn releases(&mut self) {
        let read = self.sim.pipes[1 - self.me].bytes_read();
        self.sim.checker.release_send(self.me, read);
    }

    fn is_established(&mut self) {
        say!(self.sim, "side {} is established", self.me);
        self.sim.checker.established(self.me);
    }

    fn has_ended(&mut self, _how: Ended) {
        say!(self.sim, "side {} has ended", self.me);
        let none_left = self.sim.plan.sides[self.me].shared || self.side().queues.receives.is_empty();
        self.sim.checker.ended(self.me, none_left);
    }

    fn copy_directly(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        let (me, peer) = (self.me, 1 - self.me);
        if !remote.iter().all(|access| self.is_transferable(*access)) {
            return 0;
        }
        let all = remote.iter().map(|access| access.len).sum::<usize>();
        let mut n = all;
        if n > 1 && self.sim.fault(self.sim.plan.short_transfer) {
            n = whole_words(remote, self.sim.draw.between(1, n));
        }
        if self.sim.fault(self.sim.plan.untransferred) {
            return 0;
        }
        let sim = &mut *self.sim;
        let mut bytes = Vec::new();
        for part in local {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Memory(access) => {
                    let at = bytes.len();
                    bytes.resize(at + access.len, 0);
                    if sim.memories[me].fetch(*access, &mut bytes[at..]).is_err() {
                        return 0;
                    }
                }
            }
        }
        assert_eq!(bytes.len(), all, "the ranges of both sides have one length");
        sim.transfers += 1;
        say!(sim, "side {me} transfers {n} bytes, {remote:x?}");
        let (mut done, mut requests) = (0, 0);
        for range in remote {
            let mut range = *range;
            while range.len > 0 && done < n {
                let of_request = self.sim.checker.transfers(me, range);
                let access = Access { len: of_request.min(n - done), ..range };
                if access.rights == REMOTE_WRITE {
                    let bytes = &bytes[done..][..access.len];
                    self.sim.memories[peer].store(access, bytes).expect("mapped a moment ago");
                    self.sim.host(peer).placed(access, bytes, true);
                }
                self.sim.checker.transferred(me, access.len, of_request);
                done += access.len;
                requests += 1;
                range.addr += access.len as u64;
                range.len -= access.len;
            }
        }
        self.sim.transferred_together += u64::from(requests > 1);
        n
    }

    fn access_directly(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        let (me, peer) = (self.me, 1 - self.me);
        if !self.is_transferable(remote) || self.sim.fault(self.sim.plan.untransferred) {
            return None;
        }
        let sim = &mut *self.sim;
        sim.words += 1;
        say!(sim, "side {me} accesses a word, {remote:x?}: {word:?}");
        sim.checker.transfers(me, remote);
        let changed = sim.memories[peer].change(remote, &|original| word.apply(original));
        let original = changed.expect("mapped a moment ago, and aligned");
        match word {
            WordAccess::Store(number) => sim.host(peer).placed(remote, &number.to_ne_bytes(), true),
            _ => sim.host(peer).changed(remote, original, word.apply(original)),
        }
        self.sim.checker.transferred(me, WORD, WORD);
        Some(original)
    }

    fn may_copy_directly(&self, remote: Access) -> bool {
        let is_exported = self.is_exported(remote);
        let predicted = match self.sim.plan.predictions {
            // By the keys that the peer has exported, like the driver of a real connection.
            Mode::Adaptive => is_exported,
            Mode::Never => false,
            Mode::Always => true,
            // Derived from the digest, as nothing can be drawn here.
            Mode::Random(seed) => mix(seed ^ self.sim.print ^ self.sim.actions as u64) % 2 == 0,
        };
        let wrong = &self.sim.mispredicted[usize::from(predicted)];
        wrong.set(wrong.get() + u64::from(predicted != is_exported));
        predicted
    }
}

impl StreamWorld for At<'_> {
    fn pipes(&mut self) -> (&mut Pipe, &mut Pipe) {
        let [a, b] = &mut self.sim.pipes;
        if self.me == 0 { (a, b) } else { (b, a) }
    }

    fn takes(&mut self, room: usize, _wanted: usize) -> usize {
        if self.sim.fault(self.sim.plan.blocked) {
            0
        } else if room > 0 && self.sim.fault(self.sim.plan.short_send) {
            self.sim.draw.between(1, room)
        } else {
            room
        }
    }

    fn blocked(&mut self) {
        let pipe = &mut self.sim.pipes[self.me];
        pipe.wants_room = true;
        if pipe.room() > 0 {
            // The socket is full, and reports room later.
            self.sim.report(self.me);
        }
    }

    /// The kernel stops at the fault: with the bytes before it, or without any.
    fn fails_as_a_whole(&mut self) -> bool {
        self.sim.draw.below(2) == 0
    }

    fn sent(&mut self, bytes: &[u8], taken: usize, _boundary: bool) {
        let (me, sim) = (self.me, &mut *self.sim);
        if sim.pipes[me].room() == 0 {
            sim.pipes[me].wants_room = true;
        } else if taken < bytes.len() {
            sim.report(me);
        }
        say!(sim, "side {me} sends {taken} bytes");
        sim.note(taken as u64);
        sim.handed(me, &bytes[..taken]);
        sim.spoke(me);
    }

    fn saw_end(&mut self) {
        self.sim.checker.sides[self.me].causes.end_read = true;
    }

    fn broken(&mut self, sending: bool) -> LinkError {
        self.sim.checker.sides[self.me].causes.broken = true;
        self.side().must_end |= !sending;
        LinkError::Broken(LOST)
    }

    fn received(&mut self, n: usize) {
        say!(self.sim, "side {} receives {n} bytes", self.me);
        self.sim.was_read(1 - self.me);
    }

    fn let_go(&mut self, last: Option<&[u8]>) {
        let (me, peer) = (self.me, 1 - self.me);
        say!(self.sim, "side {me} closes its link, {:?} last bytes", last.map(<[u8]>::len));
        self.sim.may_end(me);
        let whole = last.is_some() && !self.sim.pipes[me].reset && !self.sim.pipes[me].refused;
        if let (Some(last), true) = (last, whole) {
            self.sim.pipes[me].write(last);
            self.sim.handed(me, last);
        }
        self.sim.checker.closed(me, whole);
        self.sim.pipes[me].fin = true;
        let unread = self.sim.pipes[peer].unread() > 0;
        self.sim.pipes[peer].swallow();
        if last.is_none() {
            // A socket that is closed with something unread resets the connection.
            self.sim.pipes[peer].refused = true;
            if unread && !self.sim.pipes[me].reset {
                self.sim.reset();
            }
        }
        self.sim.report(peer);
    }

    fn acted_on_all(&mut self) {
        self.side().acted = self.sim.pipes[1 - self.me].bytes_read();
    }
}

impl At<'_> {
    fn side(&mut self) -> &mut Side {
        &mut self.sim.sides[self.me]
    }

    /// A request for this memory of the peer may be carried out by direct copy now.
    fn is_transferable(&self, remote: Access) -> bool {
        let (me, peer) = (self.me, 1 - self.me);
        let (model, incoming) = (&self.sim.checker.sides[peer], &self.sim.pipes[peer]);
        let is_up = model.open && !model.closed && !model.destroyed;
        is_up
            && !incoming.fin_arrived
            && !incoming.reset
            && self.sim.sides[peer].acted == self.sim.pipes[me].written() as u64
            && self.is_exported(remote)
    }

    /// The peer has exported this memory.
    fn is_exported(&self, remote: Access) -> bool {
        let (memory, side) = (&self.sim.memories[1 - self.me], &self.sim.sides[1 - self.me]);
        memory.allowed(remote).is_ok_and(|region| {
            let exported = side.exported[region] & remote.rights == remote.rights;
            memory.table[region].state == State::Mapped && exported
        })
    }
}

/// The first `n` bytes of ranges, without a part of an aligned word at the end: a copy by the kernel stops
/// where a page begins. None of them: all.
fn whole_words(ranges: &[Access], n: usize) -> usize {
    let mut before = 0;
    for range in ranges {
        if n < before + range.len {
            let cut = (range.addr as usize + n - before) % 8;
            let first = n.saturating_sub(cut).max(before);
            return if first == 0 { ranges.iter().map(|range| range.len).sum() } else { first };
        }
        before += range.len;
    }
    before
}
