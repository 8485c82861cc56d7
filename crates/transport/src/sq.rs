// SPDX-License-Identifier: BSD-3-Clause
//! The send queue: work requests from the moment the connection takes them until they are completed, in
//! posting order.

use std::collections::VecDeque;

use crate::host::Host;
use crate::units::Errno;
use crate::wr::{Completion, SendWr, status};
use reserve::try_deque;

/// The progress of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The link has not accepted all of it.
    Queued,
    /// A read or an atomic operation whose response is awaited.
    Awaiting,
    /// Complete, with this status; the work completion may still wait for earlier requests or for room in the
    /// completion queue.
    Done(u32),
}

/// A work request in the queue.
#[derive(Debug)]
pub(crate) struct Entry {
    pub wr: SendWr,
    pub progress: Progress,
    /// Bytes of a read's response placed so far.
    pub received: u32,
}

/// The work requests, each at a position. Positions only increase.
pub(crate) struct SendQueue {
    /// Those from `head` on; has memory for `capacity` of them.
    entries: VecDeque<Entry>,
    capacity: usize,
    /// The oldest request that is not completed, and the first without FPDUs.
    head: u64,
    next: u64,
    /// The oldest request whose response may be awaited.
    awaiting: u64,
}

impl SendQueue {
    /// ENOMEM.
    pub(crate) fn new(capacity: u32) -> Result<Self, Errno> {
        let capacity = capacity as usize;
        let entries = try_deque(capacity).ok_or(libc::ENOMEM)?;
        Ok(Self { entries, capacity, head: 0, next: 0, awaiting: 0 })
    }

    /// The position of the next request that is added.
    pub(crate) fn tail(&self) -> u64 {
        self.head + self.entries.len() as u64
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Requests that are not completed.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether one of them is unsignalled.
    pub(crate) fn has_unsignaled(&self) -> bool {
        self.entries.iter().any(|entry| !entry.wr.signaled)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The request at a position between head and tail.
    pub(crate) fn at(&mut self, position: u64) -> Option<&mut Entry> {
        self.entries.get_mut(position.checked_sub(self.head)? as usize)
    }

    /// As [`Self::at`], for reading.
    pub(crate) fn entry(&self, position: u64) -> Option<&Entry> {
        self.entries.get(position.checked_sub(self.head)? as usize)
    }

    /// The link has accepted all of a request.
    pub(crate) fn sent(&mut self, position: u64) {
        match self.at(position) {
            Some(entry) if entry.progress == Progress::Queued => {
                entry.progress =
                    if entry.wr.is_answered() { Progress::Awaiting } else { Progress::Done(status::SUCCESS) };
            }
            _ => {}
        }
    }

    /// Adds a request and returns its position. The queue must not be full ([`Self::is_full`]).
    pub(crate) fn push(&mut self, wr: SendWr) -> u64 {
        self.entries.push_back(Entry { wr, progress: Progress::Queued, received: 0 });
        self.tail() - 1
    }

    /// [`Self::next_position`] if all earlier requests are completed.
    pub(crate) fn next_alone(&self) -> Option<u64> {
        self.next_position().filter(|next| *next == self.head)
    }

    /// The position of the first request without FPDUs, if any.
    pub(crate) fn next_position(&self) -> Option<u64> {
        (self.next < self.tail()).then_some(self.next)
    }

    /// All FPDUs of the request at [`Self::next_position`] have been made.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// The oldest read or atomic operation whose response is awaited, and its position.
    pub(crate) fn oldest_awaited(&mut self) -> Option<(u64, &mut Entry)> {
        self.awaiting = self.awaiting.max(self.head);
        while self.awaiting < self.next {
            match self.entry(self.awaiting)?.progress {
                Progress::Awaiting => return Some((self.awaiting, self.at(self.awaiting)?)),
                // The link has not accepted all of it, so it cannot have a response yet.
                Progress::Queued => return None,
                Progress::Done(_) => self.awaiting += 1,
            }
        }
        None
    }

    /// Fails every request that is not complete, and all requests after it, with a flush error: a program
    /// that sees a request fail may conclude that no later one has succeeded, even if the link had already
    /// accepted a write.
    pub(crate) fn fail_all(&mut self) {
        let mut failed = false;
        for entry in &mut self.entries {
            failed |= entry.progress != Progress::Done(status::SUCCESS);
            if failed && !matches!(entry.progress, Progress::Done(code) if code != status::SUCCESS) {
                entry.progress = Progress::Done(status::WR_FLUSH_ERR);
            }
        }
        self.next = self.tail();
    }

    /// Completes a request that has succeeded without being in the queue, which is empty. The queue takes it
    /// if the completion queue is full.
    #[inline]
    pub(crate) fn complete(&mut self, wr: &SendWr, host: &mut impl Host, qp_num: u32) {
        if !wr.signaled {
            host.release_send();
        } else if !host.complete_send(completion(wr, status::SUCCESS, qp_num)) {
            let position = self.push(wr.clone());
            self.advance();
            if let Some(entry) = self.at(position) {
                entry.progress = Progress::Done(status::SUCCESS);
            }
        }
    }

    /// Hands the completions of finished requests to the host, in order. Stops at the first unfinished
    /// request, or when the completion queue is full.
    pub(crate) fn retire(&mut self, host: &mut impl Host, qp_num: u32) {
        while self.head < self.next {
            let Some(Entry { wr, progress: Progress::Done(status), .. }) = self.entries.front() else {
                return;
            };
            if wr.signaled || *status != status::SUCCESS {
                if !host.complete_send(completion(wr, *status, qp_num)) {
                    return;
                }
            } else {
                host.release_send();
            }
            self.entries.pop_front();
            self.head += 1;
        }
    }

    /// The connection has ended: completes with a flush error what is outstanding, and what was posted since.
    pub(crate) fn flush(&mut self, host: &mut impl Host, qp_num: u32) {
        loop {
            let mut taken = false;
            while !self.is_full() {
                let Some(wr) = host.next_send() else { break };
                self.push(wr);
                taken = true;
            }
            self.fail_all();
            self.retire(host, qp_num);
            if !taken || self.is_full() {
                break;
            }
        }
    }
}

#[inline]
fn completion(wr: &SendWr, status: u32, qp_num: u32) -> Completion {
    Completion {
        wr_id: wr.wr_id,
        status,
        opcode: wr.op.completion_opcode(),
        byte_len: wr.len,
        qp_num,
        ..Completion::default()
    }
}
