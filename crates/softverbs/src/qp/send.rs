// SPDX-License-Identifier: BSD-3-Clause
//! The send queue: work requests from the moment they are posted until they are completed, in posting order.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cq::{Completion, Cq, status};
use crate::limits::MAX_INLINE;

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write,
    WriteWithImm,
    Read,
    Send,
    SendWithImm,
}

impl Op {
    /// The opcode of its completion: the values of `enum ibv_wc_opcode`.
    fn completion_opcode(self) -> u32 {
        match self {
            Op::Send | Op::SendWithImm => 0,
            Op::Write | Op::WriteWithImm => 1,
            Op::Read => 2,
        }
    }
}

/// Where the payload is, or for a read where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    /// Registered memory. Its key is checked each time bytes move.
    Memory { addr: u64, lkey: u32 },
    /// Bytes taken at posting time.
    Inline([u8; MAX_INLINE]),
}

/// How far a work request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not all of it has been given to the stream.
    Queued,
    /// A read whose response is awaited.
    Awaiting,
    /// Over, with this status; its completion may still have to wait for earlier requests or for room.
    Done(u32),
}

/// A posted work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wr {
    pub wr_id: u64,
    pub op: Op,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    /// Immediate data in the byte order of the wire.
    pub imm: [u8; 4],
    pub local: Local,
    pub len: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    pub progress: Progress,
    /// Bytes of a read's response placed so far.
    pub received: u32,
}

impl Wr {
    pub(crate) fn is_read(&self) -> bool {
        self.op == Op::Read
    }
}

