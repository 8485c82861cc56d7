// SPDX-License-Identifier: BSD-3-Clause
//! One-sided operations that the host carries out directly: RDMA Writes and Reads by copies, atomic
//! operations and atomic writes by one access to a word.
//!
//! They are ordered with requests that go over the link, since they begin only when nothing else is
//! outstanding: the peer has acknowledged all that was sent, so it has carried that out. They are complete
//! before the next request is begun, and take no PSN. A request that the host does not carry out, for
//! whatever reason, goes over the link as a whole, which also reports an error.

use super::Requester;
use crate::direct::{self, NoResult};
use crate::roce::link::PacketLink;
use crate::roce::rc::ending::{End, Failed};
use crate::sq::Progress;
use crate::step::Quota;
use crate::wr::{SendWr, status};

/// From so many bytes on a request waits until those before it are acknowledged, if the host is then likely
/// to carry it out. A fixed trade-off, no prediction: the packets of a shorter one take no longer than the
/// wait.
const WORTH_WAITING: u32 = 16 << 10;

/// The result of [`Requester::transfer`].
pub(super) enum Transferred {
    /// One or more requests are complete.
    Requests,
    /// The budget is used up before the next request is complete.
    Part,
    /// The next request goes over the link, if there is one.
    Nothing,
}

/// Whether a request waits for those before it.
pub(super) fn waits_to_transfer(host: &impl PacketLink, wr: &SendWr) -> bool {
    wr.len >= WORTH_WAITING && wr.transferable() && host.may_transfer(wr.remote(0))
}

impl Requester {
    /// Carries out the next requests directly, if possible.
    pub(super) fn transfer(
        &mut self,
        host: &mut impl PacketLink,
        budget: &mut Quota,
    ) -> Result<Transferred, End> {
        while let Some(first) = self.transferable() {
            if budget.is_used_up() {
                return Ok(Transferred::Part);
            }
            let n = self.carry_out(host, first)?;
            if n == 0 {
                break;
            }
            let operation = direct::operation(&self.sq, first);
            let requests = self.carried_out(first, n);
            host.transferred(operation, requests as u64, n as u64);
            budget.charge(requests.max(1), n);
            if requests > 0 {
                return Ok(Transferred::Requests);
            }
        }
        self.copied = 0;
        Ok(Transferred::Nothing)
    }

    /// Carries out requests from the `first` one on, whose first `copied` bytes are done. Returns the number
    /// of further bytes that were copied.
    fn carry_out(&self, host: &mut impl PacketLink, first: u64) -> Result<usize, End> {
        let permits = |wr: &SendWr| !self.is_draining && wr.transferable();
        direct::carry_out(host, &self.sq, first, self.copied, permits)
            .map_err(|NoResult| End::Request(Failed { position: first, status: status::LOC_PROT_ERR }))
    }

    /// The position of the next request, if it may be carried out now.
    fn transferable(&self) -> Option<u64> {
        let position = self.sq.next_position().filter(|_| self.messages.is_empty())?;
        self.sq.entry(position)?.wr.transferable().then_some(position)
    }

    /// Records that `n` further bytes of the requests from the `first` one on were copied. Returns how many
    /// requests that completes.
    fn carried_out(&mut self, first: u64, mut n: usize) -> usize {
        let mut over = 0;
        for position in first.. {
            let Some(entry) = self.sq.at(position).filter(|_| n > 0) else { break };
            let left = (entry.wr.len - self.copied) as usize;
            if n < left {
                self.copied += n as u32;
                break;
            }
            entry.progress = Progress::Done(status::SUCCESS);
            self.sq.advance();
            self.copied = 0;
            n -= left;
            over += 1;
        }
        over
    }
}
