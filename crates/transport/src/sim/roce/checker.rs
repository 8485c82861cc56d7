// SPDX-License-Identifier: BSD-3-Clause
//! The properties of every schedule: the model of each side, and what its completions mean.

use super::plan::Plan;
use crate::access::{Access, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::sim::memory::{self, PERSISTENT_LEN, READABLE, RECEIVES};
use crate::sim::plan::Disk;
use crate::wr::{Completion, Extra, Local, Op, RecvWr, SendWr, opcode, status};

/// When something happened: events are counted.
pub(super) type Stamp = u64;

#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub wr: SendWr,
    /// Which message of its side it is.
    pub number: usize,
    pub posted_at: Stamp,
    /// Faults of network and driver until then.
    pub faults: u64,
    /// When the peer had carried it out, if that could be seen.
    pub executed_at: Option<Stamp>,
}

impl Posted {
    /// It uses up a receive of the peer.
    pub(super) fn is_message(&self) -> bool {
        matches!(self.wr.op, Op::Send | Op::SendWithImm | Op::SendWithInv | Op::WriteWithImm)
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self.wr.op, Op::Write | Op::WriteWithImm)
    }

    /// What `qp_access_flags` of the peer must have for it.
    pub(super) fn right(&self) -> u32 {
        match self.wr.op {
            Op::Write | Op::WriteWithImm | Op::AtomicWrite => REMOTE_WRITE,
            Op::Read => REMOTE_READ,
            Op::CompareSwap | Op::FetchAdd => REMOTE_ATOMIC,
            _ => self.flush_rights(),
        }
    }

    /// The rights that a flush requires; 0: the request is no flush.
    fn flush_rights(&self) -> u32 {
        if let Local::Flush { rights, .. } = self.wr.local { rights } else { 0 }
    }
}

/// Bytes that were replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub at: usize,
    pub old: u8,
    pub stamp: Stamp,
}

/// One side.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub requests: Vec<Posted>,
    pub messages: Vec<usize>,
    pub done: usize,
    pub failure: Option<u32>,
    // How far the peer has executed its requests.
    pub executing: usize,
    pub executed_bytes: usize,
    pub changed: bool,
    pub invalidated: bool,
    /// Results of atomic operations that have not arrived.
    pub originals: Vec<u64>,
    // How far the responses are.
    pub answering: usize,
    pub answered_bytes: usize,
    // What it received.
    pub taken: Vec<RecvWr>,
    pub received: usize,
    pub failed_receive: Option<usize>,
    /// How often there was no receive for each message, or no room for a completion before it.
    pub not_ready: Vec<u64>,
    /// The bytes that both reads and writes of the peer access, and what they were.
    pub persistent: Vec<u8>,
    pub history: Vec<Change>,
    /// Flushes to persistence under way, and when each began.
    pub flushing: Vec<(u64, Stamp)>,
    /// All data that were placed before are durable.
    pub durable_to: Stamp,
    /// Accesses that have failed here.
    pub denied: Vec<Access>,
    pub not_durable: bool,
    /// How often replies to this side were late because the link of the peer was full.
    pub late_replies: u64,
    /// The program has ended the connection, or destroyed the queue pair.
    pub disconnected: bool,
    pub flushed: bool,
    pub ended: bool,
    pub destroyed: bool,
    pub open: bool,
    pub sends: bool,
}

impl Model {
    fn begin(&mut self) {
        let mut old = std::mem::take(self);
        macro_rules! reuse {
            ($($field:ident),*) => { $(old.$field.clear(); self.$field = old.$field;)* };
        }
        reuse!(requests, messages, originals, taken, not_ready, persistent, history, flushing, denied);
        self.persistent.resize(PERSISTENT_LEN, 0);
    }

    /// It does not answer any more, or only repeats its last NAK.
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.destroyed
    }

    /// It has refused a request of the peer, as far as its memory is the reason; `me` is its number.
    fn has_refused(&self, me: usize) -> bool {
        let receives = [memory::stag(me, RECEIVES), memory::stag(me, READABLE)];
        let for_peer = |access: &Access| match access.rights {
            LOCAL_WRITE => receives.contains(&access.stag),
            // A window, or a request of this side.
            0 => access.len == 0,
            _ => true,
        };
        self.not_durable || self.denied.iter().any(for_peer)
    }

    /// There is no receive for the next message, or no room for a completion before it.
    pub(super) fn is_not_ready(&mut self) {
        let next = self.taken.len();
        self.not_ready.resize(self.not_ready.len().max(next + 1), 0);
        self.not_ready[next] += 1;
    }

    /// The message with this number has got its receive.
    pub(super) fn has_receive(&self, number: usize) -> bool {
        self.taken.len() > number && self.failed_receive.is_none_or(|failed| number < failed)
    }
}

