// SPDX-License-Identifier: BSD-3-Clause
//! One-sided operations that the host carries out directly: RDMA Writes and Reads by copies, atomic
//! operations and atomic writes by one access to a word.
//!
//! They are ordered with requests that go over the link, since they begin only when nothing else is
//! outstanding: all earlier requests are completed, no FPDU is queued, and the peer has acted on everything
//! that was sent (the host ensures that). They are complete before the next request is
//! processed, so they satisfy a fence. A request that the host does not carry out, for whatever reason, goes
//! over the link, which also reports an error on both sides.

use super::{Failure, Progress, SendHalf};
use crate::direct::{self, NoResult};
use crate::iwarp::conn::Offered;
use crate::iwarp::link::StreamLink;
use crate::step::Quota;
use crate::units::Errno;
use crate::wr::{Op, SendWr, WORD, status};

/// The result of [`SendHalf::transfer`].
pub(super) enum Transferred {
    /// One or more requests are complete.
    Requests,
    /// The budget is used up before the next request is complete.
    Part,
    /// The next request goes over the link, if there is one.
    Nothing,
}

impl SendHalf {
    /// Carries out the next requests directly, if possible.
    pub(super) fn transfer(
        &mut self,
        host: &mut impl StreamLink,
        budget: &mut Quota,
    ) -> Result<Transferred, Failure> {
        loop {
            let Some(first) = self.transferable() else { return Ok(self.not_transferred()) };
            if budget.is_used_up() {
                return Ok(Transferred::Part);
            }
            let n = self.carry_out(host, first)?;
            if n == 0 {
                return Ok(self.not_transferred());
            }
            let operation = direct::operation(&self.sq, first);
            let requests = self.carried_out(first, n);
            host.transferred(operation, requests as u64, n as u64);
            budget.charge(requests.max(1), n);
            if requests > 0 {
                return Ok(Transferred::Requests);
            }
        }
    }

    /// Carries out a request that is not in the send queue, directly or as a message. `Err`: the link has
    /// failed.
    #[inline]
    pub(in super::super) fn carry_out_alone(
        &mut self,
        host: &mut impl StreamLink,
        wr: &SendWr,
        qp_num: u32,
    ) -> Result<Offered, Errno> {
        if !(self.transfers && self.sq.is_empty() && self.may_transfer()) {
            return Ok(Offered::Refused);
        }
        if wr.op == Op::Send {
            return self.send_alone(host, wr, qp_num);
        }
        if !self.permits(wr) {
            return Ok(Offered::Refused);
        }
        let n = match wr.is_of_word() {
            // If the result of an atomic operation cannot be stored, that is the failure of a queued request.
            true if wr.is_atomic() => 0,
            true => direct::carry_out_word(host, wr).map_or(0, |done| if done { WORD } else { 0 }),
            false => host.transfer_one(wr).min(wr.len as usize),
        };
        let is_complete = n == wr.len as usize;
        if n > 0 {
            host.transferred(direct::served(wr), u64::from(is_complete), n as u64);
        }
        if is_complete {
            self.answer_next = true;
            self.sq.complete(wr, host, qp_num);
            return Ok(Offered::Complete);
        }
        // The rest follows once the request is in the queue.
        (self.taken, self.copied_directly) = (n as u32, n > 0);
        Ok(Offered::Refused)
    }

    /// The position of the next request, if it may be carried out now.
    fn transferable(&self) -> Option<u64> {
        let position = self.sq.next_alone()?;
        self.may_transfer().then_some(())?;
        self.permits(&self.sq.entry(position)?.wr).then_some(position)
    }

    /// Whether the next request may be carried out, if no earlier one is outstanding.
    #[inline]
    fn may_transfer(&self) -> bool {
        let begun = self.stage > 0 || (self.taken > 0 && !self.copied_directly);
        // It is the turn of a response.
        let answer = self.answer_next && self.responses.front().is_some_and(|response| response.released);
        let free = self.queue.is_empty() && !self.answering && !answer && !begun;
        // In the opening phase the order in which the two sides send is fixed.
        free && !self.is_limited()
    }

    fn permits(&self, wr: &SendWr) -> bool {
        // iWARP has no separate operation for atomic writes.
        let is_permitted = wr.op == Op::Write || (self.framing.ord > 0 && wr.op != Op::AtomicWrite);
        wr.transferable() && is_permitted
    }

    /// Whether a request waits until earlier reads are complete because the host is then likely to carry it
    /// out. Otherwise each read over the link would force the next one onto the link, too.
    pub(super) fn waits_to_transfer(&self, host: &impl StreamLink, wr: &SendWr) -> bool {
        let begun = self.taken > 0 || self.stage > 0;
        self.reads_open > 0 && !begun && self.permits(wr) && host.may_transfer(wr.remote(0))
    }

    /// Carries out requests from the `first` one on, whose first `taken` bytes are done. Returns the number
    /// of further bytes that were copied.
    fn carry_out(&self, host: &mut impl StreamLink, first: u64) -> Result<usize, Failure> {
        direct::carry_out(host, &self.sq, first, self.taken, |wr| self.permits(wr))
            .map_err(|NoResult| Failure::Request { position: first, status: status::LOC_PROT_ERR })
    }

    /// Records that `n` further bytes of the requests from the `first` one on were copied. Returns how many
    /// requests that completes.
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

    /// The rest of the next request goes over the link; a read goes over it entirely, as it is one Read
    /// Request.
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
