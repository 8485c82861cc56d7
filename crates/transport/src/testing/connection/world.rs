// SPDX-License-Identifier: BSD-3-Clause
//! The world around the connection, and what must hold in it.

use std::collections::VecDeque;
use std::ops::Range;

use crate::iwarp::wire::Inbound;
use crate::iwarp::wire::rdmap::{AtomicRequest, Opcode, ReadRequest};
use crate::iwarp::wire::stream::{Event, Receiver};

use super::memory::{Table, Tracked};
use crate::access::{Access, Bind, Denied};
use crate::host::Durable;
use crate::testing::memory::Placement;
use crate::testing::queues::{Queues, WorkQueue};
use crate::testing::stream::Pipe;
use crate::testing::world::{Parts, StreamWorld, World};
use crate::units::Micros;
use crate::wr::{Completion, Local, RecvWr, Sge};

pub(super) struct Fuzzed<T: Table> {
    pub now: Micros,
    pub memory: Tracked<T>,
    pub queues: Queues,
    batch: Vec<Placement>,
    pub out: Pipe,
    pub incoming: Pipe,
    /// Reads and atomic operations that the peer has received and not answered.
    pub requested: VecDeque<Requested>,
    pub flushes: Vec<u64>,
    pub closed: bool,
    may_establish: bool,
    /// The link takes all that it is given, or nothing.
    all_or_nothing: bool,
    tap: Tap,
}

impl<T: Table> Fuzzed<T> {
    pub(super) fn new(table: T, crc: bool, may_establish: bool, all_or_nothing: bool) -> Self {
        Self {
            now: 1_000_000,
            memory: Tracked::new(table),
            queues: Queues::new(usize::MAX, usize::MAX, true),
            batch: Vec::new(),
            out: Pipe::new(1 << 12),
            incoming: Pipe::new(usize::MAX),
            requested: VecDeque::new(),
            flushes: Vec::new(),
            closed: false,
            may_establish,
            all_or_nothing,
            tap: Tap::new(crc),
        }
    }

    /// No byte has changed that must not.
    pub(super) fn check_memory(&mut self) {
        let memory = &self.memory;
        let receives = self.queues.posted_receives();
        let writable = |entry: &Sge| memory.writable(entry.lkey(), entry.addr, entry.len as usize);
        let receives = receives.flat_map(RecvWr::entries).filter_map(writable);
        let sinks = self.queues.requests().filter(|wr| wr.is_answered()).flat_map(|wr| match &wr.local {
            Local::Memory { addr, lkey } | Local::Atomic { addr, lkey, .. } => {
                vec![Sge::new(*addr, wr.len, *lkey)]
            }
            Local::Entries(entries) => entries.to_vec(),
            Local::Inline(_) | Local::LongInline(_) | Local::Window { .. } | Local::Flush { .. } => {
                Vec::new()
            }
        });
        let sinks = sinks.filter_map(|entry| writable(&entry));
        let granted: Vec<Range<usize>> = receives.chain(sinks).collect();
        self.memory.check(granted, !self.closed);
    }

    /// What was granted to what has completed meanwhile was checked with it; nothing is left in a batch
    /// between steps.
    pub(super) fn after_step(&mut self) {
        self.requested.extend(self.tap.requested.drain(..));
        assert!(self.batch.is_empty(), "a step leaves placements");
        assert_eq!(self.closed, self.queues.ended, "a link is closed at the end, and only then");
    }

    pub(super) fn check_end(&self, own_receives: bool) {
        assert!(self.closed && self.queues.ended, "the end was not reported");
        let Queues { taken_sends, sends, taken_receives, receives, .. } = &self.queues;
        assert!(taken_sends.is_empty() && sends.is_empty(), "without completion: {taken_sends:?} {sends:?}");
        assert!(taken_receives.is_empty(), "taken and not completed: {taken_receives:?}");
        assert!(!own_receives || receives.is_empty(), "receives without completion: {receives:?}");
    }
}

impl<T: Table> World for Fuzzed<T> {
    type Memory = T;

    fn parts(&mut self) -> Parts<'_, T> {
        Parts { memory: &mut self.memory.table, queues: &mut self.queues, batch: &mut self.batch }
    }

    fn time(&mut self) -> Micros {
        self.now
    }

    fn uses(&self, call: &str) {
        assert!(!self.closed, "a connection that has let go of its link {call}");
    }

    fn flush(&mut self, _read: Access, number: u64) -> Durable {
        self.flushes.push(number);
        Durable::Later
    }

    fn bind_window(&mut self, window: Bind) -> Result<(), Denied> {
        self.memory.table.bind(window)
    }

    fn invalidate_window(&mut self, stag: u32) -> Result<(), Denied> {
        self.memory.table.invalidate(stag)
    }

    /// A sink may be written until its read completes.
    fn completes(&mut self, _queue: WorkQueue, _completion: &Completion) {
        self.check_memory();
    }

    fn releases(&mut self) {
        self.check_memory();
    }

    fn is_established(&mut self) {
        assert!(self.may_establish, "established, which was not announced");
    }
}

impl<T: Table> StreamWorld for Fuzzed<T> {
    fn pipes(&mut self) -> (&mut Pipe, &mut Pipe) {
        (&mut self.out, &mut self.incoming)
    }

    fn takes(&mut self, room: usize, wanted: usize) -> usize {
        if self.all_or_nothing && room < wanted { 0 } else { room }
    }

    fn sent(&mut self, bytes: &[u8], taken: usize, _boundary: bool) {
        self.tap.take(&bytes[..taken]);
    }

    fn let_go(&mut self, last: Option<&[u8]>) {
        self.uses("closes it");
        if let Some(last) = last {
            self.tap.take(last);
            self.tap.check_whole();
        }
        // What was placed until now was permitted; from now on nothing is.
        self.check_memory();
        self.closed = true;
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
    requested: Vec<Requested>,
}

/// A request that the peer has to answer.
#[derive(Clone, Copy)]
pub(super) enum Requested {
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
            requested: Vec::new(),
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
                        self.requested.push(Requested::Read(ReadRequest::decode(body)));
                    }
                    Some(Opcode::AtomicRequest) => {
                        let body = self.body.first_chunk().expect("the body of an Atomic Request");
                        self.requested.push(Requested::Atomic(AtomicRequest::decode(body)));
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
