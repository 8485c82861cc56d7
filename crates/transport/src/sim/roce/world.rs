// SPDX-License-Identifier: BSD-3-Clause
//! Two connections, the network between them, memory and queues around them.

use super::checker::{Checker, Model};
use super::network::Network;
use super::pace::Pace;
use super::plan::{NUMBERS, Plan};
use super::shared::Shared;
use crate::access::{Access, Denied, FLUSH_GLOBAL, FLUSH_PERSISTENT, REMOTE_READ};
use crate::direct::{Part, WordAccess};
use crate::host::{Durable, Ended};
use crate::roce::link::Dropped;
use crate::roce::rc::Rc;
use crate::roce::wire::{Operation, Packet};
use crate::sim::memory::{self, PERSISTENT};
use crate::sim::plan::Disk;
use crate::sim::random::Draw;
use crate::sim::world::say;
use crate::step::reason;
use crate::testing::memory::{Memory, Placement, Regions};
use crate::testing::packets::PacketWorld;
use crate::testing::queues::{Queues, WorkQueue};
use crate::testing::world::{Parts, World};
use crate::units::Micros;
use crate::wr::{Completion, Op, RecvWr};

/// The driver of one connection, and the program above it.
#[derive(Default)]
pub(super) struct Side {
    /// Reasons for a step.
    pub reasons: u32,
    pub stalled: bool,
    /// The link takes nothing.
    pub blocked: bool,
    /// The ring of shared memory takes nothing until the peer has taken something.
    pub awaits_peer: bool,
    /// The link has had no room for packets, of this connection or of another one.
    pub has_lost: bool,
    pub receives_posted: usize,
    /// Receives that other connections have taken from the shared queue.
    pub stolen: usize,
    pub timer: Option<Micros>,
    pub batch: Vec<Placement>,
    pub queues: Queues,
    pub flushes: Vec<u64>,
    pub flushed: Vec<(u64, bool)>,
    pub pace: Pace,
}

pub(super) struct Sim {
    pub conns: [Option<Rc>; 2],
    pub sides: [Side; 2],
    /// By sender.
    pub networks: [Network; 2],
    pub shared: Shared,
    pub memories: [Regions; 2],
    pub checker: Checker,
    pub plan: Plan,
    pub draw: Draw,
    pub now: Micros,
    /// Phase 2: no faults any more.
    pub healed: bool,
    /// A corrupted packet was delivered.
    pub forged: bool,
    pub actions: usize,
    /// A digest of all that happened.
    pub print: u64,
    pub trace: bool,
    /// Direct copies, in all schedules.
    pub copies: u64,
    /// Words accessed directly.
    pub words: u64,
    /// How often a side moved to shared memory, and left it, in all schedules.
    pub moves: u64,
    pub leaves: u64,
    /// Completions of requests by status, in all schedules.
    pub statuses: [u64; 32],
}

impl Sim {
    pub(super) fn empty(trace: bool) -> Self {
        let mut draw = Draw::new(0);
        Self {
            conns: [None, None],
            sides: Default::default(),
            networks: Default::default(),
            shared: Shared::default(),
            memories: [memory::new(0), memory::new(1)],
            checker: Checker::default(),
            plan: Plan::new(&mut draw),
            draw,
            now: 0,
            healed: false,
            forged: false,
            actions: 0,
            print: 0,
            trace,
            copies: 0,
            words: 0,
            moves: 0,
            leaves: 0,
            statuses: [0; 32],
        }
    }

    /// Starts from nothing but a seed; only large allocations are kept.
    pub(super) fn begin(&mut self, plan: Plan, draw: Draw) {
        (self.plan, self.draw) = (plan, draw);
        (self.now, self.healed, self.forged, self.actions, self.print) = (1_000, false, false, 0, 0);
        self.checker.begin();
        self.shared.begin();
        let is_exact = self.plan.duplicate == 0 && self.plan.delay == 0 && self.plan.late == 0;
        for (me, side) in self.sides.iter_mut().enumerate() {
            let of = &self.plan.sides[me];
            let queues = Queues::new(of.send_cq, of.recv_cq, of.one_cq);
            *side = Side { queues, pace: Pace::new(of, is_exact), ..Side::default() };
            self.networks[me].begin();
            memory::begin(&mut self.memories[me], me);
            self.conns[me] =
                Some(Rc::new(NUMBERS[me], of.max_send_wr, !of.shared, self.plan.policy).unwrap());
        }
    }