#[derive(Debug, Default)]
pub(super) struct Checker {
    pub sides: [Model; 2],
    pub now: Stamp,
    /// Faults of network and driver.
    pub faults: u64,
    /// How many of them have lost a packet, or may hide that a packet was dropped.
    pub losses: u64,
    /// A link has changed: a NAK may overtake a response, after which its sender only repeats the NAK.
    pub has_changed: bool,
}

impl Checker {
    pub(super) fn begin(&mut self) {
        (self.now, self.faults, self.losses, self.has_changed) = (0, 0, 0, false);
        self.sides.iter_mut().for_each(Model::begin);
    }

    /// The network, or a side that leaves shared memory, has lost packets.
    pub(super) fn loses(&mut self, packets: usize) {
        self.faults += packets as u64;
        self.losses += packets as u64;
    }

    pub(super) fn posted(&mut self, me: usize, wr: SendWr) {
        let model = &mut self.sides[me];
        let posted = Posted {
            wr,
            number: model.messages.len(),
            posted_at: self.now,
            faults: self.faults,
            executed_at: None,
        };
        if posted.is_message() {
            model.messages.push(model.requests.len());
        }
        model.requests.push(posted);
    }

    /// The oldest request succeeds.
    pub(super) fn succeeds(&mut self, me: usize) {
        self.skip_silent(me);
        let model = &mut self.sides[me];
        let posted = &model.requests[model.done];
        if posted.wr.returns_data() {
            assert!(model.answering > model.done, "side {me}: {posted:?} succeeds before its response");
        } else {
            assert!(model.executing > model.done, "side {me}: {posted:?} succeeds before it is carried out");
        }
        let is_persistent = posted.flush_rights() & FLUSH_PERSISTENT != 0;
        model.done += 1;
        if is_persistent {
            self.is_durable(me);
        }
    }

    /// All that a side has placed before its last completed request is durable.
    fn is_durable(&self, me: usize) {
        let (model, peer) = (&self.sides[me], &self.sides[1 - me]);
        let before = model.requests[..model.done].iter().filter_map(|one| one.executed_at).max();
        let durable_to = peer.durable_to;
        assert!(
            before.is_none_or(|before| before <= durable_to),
            "side {me}: a flush succeeds at {durable_to} that does not cover what was placed at {before:?}"
        );
    }

    /// A flush to persistence begins at `host`; `number` is `None` if it is complete at once.
    pub(super) fn flush_begins(&mut self, host: usize, number: Option<u64>) {
        let now = self.now;
        match number {
            Some(number) => self.sides[host].flushing.push((number, now)),
            None => self.sides[host].durable_to = now,
        }
    }

    /// A flush to persistence has ended at `host`.
    pub(super) fn flush_ends(&mut self, host: usize, number: u64, durable: bool) {
        let model = &mut self.sides[host];
        let Some(at) = model.flushing.iter().position(|(flush, _)| *flush == number) else { return };
        let (_, began) = model.flushing.swap_remove(at);
        if durable {
            model.durable_to = model.durable_to.max(began);
        }
        model.not_durable |= !durable;
    }

    /// The oldest request fails.
    fn fails(&mut self, me: usize, status: u32, plan: &Plan) {
        self.skip_silent(me);
        let (model, peer) = (&self.sides[me], &self.sides[1 - me]);
        let posted = &model.requests[model.done];
        let wr = &posted.wr;
        let first = model.failure.is_none();
        let of_plan = &plan.sides[1 - me];
        // Without bytes, a receive that is flushed looks like one that was filled.
        let executed = posted.executed_at.is_some() && wr.len > 0;
        let too_many = plan.exceeds_peer(me);
        let explained = match status {
            status::WR_FLUSH_ERR => true,
            status::LOC_PROT_ERR => model
                .denied
                .iter()
                .any(|access| wr.local.parts(0, wr.len as usize, 0).any(|part| part.stag == access.stag)),
            status::REM_ACCESS_ERR => {
                let within = |access: &Access| access.stag == wr.rkey && access.rights & LOCAL_WRITE == 0;
                // A read may be refused when it is repeated.
                (!executed || wr.is_read()) && peer.denied.iter().any(within)
            }
            status::REM_INV_REQ_ERR => {
                let is_send = posted.is_message() && wr.op != Op::WriteWithImm;
                let too_long =
                    peer.taken.get(posted.number).is_some_and(|receive| receive.capacity() < wr.len);
                let is_word = wr.is_atomic() || wr.op == Op::AtomicWrite;
                let misaligned = is_word && wr.remote_addr % 8 != 0;
                let not_permitted = posted.right() & !of_plan.path.access != 0;
                !executed
                    && ((is_send && too_long)
                        || misaligned
                        || not_permitted
                        || (wr.is_answered() && too_many))
            }
            status::REM_OP_ERR => {
                let receive = |access: &Access| access.rights == LOCAL_WRITE;
                let receives = posted.is_message() && peer.denied.iter().any(receive);
                let is_flush = wr.is_read() || wr.op == Op::Flush;
                receives || (is_flush && peer.not_durable && of_plan.disk == Disk::Failing)
            }
            status::RETRY_EXC_ERR => {
                let has_refused = !peer.disconnected && peer.has_refused(1 - me);
                // Earlier faults affect later requests, too: the packet behind may be on its
                // way.
                let faults = self.faults + model.late_replies;
                let enough = faults > u64::from(plan.sides[me].terms.retries);
                // A duplicate of a read whose memory is gone by then is dropped.
                let gone = |access: &Access| access.stag == wr.rkey && access.rights == REMOTE_READ;
                let gone = wr.is_read() && peer.denied.iter().any(gone);
                enough
                    || too_many
                    || gone
                    || (peer.is_over() && (!has_refused || self.faults > 0 || self.has_changed))
            }
            status::RNR_RETRY_EXC_ERR => {
                let retries = plan.sides[me].terms.rnr_retries;
                // The network may repeat an RNR NAK after the request was sent again.
                let not_ready = peer.not_ready.get(posted.number).copied().unwrap_or(0);
                let naks = not_ready + (self.faults - posted.faults);
                posted.is_message() && retries < 7 && not_ready > 0 && naks > u64::from(retries)
            }
            _ => false,
        };
        assert!(
            explained,
            "side {me}: status {status} of {posted:?}, denied by the peer: {:x?}",
            peer.denied
        );
        let is_flush = status == status::WR_FLUSH_ERR;
        assert!(first || is_flush, "side {me}: {posted:?} fails with {status} behind a failure");
        let model = &mut self.sides[me];
        model.flushed |= is_flush && first;
        model.failure = model.failure.or(Some(status));
        model.done += 1;
    }

