// SPDX-License-Identifier: BSD-3-Clause
//! What a step of a simulated connection finds around it.

use super::checker::Durability;
use super::memory::{PERSISTENT, Region, stag};
use super::plan::{Disk, Predictions};
use super::random::mix;
use super::world::{Side, Sim, say};
use crate::access::{Access, Bind, Denied, REMOTE_READ, REMOTE_WRITE, Unchanged, Unreachable};
use crate::host::{Durable, Host, LinkError, Part};
use crate::testing::stream::Found;
use crate::units::Errno;
use crate::units::Micros;
use crate::wr::{Completion, RecvWr, SendWr, status};

/// An error number that the link fails with.
const LOST: Errno = libc::ECONNRESET;

impl Sim {
    pub(super) fn host(&mut self, me: usize) -> At<'_> {
        At { sim: self, me }
    }
}

/// The host of one of the two connections.
pub(super) struct At<'a> {
    pub sim: &'a mut Sim,
    me: usize,
}

impl At<'_> {
    fn side(&mut self) -> &mut Side {
        &mut self.sim.sides[self.me]
    }

    /// Something else may happen here, in the middle of a step.
    fn elsewhere(&mut self) {
        if self.sim.fault(self.sim.plan.inside) {
            self.sim.inside();
        }
    }

    fn up(&self, what: &str) {
        let model = &self.sim.checker.sides[self.me];
        assert!(model.open && !model.closed, "side {} {what} without a link", self.me);
    }

    fn failed<E>(&mut self, error: E) -> E {
        self.sim.checker.sides[self.me].causes.memory = true;
        self.side().must_end = true;
        error
    }

    fn allowed(&mut self, access: Access) -> Result<usize, Denied> {
        let checked = self.sim.memories[self.me].check(access);
        checked.map_err(|denied| {
            say!(self.sim, "side {}: {access:x?} denied: {denied:?}", self.me);
            self.failed(denied)
        })
    }

    fn broken(&mut self) -> LinkError {
        self.sim.checker.sides[self.me].causes.broken = true;
        LinkError::Broken(LOST)
    }

    /// Bytes reach their place.
    fn put(&mut self, access: Access, region: usize, bytes: &[u8]) {
        let (me, sim) = (self.me, &mut *self.sim);
        sim.checker.placed(me, region, access, bytes, &sim.memories);
        if region == PERSISTENT {
            let at = (access.addr - super::memory::base(me, region)) as usize;
            sim.memories[me].persistent[at..at + bytes.len()].copy_from_slice(bytes);
        }
        say!(sim, "side {me}: {} bytes placed at {:x}", bytes.len(), access.addr);
        sim.note(access.addr ^ (bytes.len() as u64) << 32);
    }

    fn found(&mut self) -> Result<usize, LinkError> {
        match self.sim.pipes[1 - self.me].look() {
            Found::Bytes(n) => Ok(n),
            Found::End => {
                self.sim.checker.sides[self.me].causes.end_read = true;
                Ok(0)
            }
            Found::Nothing => Err(LinkError::Blocked),
            Found::Reset => {
                self.side().must_end = true;
                Err(self.broken())
            }
        }
    }
}

