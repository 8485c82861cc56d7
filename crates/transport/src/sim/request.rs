// SPDX-License-Identifier: BSD-3-Clause
//! Random work requests.

use super::memory::{self, COUNTERS, PERSISTENT, PERSISTENT_LEN, READABLE, RECEIVES, SINKS, SOURCE, WORDS};
use super::random::Draw;
use crate::access::{FLUSH_GLOBAL, FLUSH_PERSISTENT};
use crate::limits::{MAX_INLINE, MAX_SGE};
use crate::testing::memory::Regions;
use crate::wr::{Entries, Local, Op, SendWr, Sge};

/// The operations of iWARP.
pub(super) const IWARP: &[Op] = &[
    Op::Write,
    Op::WriteWithImm,
    Op::Read,
    Op::Send,
    Op::SendWithImm,
    Op::SendWithInv,
    Op::FetchAdd,
    Op::CompareSwap,
];
/// The operations of RoCE.
pub(super) const ROCE: &[Op] = &[
    Op::Write,
    Op::WriteWithImm,
    Op::Read,
    Op::Send,
    Op::SendWithImm,
    Op::SendWithInv,
    Op::FetchAdd,
    Op::CompareSwap,
    Op::AtomicWrite,
    Op::Flush,
];

/// The parameters of the requests of a program. Rates are of 256.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    /// The operations of the transport.
    pub ops: &'static [Op],
    /// Requests are of these kinds: bits of an index into the operations.
    pub opcodes: usize,
    pub longest: usize,
    /// Some are a multiple of this long.
    pub unit: usize,
    pub unsignaled: u32,
    pub fence: u32,
    pub inline: u32,
    /// A write or a read is followed by one of its kind, with the same key, and they are posted together.
    pub alike: u32,
    /// A request or a receive has several entries.
    pub scatter: u32,
    pub bad_request: u32,
}

impl Mix {
    /// Draws a mix of these operations with requests up to one of these lengths.
    pub(super) fn new(draw: &mut Draw, ops: &'static [Op], longest: &[usize], unit: usize, bad: u32) -> Self {
        Self {
            ops,
            opcodes: draw.below((1 << ops.len()) - 1) + 1,
            longest: draw.one_of(longest),
            unit,
            unsignaled: draw.rate(192),
            fence: draw.rate(128),
            inline: draw.rate(256),
            alike: draw.rate(256),
            scatter: draw.rate(256),
            bad_request: draw.rate(bad),
        }
    }

    /// There are requests that a response completes.
    pub(super) fn has_answered(&self) -> bool {
        let is_answered =
            |op: &Op| matches!(op, Op::Read | Op::FetchAdd | Op::CompareSwap | Op::AtomicWrite | Op::Flush);
        self.ops.iter().enumerate().any(|(i, op)| self.opcodes & 1 << i != 0 && is_answered(op))
    }

    /// Where a request or a receive of `len` bytes has them: in one place of a region, or in several.
    pub(super) fn entries(
        &self,
        draw: &mut Draw,
        me: usize,
        region: usize,
        len: usize,
        most: usize,
    ) -> Entries {
        let count = if draw.chance(self.scatter) { draw.between(1, most) } else { 1 };
        let mut entries = Entries::new();
        let mut left = len;
        for i in 0..count {
            // Some are empty: they are left out, as when a program posts them.
            let some = if i + 1 == count { left } else { draw.below(left + 1) };
            let from = draw.below(memory::len(region) - some + 1) as u64;
            if some > 0 {
                entries.push(Sge::new(
                    memory::base(me, region) + from,
                    some as u32,
                    memory::stag(me, region),
                ));
            }
            left -= some;
        }
        entries
    }

    fn op(&self, draw: &mut Draw) -> Op {
        loop {
            let which = draw.below(self.ops.len());
            if self.opcodes & 1 << which != 0 {
                return self.ops[which];
            }
        }
    }

    fn len(&self, draw: &mut Draw) -> usize {
        let len = match draw.below(4) {
            0 => draw.below(17),
            1 => self.unit * draw.below(9),
            _ => draw.below(self.longest + 1),
        };
        len.min(self.longest)
    }