    pub(super) fn completes_send(&mut self, me: usize, completion: &Completion, plan: &Plan) {
        match completion.status {
            status::SUCCESS => self.succeeds(me),
            failed => self.fails(me, failed, plan),
        }
    }

    pub(super) fn completes_receive(&mut self, me: usize, completion: &Completion) {
        let model = &mut self.sides[me];
        let number = model.received;
        if completion.status != status::SUCCESS {
            model.failed_receive = model.failed_receive.or(Some(number));
        }
        self.skip_silent(1 - me);
        let (model, peer) = (&self.sides[me], &self.sides[1 - me]);
        let receive = &model.taken[number];
        let message = peer.messages.get(number).map(|index| (*index, &peer.requests[*index]));
        match completion.status {
            status::SUCCESS => {
                let Some((index, posted)) = message else { panic!("side {me} receives what was not sent") };
                let wr = &posted.wr;
                assert!(peer.executing > index, "side {me} receives a part of {posted:?}");
                let (opcode, extra) = match wr.op {
                    Op::WriteWithImm => (opcode::RECV_RDMA_WITH_IMM, Extra::Imm(wr.imm)),
                    Op::SendWithImm => (opcode::RECV, Extra::Imm(wr.imm)),
                    Op::SendWithInv => (opcode::RECV, Extra::Invalidated(wr.rkey.to_be_bytes())),
                    _ => (opcode::RECV, Extra::Nothing),
                };
                let got = (completion.opcode, completion.extra, completion.byte_len, completion.solicited);
                assert_eq!(got, (opcode, extra, wr.len, wr.solicited), "side {me} receives {posted:?}");
            }
            status::LOC_LEN_ERR => {
                let too_long = message.is_some_and(|(_, posted)| receive.capacity() < posted.wr.len);
                assert!(too_long, "side {me}: {receive:?} has room");
            }
            status::LOC_PROT_ERR => {
                let stags = |access: &Access| access.rights == LOCAL_WRITE;
                assert!(model.denied.iter().any(stags), "side {me}: {receive:?} is permitted");
            }
            status::WR_FLUSH_ERR => {}
            other => panic!("side {me}: status {other} of {receive:?}"),
        }
        self.sides[me].received += 1;
    }

    /// An access has failed.
    pub(super) fn failed(&mut self, me: usize, access: Access) {
        self.sides[me].denied.push(access);
    }

    /// A side is over, and everything of it has completed.
    pub(super) fn over(&self, me: usize) {
        let model = &self.sides[me];
        let caused = model.disconnected || !model.denied.is_empty() || model.not_durable;
        let too_long = model.failed_receive.is_some();
        let explained =
            caused || too_long || model.failure.is_some_and(|status| status != status::WR_FLUSH_ERR);
        let misused = self.sides[1 - me].failure == Some(status::REM_INV_REQ_ERR);
        assert!(!model.ended || explained || misused, "side {me} has ended without a cause");
        // The request that is flushed first was not the cause.
        assert!(
            !model.flushed || caused || too_long || misused,
            "side {me} flushes its requests without a cause"
        );
    }
}
