// SPDX-License-Identifier: BSD-3-Clause
//! RDMA Writes and Reads that the host carries out itself, by direct copy.
//!
//! The order is that of the link, as they begin only when nothing else is under way: all requests before them
//! are completed, nothing waits in FPDUs, and the peer has acted on everything that the link was given (the
//! host knows, [`Host::transfer`]). They are over before the next request is looked at, so a fence has
//! nothing to wait for. What the host does not do, for whatever reason, goes over the link: that produces the
//! right error, and the peer its part of it.
//!
//! Small requests of one kind and with one key are carried out together, in order: the host needs one system
//! call for all of them. Ranges that follow one another become one.

use arrayvec::ArrayVec;

use super::{Entry, Progress, SendHalf};
use crate::access::{Access, LOCAL_WRITE};
use crate::host::{Host, Part};
use crate::limits::{MAX_SGE, MAX_TOGETHER};
use crate::step::Quota;
use crate::wr::{Local, Op, SendWr, status};

/// Most bytes of several requests that are carried out together.
const TOGETHER_BYTES: usize = 64 * 1024;

/// What came of [`SendHalf::transfer`].
pub(super) enum Transferred {
    /// One or more requests are over.
    Requests,
    /// The next one goes on when there is a budget for it.
    Part,
    /// The link is the way.
    Nothing,
}

impl SendHalf {
    /// Has the next requests carried out by direct copy, if that is possible.
    pub(super) fn transfer(&mut self, host: &mut impl Host, budget: &mut Quota) -> Transferred {
        loop {
            let Some(first) = self.transferable() else { return self.not_transferred() };
            if budget.is_used_up() {
                return Transferred::Part;
            }
            let n = self.carry_out(host, first);
            if n == 0 {
                return self.not_transferred();
            }
            let requests = self.carried_out(first, n);
            budget.charge(requests.max(1), n);
            if requests > 0 {
                return Transferred::Requests;
            }
        }
    }

    /// The position of the next request, if it may be carried out now.
    fn transferable(&self) -> Option<u64> {
        let position = self.sq.next_alone()?;
        let begun = self.stage > 0 || (self.taken > 0 && !self.copied_directly);
        // An answer that has waited for a request has its turn.
        let answer = self.answer_next && self.responses.front().is_some_and(|response| response.released);
        let free = self.queue.is_empty() && !self.answering && !answer && !begun;
        // While the connection begins, there is an order in which the two ends speak.
        if !free || self.is_limited() {
            return None;
        }
        self.permits(&self.sq.entry(position)?.wr).then_some(position)
    }

    fn permits(&self, wr: &SendWr) -> bool {
        wr.transferable() && (wr.op == Op::Write || self.framing.ord > 0)
    }

    /// Whether a request stays until the reads before it are answered, since then the host can most probably
    /// carry it out: reads that went over the link would each keep the next one there.
    pub(super) fn waits_to_transfer(&self, host: &impl Host, wr: &SendWr) -> bool {
        let begun = self.taken > 0 || self.stage > 0;
        self.transfers && self.reads_open > 0 && !begun && self.permits(wr) && host.may_transfer(wr.remote(0))
    }

    /// Has the requests from the `first` one on carried out, of which `taken` bytes are done; gives how many
    /// bytes more are.
    fn carry_out(&self, host: &mut impl Host, first: u64) -> usize {
        let mut ranges = ArrayVec::<Access, MAX_TOGETHER>::new();
        let mut local = ArrayVec::<Part<'_>, { MAX_TOGETHER + MAX_SGE }>::new();
        let (mut from, mut bytes, mut kind) = (self.taken, 0, None);
        for position in first.. {
            let Some(Entry { wr, .. }) = self.sq.entry(position) else { break };
            let len = (wr.len - from) as usize;
            let fits = !ranges.is_full() && local.len() < MAX_TOGETHER && bytes + len <= TOGETHER_BYTES;
            if kind.is_some_and(|kind| kind != (wr.op, wr.rkey) || !fits || !self.permits(wr)) {
                break;
            }
            kind = Some((wr.op, wr.rkey));
            let own_rights = if wr.is_read() { LOCAL_WRITE } else { 0 };
            let access = wr.remote(from);
            if !ranges.last_mut().is_some_and(|last| last.append(access)) {
                ranges.push(access);
            }
            match &wr.local {
                Local::Inline(inline) => local.push(Part::Bytes(&inline[from as usize..][..len])),
                Local::LongInline(inline) => local.push(Part::Bytes(&inline[from as usize..][..len])),
                memory => {
                    for part in memory.parts(from, len, own_rights) {
                        let last = local
                            .last_mut()
                            .and_then(|last| if let Part::Memory(last) = last { Some(last) } else { None });
                        if !last.is_some_and(|last| last.append(part)) {
                            local.push(Part::Memory(part));
                        }
                    }
                }
            }
            from = 0;
            bytes += len;
        }
        host.transfer(&ranges, &local).min(bytes)
    }

    /// So many bytes more of the requests from the `first` one on are done; says how many of these are over.
    fn carried_out(&mut self, first: u64, mut n: usize) -> usize {
        let mut over = 0;
        for position in first.. {
            let Some(entry) = self.sq.at(position).filter(|_| n > 0) else { break };
            let left = (entry.wr.len - self.taken) as usize;
            self.copied_directly = n < left;
            if n < left {
                self.taken += n as u32;
                break;
            }
            entry.progress = Progress::Done(status::SUCCESS);
            self.message_taken(true);
            n -= left;
            over += 1;
        }
        over
    }

    /// The rest of the next request goes over the link: of a read all of it, as the peer is asked for it in
    /// one message.
    fn not_transferred(&mut self) -> Transferred {
        if std::mem::take(&mut self.copied_directly) {
            let is_read = |position| self.sq.entry(position).is_some_and(|entry| entry.wr.is_read());
            if self.sq.next_position().is_some_and(is_read) {
                self.taken = 0;
            }
        }
        Transferred::Nothing
    }
}
