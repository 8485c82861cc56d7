// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of a schedule. Each schedule first draws which faults exist and how frequent they are, so
//! that it reaches states that one set of rates for all schedules would never lead to.

use super::random::Draw;
use super::request::{IWARP, Mix};
use crate::iwarp::conn::{Framing, Role, Sizes};
use crate::policy::mode::Mode;
use crate::step::{Budget, Quota};

/// When a program posts receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Receives {
    /// All receives, before the first message.
    #[default]
    Early,
    /// One for each that was completed, at once.
    Reposted,
    /// Now and then, so that messages have to wait.
    Late,
    /// Too few, until the end.
    TooFew,
}

/// How a flush to persistence ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Disk {
    #[default]
    Fast,
    Slow,
    Failing,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SidePlan {
    pub framing: Framing,
    pub sizes: Sizes,
    pub role: Role,
    pub wait: bool,
    pub shared: bool,
    pub opens_late: bool,
    pub max_send_wr: u32,
    pub requests: usize,
    pub mix: Mix,
    pub receives: Receives,
    pub one_cq: bool,
    pub send_cq: usize,
    pub recv_cq: usize,
    pub budget: Quota,
    pub disk: Disk,
    /// Rates, of 256.
    pub short_receive: u32,
    pub disconnect: u32,
    pub destroy: u32,
    pub exit: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    pub sides: [SidePlan; 2],
    pub capacity: [usize; 2],
    /// Most bytes that arrive at a time.
    pub arrival: usize,
    /// Actions of phase 1.
    pub actions: usize,
    pub short_send: u32,
    pub blocked: u32,
    pub freeze: u32,
    pub cut: u32,
    pub deregister: u32,
    pub unmap: u32,
    pub steal: u32,
    /// A peer violates the protocol.
    pub forge: u32,
    pub spurious: u32,
    /// Another event happens during a step.
    pub inside: u32,
    pub lose: bool,
    /// Writes and reads may be carried out by direct copy; a rate at which that fails, and one at which it is
    /// cut short.
    pub transfers: bool,
    /// The keys for them are there from the beginning, not only after their first use.
    pub exported: bool,
    /// How a host predicts whether a request can be carried out by direct copy. Any answer must be correct.
    pub predictions: Mode,
    pub untransferred: u32,
    pub short_transfer: u32,
}

/// Faults that end connections are rare, or schedules would reach nothing else.
const RARE: u32 = 16;

impl Plan {
    pub(super) fn new(draw: &mut Draw) -> Self {
        let crc = draw.below(8) == 0;
        let announced = draw.below(2) == 0;
        let initiator = draw.below(2);
        let mut sides = [SidePlan::new(draw, crc), SidePlan::new(draw, crc)];
        let (announces, awaits) = if announced {
            (Role::INITIATOR_ANNOUNCED, Role::RESPONDER_ANNOUNCED)
        } else {
            (Role::INITIATOR, Role::RESPONDER)
        };
        sides[initiator].role = announces;
        sides[1 - initiator].role = awaits;
        let ends = draw.below(2) == 0;
        if !ends {
            for side in &mut sides {
                (side.disconnect, side.destroy, side.exit, side.mix.bad_request) = (0, 0, 0, 0);
            }
        }
        // A pipe that takes a byte at a time makes long schedules, which find no more defects than short
        // ones.
        let narrow = draw.below(8) == 0;
        let mut capacity = [0; 2];
        for pipe in &mut capacity {
            *pipe = if narrow { draw.between(1, 16) } else { draw.one_of(&[40, 128, 300, 1000, 4000]) };
        }
        if narrow {
            for side in &mut sides {
                side.requests = side.requests.min(3);
                side.mix.longest = side.mix.longest.min(120);
            }
        }
        Self {
            sides,
            capacity,
            arrival: draw.one_of(&[3, 20, 100, 400, 4000, 4000]),
            actions: draw.one_of(&[20, 60, 150, 300]),
            short_send: draw.rate(128),
            blocked: draw.rate(64),
            freeze: draw.rate(16),
            cut: if ends { draw.rate(RARE) } else { 0 },
            deregister: if ends { draw.rate(RARE) } else { 0 },
            unmap: if ends { draw.rate(RARE) } else { 0 },
            forge: if ends { draw.rate(RARE) } else { 0 },
            steal: draw.rate(32),
            spurious: draw.rate(64),
            inside: draw.rate(64),
            lose: ends && draw.below(64) == 0,
            transfers: draw.below(2) == 0,
            exported: draw.below(2) == 0,
            // The host mixes what has happened in the schedule into the seed.
            predictions: draw.one_of(&[Mode::Adaptive, Mode::Never, Mode::Always, Mode::Random(0)]),
            untransferred: draw.rate(128),
            short_transfer: draw.rate(128),
        }
    }
}

impl SidePlan {
    fn new(draw: &mut Draw, crc: bool) -> Self {
        let mulpdu = draw.one_of(&[128, 128, 129, 130, 131, 150, 256, 1024]);
        let framing = Framing {
            crc,
            mulpdu,
            segment: (draw.below(4) == 0).then(|| mulpdu + 6 + draw.below(100)),
            ord: if draw.below(64) == 0 { 0 } else { draw.one_of(&[1, 1, 2, 4, 128]) },
        };
        let sizes = Sizes {
            first: draw.one_of(&[128, 150, 4096]),
            buffer: draw.one_of(&[128, 129, 200, 512, 2048]),
            direct: draw.one_of(&[65, 100, 100, 200, 4000]),
            behind_direct: draw.one_of(&[1, 20, 64, 128]),
        };
        let small_cq = draw.below(4) == 0;
        Self {
            framing,
            sizes,
            role: Role::default(),
            wait: draw.below(4) != 0,
            shared: draw.below(4) == 0,
            opens_late: draw.below(3) == 0,
            max_send_wr: draw.one_of(&[1, 2, 3, 8, 16]),
            requests: draw.one_of(&[0, 1, 2, 3, 5, 8, 12]),
            mix: Mix::new(draw, IWARP, &[8, 64, 120, 300, 400], 8, RARE),
            receives: draw.one_of(&[
                Receives::Early,
                Receives::Reposted,
                Receives::Late,
                Receives::Late,
                Receives::TooFew,
            ]),
            one_cq: draw.below(3) == 0,
            send_cq: if small_cq { draw.between(1, 3) } else { 64 },
            recv_cq: if small_cq { draw.between(1, 3) } else { 64 },
            budget: Quota {
                bytes: if draw.below(4) == 0 { draw.between(1, 100) } else { 1 << 16 },
                operations: if draw.below(4) == 0 { draw.between(1, 4) } else { 1 << 16 },
            },
            disk: draw.one_of(&[Disk::Fast, Disk::Slow, Disk::Slow, Disk::Slow, Disk::Failing]),
            short_receive: if draw.below(16) == 0 { 32 } else { 0 },
            disconnect: draw.rate(RARE),
            destroy: draw.rate(RARE),
            exit: draw.rate(64),
        }
    }

    pub(super) fn budget(&self) -> Budget {
        Budget { send: self.budget, receive: self.budget }
    }
}