    pub(super) fn note(&mut self, what: u64) {
        self.print = (self.print ^ what).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// A fault with this rate happens now.
    pub(super) fn fault(&mut self, rate: u32) -> bool {
        !self.healed && self.draw.chance(rate)
    }

    /// A fault of the network or the driver, which may cost a retry.
    pub(super) fn trouble(&mut self, rate: u32) -> bool {
        let happens = self.fault(rate);
        self.checker.faults += u64::from(happens);
        happens
    }

    /// The replies of a side are late because its link is full, which may cost its peer a retry.
    pub(super) fn is_late(&mut self, me: usize) {
        self.checker.sides[1 - me].late_replies += 1;
    }

    /// Whether a side exports this memory to its peer.
    fn is_exported(&self, me: usize, access: Access) -> bool {
        let model = &self.checker.sides[me];
        let shares = self.shared.is_inside(0) && self.shared.is_inside(1);
        // A read of a region for flush to persistence must find earlier writes durable.
        let needs_owner = access.rights == REMOTE_READ && access.stag == memory::stag(me, PERSISTENT);
        shares
            && model.open
            && !model.is_over()
            && !needs_owner
            && self.plan.sides[me].path.access & access.rights == access.rights
            && self.memories[me].is_mapped(access)
    }

    pub(super) fn host(&mut self, me: usize) -> At<'_> {
        At { sim: self, me }
    }

    /// A packet of side `from` departs.
    fn depart(&mut self, from: usize, packet: &[u8]) {
        if self.fault(self.plan.lose) {
            say!(self, "that packet is lost");
            self.checker.loses(1);
            return;
        }
        let copies = if self.trouble(self.plan.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let delayed = self.trouble(self.plan.delay);
            let delay = if delayed { 1 << self.draw.below(20) } else { 0 };
            self.networks[from].depart(self.now + delay, delayed || copies > 1, packet.to_vec());
        }
    }

    /// A side can move to the memory, in its next step: it accepts an offer, or finds the answer to its own.
    pub(super) fn accept_memory(&mut self, me: usize) -> bool {
        let can_use = |model: &Model| model.open && !model.destroyed;
        let is_accepted =
            self.plan.one_host && self.checker.sides.iter().all(can_use) && self.shared.accept(me);
        if is_accepted {
            say!(self, "side {me} accepts shared memory");
            self.sides[me].reasons |= reason::READABLE;
        }
        is_accepted
    }

    /// Whether a side moves to shared memory in this step.
    pub(super) fn moves(&mut self, me: usize) -> bool {
        let moves = self.shared.moves(me);
        if moves {
            say!(self, "side {me} moves to shared memory");
            self.sides[me].blocked = false;
            self.sides[1 - me].reasons |= reason::READABLE;
            self.moves += 1;
        }
        moves
    }

    /// The memory fails for this side now.
    fn may_leave(&mut self, me: usize) {
        if self.shared.is_inside(me) && self.fault(self.plan.leave) {
            self.leave(me);
        }
    }

    /// A side returns to the network, or ends. The sender of lost packets may need a retry.
    pub(super) fn leave(&mut self, me: usize) {
        say!(self, "side {me} leaves shared memory");
        self.leaves += u64::from(self.shared.is_inside(me));
        self.checker.loses(self.shared.leave(me));
        self.sides[me].awaits_peer = false;
        if self.shared.is_inside(1 - me) {
            self.sides[1 - me].reasons |= reason::READABLE | reason::WRITABLE;
        }
    }

    /// Whether the ring of a side takes a packet.
    fn has_room(&self, me: usize) -> bool {
        self.shared.waiting(me) < self.plan.sides[1 - me].buffer
    }

    fn put(&mut self, me: usize, packet: &[u8]) {
        let arrives = self.shared.put(me, packet);
        self.checker.loses(usize::from(!arrives));
        self.sides[1 - me].reasons |= reason::READABLE;
    }

