// SPDX-License-Identifier: BSD-3-Clause
//! The world around the connection, and what must hold in it.

use std::collections::VecDeque;
use std::ops::Range;

use transport::iwarp::wire::Inbound;
use transport::iwarp::wire::rdmap::{AtomicRequest, Opcode, ReadRequest};
use transport::iwarp::wire::stream::{Event, Receiver};

use super::memory::{Memory, PD};
use crate::cm::negotiate::Agreed;
use crate::memory::{self, Batch};
use crate::sys::Process;
use transport::access::{Access, Bind, Denied, Unchanged, Unreachable};
use transport::host::{Durable, Host, LinkError, Part};
use transport::iwarp::conn::Role;
use transport::units::Micros;
use transport::wr::{Completion, Local, RecvWr, SendWr, Sge, status};

pub(super) struct World {
    pub now: Micros,
    pub memory: Memory,
    /// Bytes from the peer that were not received.
    pub input: VecDeque<u8>,
    pub input_ends: bool,
    /// What the link answers from now on.
    pub broken: Option<LinkError>,
    /// Bytes that the link still takes.
    pub room: usize,
    /// Completions that still find room.
    pub cq_room: usize,
    /// Reads and atomic operations that the peer has received and not answered.
    pub asked: VecDeque<Asked>,
    pub flushes: Vec<u64>,
    /// Posted and not completed, and how many of them were not taken.
    pub requests: VecDeque<SendWr>,
    untaken: usize,
    pub posted_receives: VecDeque<RecvWr>,
    /// Those of them that were not taken.
    pub receives: VecDeque<RecvWr>,
    /// A completion was not a success: none may be from then on.
    failed: bool,
    pub closed: bool,
    ended: bool,
    may_establish: bool,
    /// The link takes nothing of its own accord.
    all_or_nothing: bool,
    batch: Batch,
    direct: Batch,
    tap: Tap,
}

impl World {
    pub(super) fn new(agreed: &Agreed, all_or_nothing: bool) -> Self {
        Self {
            now: 1_000_000,
            memory: Memory::new(),
            input: VecDeque::new(),
            input_ends: false,
            broken: None,
            room: 1 << 12,
            cq_room: usize::MAX,
            asked: VecDeque::new(),
            flushes: Vec::new(),
            requests: VecDeque::new(),
            untaken: 0,
            posted_receives: VecDeque::new(),
            receives: VecDeque::new(),
            failed: false,
            closed: false,
            ended: false,
            may_establish: agreed.role == Role::RESPONDER_TOLD,
            all_or_nothing,
            batch: Batch::new().expect("memory for a batch"),
            direct: Batch::new().expect("memory for a batch"),
            tap: Tap::new(agreed.crc),
        }
    }

    pub(super) fn post(&mut self, wr: SendWr) {
        self.requests.push_back(wr);
        self.untaken += 1;
    }

    pub(super) fn post_receive(&mut self, wr: RecvWr) {
        self.posted_receives.push_back(wr.clone());
        self.receives.push_back(wr);
    }

    /// No byte has changed that must not.
    pub(super) fn check_memory(&mut self) {
        let memory = &self.memory;
        let receives = self.posted_receives.iter();
        let writable = |entry: &Sge| memory.writable(entry.lkey(), entry.addr, entry.len as usize);
        let receives = receives.flat_map(RecvWr::entries).filter_map(writable);
        let sinks = self.requests.iter().filter(|wr| wr.is_answered()).flat_map(|wr| match &wr.local {
            Local::Memory { addr, lkey } | Local::Atomic { addr, lkey, .. } => {
                vec![Sge::new(*addr, wr.len, *lkey)]
            }
            Local::Entries(entries) => entries.to_vec(),
            Local::Inline(_) | Local::LongInline(_) | Local::Window { .. } => Vec::new(),
        });
        let sinks = sinks.filter_map(|entry| writable(&entry));
        let granted: Vec<Range<usize>> = receives.chain(sinks).collect();
        self.memory.check(granted, !self.closed);
    }

    /// What was granted to what has completed meanwhile was checked with it; nothing is left in a batch
    /// between steps.
    pub(super) fn after_step(&mut self) {
        self.asked.extend(self.tap.asked.drain(..));
        assert_eq!(self.closed, self.ended, "a link is closed at the end, and only then");
    }

    pub(super) fn check_end(&self, own_receives: bool) {
        assert!(self.closed && self.ended, "the end was not told");
        assert!(self.requests.is_empty(), "requests without completion: {:?}", self.requests);
        if own_receives {
            assert!(
                self.posted_receives.is_empty(),
                "receives without completion: {:?}",
                self.posted_receives
            );
        } else {
            assert_eq!(
                self.posted_receives.len(),
                self.receives.len(),
                "a receive was taken and not completed"
            );
        }
    }

