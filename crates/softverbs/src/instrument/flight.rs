// SPDX-License-Identifier: BSD-3-Clause
//! Requests in flight, in strict mode: the memory that they use until they are complete.
//!
//! Software RDMA has often read the memory of a request when the call that posts it returns. An adapter reads
//! it at any time until the request is complete, and again for each retransmission; to the program it is
//! complete with its completion or that of a later request. A program that changes the memory before that
//! works here, and may fail there.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::progress::Outstanding;
use crate::sys::Process;
use crate::{lock, memory};
use transport::access::{Access, Accessor};
use transport::wr::{Op, SendWr};

/// Bytes of a request in flight that strict mode checks for changes, and bytes that it reads at a time.
const FLIGHT_BYTES: usize = 1 << 20;
const FLIGHT_STEP: usize = 4096;

/// A posted request.
struct Request {
    wr_id: u64,
    /// Success creates a completion, too.
    signaled: bool,
    memory: Vec<Access>,
    /// The checksum of what it sends, when it was posted; `None`: it sends nothing of this memory, or the
    /// memory could not be read.
    sum: Option<u64>,
}

/// The requests of a send queue that are not complete to the program, in posting order.
pub(super) struct Flight {
    /// Whose memory the requests use.
    accessor: Accessor,
    process: Process,
    /// The connection has ended: no request is in flight any more.
    over: AtomicBool,
    requests: Mutex<Requests>,
}

struct Requests {
    known: VecDeque<Request>,
    most: usize,
    /// The position of the first request in `known`, and of the first in flight. Positions only count up.
    first: u64,
    flying: u64,
}

impl Request {
    fn of(wr: &SendWr, accessor: Accessor, process: Process) -> Self {
        let memory: Vec<Access> = wr.local.parts(0, wr.len as usize, 0).collect();
        let sends =
            matches!(wr.op, Op::Write | Op::WriteWithImm | Op::Send | Op::SendWithImm | Op::SendWithInv);
        let sum = if sends { sum_of(&memory, accessor, process) } else { None };
        Self { wr_id: wr.wr_id, signaled: wr.signaled, memory, sum }
    }

    fn has_changed(&self, accessor: Accessor, process: Process) -> bool {
        // Deregistered memory is reported for its region.
        self.sum.is_some_and(|sum| sum_of(&self.memory, accessor, process).is_some_and(|now| now != sum))
    }
}

/// A checksum of the first [`FLIGHT_BYTES`] of these ranges.
fn sum_of(memory: &[Access], accessor: Accessor, process: Process) -> Option<u64> {
    if memory.is_empty() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    let mut left = FLIGHT_BYTES;
    let mut bytes = [0; FLIGHT_STEP];
    for range in memory {
        let mut done = 0;
        while done < range.len && left > 0 {
            let len = FLIGHT_STEP.min(range.len - done).min(left);
            let part = Access { addr: range.addr.wrapping_add(done as u64), len, ..*range };
            memory::fetch(process, part, accessor, &mut bytes[..len]).ok()?;
            hasher.write(&bytes[..len]);
            done += len;
            left -= len;
        }
    }
    Some(hasher.finish())
}

impl Flight {
    /// For a send queue with this many entries.
    pub(super) fn new(accessor: Accessor, most: u32) -> Self {
        let requests = Requests { known: VecDeque::new(), most: most as usize, first: 0, flying: 0 };
        Self {
            accessor,
            process: Process::own(),
            over: AtomicBool::new(false),
            requests: Mutex::new(requests),
        }
    }

    /// Posts a request with `push`, behind those that were posted before.
    pub(super) fn begin(
        &self,
        wr: SendWr,
        push: impl FnOnce(SendWr) -> Result<(), SendWr>,
    ) -> Result<(), SendWr> {
        let mut requests = lock(&self.requests);
        let request = Request::of(&wr, self.accessor, self.process);
        push(wr)?;
        if requests.known.len() >= requests.most {
            // More than the queue has entries, which is only a warning. The oldest ones are most probably
            // complete.
            requests.known.pop_front();
            requests.first += 1;
        }
        requests.known.push_back(request);
        Ok(())
    }

    /// The program has polled the completion of this many requests. Returns one whose memory has changed
    /// since it was posted.
    pub(super) fn end(&self, count: u64) -> Option<u64> {
        let over = self.over.load(Ordering::Relaxed);
        let mut requests = lock(&self.requests);
        requests.flying += count;
        let mut changed = None;
        while requests.first < requests.flying {
            let Some(request) = requests.known.pop_front() else { break };
            requests.first += 1;
            if !over && changed.is_none() && request.has_changed(self.accessor, self.process) {
                changed = Some(request.wr_id);
            }
        }
        changed
    }

