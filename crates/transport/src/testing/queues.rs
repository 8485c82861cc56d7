// SPDX-License-Identifier: BSD-3-Clause
//! The queues of a queue pair, as its program sees them: what is posted, what completes.
//!
//! What holds for every transport is asserted here: requests and receives complete once and in the order in
//! which they were posted, with what was posted, and nothing succeeds behind a failure. Of a queue pair of
//! type UD, requests succeed again once the program has moved it from SQE to RTS, and a receive of a shared
//! receive queue that is too short fails alone.

use std::collections::VecDeque;

use crate::wr::{Completion, Local, Op, RecvWr, SendWr, opcode, status};

/// One of the two queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkQueue {
    /// Requests.
    Send,
    /// Receives.
    Receive,
}

/// A completion queue.
#[derive(Debug, Default)]
pub struct Cq {
    /// Completions that still find room.
    pub room: usize,
    /// The queue of each completion that was not polled.
    pub entries: VecDeque<WorkQueue>,
    /// A completion has found no room.
    pub waiting: bool,
}

/// What was posted and is not complete, and the completion queues.
#[derive(Debug, Default)]
pub struct Queues {
    /// Requests that the connection has not taken.
    pub sends: VecDeque<SendWr>,
    /// Requests that it has taken.
    pub taken_sends: VecDeque<SendWr>,
    /// Receives that it has not taken.
    pub receives: VecDeque<RecvWr>,
    /// Receives that it has taken.
    pub taken_receives: VecDeque<RecvWr>,
    /// The completion queue of the requests.
    pub send_cq: Cq,
    /// That of the receives.
    pub recv_cq: Cq,
    /// Receives use the completion queue of the requests.
    pub one_cq: bool,
    /// A receive that fails with its message alone: of a datagram, or without acknowledgements of a shared
    /// queue.
    pub drops_messages: bool,
    send_failed: bool,
    /// How many requests were taken, and how many of them have left.
    taken: u64,
    left: u64,
    /// The value of `taken` when the queue pair went on after a failure: the failure is over when as many
    /// have left.
    resumed: VecDeque<u64>,
    receive_failed: bool,
    /// The program has seen that the connection is established.
    pub established: bool,
    /// It has seen that the connection has ended.
    pub ended: bool,
}

impl Queues {
    /// Empty queues; room for so many completions.
    pub fn new(send_room: usize, recv_room: usize, one_cq: bool) -> Self {
        let cq = |room| Cq { room, ..Cq::default() };
        Self { send_cq: cq(send_room), recv_cq: cq(recv_room), one_cq, ..Self::default() }
    }

    /// The last request that was taken is not taken after all.
    pub fn give_back(&mut self) {
        let wr = self.taken_sends.pop_back().expect("one was taken");
        self.sends.push_front(wr);
    }

    /// Entries of the send queue that are in use: until their completions are polled.
    pub fn in_use(&self) -> usize {
        let is_send = |queue: &&WorkQueue| **queue == WorkQueue::Send;
        let not_polled = self.send_cq.entries.iter().filter(is_send).count();
        self.sends.len() + self.taken_sends.len() + not_polled
    }

    /// Requests that are not complete.
    pub fn requests(&self) -> impl Iterator<Item = &SendWr> {
        self.taken_sends.iter().chain(&self.sends)
    }

    /// Receives that are not complete.
    pub fn posted_receives(&self) -> impl Iterator<Item = &RecvWr> {
        self.taken_receives.iter().chain(&self.receives)
    }

    /// The connection takes the next request.
    pub fn take_send(&mut self) -> Option<SendWr> {
        let wr = self.sends.pop_front()?;
        self.taken += 1;
        self.taken_sends.push_back(wr.clone());
        Some(wr)
    }

    /// The connection takes the next receive.
    pub fn take_receive(&mut self) -> Option<RecvWr> {
        let wr = self.receives.pop_front()?;
        self.taken_receives.push_back(wr.clone());
        Some(wr)
    }

    fn cq(&mut self, queue: WorkQueue) -> &mut Cq {
        if queue == WorkQueue::Send || self.one_cq { &mut self.send_cq } else { &mut self.recv_cq }
    }

    /// Whether a completion finds room; if not, the completion queue is waited for.
    pub fn has_room(&mut self, queue: WorkQueue) -> bool {
        let cq = self.cq(queue);
        cq.waiting |= cq.room == 0;
        cq.room > 0
    }

