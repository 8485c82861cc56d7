// SPDX-License-Identifier: BSD-3-Clause
//! Memory that two sides on one host share from some time on, instead of the network: a ring of packets in
//! each direction, which loses nothing and keeps the order.
//!
//! One side accepts an offer and moves; the other one moves in the step that finds the answer. Either may
//! leave the memory, or end. The other one takes what was put into the ring before, then returns to the
//! network.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It uses the network.
    #[default]
    Before,
    /// It finds in its next step that both agree.
    Moving,
    Inside,
    /// It uses the network again.
    Left,
}

#[derive(Default)]
pub(super) struct Shared {
    stages: [Stage; 2],
    /// By sender.
    rings: [VecDeque<Vec<u8>>; 2],
    /// A side knows that the other one has moved, too.
    knows: [bool; 2],
    /// The link of a side has changed since it was last asked.
    has_changed: [bool; 2],
}

impl Shared {
    pub(super) fn begin(&mut self) {
        (self.stages, self.knows, self.has_changed) = Default::default();
        self.rings.iter_mut().for_each(VecDeque::clear);
    }

    /// A side accepts the offer of the other one; false: there is none any more. It moves in its next step.
    pub(super) fn accept(&mut self, me: usize) -> bool {
        let is_offered = self.stages == [Stage::Before; 2];
        if is_offered {
            self.stages[me] = Stage::Moving;
        }
        is_offered
    }

    /// Whether a side moves now, which the other one will find.
    pub(super) fn moves(&mut self, me: usize) -> bool {
        let moves = self.stages[me] == Stage::Moving;
        if moves {
            self.stages[me] = Stage::Inside;
            (self.knows[me], self.has_changed[me]) = (self.stages[1 - me] == Stage::Inside, true);
            if self.stages[1 - me] == Stage::Before {
                self.stages[1 - me] = Stage::Moving;
            }
        }
        moves
    }

    pub(super) fn is_inside(&self, me: usize) -> bool {
        self.stages[me] == Stage::Inside
    }

    /// A side leaves the memory, or will not move to it. Returns how many packets that loses.
    pub(super) fn leave(&mut self, me: usize) -> usize {
        self.has_changed[me] |= self.is_inside(me);
        self.stages[me] = Stage::Left;
        let lost = self.rings[1 - me].len();
        self.rings[1 - me].clear();
        lost
    }

    /// Whether the link of a side has changed since the last call: this side has moved or left, or it has
    /// taken the first packet of the other one.
    pub(super) fn has_changed(&mut self, me: usize) -> bool {
        std::mem::take(&mut self.has_changed[me])
    }

    /// Whether the other side has left, and all that it had put into the ring was taken.
    pub(super) fn is_over(&self, me: usize) -> bool {
        self.is_inside(me) && self.stages[1 - me] == Stage::Left && self.rings[1 - me].is_empty()
    }

    /// Packets of a side that were not taken.
    pub(super) fn waiting(&self, from: usize) -> usize {
        self.rings[from].len()
    }

    /// Puts a packet into the ring of a side. Returns false if the other side has left, and reads nothing.
    pub(super) fn put(&mut self, me: usize, packet: &[u8]) -> bool {
        let arrives = self.stages[1 - me] != Stage::Left;
        if arrives {
            self.rings[me].push_back(packet.to_vec());
        }
        arrives
    }

    /// The next packet for a side.
    pub(super) fn next(&self, me: usize) -> Option<&Vec<u8>> {
        self.rings[1 - me].front().filter(|_| self.is_inside(me))
    }

    pub(super) fn take(&mut self, me: usize) -> Option<Vec<u8>> {
        self.next(me)?;
        self.has_changed[me] |= !std::mem::replace(&mut self.knows[me], true);
        self.rings[1 - me].pop_front()
    }
}
