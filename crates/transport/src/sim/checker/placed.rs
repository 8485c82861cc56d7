// SPDX-License-Identifier: BSD-3-Clause
//! Checks of placements: in the order of the stream, at the right address, with the bytes that were sent.

use super::super::memory::{self, READABLE, SINKS};
use super::{Checker, Durability, Outbound};
use crate::access::Access;
use crate::testing::memory::Regions;
use crate::wr::{Local, Op, RecvWr};

impl<O: Outbound> Checker<O> {
    /// Everything that the peer's requests up to this one put here has been placed.
    pub(super) fn placed_up_to(&mut self, side: usize, index: usize, what: &str) {
        self.pass_placed(side);
        assert!(
            self.sides[side].placed_request > index,
            "{what} on side {side} before request {index} was placed"
        );
    }

    pub(super) fn pass_placed(&mut self, side: usize) {
        let [a, b] = &mut self.sides;
        let (model, peer) = if side == 0 { (a, b) } else { (b, a) };
        while let Some(posted) = peer.requests.get(model.placed_request) {
            let unchanged = posted.wr.is_atomic() && posted.atomics >= model.originals.len();
            if unchanged || posted.carries() > model.placed_bytes {
                break;
            }
            model.placed_request += 1;
            model.placed_bytes = 0;
        }
        while let Some(index) = model.reads.get(model.placed_read) {
            if model.requests[*index].wr.len as usize > model.read_bytes {
                break;
            }
            model.placed_read += 1;
            model.read_bytes = 0;
        }
    }

    /// Bytes are placed on a side.
    pub(in crate::sim) fn placed(
        &mut self,
        side: usize,
        access: Access,
        bytes: &[u8],
        memories: &[Regions; 2],
    ) {
        self.pass_placed(side);
        if access.stag == memory::stag(side, SINKS) {
            return self.answer_placed(side, access, bytes, memories);
        }
        let model = &self.sides[side];
        let peer = &self.sides[1 - side];
        let Some(posted) = peer.requests.get(model.placed_request) else {
            panic!("side {side}: {access:?} placed, which was not sent");
        };
        assert!(model.placed_request < peer.taken, "placed before it was sent");
        let wr = &posted.wr;
        let at = model.placed_bytes;
        let (to, room) = if posted.is_write() {
            assert_eq!(access.stag, wr.rkey, "a write to another region");
            (wr.remote_addr + at as u64, usize::MAX)
        } else {
            let receive = model.taken_receives.get(posted.number);
            let Some(receive) = receive else { panic!("a message without a receive is placed") };
            let Some((entry, to, room)) = memory::entry_at(receive.entries(), at) else {
                panic!("beyond the receive")
            };
            assert_eq!(access.stag, entry.lkey(), "an entry with another key");
            (to, room)
        };
        assert!(bytes.len() <= room, "beyond the entry");
        assert_eq!(access.addr, to, "side {side}: out of order: request {}", model.placed_request);
        assert!(at + bytes.len() <= wr.len as usize, "more than was sent");
        if posted.is_write() && wr.len == 8 && wr.remote_addr % 8 == 0 {
            assert_eq!(bytes.len(), 8, "an aligned write of 8 bytes in pieces");
        }
        let sent = |i| memory::sent(&memories[1 - side], 1 - side, wr, at + i);
        let same = bytes.iter().enumerate().all(|(i, byte)| sent(i) == Some(*byte));
        assert!(same, "side {side}: other bytes than those of request {}", model.placed_request);
        self.sides[side].placed_bytes += bytes.len();
    }

    /// An atomic operation has changed a word of a side: the next one that the peer has posted, once, behind
    /// everything before it.
    pub(in crate::sim) fn changed(&mut self, side: usize, access: Access, original: u64, now: u64) {
        let number = self.sides[side].originals.len();
        let peer = &self.sides[1 - side];
        let Some(index) = peer.atomics.get(number).copied() else {
            panic!("side {side}: a word changes without an operation, or twice")
        };
        assert!(index < peer.taken, "a word changes before that was sent");
        let wr = peer.requests[index].wr.clone();
        assert!(access.addr == wr.remote_addr && access.stag == wr.rkey, "another word than that of {wr:x?}");
        let Local::Atomic { compare_add, swap, .. } = wr.local else { panic!("no operand") };
        let expected = match wr.op {
            Op::FetchAdd => original + compare_add,
            _ if original == compare_add => swap,
            _ => original,
        };
        assert_eq!(now, expected, "side {side}: the result of {wr:?} for {original}");
        if let Some(before) = index.checked_sub(1) {
            self.placed_up_to(side, before, "a word changed");
        }
        self.sides[side].originals.push(original);
    }