    fn up(&self) {
        assert!(!self.closed, "the link is used after it was closed");
    }

    fn found(&mut self) -> Result<usize, LinkError> {
        self.up();
        match (self.input.len(), self.broken) {
            (0, Some(error)) => Err(error),
            (0, None) if self.input_ends => Ok(0),
            (0, None) => Err(LinkError::Blocked),
            (n, _) => Ok(n),
        }
    }

    fn collect(&self, parts: &[Part<'_>]) -> Result<Vec<u8>, LinkError> {
        let mut bytes = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Memory(access) => {
                    let at = bytes.len();
                    bytes.resize(at + access.len, 0);
                    memory::fetch(Process::own(), *access, PD, &mut bytes[at..])
                        .map_err(|why| LinkError::Memory(i, why))?;
                }
            }
        }
        Ok(bytes)
    }

    fn success_or_end(&mut self, completion: &Completion) {
        if completion.status == status::SUCCESS {
            assert!(!self.failed, "a request succeeds after one has failed");
        } else {
            self.failed = true;
        }
    }
}

impl Host for World {
    fn transfer(&mut self, _remote: &[Access], _local: &[Part<'_>]) -> usize {
        unreachable!("the terms have no transfers");
    }

    fn may_transfer(&self, _remote: Access) -> bool {
        unreachable!("the terms have no transfers");
    }

    fn now(&mut self) -> Micros {
        self.now
    }

    fn send(&mut self, parts: &[Part<'_>], _boundary: bool) -> Result<usize, LinkError> {
        self.up();
        assert!(!parts.is_empty(), "nothing to send");
        // As a socket: memory is looked at before anything else is.
        for (i, part) in parts.iter().enumerate() {
            if let Part::Memory(access) = part {
                memory::acquire(*access, PD)
                    .map_err(|denied| LinkError::Memory(i, Unreachable::Denied(denied)))?;
            }
        }
        if let Some(error) = self.broken {
            return Err(error);
        }
        let bytes = self.collect(parts).map_err(|error| match error {
            // Whose memory it was, a socket does not say.
            LinkError::Memory(_, why) => LinkError::Memory(0, why),
            other => other,
        })?;
        assert!(!bytes.is_empty(), "nothing to send");
        let n = if self.all_or_nothing && self.room < bytes.len() { 0 } else { bytes.len().min(self.room) };
        if n == 0 {
            return Err(LinkError::Blocked);
        }
        self.room -= n;
        self.tap.take(&bytes[..n]);
        Ok(n)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        assert!(!into.is_empty(), "no room to receive into");
        let n = self.found()?.min(into.len());
        into.iter_mut().zip(self.input.drain(..n)).for_each(|(to, byte)| *to = byte);
        Ok(n)
    }

    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        assert!(to.len > 0);
        memory::acquire(to, PD).map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        let n = self.found()?;
        let placed = n.min(to.len);
        if placed > 0 {
            let bytes: Vec<u8> = self.input.drain(..placed).collect();
            self.direct.add(Access { len: placed, ..to }, PD, 0).expect("permitted a moment ago");
            let result = self.direct.carry_out(Process::own(), &bytes);
            result.map_err(|_| LinkError::Memory(0, Unreachable::Fault))?;
        }
        let more = (n - placed).min(rest.len());
        rest.iter_mut().zip(self.input.drain(..more)).for_each(|(to, byte)| *to = byte);
        Ok(placed + more)
    }

    fn close(&mut self, last: Option<&[u8]>) {
        self.up();
        if let Some(last) = last {
            self.tap.take(last);
            self.tap.check_whole();
        }
        // What was placed until now was permitted; from now on nothing is.
        self.check_memory();
        self.closed = true;
    }

    fn check(&mut self, access: Access) -> Result<(), Denied> {
        self.up();
        memory::acquire(access, PD).map(drop)
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        self.up();
        self.batch.add(access, PD, from)
    }

    fn settle(&mut self, input: &[u8]) -> Result<(), usize> {
        self.up();
        self.batch.carry_out(Process::own(), input)
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        memory::fetch(Process::own(), from, PD, into)
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        self.up();
        memory::change(access, PD, update)
    }

    fn make_durable(&mut self, read: Access, number: u64) -> Result<Durable, Denied> {
        self.up();
        let grant = memory::acquire(read, PD)?;
        if grant.persistent().is_none() {
            return Ok(Durable::Now);
        }
        self.flushes.push(number);
        Ok(Durable::Later)
    }

    fn bind(&mut self, window: Bind) -> Result<(), Denied> {
        memory::bind_window(window, PD.into())
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        memory::invalidate(stag, 0, PD)
    }

    fn next_send(&mut self) -> Option<SendWr> {
        let at = self.requests.len() - self.untaken;
        let wr = self.requests.get(at)?.clone();
        self.untaken -= 1;
        Some(wr)
    }

    fn next_receive(&mut self) -> Option<RecvWr> {
        self.receives.pop_front()
    }

    fn complete_send(&mut self, completion: Completion) -> bool {
        if self.cq_room == 0 {
            return false;
        }
        self.cq_room = self.cq_room.saturating_sub(1);
        // A sink may be written until its read completes.
        self.check_memory();
        let wr = self.requests.pop_front().expect("a completion of a request");
        assert!(self.requests.len() >= self.untaken, "a request completes that was not taken");
        assert_eq!((completion.wr_id, completion.byte_len), (wr.wr_id, wr.len), "requests complete in order");
        assert!(wr.signaled || completion.status != status::SUCCESS, "a completion that nobody wants");
        self.success_or_end(&completion);
        true
    }

    fn complete_receive(&mut self, completion: Completion) -> bool {
        if self.cq_room == 0 {
            return false;
        }
        self.cq_room = self.cq_room.saturating_sub(1);
        self.check_memory();
        let wr = self.posted_receives.pop_front().expect("a completion of a receive");
        assert!(self.posted_receives.len() >= self.receives.len(), "a receive completes that was not taken");
        assert_eq!(completion.wr_id, wr.wr_id, "receives complete in order");
        if completion.status == status::SUCCESS {
            let is_recv = completion.opcode == transport::wr::opcode::RECV;
            assert!(!is_recv || completion.byte_len <= wr.capacity(), "more than there is room for");
        }
        true
    }

    fn release_send(&mut self) {
        self.check_memory();
        let wr = self.requests.pop_front().expect("a place that is in use");
        assert!(self.requests.len() >= self.untaken, "a request is over that was not taken");
        assert!(!wr.signaled && !self.failed);
    }

    fn established(&mut self) {
        assert!(std::mem::replace(&mut self.may_establish, false), "established once, and only if announced");
        assert!(!self.ended);
    }

    fn ended(&mut self, _failed: bool) {
        assert!(!std::mem::replace(&mut self.ended, true), "the end is told once");
    }
}

/// What the peer receives: well-formed and in order.
struct Tap {
    receiver: Receiver,
    inbound: Inbound,
    bytes: Vec<u8>,
    opcode: Option<Opcode>,
    body: Vec<u8>,
    terminated: bool,
    asked: Vec<Asked>,
}

/// What the peer is asked for.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    Read(ReadRequest),
    Atomic(AtomicRequest),
}

