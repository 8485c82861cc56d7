// SPDX-License-Identifier: BSD-3-Clause
//! The parameters of a schedule over packets: which faults exist and how frequent they are.

use crate::access::{FLUSH_GLOBAL, FLUSH_PERSISTENT, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::policy::mode::Mode;
use crate::roce::rc::{ReceiveTerms, SendTerms};
use crate::roce::wire::{DEFAULT_PKEY, PathMtu, Psn};
use crate::sim::plan::{Disk, Receives};
use crate::sim::random::Draw;
use crate::sim::request::{Mix, ROCE};
use crate::step::{Budget, Quota};

#[derive(Clone, Copy, Debug)]
pub(super) struct SidePlan {
    pub path: ReceiveTerms,
    pub terms: SendTerms,
    pub shared: bool,
    /// The transition to RTS is late.
    pub sends_late: bool,
    /// The transition to RTR is late.
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
    /// Packets that find room where they arrive.
    pub buffer: usize,
    /// Rates, of 256.
    pub short_receive: u32,
    pub bad_receive: u32,
    pub disconnect: u32,
    pub destroy: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub sides: [SidePlan; 2],
    /// Actions of phase 1.
    pub actions: usize,
    /// How the heuristics of both sides decide.
    pub policy: Mode,
    // Rates at which the network loses, duplicates, delays or corrupts a packet.
    pub lose: u32,
    pub duplicate: u32,
    pub reorder: u32,
    pub delay: u32,
    pub corrupt: u32,
    /// Corrupted packets are delivered now and then.
    pub forge: bool,
    /// The link takes nothing for a while.
    pub blocked: u32,
    /// Time passes although something can run.
    pub late: u32,
    pub steal: u32,
    pub deregister: u32,
    pub unmap: u32,
    pub spurious: u32,
    /// Another event happens during a step.
    pub inside: u32,
    /// Both sides are on one host, so they share memory at some time.
    pub one_host: bool,
    /// While both share memory, some writes and reads are carried out by direct copy.
    pub direct: bool,
    /// A side in shared memory cannot use it any more.
    pub leave: u32,
}

/// Faults that end connections are rare, or schedules would reach nothing else.
const RARE: u32 = 16;
const ACCESS: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT;

/// The queue pair number of a side.
pub(super) const NUMBERS: [u32; 2] = [0x11_0001, 0x22_0002];

/// The PSN of a first packet: often one that wraps around soon.
pub(super) fn psn(draw: &mut Draw) -> Psn {
    Psn::new(match draw.below(4) {
        0 => 0u32.wrapping_sub(draw.below(20) as u32),
        1 => 0x80_0000 - draw.below(20) as u32,
        2 => draw.below(3) as u32,
        _ => draw.below(1 << 24) as u32,
    })
}

impl Plan {
    /// Whether this side may have more reads and atomic operations outstanding than its peer takes at a time,
    /// and keeps the results of.
    pub(super) fn exceeds_peer(&self, me: usize) -> bool {
        self.sides[me].terms.reads > self.sides[1 - me].path.reads
    }

    pub(super) fn new(draw: &mut Draw) -> Self {
        let mtu = draw.one_of(&[
            PathMtu::Mtu256,
            PathMtu::Mtu256,
            PathMtu::Mtu256,
            PathMtu::Mtu512,
            PathMtu::Mtu1024,
            PathMtu::Mtu2048,
            PathMtu::Mtu4096,
        ]);
        let psns = [psn(draw), psn(draw)];
        let mut sides = [0, 1].map(|me| SidePlan::new(draw, mtu, NUMBERS[1 - me], [psns[me], psns[1 - me]]));
        for me in 0..2 {
            let most = sides[1 - me].path.reads;
            // A program must not post more than its peer permits.
            if draw.below(32) > 0 {
                sides[me].terms.reads = sides[me].terms.reads.min(most);
            }
        }
        let ends = draw.below(2) == 0;
        if !ends {
            for side in &mut sides {
                (side.disconnect, side.destroy, side.mix.bad_request, side.bad_receive) = (0, 0, 0, 0);
                side.path.access = ACCESS;
            }
        }
        let rare = if ends { RARE } else { 0 };
        let faulty = draw.below(8) > 0;
        let network = |draw: &mut Draw, most| if faulty { draw.rate(most) } else { 0 };
        // Without losses, all requests must complete even without a timer.
        let loses = faulty && draw.below(4) > 0;
        if !loses {
            for side in &mut sides {
                side.buffer = 1000;
                side.terms.timeout = draw.one_of(&[0, side.terms.timeout]);
            }
        }
        let loss = |draw: &mut Draw, most| if loses { draw.rate(most) } else { 0 };
        Self {
            sides,
            actions: draw.one_of(&[20, 60, 150, 300]),
            policy: match draw.below(8) {
                0 => Mode::Never,
                1 => Mode::Always,
                2 => Mode::Random(draw.below(1 << 16) as u64),
                _ => Mode::Adaptive,
            },
            lose: loss(draw, 64),
            duplicate: network(draw, 64),
            reorder: network(draw, 128),
            delay: network(draw, 32),
            corrupt: loss(draw, 32),
            forge: loses && draw.below(16) == 0,
            blocked: draw.rate(64),
            late: network(draw, 32),
            steal: draw.rate(32),
            deregister: draw.rate(rare),
            unmap: draw.rate(rare),
            spurious: draw.rate(64),
            inside: draw.rate(32),
            one_host: draw.below(2) == 0,
            direct: draw.below(8) > 0,
            leave: if draw.below(4) == 0 { draw.rate(RARE) } else { 0 },
        }
    }
}

impl SidePlan {
    fn new(draw: &mut Draw, mtu: PathMtu, dest_qp: u32, [sq_psn, rq_psn]: [Psn; 2]) -> Self {
        let unit = mtu.bytes();
        let small_cq = draw.below(4) == 0;
        let path = ReceiveTerms {
            mtu,
            dest_qp,
            pkey: DEFAULT_PKEY,
            rq_psn,
            reads: draw.one_of(&[1, 1, 2, 4, 16, 128]),
            rnr_timer: draw.one_of(&[1, 8, 12, 14, 20, 0]),
            access: match draw.below(32) {
                0 => ACCESS & !REMOTE_WRITE,
                1 => ACCESS & !REMOTE_READ,
                2 => ACCESS & !REMOTE_ATOMIC,
                3 => ACCESS & !FLUSH_GLOBAL,
                4 => ACCESS & !FLUSH_PERSISTENT,
                _ => ACCESS,
            },
        };
        let terms = SendTerms {
            sq_psn,
            timeout: draw.one_of(&[1, 5, 8, 10, 14, 14, 18, 0]),
            retries: draw.one_of(&[0, 1, 3, 7, 7, 7]),
            rnr_retries: draw.one_of(&[0, 1, 3, 7, 7, 7]),
            reads: draw.one_of(&[1, 1, 2, 4, 16, 128]),
        };
        let longest = [8, unit, 2 * unit, 3 * unit + 1, if unit == 256 { 40 * unit } else { 4 * unit }];
        Self {
            path,
            terms,
            shared: draw.below(4) == 0,
            sends_late: draw.below(4) == 0,
            opens_late: draw.below(8) == 0,
            max_send_wr: draw.one_of(&[1, 2, 3, 8, 16]),
            requests: draw.one_of(&[0, 1, 2, 3, 5, 8, 12]),
            mix: Mix::new(draw, ROCE, &longest, unit, RARE),
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
                bytes: if draw.below(4) == 0 { draw.between(1, 600) } else { 1 << 20 },
                operations: if draw.below(4) == 0 { draw.between(1, 4) } else { 1 << 16 },
            },
            disk: draw.one_of(&[Disk::Fast, Disk::Slow, Disk::Slow, Disk::Slow, Disk::Failing]),
            buffer: draw.one_of(&[2, 8, 25, 1000, 1000, 1000]),
            short_receive: if draw.below(16) == 0 { 32 } else { 0 },
            bad_receive: if draw.below(16) == 0 { 32 } else { 0 },
            disconnect: draw.rate(RARE),
            destroy: draw.rate(RARE),
        }
    }

    pub(super) fn budget(&self) -> Budget {
        Budget { send: self.budget, receive: self.budget }
    }

    /// The local ACK timeout.
    pub(super) fn timeout_us(&self) -> Option<u64> {
        let code = self.terms.timeout;
        (code > 0).then(|| (4_096u64 << code) / 1_000).map(|timeout| timeout.max(1_000))
    }
}
