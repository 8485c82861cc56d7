// SPDX-License-Identifier: BSD-3-Clause
//! Metrics, for `RPMA_METRICS`: counts the requests and completions of a queue pair, and the receives of
//! shared receive queues.

use std::sync::Arc;

use crate::choice;
use crate::config::Transport;

use rdma_sys::rdma_cm_event_type::{
    self, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};
use rpma_metrics::{Connection, Event, Kind, Place, Process, ServedKind, flushes};
use transport::access::FLUSH_PERSISTENT;
use transport::host::Served;
use transport::wr::{Completion, Local, Op, SendWr, opcode, status};

/// The counters of this process, if enabled. The first call starts the thread that serves them; it is made
/// for the first region or queue pair, not when the library is loaded or the device opened.
#[inline]
pub(super) fn process() -> Option<&'static Process> {
    let process = rpma_metrics::process(|text| log::warn!("{text}"));
    process.inspect(|_| flushes::count())
}

/// The instruments of a shared receive queue.
pub(crate) struct SharedReceives(Option<&'static Process>);

impl SharedReceives {
    pub(crate) fn new() -> Self {
        Self(process())
    }

    /// A receive was posted.
    #[inline]
    pub(crate) fn receive_posted(&self) {
        if let Some(process) = self.0 {
            process.counters.shared.posted(Kind::Recv, 0);
        }
    }
}

/// The counters of a queue pair.
pub(super) struct Counting {
    process: &'static Process,
    connection: Arc<Connection>,
}

impl Counting {
    pub(super) fn new(process: &'static Process, num: u32) -> Self {
        let (transport, link) = match choice::transport() {
            Transport::Iwarp => ("iwarp", "tcp"),
            Transport::Roce => ("roce", "udp"),
        };
        let place = Place { provider: "soft", device: "soft0".to_owned(), transport, link };
        Self { process, connection: process.counters.connection(None, num, place) }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Posts a request by `push`.
    pub(super) fn post(
        &self,
        wr: SendWr,
        push: impl FnOnce(SendWr) -> Result<(), SendWr>,
    ) -> Result<(), SendWr> {
        let (kind, bytes) = self.kind(&wr);
        let signaled = wr.signaled;
        self.connection.post(kind, bytes, signaled, || push(wr))
    }

    fn kind(&self, wr: &SendWr) -> (Option<Kind>, u64) {
        let len = u64::from(wr.len);
        match wr.op {
            // librpma fences only atomic writes.
            Op::Write if wr.fence && self.connection.is_of_librpma() => (Some(Kind::AtomicWrite), len),
            Op::Write | Op::WriteWithImm => (Some(Kind::Write), len),
            Op::Read => match wr.local.parts(0, wr.len as usize, 0).next() {
                // In the request of a flush the immediate data are its type.
                Some(sink) if self.connection.is_flush(sink.addr) => match u32::from_ne_bytes(wr.imm) {
                    0 => (Some(Kind::FlushPersistent), 0),
                    _ => (Some(Kind::FlushVisibility), 0),
                },
                _ => (Some(Kind::Read), len),
            },
            Op::AtomicWrite => (Some(Kind::AtomicWrite), len),
            Op::Flush => match wr.local {
                Local::Flush { rights, .. } if rights & FLUSH_PERSISTENT != 0 => {
                    (Some(Kind::FlushPersistent), 0)
                }
                _ => (Some(Kind::FlushVisibility), 0),
            },
            Op::CompareSwap | Op::FetchAdd => (Some(Kind::Atomic), len),
            Op::Send | Op::SendWithImm | Op::SendWithInv => (Some(Kind::Send), len),
            // They are local operations.
            Op::BindMw | Op::LocalInv => (None, 0),
        }
    }

    pub(super) fn receive_posted(&self) {
        self.connection.counts.posted(Kind::Recv, 0);
    }

    /// One-sided operations of the peer were carried out.
    pub(super) fn served(&self, operation: Served, completed: u64, bytes: u64) {
        let operation = match operation {
            Served::Write => ServedKind::Write,
            Served::Read => ServedKind::Read,
            Served::Atomic => ServedKind::Atomic,
        };
        self.connection.counts.served(operation, completed, bytes);
    }

    /// The program has polled a completion.
    pub(super) fn taken(&self, completion: &Completion) {
        self.connection.counts.completed(completion.status);
        if completion.status != status::SUCCESS {
            self.connection.failed(completion.status);
        } else if completion.opcode & opcode::RECV != 0 {
            // The bytes of a write with immediate data are counted as served.
            let is_message = completion.opcode != opcode::RECV_RDMA_WITH_IMM;
            self.connection.counts.received(if is_message { completion.byte_len.into() } else { 0 });
        } else {
            self.connection.succeeded();
        }
    }

    /// An event of the connection is reported to the program.
    pub(super) fn event(&self, kind: rdma_cm_event_type::Type) {
        let event = match kind {
            RDMA_CM_EVENT_ESTABLISHED => Event::Established,
            RDMA_CM_EVENT_DISCONNECTED => Event::Closed,
            RDMA_CM_EVENT_CONNECT_ERROR => Event::Lost,
            RDMA_CM_EVENT_REJECTED => Event::Rejected,
            RDMA_CM_EVENT_UNREACHABLE => Event::Unreachable,
            _ => return,
        };
        self.process.counters.event(&self.connection, event);
    }

    /// The queue pair enters RESET.
    pub(super) fn reset(&self) {
        self.process.counters.reset(&self.connection);
    }

    /// The queue pair is destroyed.
    pub(super) fn destroyed(&self) {
        self.process.counters.deleted(&self.connection);
    }
}