    /// The next packet for a side in shared memory, which it leaves at its end.
    fn take_shared(&mut self, me: usize) -> Option<Vec<u8>> {
        if self.shared.is_over(me) {
            self.leave(me);
        }
        let packet = self.shared.take(me)?;
        if std::mem::take(&mut self.sides[1 - me].awaits_peer) {
            self.sides[1 - me].reasons |= reason::WRITABLE;
        }
        Some(packet)
    }

    /// A packet of side `from` arrives; false when there is none.
    pub(super) fn arrive(&mut self, from: usize) -> bool {
        let count = self.networks[from].arrivals(self.now);
        if count == 0 {
            return false;
        }
        let reordered = count > 1 && self.trouble(self.plan.reorder);
        let which = if reordered { self.draw.below(count) } else { 0 };
        let has_nak = self.networks[from].has_nak(self.now, which);
        let Some((mut packet, is_late)) = self.networks[from].take(self.now, which) else { return false };
        // It may trouble a request that was posted since.
        self.checker.faults += u64::from(is_late);
        // A NAK is ignored after an ACK of the packet that it requests, and a repeated packet that overtakes
        // another one is dropped without a further NAK.
        let hides_gap = has_nak || self.sides.iter().any(|side| side.pace.again > 0);
        self.checker.losses += u64::from((reordered || is_late) && hides_gap);
        let to = 1 - from;
        if self.fault(self.plan.corrupt) {
            self.checker.loses(1);
            if !self.plan.forge || self.draw.below(4) > 0 {
                return true;
            }
            say!(self, "a corrupted packet is delivered");
            for _ in 0..self.draw.between(1, 4) {
                let at = self.draw.below(packet.len().min(40));
                packet[at] ^= 1 << self.draw.below(8);
            }
            self.forged = true;
        }
        let full = self.networks[from].arrived.len() >= self.plan.sides[to].buffer && !self.healed;
        let model = &self.checker.sides[to];
        if full || !model.open || model.destroyed {
            self.checker.loses(1);
            self.sides[to].has_lost |= full;
            return true;
        }
        self.networks[from].arrived.push_back(packet);
        self.sides[to].reasons |= reason::READABLE;
        true
    }
}

/// The world of one of the two connections.
pub(super) struct At<'a> {
    pub sim: &'a mut Sim,
    me: usize,
}

