// SPDX-License-Identifier: BSD-3-Clause
//! Checks of direct copies and accesses to words: only the next request, once all earlier ones are complete
//! at both ends.

use super::{Checker, Outbound};
use crate::access::Access;
use crate::wr::Op;

impl<O: Outbound> Checker<O> {
    /// Bytes of the next request of a side are about to be transferred; the rest of it begins at `remote`.
    /// Returns their number.
    pub(in crate::sim) fn transfers(&mut self, side: usize, remote: Access) -> usize {
        let model = &self.sides[side];
        let index = model.outbound.next();
        assert!(index < model.taken, "side {side} transfers what was not posted");
        assert!(model.outbound.is_between(), "side {side} transfers in the middle of a message");
        let before = &model.requests[model.done..index];
        assert!(
            before.iter().all(|posted| posted.transferred),
            "side {side} transfers with requests outstanding"
        );
        let messages = model.requests[..index].iter().filter(|posted| posted.is_message()).count();
        let wr = model.requests[index].wr.clone();
        assert!(matches!(wr.op, Op::Write | Op::Read) || wr.is_atomic(), "{:?} is no transfer", wr.op);
        let all = wr.len as usize;
        let done = match model.part_transferred {
            // A read that could not be sent over the link begins again.
            (part_of, done) if part_of == index && !(wr.is_read() && remote.addr == wr.remote_addr) => done,
            _ => 0,
        };
        assert!(
            remote.stag == wr.rkey && remote.addr == wr.remote_addr + done as u64,
            "another range than that of the request"
        );
        assert!(remote.len >= all - done, "less than the request");
        assert_eq!(
            self.sides[1 - side].delivered,
            messages,
            "side {side} passes a message that is not delivered"
        );
        if let Some(before) = index.checked_sub(1) {
            self.placed_up_to(1 - side, before, "a transfer");
        }
        all - done
    }

    /// So many of the bytes that were left have been transferred; if all are the request is over.
    pub(in crate::sim) fn transferred(&mut self, side: usize, n: usize, left: usize) {
        let model = &mut self.sides[side];
        let index = model.outbound.next();
        if n < left {
            model.part_transferred = (index, model.requests[index].wr.len as usize - left + n);
            return;
        }
        model.outbound.skip();
        let posted = &mut model.requests[index];
        posted.transferred = true;
        if posted.wr.is_read() {
            self.skip_answer(side, index);
        }
    }

    /// The result of a request that was transferred is placed. No answer comes for it: it is none of those
    /// that are counted.
    pub(super) fn skip_answer(&mut self, side: usize, index: usize) {
        let model = &mut self.sides[side];
        let number = model.requests[index].number;
        assert_eq!(number, model.placed_read, "a request with an answer passes another one");
        model.reads.remove(number);
        model.read_bytes = 0;
        for later in &mut model.requests[index + 1..] {
            later.number -= usize::from(later.wr.is_answered());
        }
    }
}
