// SPDX-License-Identifier: BSD-3-Clause
//! The send queue: work requests from the moment the connection takes them until they are completed, in
//! posting order.

use crate::host::Host;
use crate::units::Errno;
use crate::wr::{Completion, SendWr, status};
use reserve::try_filled;

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

/// The ring of work requests. Positions only increase; the ring index is the position modulo the length. That
/// is a power of two, since each request is looked up several times and a division would dominate the
/// look-up.
pub(crate) struct SendQueue {
    ring: Box<[Option<Entry>]>,
    capacity: u64,
    /// The oldest request that is not completed, the first without FPDUs, and the end.
    head: u64,
    next: u64,
    tail: u64,
    /// The oldest request whose response may be awaited.
    awaiting: u64,
}

impl SendQueue {
    /// ENOMEM.
    pub(crate) fn new(capacity: u32) -> Result<Self, Errno> {
        let ring = try_filled((capacity as usize).next_power_of_two(), || None).ok_or(libc::ENOMEM)?;
        Ok(Self { ring, capacity: capacity.into(), head: 0, next: 0, tail: 0, awaiting: 0 })
    }

    fn index(&self, position: u64) -> usize {
        position as usize & (self.ring.len() - 1)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.head >= self.capacity
    }

    /// Requests that are not completed.
    pub(crate) fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    /// Whether one of them is unsignalled.
    pub(crate) fn has_unsignaled(&self) -> bool {
        (self.head..self.tail).any(|position| self.entry(position).is_some_and(|entry| !entry.wr.signaled))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// The request at a position between head and tail.
    pub(crate) fn at(&mut self, position: u64) -> Option<&mut Entry> {
        if position < self.head || position >= self.tail {
            return None;
        }
        let index = self.index(position);
        self.ring[index].as_mut()
    }

    /// As [`Self::at`], for reading.
    pub(crate) fn entry(&self, position: u64) -> Option<&Entry> {
        if position < self.head || position >= self.tail {
            return None;
        }
        self.ring[self.index(position)].as_ref()
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
        let index = self.index(self.tail);
        self.ring[index] = Some(Entry { wr, progress: Progress::Queued, received: 0 });
        self.tail += 1;
        self.tail - 1
    }

    /// [`Self::next_position`] if all earlier requests are completed.
    pub(crate) fn next_alone(&self) -> Option<u64> {
        self.next_position().filter(|next| *next == self.head)
    }

    /// The position of the first request without FPDUs, if any.
    pub(crate) fn next_position(&self) -> Option<u64> {
        (self.next < self.tail).then_some(self.next)
    }

    /// All FPDUs of the request at [`Self::next_position`] have been made.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// The oldest read or atomic operation whose response is awaited, and its position.
    pub(crate) fn oldest_awaited(&mut self) -> Option<(u64, &mut Entry)> {
        self.awaiting = self.awaiting.max(self.head);
        while self.awaiting < self.next {
            let index = self.index(self.awaiting);
            match &self.ring[index] {
                Some(entry) if entry.progress == Progress::Awaiting => {
                    return Some((self.awaiting, self.ring[index].as_mut()?));
                }
                // The link has not accepted all of it, so it cannot have a response yet.
                Some(entry) if entry.progress == Progress::Queued => return None,
                _ => self.awaiting += 1,
            }
        }
        None
    }

    /// Fails every request that is not complete, and all requests after it, with a flush error: a program
    /// that sees a request fail may conclude that no later one has succeeded, even if the link had already
    /// accepted a write.
    pub(crate) fn fail_all(&mut self) {
        let mut failed = false;
        for position in self.head..self.tail {
            let index = self.index(position);
            if let Some(entry) = &mut self.ring[index] {
                failed |= entry.progress != Progress::Done(status::SUCCESS);
                if failed && !matches!(entry.progress, Progress::Done(code) if code != status::SUCCESS) {
                    entry.progress = Progress::Done(status::WR_FLUSH_ERR);
                }
            }
        }
        self.next = self.tail;
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
            let index = self.index(self.head);
            let Some(Entry { wr, progress: Progress::Done(status), .. }) = &self.ring[index] else { return };
            if wr.signaled || *status != status::SUCCESS {
                if !host.complete_send(completion(wr, *status, qp_num)) {
                    return;
                }
            } else {
                host.release_send();
            }
            self.ring[index] = None;
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