impl At<'_> {
    /// The model is compared: no corrupted packet was delivered.
    fn is_checked(&self) -> bool {
        !self.sim.forged
    }
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
        assert!(model.open && !model.destroyed, "side {} {call} without a queue pair", self.me);
    }

    fn elsewhere(&mut self) {
        self.sim.may_leave(self.me);
        if self.sim.fault(self.sim.plan.inside) {
            self.sim.inside();
        }
    }

    fn failed(&mut self, access: Access, why: &dyn std::fmt::Debug, _inbound: bool) {
        say!(self.sim, "side {}: {access:x?} fails: {why:?}", self.me);
        self.sim.checker.failed(self.me, access);
    }

    fn placed(&mut self, access: Access, bytes: &[u8], _directly: bool) {
        say!(self.sim, "side {}: {access:x?} is placed", self.me);
        if self.is_checked() {
            self.sim.checker.placed(self.me, access, bytes, &self.sim.memories, &self.sim.plan);
        }
        self.sim.note(access.addr ^ access.len as u64);
    }

    fn stored(&mut self, access: Access, word: [u8; 8]) {
        say!(self.sim, "side {}: {word:x?} is stored at {access:x?}", self.me);
        if self.is_checked() {
            self.sim.checker.stored(self.me, access, word, &self.sim.memories, &self.sim.plan);
        }
        self.sim.note(access.addr);
    }

    fn changed(&mut self, access: Access, original: u64, now: u64) {
        say!(self.sim, "side {}: {access:x?} changes from {original} to {now}", self.me);
        if self.is_checked() {
            self.sim.checker.changed(self.me, access, original, now, &self.sim.plan);
        }
    }

    fn checked(&mut self, access: Access) {
        if self.is_checked() && access.rights & (FLUSH_GLOBAL | FLUSH_PERSISTENT) != 0 {
            self.sim.checker.flushed(self.me, access, &self.sim.plan);
        }
    }

    fn flush(&mut self, _access: Access, number: u64) -> Durable {
        let is_fast = self.sim.plan.sides[self.me].disk == Disk::Fast;
        self.sim.checker.flush_begins(self.me, (!is_fast).then_some(number));
        if is_fast {
            return Durable::Now;
        }
        self.sim.sides[self.me].flushes.push(number);
        Durable::Later
    }

    fn invalidate_window(&mut self, stag: u32) -> Result<(), Denied> {
        if !self.is_checked() {
            return Err(Denied::Stag);
        }
        let checker = &mut self.sim.checker;
        checker.invalidates(self.me, stag, &self.sim.plan);
        // A program may have posted something else.
        let model = &checker.sides[1 - self.me];
        if stag != memory::window(self.me, model.executing) {
            return Err(Denied::Stag);
        }
        checker.invalidated(self.me);
        Ok(())
    }

    fn took_receive(&mut self, wr: Option<&RecvWr>) {
        say!(self.sim, "side {} takes {wr:x?}", self.me);
        if self.is_checked() {
            self.sim.checker.took_receive(self.me, wr);
        }
    }

    fn completes(&mut self, queue: WorkQueue, completion: &Completion) {
        say!(self.sim, "side {}: {queue:?} {completion:x?}", self.me);
        self.sim.note(completion.wr_id << 8 | u64::from(completion.status));
        if queue == WorkQueue::Send {
            self.sim.statuses[completion.status as usize] += 1;
        }
        if self.is_checked() {
            match queue {
                WorkQueue::Send => self.sim.checker.completes_send(self.me, completion, &self.sim.plan),
                WorkQueue::Receive => self.sim.checker.completes_receive(self.me, completion),
            }
        }
        if queue == WorkQueue::Receive {
            self.sim.repost(self.me);
        }
    }

    fn no_room(&mut self, queue: WorkQueue) {
        if queue == WorkQueue::Receive {
            self.sim.checker.sides[self.me].is_not_ready();
        }
    }

    fn releases(&mut self) {
        if self.is_checked() {
            self.sim.checker.succeeds(self.me);
        }
    }

    fn has_ended(&mut self, how: Ended) {
        say!(self.sim, "side {} has ended: {how:?}", self.me);
        self.sim.checker.sides[self.me].ended = true;
    }

    fn copy_directly(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        let (me, peer) = (self.me, 1 - self.me);
        let sim = &mut *self.sim;
        if !sim.plan.direct || sim.forged || sim.draw.below(4) == 0 {
            return 0;
        }
        if !remote.iter().all(|access| sim.is_exported(peer, *access)) {
            return 0;
        }
        let is_read = remote.iter().all(|access| access.rights == REMOTE_READ);
        let mut bytes = Vec::new();
        let fetch = |bytes: &mut Vec<u8>, memory: &mut Regions, access: Access| {
            let at = bytes.len();
            bytes.resize(at + access.len, 0);
            memory.fetch(access, &mut bytes[at..]).is_ok()
        };
        let places: Vec<Access> = match is_read {
            true => {
                let own = local.iter().filter_map(|part| match part {
                    Part::Memory(access) => Some(*access),
                    Part::Bytes(_) => None,
                });
                remote
                    .iter()
                    .all(|access| fetch(&mut bytes, &mut sim.memories[peer], *access))
                    .then(|| own.collect())
            }
            false => {
                let fetched = local.iter().all(|part| match part {
                    Part::Memory(access) => fetch(&mut bytes, &mut sim.memories[me], *access),
                    Part::Bytes(part) => {
                        bytes.extend_from_slice(part);
                        true
                    }
                });
                fetched.then(|| remote.to_vec())
            }
        }
        .unwrap_or_default();
        let host = if is_read { me } else { peer };
        let is_there = |access: &Access| sim.memories[host].is_mapped(*access);
        if places.is_empty() || !places.iter().all(is_there) {
            return 0;
        }
        say!(sim, "side {me} copies {remote:x?} directly");
        let mut done = 0;
        for mut place in places {
            while place.len > 0 {
                let left = self.sim.checker.left(me, is_read);
                let access = Access { len: place.len.min(left), ..place };
                let bytes = &bytes[done..][..access.len];
                self.sim.memories[host].store(access, bytes).expect("mapped a moment ago");
                self.sim.host(host).placed(access, bytes, true);
                done += access.len;
                place.addr += access.len as u64;
                place.len -= access.len;
            }
        }
        self.sim.copies += 1;
        done
    }

    fn access_directly(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        let (me, peer) = (self.me, 1 - self.me);
        let sim = &mut *self.sim;
        let may = sim.plan.direct && !sim.forged && sim.draw.below(4) > 0;
        if !may || !sim.is_exported(peer, remote) {
            return None;
        }
        sim.words += 1;
        say!(sim, "side {me} accesses a word, {remote:x?}: {word:?}");
        let changed = sim.memories[peer].change(remote, &|original| word.apply(original));
        let original = changed.expect("mapped a moment ago, and aligned");
        let op = sim.checker.next_op(me);
        let mut host = sim.host(peer);
        match word {
            WordAccess::Store(number) if op == Some(Op::AtomicWrite) => {
                host.stored(remote, number.to_ne_bytes());
            }
            WordAccess::Store(number) => host.placed(remote, &number.to_ne_bytes(), true),
            _ => host.changed(remote, original, word.apply(original)),
        }
        Some(original)
    }

    fn may_copy_directly(&self, remote: Access) -> bool {
        self.sim.plan.direct && self.sim.is_exported(1 - self.me, remote)
    }
}

