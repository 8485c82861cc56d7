// SPDX-License-Identifier: BSD-3-Clause
//! The receive queue: the receive that the current message fills, and completions for which the completion
//! queue has no room.
//!
//! Posted receives stay with the host until a message needs one. While a completion is kept here because the
//! completion queue is full, no receive is taken, so a connection holds at most one receive then.

use std::collections::VecDeque;

use crate::host::Host;
use crate::wr::{Completion, RecvWr, opcode, status};

/// The receive that the current message fills.
pub(crate) struct Current {
    pub wr: RecvWr,
    pub filled: u32,
}

/// No receive is posted for a message, and the connection does not wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoReceive;

/// Receives of one connection. `pub` because a public trait names it; it cannot be named outside.
pub struct RecvQueue {
    qp_num: u32,
    /// Whether a message without a receive waits for one, as with an unlimited RNR retry count.
    pub(crate) wait_for_receives: bool,
    pub(crate) current: Option<Current>,
    /// The status of the current receive if its message is refused, which ends the connection.
    refused: Option<u32>,
    kept: VecDeque<Completion>,
    taken: u64,
}

impl RecvQueue {
    pub(crate) fn new(qp_num: u32) -> Self {
        Self {
            qp_num,
            wait_for_receives: true,
            current: None,
            refused: None,
            kept: VecDeque::new(),
            taken: 0,
        }
    }

    /// Takes the next posted receive. `None`: the message must wait for one, or for room in the completion
    /// queue.
    pub(crate) fn take(&mut self, host: &mut impl Host) -> Result<Option<RecvWr>, NoReceive> {
        if self.keeps_completions() {
            return Ok(None);
        }
        match host.next_receive() {
            Some(wr) => {
                self.taken += 1;
                Ok(Some(wr))
            }
            None if self.wait_for_receives => Ok(None),
            None => Err(NoReceive),
        }
    }

    /// The number of receives taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Hands a completion to the program, after those that are kept.
    pub(crate) fn complete(&mut self, host: &mut impl Host, completion: Completion) {
        self.kept.push_back(Completion { qp_num: self.qp_num, ..completion });
        self.deliver_kept(host);
    }

    /// Completes the current receive with an error.
    pub(crate) fn fail_current(&mut self, host: &mut impl Host, status: u32) {
        if let Some(Current { wr, .. }) = self.current.take() {
            let opcode = opcode::RECV;
            self.complete(host, Completion { wr_id: wr.wr_id, status, opcode, ..Completion::default() });
        }
    }

    /// The message of the current receive is refused. The receive completes with this status when the
    /// connection ends ([`Self::flush`]): a program that polls the completion finds the queue pair in ERR.
    pub(crate) fn refuse_current(&mut self, status: u32) {
        self.refused = Some(status);
    }

    /// Whether any completions are kept because the completion queue is full.
    pub(crate) fn keeps_completions(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Hands the kept completions to the program; true if none is left.
    pub(crate) fn deliver_kept(&mut self, host: &mut impl Host) -> bool {
        while let Some(completion) = self.kept.front() {
            if !host.complete_receive(*completion) {
                return false;
            }
            self.kept.pop_front();
        }
        true
    }

    /// The connection has ended: completes the current receive, with a flush error unless its message is
    /// refused, and, if the receive queue is not shared, all posted ones. The caller repeats this for
    /// receives that are posted later.
    pub(crate) fn flush(&mut self, host: &mut impl Host, own_receives: bool) {
        let status = self.refused.take().unwrap_or(status::WR_FLUSH_ERR);
        self.fail_current(host, status);
        while self.deliver_kept(host) && own_receives {
            let Some(wr) = host.next_receive() else { return };
            self.current = Some(Current { wr, filled: 0 });
            self.fail_current(host, status::WR_FLUSH_ERR);
        }
    }
}