    /// The next request of a side with this memory, its `index`-th one, behind `last`.
    pub(super) fn request(
        &self,
        draw: &mut Draw,
        memory: &Regions,
        me: usize,
        index: usize,
        last: Option<&SendWr>,
    ) -> SendWr {
        let last = last.filter(|last| matches!(last.op, Op::Write | Op::Read) && draw.chance(self.alike));
        let op = last.map_or_else(|| self.op(draw), |last| last.op);
        let atomic = matches!(op, Op::FetchAdd | Op::CompareSwap);
        let store = op == Op::AtomicWrite;
        let flush = op == Op::Flush;
        let mut len = self.len(draw);
        if atomic || store {
            len = 8;
        }
        if flush {
            len = 0;
        }
        let peer = 1 - me;
        let persistent = match last {
            Some(last) => last.rkey == memory::stag(peer, PERSISTENT),
            None => store || flush || op != Op::WriteWithImm && !atomic && draw.below(3) == 0,
        };
        let region = match op {
            _ if persistent => PERSISTENT,
            Op::Read => READABLE,
            _ if atomic => COUNTERS,
            _ => memory::WRITABLE,
        };
        let is_send = matches!(op, Op::Send | Op::SendWithImm | Op::SendWithInv);
        if persistent && !is_send {
            len = len.min(if op == Op::Read { 16 } else { PERSISTENT_LEN });
        }
        let room = (memory::len(region) - len.min(memory::len(region))) / 4;
        let at = match op {
            _ if atomic => 8 * draw.below(WORDS),
            _ if store => 8 * draw.below(PERSISTENT_LEN / 8),
            _ if flush => 4 * draw.below(PERSISTENT_LEN / 4),
            _ => 4 * draw.below(room + 1),
        };
        let mut remote_addr = memory::base(peer, region) + at as u64;
        let mut rkey = memory::stag(peer, region);
        let own = if op == Op::Read || atomic { SINKS } else { SOURCE };
        let inline = own == SOURCE && len <= MAX_INLINE && (store || draw.chance(self.inline));
        let mut entries = self.entries(draw, me, own, len, if atomic { 1 } else { MAX_SGE });
        if let Some(last) = last.filter(|_| draw.below(2) == 0) {
            // It goes on where that one ended, at the peer and maybe here. It does not wrap to address 0: the
            // checker takes a write of nothing to there for a probe.
            let end = memory::base(peer, region) + memory::len(region) as u64;
            let is_within = |next: &u64| next.checked_add(len as u64).is_some_and(|next| next <= end);
            let next = last.remote_addr.checked_add(u64::from(last.len)).filter(is_within);
            if let Some(next) = next.filter(|_| last.rkey == rkey) {
                remote_addr = next;
            }
            if let Local::Memory { addr, lkey } = last.local {
                // That one may have been out of bounds.
                let (next, begin) = (addr + u64::from(last.len), memory::base(me, own));
                let is_within = begin <= next && next + len as u64 <= begin + memory::len(own) as u64;
                if lkey == memory::stag(me, own) && len > 0 && is_within {
                    entries = Entries::from_iter([Sge::new(next, len as u32, lkey)]);
                }
            }
        }
        let contents = inline.then(|| {
            let bytes_of = |entry: &Sge| memory.at(entry.addr, entry.len as usize);
            let bytes: Vec<u8> = entries.iter().flat_map(bytes_of).copied().collect();
            Local::inline(&bytes).unwrap()
        });
        if op == Op::SendWithInv {
            rkey = memory::window(peer, index);
        }
        if draw.chance(self.bad_request) {
            match draw.below(8) {
                0 => rkey = 0x999,
                1 => remote_addr = memory::base(peer, region) + memory::len(region) as u64,
                2 => remote_addr = u64::MAX - 3,
                3 => rkey = memory::stag(peer, RECEIVES),
                7 if atomic || store => remote_addr += 4,
                wrong if !entries.is_empty() => {
                    let which = draw.below(entries.len());
                    let Sge { addr, len, .. } = entries[which];
                    entries[which] = match wrong {
                        4 => Sge::new(addr, len, 0x998),
                        5 => Sge::new(memory::base(me, own) - 4, len, memory::stag(me, own)),
                        _ => Sge::new(addr, len, memory::stag(me, SOURCE)),
                    };
                }
                _ => {}
            }
        }
        // Few different values, so that a comparison succeeds now and then.
        let (compare_add, swap) = (draw.below(3) as u64, draw.below(3) as u64);
        let contents = match entries.first() {
            Some(sink) if atomic => {
                Some(Local::Atomic { addr: sink.addr, lkey: sink.lkey(), compare_add, swap })
            }
            _ => contents,
        };
        let contents = if flush {
            let len = 1 + draw.below(PERSISTENT_LEN - at) as u32;
            let rights = draw.one_of(&[FLUSH_GLOBAL, FLUSH_PERSISTENT, FLUSH_GLOBAL | FLUSH_PERSISTENT]);
            Some(Local::Flush { len, rights, whole: draw.below(4) == 0 })
        } else {
            contents
        };
        SendWr {
            wr_id: 10_000 + index as u64,
            op,
            signaled: !draw.chance(self.unsignaled),
            fence: draw.chance(self.fence),
            solicited: draw.below(2) == 0,
            imm: (index as u32 * 77 + me as u32).to_be_bytes(),
            local: contents.unwrap_or_else(|| Local::memory(&entries).unwrap()),
            len: len as u32,
            remote_addr,
            rkey,
            to: None,
        }
    }
}