/// The ring of posted work requests. Positions count up for ever; the ring index is the position modulo the capacity.
pub(crate) struct SendQueue {
    ring: Box<[Option<Wr>]>,
    /// The oldest request not completed, the first not given to the stream, and the end.
    head: u64,
    next: u64,
    tail: u64,
    /// The oldest read whose response may be awaited.
    reading: u64,
    /// Completions of this queue that the program has not polled yet: they hold their places, as on an adapter, so that a program whose
    /// completion queue is as long as its send queue can never overrun it.
    unpolled: Arc<AtomicU32>,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            ring: vec![None; capacity as usize].into_boxed_slice(),
            head: 0,
            next: 0,
            tail: 0,
            reading: 0,
            unpolled: Arc::new(AtomicU32::new(0)),
        }
    }

    fn index(&self, position: u64) -> usize {
        (position % self.ring.len() as u64) as usize
    }

    /// The request at a position between head and tail.
    pub(crate) fn at(&mut self, position: u64) -> Option<&mut Wr> {
        if position < self.head || position >= self.tail {
            return None;
        }
        let index = self.index(position);
        self.ring[index].as_mut()
    }

    /// The socket has taken the whole of a request.
    pub(crate) fn sent(&mut self, position: u64) {
        match self.at(position) {
            Some(wr) if wr.progress == Progress::Queued => {
                wr.progress = if wr.is_read() { Progress::Awaiting } else { Progress::Done(status::SUCCESS) };
            }
            _ => {}
        }
    }

    /// Adds a request; false when the queue is full.
    pub(crate) fn post(&mut self, wr: Wr) -> bool {
        let in_use = (self.tail - self.head) + u64::from(self.unpolled.load(Ordering::Relaxed));
        if in_use >= self.ring.len() as u64 {
            return false;
        }
        let index = self.index(self.tail);
        self.ring[index] = Some(wr);
        self.tail += 1;
        true
    }

    /// The position of the first request that was not given to the stream, if there is one.
    pub(crate) fn next_position(&self) -> Option<u64> {
        (self.next < self.tail).then_some(self.next)
    }

    /// How many requests were not given to the stream.
    pub(crate) fn waiting(&self) -> u32 {
        (self.tail - self.next) as u32
    }

    /// The request at [`Self::next_position`] was given to the stream as a whole.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// The oldest read whose response is awaited, and its position.
    pub(crate) fn oldest_read(&mut self) -> Option<(u64, &mut Wr)> {
        self.reading = self.reading.max(self.head);
        while self.reading < self.next {
            let index = self.index(self.reading);
            if matches!(&self.ring[index], Some(wr) if wr.is_read() && wr.progress == Progress::Awaiting) {
                let position = self.reading;
                return self.ring[index].as_mut().map(|wr| (position, wr));
            }
            // A read that was given to the stream but not sent as a whole is awaited later.
            if matches!(&self.ring[index], Some(wr) if wr.progress == Progress::Queued) {
                return None;
            }
            self.reading += 1;
        }
        None
    }

    /// Ends everything that is not over yet with a flush error, and with it whatever was posted behind: a program that sees one
    /// request fail may conclude that none behind it has succeeded, also where the stream had taken a write already.
    pub(crate) fn fail_all(&mut self) {
        let mut failed = false;
        for position in self.head..self.tail {
            let index = self.index(position);
            if let Some(wr) = &mut self.ring[index] {
                failed |= wr.progress != Progress::Done(status::SUCCESS);
                if failed && !matches!(wr.progress, Progress::Done(code) if code != status::SUCCESS) {
                    wr.progress = Progress::Done(status::WR_FLUSH_ERR);
                }
            }
        }
        self.next = self.tail;
    }

    /// Completes, in order, what is over. Stops at the first request that is not, or when the completion queue is full.
    pub(crate) fn retire(&mut self, cq: &Cq, qp_num: u32) {
        while self.head < self.next {
            let index = self.index(self.head);
            let Some(wr) = &self.ring[index] else { return };
            let Progress::Done(status) = wr.progress else { return };
            if wr.signaled || status != status::SUCCESS {
                let completion = Completion {
                    wr_id: wr.wr_id,
                    status,
                    opcode: wr.op.completion_opcode(),
                    byte_len: wr.len,
                    imm: None,
                    qp_num,
                    solicited: false,
                };
                if !cq.push(completion, Some(&self.unpolled)) {
                    return;
                }
            }
            self.ring[index] = None;
            self.head += 1;
        }
    }

    /// Forgets everything without completing it: the queue pair is being destroyed.
    pub(crate) fn discard(&mut self) {
        self.ring.fill(None);
        self.head = self.tail;
        self.next = self.tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wr(wr_id: u64, op: Op, signaled: bool) -> Wr {
        Wr {
            wr_id,
            op,
            signaled,
            fence: false,
            solicited: false,
            imm: [0; 4],
            local: Local::Memory { addr: 0, lkey: 0 },
            len: 1,
            remote_addr: 0,
            rkey: 0,
            progress: Progress::Queued,
            received: 0,
        }
    }

    fn polled(cq: &Cq) -> Vec<(u64, u32)> {
        let mut got = Vec::new();
        cq.poll(16, |_, c| got.push((c.wr_id, c.status)));
        got
    }

    fn sent(sq: &mut SendQueue, to: Progress) {
        let position = sq.next_position().unwrap();
        sq.advance();
        sq.at(position).unwrap().progress = to;
    }

    #[test]
    fn a_write_behind_a_read_waits_for_it() {
        let (mut sq, cq) = (SendQueue::new(4), Cq::new(4, None));
        assert!(sq.post(wr(1, Op::Read, true)));
        assert!(sq.post(wr(2, Op::Write, true)));
        sent(&mut sq, Progress::Awaiting);
        sent(&mut sq, Progress::Done(status::SUCCESS));
        sq.retire(&cq, 9);
        assert_eq!(polled(&cq), vec![]);
        sq.oldest_read().unwrap().1.progress = Progress::Done(status::SUCCESS);
        sq.retire(&cq, 9);
        assert_eq!(polled(&cq), vec![(1, 0), (2, 0)]);
        assert!(sq.oldest_read().is_none());
    }

    #[test]
    fn a_signalled_request_holds_its_place_until_polled_and_an_unsignalled_one_does_not() {
        let (mut sq, cq) = (SendQueue::new(2), Cq::new(2, None));
        for _ in 0..10 {
            assert!(sq.post(wr(1, Op::Write, false)));
            sent(&mut sq, Progress::Done(status::SUCCESS));
            sq.retire(&cq, 0);
        }
        for id in [1, 2] {
            assert!(sq.post(wr(id, Op::Write, true)));
            sent(&mut sq, Progress::Done(status::SUCCESS));
            sq.retire(&cq, 0);
        }
        assert!(!sq.post(wr(3, Op::Write, true)));
        assert_eq!(polled(&cq).len(), 2);
        assert!(sq.post(wr(3, Op::Write, true)));
    }

    #[test]
    fn nothing_succeeds_behind_a_failure() {
        let (mut sq, cq) = (SendQueue::new(4), Cq::new(4, None));
        for (id, op) in [(1, Op::Write), (2, Op::Read), (3, Op::Write)] {
            assert!(sq.post(wr(id, op, true)));
        }
        sent(&mut sq, Progress::Done(status::SUCCESS));
        sent(&mut sq, Progress::Awaiting);
        sent(&mut sq, Progress::Done(status::SUCCESS));
        sq.fail_all();
        sq.retire(&cq, 0);
        let flushed = status::WR_FLUSH_ERR;
        assert_eq!(polled(&cq), vec![(1, 0), (2, flushed), (3, flushed)]);
    }

    #[test]
    fn failing_completes_everything_once_signalled_or_not() {
        let (mut sq, cq) = (SendQueue::new(8), Cq::new(2, None));
        for id in 0..4 {
            assert!(sq.post(wr(id, Op::Write, id % 2 == 0)));
        }
        sent(&mut sq, Progress::Done(status::SUCCESS));
        sq.fail_all();
        sq.retire(&cq, 0);
        assert_eq!(polled(&cq), vec![(0, 0), (1, status::WR_FLUSH_ERR)]);
        sq.retire(&cq, 0);
        assert_eq!(polled(&cq), vec![(2, status::WR_FLUSH_ERR), (3, status::WR_FLUSH_ERR)]);
        sq.retire(&cq, 0);
        assert_eq!(polled(&cq), vec![]);
    }

    #[test]
    fn nothing_behind_a_failed_request_succeeds() {
        let (mut sq, cq) = (SendQueue::new(8), Cq::new(8, None));
        for (id, op) in [(0, Op::Write), (1, Op::Read), (2, Op::Write), (3, Op::Write)] {
            assert!(sq.post(wr(id, op, true)));
        }
        for progress in [Progress::Done(status::SUCCESS), Progress::Awaiting, Progress::Done(status::SUCCESS)]
        {
            sent(&mut sq, progress);
        }
        sq.oldest_read().unwrap().1.progress = Progress::Done(10);
        sq.fail_all();
        sq.retire(&cq, 0);
        let flushed = status::WR_FLUSH_ERR;
        assert_eq!(polled(&cq), vec![(0, 0), (1, 10), (2, flushed), (3, flushed)]);
    }
}
