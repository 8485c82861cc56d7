// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of a schedule.

use crate::access::REMOTE_WRITE;
use crate::roce::rc::ReceiveTerms;
use crate::roce::wire::{DEFAULT_PKEY, PathMtu, Psn};
use crate::sim::random::Draw;
use crate::sim::request::Mix;
use crate::sim::roce::plan::{NUMBERS, psn};
use crate::step::{Budget, Quota};
use crate::wr::Op;

const OPS: &[Op] = &[Op::Write, Op::WriteWithImm, Op::Send, Op::SendWithImm];

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub mtu: PathMtu,
    pub first: Psn,
    /// What the receiver expects; not what the sender sends, in some schedules.
    pub expected: Psn,
    pub access: u32,
    pub requests: usize,
    pub max_send_wr: u32,
    pub mix: Mix,
    /// Receives come late, or are too few for a while.
    pub late_receives: bool,
    pub shared: bool,
    /// Room for completions of receives.
    pub recv_cq: usize,
    pub budget: Quota,
    pub actions: usize,
    /// Packets that find room where they arrive.
    pub buffer: usize,
    // Rates, of 256.
    pub short_receive: u32,
    pub lose: u32,
    pub duplicate: u32,
    pub reorder: u32,
    pub delay: u32,
    /// Corrupted packets are delivered now and then.
    pub forge: u32,
    pub blocked: u32,
    pub spoil: u32,
    pub spurious: u32,
    pub disconnect: u32,
}

impl Plan {
    pub(super) fn new(draw: &mut Draw) -> Self {
        let mtu = draw.one_of(&[PathMtu::Mtu256, PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu4096]);
        let unit = mtu.bytes();
        let longest = [8, unit, 2 * unit, 3 * unit + 1, if unit == 256 { 40 * unit } else { 4 * unit }];
        let faulty = draw.below(8) > 0;
        let network = |draw: &mut Draw, most| if faulty { draw.rate(most) } else { 0 };
        let first = psn(draw);
        let rare = if draw.below(2) == 0 { 8 } else { 0 };
        Self {
            mtu,
            first,
            expected: if draw.below(8) == 0 { psn(draw) } else { first },
            access: if draw.below(16) == 0 { 0 } else { REMOTE_WRITE },
            requests: draw.one_of(&[1, 2, 3, 5, 8, 20]),
            max_send_wr: draw.one_of(&[1, 2, 8, 16]),
            mix: Mix::new(draw, OPS, &longest, unit, rare),
            late_receives: draw.below(4) == 0,
            shared: draw.below(4) == 0,
            recv_cq: if draw.below(4) == 0 { draw.between(1, 3) } else { 64 },
            budget: Quota {
                bytes: if draw.below(4) == 0 { draw.between(1, 600) } else { 1 << 20 },
                operations: if draw.below(4) == 0 { draw.between(1, 4) } else { 1 << 16 },
            },
            actions: draw.one_of(&[20, 60, 150, 300]),
            buffer: draw.one_of(&[2, 8, 1000, 1000]),
            short_receive: if draw.below(8) == 0 { 64 } else { 0 },
            lose: network(draw, 64),
            duplicate: network(draw, 64),
            reorder: network(draw, 128),
            delay: network(draw, 32),
            forge: if faulty && draw.below(16) == 0 { 16 } else { 0 },
            blocked: draw.rate(64),
            spoil: draw.rate(rare),
            spurious: draw.rate(64),
            disconnect: draw.rate(rare / 2),
        }
    }

    pub(super) fn terms(&self, me: usize) -> ReceiveTerms {
        ReceiveTerms {
            mtu: self.mtu,
            dest_qp: NUMBERS[1 - me],
            pkey: DEFAULT_PKEY,
            rq_psn: self.expected,
            reads: 0,
            rnr_timer: 0,
            access: self.access,
        }
    }

    pub(super) fn budget(&self) -> Budget {
        Budget { send: self.budget, receive: self.budget }
    }
}