    /// Completions wait for room.
    pub fn is_waiting(&self) -> bool {
        self.send_cq.waiting || self.recv_cq.waiting
    }

    /// The program gets a completion, for which there is room.
    pub fn complete(&mut self, queue: WorkQueue, completion: &Completion) {
        match queue {
            WorkQueue::Send => self.send_completes(completion),
            WorkQueue::Receive => self.receive_completes(completion),
        }
        let cq = self.cq(queue);
        cq.room -= 1;
        cq.entries.push_back(queue);
    }

    fn send_completes(&mut self, completion: &Completion) {
        let wr = self.taken_sends.pop_front().expect("a completion of a request that was taken");
        assert_eq!(completion.wr_id, wr.wr_id, "requests complete in order, and once");
        assert_eq!(completion.opcode, wr.op.completion_opcode(), "{wr:?}");
        assert_eq!(completion.byte_len, wr.len, "{wr:?}");
        if completion.status == status::SUCCESS {
            assert!(wr.signaled, "an unsignalled request succeeds with a completion: {wr:?}");
            assert!(!self.send_failed, "a request succeeds behind one that has failed: {wr:?}");
        }
        self.send_failed |= completion.status != status::SUCCESS;
        self.leave();
    }

    fn receive_completes(&mut self, completion: &Completion) {
        let wr = self.taken_receives.pop_front().expect("a completion of a receive that was taken");
        assert_eq!(completion.wr_id, wr.wr_id, "receives complete in order, and once");
        if completion.status == status::SUCCESS {
            assert!(!self.receive_failed, "a receive succeeds behind one that has failed: {wr:?}");
            let fits = completion.opcode != opcode::RECV || completion.byte_len <= wr.capacity();
            assert!(fits, "{} bytes in {wr:?}", completion.byte_len);
        }
        let of_message = matches!(completion.status, status::LOC_LEN_ERR | status::REM_INV_REQ_ERR);
        let goes_on = completion.status == status::SUCCESS || (self.drops_messages && of_message);
        self.receive_failed |= !goes_on;
    }

    /// An unsignalled request has succeeded.
    pub fn release(&mut self) {
        let wr = self.taken_sends.pop_front().expect("the release of a request that was taken");
        assert!(!wr.signaled && !self.send_failed, "{wr:?} is released");
        self.leave();
    }

    /// The program moves the queue pair from SQE to RTS, perhaps before what has failed found room
    /// in the completion queue.
    pub fn resume(&mut self) {
        self.resumed.push_back(self.taken);
        self.end_failure();
    }

    /// A request has left the send queue.
    fn leave(&mut self) {
        self.left += 1;
        self.end_failure();
    }

    fn end_failure(&mut self) {
        while self.resumed.front().is_some_and(|taken| *taken <= self.left) {
            self.resumed.pop_front();
            self.send_failed = false;
        }
    }

    /// The program polls the completion queue of a work queue. Gives the number of completions, and whether
    /// one more was waiting for room.
    pub fn poll(&mut self, queue: WorkQueue, most: usize) -> (usize, bool) {
        // Each is polled for its own queue, even where nothing completes into that of the receives.
        let cq = if queue == WorkQueue::Send { &mut self.send_cq } else { &mut self.recv_cq };
        let count = cq.entries.len().min(most);
        cq.entries.drain(..count);
        cq.room += count;
        let waiting = count > 0 && std::mem::take(&mut cq.waiting);
        (count, waiting)
    }

    /// The connection is established.
    pub fn establish(&mut self) {
        let again = std::mem::replace(&mut self.established, true);
        assert!(!again && !self.ended, "a connection is established once, and before it ends");
    }

    /// The connection has ended.
    pub fn end(&mut self) {
        assert!(!std::mem::replace(&mut self.ended, true), "a connection ends once");
    }
}

/// A request without memory.
pub fn request(wr_id: u64, op: Op, signaled: bool) -> SendWr {
    SendWr {
        wr_id,
        op,
        signaled,
        fence: false,
        solicited: false,
        imm: [0; 4],
        local: Local::Memory { addr: 0, lkey: 0 },
        len: 0,
        remote_addr: 0,
        rkey: 0,
        to: None,
    }
}
