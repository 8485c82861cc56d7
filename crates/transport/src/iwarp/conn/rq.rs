// SPDX-License-Identifier: BSD-3-Clause
//! The receive queue: the receive that a message is filling, and the completions of receives until the
//! program has them.
//!
//! Posted receives wait with the host; one is taken when a message needs it. A completion that the completion
//! queue has no room for is kept here, and no receive is taken while one is: a full completion queue makes a
//! connection hold one receive at most.

use std::collections::VecDeque;

use crate::host::Host;
use crate::wr::{Completion, RecvWr, opcode, status};

/// The receive that a message is filling.
pub(super) struct Current {
    pub wr: RecvWr,
    pub filled: u32,
}

/// There is no receive for a message, and the connection is not set up to wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoReceive;

pub(super) struct RecvQueue {
    qp_num: u32,
    /// A message without a receive waits for one, as with an unlimited RNR retry count.
    pub wait_for_receives: bool,
    pub current: Option<Current>,
    kept: VecDeque<Completion>,
    taken: u64,
}

impl RecvQueue {
    pub(super) fn new(qp_num: u32) -> Self {
        Self { qp_num, wait_for_receives: true, current: None, kept: VecDeque::new(), taken: 0 }
    }

    /// Takes the next posted receive; `None`: the message waits for one, or for room in the completion queue.
    pub(super) fn take(&mut self, host: &mut impl Host) -> Result<Option<RecvWr>, NoReceive> {
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

    /// How many receives were taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Hands a completion to the program, behind those that are kept.
    pub(super) fn complete(&mut self, host: &mut impl Host, completion: Completion) {
        self.kept.push_back(Completion { qp_num: self.qp_num, ..completion });
        self.deliver_kept(host);
    }

    /// Ends the current receive with an error.
    pub(super) fn fail_current(&mut self, host: &mut impl Host, status: u32) {
        if let Some(Current { wr, .. }) = self.current.take() {
            let opcode = opcode::RECV;
            self.complete(host, Completion { wr_id: wr.wr_id, status, opcode, ..Completion::default() });
        }
    }

    /// Whether the completion queue had no room for something.
    pub(super) fn keeps_completions(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Hands over what the completion queue had no room for; true when nothing is left.
    pub(super) fn deliver_kept(&mut self, host: &mut impl Host) -> bool {
        while let Some(completion) = self.kept.front() {
            if !host.complete_receive(*completion) {
                return false;
            }
            self.kept.pop_front();
        }
        true
    }

    /// The connection has ended: the current receive ends with a flush error, and, if the receive queue is
    /// the connection's own, all that are and will be posted.
    pub(super) fn flush(&mut self, host: &mut impl Host, own_receives: bool) {
        self.fail_current(host, status::WR_FLUSH_ERR);
        while self.deliver_kept(host) && own_receives {
            let Some(wr) = host.next_receive() else { return };
            self.current = Some(Current { wr, filled: 0 });
            self.fail_current(host, status::WR_FLUSH_ERR);
        }
    }
}