    /// The connection has ended.
    pub(super) fn ends_all(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// The send queue is empty; requests that are posted from now on are in flight.
    pub(super) fn reset(&self) {
        let mut requests = lock(&self.requests);
        requests.known.clear();
        (requests.first, requests.flying) = (0, 0);
        self.over.store(false, Ordering::Relaxed);
    }

    /// An unsignalled request in flight, the oldest one.
    pub(super) fn unsignalled(&self) -> Option<u64> {
        if self.over.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.requests).known.iter().find(|request| !request.signaled).map(|request| request.wr_id)
    }

    /// A signalled request, or only unsignalled ones, which may be complete.
    pub(super) fn outstanding(&self) -> Outstanding {
        let requests = lock(&self.requests);
        if requests.known.iter().any(|request| request.signaled) {
            Outstanding::Completion
        } else if requests.known.is_empty() || self.over.load(Ordering::Relaxed) {
            Outstanding::Nothing
        } else {
            Outstanding::Unsignalled
        }
    }

    /// A request in flight that uses this region.
    pub(super) fn uses(&self, stag: u32) -> Option<u64> {
        if self.over.load(Ordering::Relaxed) {
            return None;
        }
        let requests = lock(&self.requests);
        let uses = |request: &&Request| request.memory.iter().any(|range| range.stag == stag);
        requests.known.iter().find(uses).map(|request| request.wr_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Region, deregister, register};
    use std::cell::UnsafeCell;
    use transport::access::LOCAL_WRITE;
    use transport::testing::queues;
    use transport::wr::{Local, Sge};

    /// Registered memory that changes.
    struct Memory {
        bytes: Box<[UnsafeCell<u8>]>,
        stag: u32,
    }

    const ACCESSOR: Accessor = Accessor { pd: 77, qp: 1 };
    const NEVER_FULL: fn(SendWr) -> Result<(), SendWr> = |_| Ok(());

    impl Memory {
        fn new(len: usize) -> Self {
            let bytes: Box<[_]> = (0..len).map(|_| UnsafeCell::new(0)).collect();
            let region =
                Region { addr: bytes.as_ptr() as u64, len: len as u64, access: LOCAL_WRITE, pd: ACCESSOR.pd };
            let stag = register(region).unwrap();
            Self { bytes, stag }
        }

        fn set(&mut self, at: usize, value: u8) {
            *self.bytes[at].get_mut() = value;
        }

        fn sge(&self, at: usize, len: usize) -> Sge {
            Sge::new(self.bytes[at].get() as u64, len as u32, self.stag)
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            deregister(self.stag);
        }
    }

    fn request(wr_id: u64, op: Op, entries: &[Sge]) -> SendWr {
        SendWr {
            local: Local::memory(entries).unwrap(),
            len: entries.iter().map(|entry| entry.len).sum(),
            ..queues::request(wr_id, op, true)
        }
    }

    fn post(flight: &Flight, wr: SendWr) {
        flight.begin(wr, NEVER_FULL).unwrap();
    }

    #[test]
    fn a_change_before_the_completion_is_detected() {
        let mut memory = Memory::new(3 * FLIGHT_STEP);
        for (at, len) in [(0, 1), (5, 100), (0, FLIGHT_STEP + 1), (7, 2 * FLIGHT_STEP)] {
            for place in [at, at + len / 2, at + len - 1] {
                let flight = Flight::new(ACCESSOR, 8);
                post(&flight, request(3, Op::Write, &[memory.sge(at, len)]));
                memory.set(place, 1);
                assert_eq!(flight.end(1), Some(3), "{place} of {len} at {at}");
                memory.set(place, 0);
            }
        }
        let flight = Flight::new(ACCESSOR, 8);
        post(&flight, request(1, Op::Send, &[memory.sge(0, 4), memory.sge(100, 4)]));
        post(&flight, request(2, Op::Send, &[memory.sge(0, 4), memory.sge(200, 4)]));
        memory.set(203, 9);
        memory.set(104, 9);
        assert_eq!((flight.end(1), flight.end(1)), (None, Some(2)), "in several entries, and beside them");
    }

    #[test]
    fn memory_that_is_not_sent_or_no_longer_in_flight_may_change() {
        let mut memory = Memory::new(64);
        let flight = Flight::new(ACCESSOR, 8);
        post(&flight, request(1, Op::Read, &[memory.sge(0, 8)]));
        post(&flight, request(2, Op::Write, &[memory.sge(8, 8)]));
        post(&flight, request(3, Op::Write, &[]));
        memory.set(0, 1);
        assert_eq!(flight.end(3), None);
        memory.set(8, 1);
        assert_eq!(flight.end(0), None);
        post(&flight, request(4, Op::Write, &[memory.sge(0, 8)]));
        memory.set(0, 2);
        flight.ends_all();
        assert_eq!((flight.uses(memory.stag), flight.end(1)), (None, None));
    }

    #[test]
    fn a_region_is_in_use_until_the_completion() {
        let (a, b) = (Memory::new(64), Memory::new(64));
        let flight = Flight::new(ACCESSOR, 2);
        post(&flight, request(1, Op::Read, &[a.sge(0, 8), b.sge(0, 8)]));
        post(&flight, request(2, Op::Send, &[a.sge(0, 8)]));
        assert_eq!((flight.uses(a.stag), flight.uses(b.stag), flight.uses(1)), (Some(1), Some(1), None));
        flight.end(1);
        assert_eq!((flight.uses(a.stag), flight.uses(b.stag)), (Some(2), None));
        post(&flight, request(3, Op::Send, &[b.sge(0, 8)]));
        post(&flight, request(4, Op::Send, &[b.sge(0, 8)]));
        assert_eq!(flight.uses(a.stag), None, "more requests than entries: the oldest is dropped");
        flight.end(1);
        assert_eq!(flight.uses(b.stag), Some(3));
        flight.end(2);
        assert_eq!(flight.uses(b.stag), None);
    }

    #[test]
    fn an_unsignalled_request_is_in_flight_until_a_later_completion() {
        let flight = Flight::new(ACCESSOR, 4);
        let unsignalled = |wr_id| SendWr { signaled: false, ..request(wr_id, Op::Write, &[]) };
        post(&flight, request(1, Op::Write, &[]));
        assert_eq!(flight.unsignalled(), None);
        post(&flight, unsignalled(2));
        post(&flight, unsignalled(3));
        post(&flight, request(4, Op::Write, &[]));
        assert_eq!(flight.unsignalled(), Some(2));
        flight.end(1);
        assert_eq!(flight.unsignalled(), Some(2));
        flight.end(3);
        assert_eq!(flight.unsignalled(), None);
        post(&flight, unsignalled(5));
        flight.ends_all();
        assert_eq!(flight.unsignalled(), None);
    }

    #[test]
    fn a_signalled_request_is_outstanding_until_its_completion() {
        let flight = Flight::new(ACCESSOR, 4);
        let unsignalled = |wr_id| SendWr { signaled: false, ..request(wr_id, Op::Write, &[]) };
        assert_eq!(flight.outstanding(), Outstanding::Nothing);
        post(&flight, unsignalled(1));
        assert_eq!(flight.outstanding(), Outstanding::Unsignalled);
        post(&flight, request(2, Op::Write, &[]));
        post(&flight, unsignalled(3));
        assert_eq!(flight.outstanding(), Outstanding::Completion);
        flight.end(2);
        assert_eq!(flight.outstanding(), Outstanding::Unsignalled, "the one behind the completion");
        flight.end(1);
        assert_eq!(flight.outstanding(), Outstanding::Nothing);
        post(&flight, unsignalled(4));
        post(&flight, request(5, Op::Write, &[]));
        flight.ends_all();
        assert_eq!(flight.outstanding(), Outstanding::Completion, "a flush error");
        flight.end(2);
        post(&flight, unsignalled(6));
        assert_eq!(flight.outstanding(), Outstanding::Nothing, "the connection has ended");
    }

    #[test]
    fn requests_after_a_reset_are_in_flight() {
        let mut memory = Memory::new(64);
        let flight = Flight::new(ACCESSOR, 4);
        (1..=3).for_each(|wr_id| post(&flight, request(wr_id, Op::Send, &[memory.sge(0, 8)])));
        flight.end(1);
        flight.ends_all();
        flight.reset();
        assert_eq!((flight.uses(memory.stag), flight.outstanding()), (None, Outstanding::Nothing));
        post(&flight, request(4, Op::Send, &[memory.sge(0, 8)]));
        assert_eq!((flight.uses(memory.stag), flight.outstanding()), (Some(4), Outstanding::Completion));
        memory.set(0, 1);
        assert_eq!((flight.end(1), flight.uses(memory.stag)), (Some(4), None));
    }

    #[test]
    fn a_request_that_was_not_posted_is_not_in_flight() {
        let memory = Memory::new(64);
        let flight = Flight::new(ACCESSOR, 2);
        let wr = flight.begin(request(1, Op::Send, &[memory.sge(0, 8)]), Err);
        assert_eq!(wr.map_err(|wr| wr.wr_id), Err(1));
        assert_eq!(flight.uses(memory.stag), None);
    }
}