impl Tap {
    fn new(crc: bool) -> Self {
        Self {
            receiver: Receiver::new(crc),
            inbound: Inbound::new(),
            bytes: Vec::new(),
            opcode: None,
            body: Vec::new(),
            terminated: false,
            asked: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let (consumed, event) =
                self.receiver.next(&self.bytes[at..]).expect("what is sent is well-formed");
            match event {
                Event::Need(_) => {
                    self.bytes.drain(..at + consumed);
                    return;
                }
                Event::Segment { header, payload_len } => {
                    assert!(!self.terminated, "{header:?} behind a Terminate message");
                    self.inbound.check(&header, payload_len).expect("what is sent is in order");
                    self.opcode = Some(header.opcode());
                    self.body.clear();
                }
                Event::Payload(payload) => self.body.extend_from_slice(payload),
                Event::SegmentEnd => match self.opcode {
                    Some(Opcode::ReadRequest) => {
                        let body = self.body.first_chunk().expect("the body of a Read Request");
                        self.asked.push(Asked::Read(ReadRequest::decode(body)));
                    }
                    Some(Opcode::AtomicRequest) => {
                        let body = self.body.first_chunk().expect("the body of an Atomic Request");
                        self.asked.push(Asked::Atomic(AtomicRequest::decode(body)));
                    }
                    Some(Opcode::Terminate) => self.terminated = true,
                    _ => {}
                },
            }
            at += consumed;
        }
    }

    /// A stream ends behind an FPDU.
    fn check_whole(&self) {
        assert!(self.receiver.at_boundary(self.bytes.len()), "the stream ends within an FPDU");
    }
}