impl PacketWorld for At<'_> {
    fn transmit(&mut self, packet: &[u8]) -> bool {
        let parsed = Packet::parse(packet).expect("a packet");
        let is_shared = self.sim.shared.is_inside(self.me);
        if is_shared && !self.sim.has_room(self.me) {
            self.sim.sides[self.me].awaits_peer = true;
            return false;
        }
        if !is_shared && (self.sim.sides[self.me].blocked || self.sim.fault(self.sim.plan.blocked)) {
            if !std::mem::replace(&mut self.sim.sides[self.me].blocked, true) {
                self.sim.is_late(self.me);
            }
            if parsed.bth.opcode.operation().is_some_and(Operation::is_request) {
                self.sim.sides[self.me].pace.is_refused(self.sim.now);
            }
            return false;
        }
        say!(
            self.sim,
            "side {} sends {:?} {:x?}, {} bytes",
            self.me,
            parsed.bth,
            parsed.extension,
            parsed.payload.len()
        );
        let now = self.sim.now;
        if self.is_checked() {
            self.sim.sides[self.me].pace.sends(self.me, &parsed, now);
        }
        self.sim.note(u64::from(parsed.bth.psn.get()));
        match is_shared {
            true => self.sim.put(self.me, packet),
            false => self.sim.depart(self.me, packet),
        }
        true
    }

    fn arrive(&mut self) -> Option<Vec<u8>> {
        let packet = match self.sim.take_shared(self.me) {
            Some(packet) => packet,
            None => self.sim.networks[1 - self.me].arrived.pop_front()?,
        };
        if let Ok(parsed) = Packet::parse(&packet) {
            say!(
                self.sim,
                "side {} takes {:?} {:x?}, {} bytes",
                self.me,
                parsed.bth,
                parsed.extension,
                parsed.payload.len()
            );
            self.sim.sides[self.me].pace.takes(&parsed, self.sim.now);
        }
        Some(packet)
    }

    fn link_has_changed(&mut self) -> bool {
        let has_changed = self.sim.shared.has_changed(self.me);
        if has_changed {
            self.sim.sides[self.me].pace.changes_link();
            self.sim.checker.has_changed = true;
        }
        has_changed
    }

    fn is_room_of_peer(&self) -> bool {
        self.sim.shared.is_inside(self.me)
    }

    /// The NAK for what may be lost can cost a retry.
    fn has_lost(&mut self) -> bool {
        let side = &mut self.sim.sides[self.me];
        let has_lost = std::mem::take(&mut side.has_lost);
        side.pace.losses += u64::from(has_lost);
        self.sim.checker.faults += u64::from(has_lost);
        has_lost
    }

    /// A lack of room is a fault like a loss.
    fn dropped(&mut self, why: Dropped) {
        self.sim.checker.faults += u64::from(why == Dropped::Overflow);
    }

    /// In every other schedule.
    fn follows(&mut self) -> Option<usize> {
        let arrived = self.sim.networks[1 - self.me].arrived.front();
        let next = self.sim.shared.next(self.me).or(arrived).map(Vec::len);
        next.filter(|_| self.sim.plan.actions % 2 == 0)
    }
}