    fn answer_placed(&mut self, side: usize, access: Access, bytes: &[u8], memories: &[Regions; 2]) {
        let model = &self.sides[side];
        let Some(index) = model.reads.get(model.placed_read).copied() else {
            panic!("a response without a request is placed");
        };
        let wr = &model.requests[index].wr;
        let at = model.read_bytes;
        let Some((entry, addr, room)) = memory::entry_at(&memory::entries(wr), at) else {
            panic!("an answer longer than the read")
        };
        assert!(access.addr == addr && access.stag == entry.lkey(), "side {side}: answer out of order");
        assert!(bytes.len() <= room, "beyond the entry");
        if wr.is_atomic() {
            let number = model.requests[index].atomics;
            let original = self.sides[1 - side].originals.get(number);
            let original = original.map(|original| original.to_ne_bytes());
            assert_eq!(
                original.as_ref().map(|bytes| &bytes[..]),
                Some(bytes),
                "what request {index} returns"
            );
            match model.requests[index].transferred {
                true => self.skip_answer(side, index),
                false => self.sides[side].read_bytes += bytes.len(),
            }
            return;
        }
        let from = wr.remote_addr + at as u64;
        if wr.rkey == memory::stag(1 - side, READABLE) {
            let there = memories[1 - side].at(from, bytes.len());
            assert_eq!(bytes, there, "side {side}: read {index} returns other bytes");
        } else {
            for (i, byte) in bytes.iter().enumerate() {
                self.read_back(side, index, from + i as u64, *byte, memories);
            }
        }
        self.sides[side].read_bytes += bytes.len();
    }

    /// A byte read from memory that is also written is that of the last write posted before the read, or of a
    /// later one.
    fn read_back(&self, side: usize, index: usize, addr: u64, byte: u8, memories: &[Regions; 2]) {
        let (mut before, mut later) = (0, false);
        for (i, posted) in self.sides[side].requests.iter().enumerate() {
            let wr = &posted.wr;
            let at = addr.wrapping_sub(wr.remote_addr);
            if !posted.is_write() || at >= u64::from(wr.len) {
                continue;
            }
            // A wrong entry is not placed.
            let Some(value) = memory::sent(&memories[side], side, wr, at as usize) else { continue };
            if i < index {
                before = value;
            } else {
                later |= value == byte;
            }
        }
        assert!(
            byte == before || later,
            "side {side}: read {index} passed a write that was posted before it"
        );
    }

    /// A persistent flush begins on `side`, on behalf of the peer's read with this number.
    pub(in crate::sim) fn flush_begins(&mut self, side: usize, number: usize, access: Access) {
        let peer = &self.sides[1 - side];
        let Some(index) = peer.reads.get(number).copied() else { panic!("a flush without a request") };
        let wr = &peer.requests[index].wr;
        assert!(access.addr == wr.remote_addr && access.len == wr.len as usize, "a flush of something else");
        self.placed_up_to(side, index, "a flush");
        let durability = &mut self.sides[side].durability;
        assert!(number >= durability.len(), "a flush begins twice");
        durability.resize(number, Durability::NotAsked);
        durability.push(Durability::Pending);
    }

    /// A side's connection has taken a receive.
    pub(in crate::sim) fn took_receive(&mut self, side: usize, wr: RecvWr) {
        let peer = &self.sides[1 - side];
        let model = &self.sides[side];
        let message = peer.messages.get(model.taken_receives.len());
        let overrun = message.is_some_and(|index| peer.requests[*index].overruns(&wr));
        let model = &mut self.sides[side];
        model.causes.too_long |= overrun && !model.closed;
        model.taken_receives.push(wr);
    }
}