impl Host for At<'_> {
    fn now(&mut self) -> Micros {
        self.sim.now
    }

    fn send(&mut self, parts: &[Part<'_>], _boundary: bool) -> Result<usize, LinkError> {
        self.up("sends");
        self.elsewhere();
        let me = self.me;
        for (i, part) in parts.iter().enumerate() {
            if let Part::Memory(access) = part {
                if let Err(denied) = self.sim.memories[me].check(*access) {
                    self.sim.checker.sides[me].causes.memory = true;
                    return Err(LinkError::Memory(i, Unreachable::Denied(denied)));
                }
            }
        }
        if self.sim.pipes[me].refused || self.sim.pipes[me].reset {
            return Err(self.broken());
        }
        let mut room = self.sim.pipes[me].room();
        if self.sim.fault(self.sim.plan.blocked) {
            room = 0;
        } else if room > 0 && self.sim.fault(self.sim.plan.short_send) {
            room = self.sim.draw.between(1, room);
        }
        let sim = &mut *self.sim;
        let mut bytes = std::mem::take(&mut sim.scratch);
        bytes.clear();
        let mut fault = false;
        for part in parts {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Memory(access) => match sim.memories[me].bytes(*access) {
                    Ok(part) => bytes.extend_from_slice(part),
                    Err(_) => fault = true,
                },
            }
            if fault || bytes.len() >= room {
                break;
            }
        }
        let short = bytes.len().min(room);
        let result = if room == 0 {
            sim.pipes[me].wants_room = true;
            if sim.pipes[me].room() > 0 {
                // The socket has said no, and says later that it takes more.
                sim.report(me);
            }
            Err(LinkError::Blocked)
        } else if fault && (short == 0 || sim.draw.below(2) == 0) {
            // The kernel gives up at the fault: with what it had before, or as a whole.
            sim.checker.sides[me].causes.memory = true;
            Err(LinkError::Memory(0, Unreachable::Fault))
        } else {
            let from = sim.pipes[me].written();
            sim.pipes[me].write(&bytes[..short]);
            if sim.pipes[me].room() == 0 {
                sim.pipes[me].wants_room = true;
            } else if short < bytes.len() {
                sim.report(me);
            }
            say!(sim, "side {me} sends {short} bytes");
            sim.note(short as u64);
            sim.tapped(me, from);
            sim.spoke(me);
            Ok(short)
        };
        sim.scratch = bytes;
        result
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.up("receives");
        assert!(!into.is_empty(), "no room to receive into");
        self.elsewhere();
        let n = self.found()?.min(into.len());
        self.sim.pipes[1 - self.me].read(&mut into[..n]);
        say!(self.sim, "side {} receives {n} bytes", self.me);
        self.sim.was_read(1 - self.me);
        Ok(n)
    }

    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        self.up("receives");
        self.elsewhere();
        let region = self.allowed(to).map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        let n = self.found()?;
        let mut placed = n.min(to.len);
        if placed > 0 && self.sim.memories[self.me].regions[region] == Region::Unmapped {
            return Err(self.failed(LinkError::Memory(0, Unreachable::Fault)));
        }
        let mut bytes = std::mem::take(&mut self.sim.scratch);
        bytes.resize(placed, 0);
        let incoming = &mut self.sim.pipes[1 - self.me];
        incoming.read(&mut bytes);
        if placed > 0 {
            self.put(Access { len: placed, ..to }, region, &bytes);
        }
        self.sim.scratch = bytes;
        if placed == to.len {
            let more = (n - placed).min(rest.len());
            self.sim.pipes[1 - self.me].read(&mut rest[..more]);
            placed += more;
        }
        say!(self.sim, "side {} receives {placed} bytes, some in place", self.me);
        self.sim.was_read(1 - self.me);
        Ok(placed)
    }

    fn close(&mut self, last: Option<&[u8]>) {
        let (me, peer) = (self.me, 1 - self.me);
        say!(self.sim, "side {me} closes its link, {:?} last bytes", last.map(<[u8]>::len));
        self.sim.may_end(me);
        let whole = last.is_some() && !self.sim.pipes[me].reset && !self.sim.pipes[me].refused;
        if let (Some(last), true) = (last, whole) {
            let from = self.sim.pipes[me].written();
            self.sim.pipes[me].write(last);
            self.sim.tapped(me, from);
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

    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        self.up("transfers");
        self.elsewhere();
        let (me, peer) = (self.me, 1 - self.me);
        let mut regions = Vec::new();
        for access in remote {
            let Some(region) = self.transferable(*access) else { return 0 };
            regions.push(region);
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
                Part::Memory(access) => match sim.memories[me].check(*access) {
                    Ok(own) if sim.memories[me].regions[own] == Region::There => match access.rights {
                        0 => bytes.extend_from_slice(sim.memories[me].contents_at(
                            own,
                            access.addr,
                            access.len,
                        )),
                        _ => bytes.resize(bytes.len() + access.len, 0),
                    },
                    _ => return 0,
                },
            }
        }
        assert_eq!(bytes.len(), all, "the ranges of both sides have one length");
        sim.transfers += 1;
        say!(sim, "side {me} transfers {n} bytes, {remote:x?}");
        let (mut done, mut requests) = (0, 0);
        let ranges = remote.iter().zip(regions);
        for (range, region) in ranges {
            let mut range = *range;
            while range.len > 0 && done < n {
                let of_request = self.sim.checker.transfers(me, range);
                let access = Access { len: of_request.min(n - done), ..range };
                if access.rights == REMOTE_WRITE {
                    self.sim.host(peer).put(access, region, &bytes[done..][..access.len]);
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

    fn may_transfer(&self, remote: Access) -> bool {
        let is_exported = self.exported(remote).is_some();
        let predicted = match self.sim.plan.predictions {
            Predictions::Adaptive => is_exported,
            Predictions::Never => false,
            Predictions::Always => true,
            // Of all that has happened, as nothing can be drawn here.
            Predictions::Random => mix(self.sim.print ^ self.sim.actions as u64) % 2 == 0,
        };
        let wrong = &self.sim.mispredicted[usize::from(predicted)];
        wrong.set(wrong.get() + u64::from(predicted != is_exported));
        predicted
    }

    fn acted(&mut self) {
        self.side().acted = self.sim.pipes[1 - self.me].bytes_read();
    }

    fn check(&mut self, access: Access) -> Result<(), Denied> {
        self.up("checks an access");
        let region = self.allowed(access)?;
        // What makes writes durable is done by who is asked for it.
        if !(region == PERSISTENT && access.rights == REMOTE_READ) {
            self.side().exported[region] |= access.rights & (REMOTE_READ | REMOTE_WRITE);
        }
        Ok(())
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        self.up("places");
        if self.side().batch.is_empty() {
            self.elsewhere();
        }
        let region = self.allowed(access)?;
        self.side().batch.push((access, from, region));
        Ok(())
    }

    fn settle(&mut self, input: &[u8]) -> Result<(), usize> {
        self.up("settles");
        let mut batch = std::mem::take(&mut self.side().batch);
        let mut result = Ok(());
        for (k, (access, from, region)) in batch.iter().enumerate() {
            if self.sim.memories[self.me].regions[*region] == Region::Unmapped {
                say!(self.sim, "side {}: placement {k} of the batch fails", self.me);
                result = Err(self.failed(k));
                break;
            }
            self.put(*access, *region, &input[*from..*from + access.len]);
        }
        batch.clear();
        self.side().batch = batch;
        result
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        let me = self.me;
        match self.sim.memories[me].bytes(from) {
            Ok(bytes) => {
                into.copy_from_slice(bytes);
                Ok(())
            }
            Err(why) => {
                self.sim.checker.sides[me].causes.memory = true;
                Err(why)
            }
        }
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        self.up("changes a word");
        assert!(self.side().batch.is_empty(), "a word is changed before what came before is placed");
        self.elsewhere();
        let region = self.allowed(access).map_err(Unchanged::Denied)?;
        if access.addr % 8 != 0 {
            return Err(self.failed(Unchanged::Misaligned));
        }
        if self.sim.memories[self.me].regions[region] == Region::Unmapped {
            return Err(self.failed(Unchanged::Fault));
        }
        let (me, sim) = (self.me, &mut *self.sim);
        let word = sim.memories[me].counter(access.addr);
        let original = std::mem::replace(word, update(*word));
        sim.checker.changed(me, access, original, *word);
        say!(sim, "side {me}: {:x} was {original} and is {word}", access.addr);
        sim.note(access.addr ^ original << 32);
        Ok(original)
    }

    fn make_durable(&mut self, read: Access, number: u64) -> Result<Durable, Denied> {
        self.up("flushes");
        self.allowed(read)?;
        if read.stag != stag(self.me, PERSISTENT) {
            return Ok(Durable::Now);
        }
        say!(self.sim, "side {}: flush for read {number}", self.me);
        self.sim.checker.flush_begins(self.me, number as usize, read);
        if self.sim.plan.sides[self.me].disk == Disk::Fast {
            self.sim.checker.sides[self.me].durability[number as usize] = Durability::Reported;
            return Ok(Durable::Now);
        }
        self.side().flushes.push(number);
        Ok(Durable::Later)
    }

    /// The programs of the simulation bind no windows: those that are invalidated have always been there.
    fn bind(&mut self, _window: Bind) -> Result<(), Denied> {
        Err(Denied::Stag)
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        self.up("invalidates a window");
        assert!(self.side().batch.is_empty(), "a window is invalidated that is being written through");
        say!(self.sim, "side {}: window {stag:x} is invalidated", self.me);
        if self.sim.checker.invalidated(self.me, stag) { Ok(()) } else { Err(self.failed(Denied::Stag)) }
    }

    fn next_send(&mut self) -> Option<SendWr> {
        let model = &mut self.sim.checker.sides[self.me];
        let wr = model.requests.get(model.taken)?.wr.clone();
        model.taken += 1;
        Some(wr)
    }

    fn next_receive(&mut self) -> Option<RecvWr> {
        let me = self.me;
        let model = &mut self.sim.checker.sides[me];
        if model.next_receive == model.receives.len() {
            let shared = self.sim.plan.sides[me].shared;
            self.sim.sides[me].srq_waits |= shared;
            let over = model.closed || !model.open;
            model.causes.no_receive |= !over && !self.sim.plan.sides[me].wait;
            return None;
        }
        Some(self.sim.checker.take_receive(me))
    }

    fn complete_send(&mut self, completion: Completion) -> bool {
        let me = self.me;
        let one = self.sim_one_cq();
        let accepted = self.side().push(0, one, true);
        self.sim.checker.sides[me].send_refused = !accepted;
        if accepted {
            say!(self.sim, "side {me} completes {}: {}", completion.wr_id, completion.status);
            let read = self.sim.pipes[1 - me].bytes_read();
            self.sim.checker.send_completed(me, &completion, read);
            self.sim.note(completion.wr_id ^ u64::from(completion.status) << 48);
        }
        accepted
    }

    fn complete_receive(&mut self, completion: Completion) -> bool {
        let me = self.me;
        let one = self.sim_one_cq();
        let accepted = self.side().push(1, one, false);
        self.sim.checker.sides[me].receive_refused = !accepted;
        if accepted {
            say!(self.sim, "side {me} completes receive {}: {}", completion.wr_id, completion.status);
            let read = self.sim.pipes[1 - me].bytes_read();
            self.sim.checker.receive_completed(me, &completion, read);
            self.sim.note(completion.wr_id ^ u64::from(completion.status) << 48);
            if completion.status == status::SUCCESS {
                self.sim.repost(me);
            }
        }
        accepted
    }

    fn release_send(&mut self) {
        let me = self.me;
        let read = self.sim.pipes[1 - me].bytes_read();
        self.sim.checker.release_send(me, read);
        self.side().in_use -= 1;
    }

    fn established(&mut self) {
        say!(self.sim, "side {} is established", self.me);
        self.sim.checker.established(self.me);
    }

    fn ended(&mut self, _failed: bool) {
        say!(self.sim, "side {} is told the end", self.me);
        let shared = self.sim.plan.sides[self.me].shared;
        self.sim.checker.ended(self.me, shared);
    }
}

impl At<'_> {
    /// The region that the peer has exported, if a request may be carried out by direct copy now.
    fn transferable(&self, remote: Access) -> Option<usize> {
        let (me, peer) = (self.me, 1 - self.me);
        let (model, incoming) = (&self.sim.checker.sides[peer], &self.sim.pipes[peer]);
        let is_up = model.open && !model.closed && !model.destroyed;
        if !is_up || incoming.fin_arrived || incoming.reset {
            return None;
        }
        if self.sim.sides[peer].acted != self.sim.pipes[me].written() as u64 {
            return None;
        }
        self.exported(remote)
    }

    fn exported(&self, remote: Access) -> Option<usize> {
        let peer = 1 - self.me;
        let region = self.sim.memories[peer].check(remote).ok()?;
        let there = self.sim.memories[peer].regions[region] == Region::There;
        let exported = self.sim.sides[peer].exported[region] & remote.rights == remote.rights;
        (there && exported).then_some(region)
    }

    fn sim_one_cq(&self) -> bool {
        self.sim.plan.sides[self.me].one_cq
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
