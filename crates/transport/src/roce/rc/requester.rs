// SPDX-License-Identifier: BSD-3-Clause
//! The requester: work requests become request packets, which are sent again until they are acknowledged.
//!
//! A message gets its PSNs when it is the next to be sent. `acked` is the oldest PSN without an
//! acknowledgement, `cursor` the next one to be sent: behind `sent` only after go-back-N has moved it back to
//! `acked`. PSNs count up without wrapping here, from 0; on the wire they are offset by the starting PSN,
//! modulo 2^24.
//!
//! A long read is requested in pieces of [`READ_PIECE`] packets, so that the window bounds the packets of the
//! response as well: the responder of a read has no other limit.

mod response;
mod retry;
mod transfer;

use std::collections::VecDeque;

use super::ending::{End, Failed};
use super::terms::{ReceiveTerms, SendTerms};
use crate::policy::Policy;
use crate::policy::acknowledge::Acknowledging;
use crate::policy::congestion::Window;
use crate::policy::mode::Mode;
use crate::roce::link::PacketLink;
use crate::roce::packet::{PacketBuf, payload_behind};
use crate::roce::request::{consumes_receive, extension_of, local_operation, operation_of};
use crate::roce::wire::{Bth, Extension, Opcode, Operation, Psn, Reth};
use crate::sq::{Progress, SendQueue};
use crate::step::Quota;
use crate::units::{Errno, Micros};
use crate::wr::{Op, status};
use retry::Retry;
use transfer::{Transferred, waits_to_transfer};

/// The most response packets of one read request. A fixed trade-off, no prediction: larger pieces would
/// exceed the window more, smaller ones cost more requests and divide the packets that the responder sends in
/// one call.
const READ_PIECE: u64 = 32;

/// A message that has PSNs: its request in the send queue, the first PSN, and how many there are.
#[derive(Clone, Copy, Debug)]
struct Message {
    position: u64,
    first: u64,
    packets: u64,
    /// It is acknowledged by its response: a read, an atomic operation, an atomic write or a flush.
    is_answered: bool,
}

impl Message {
    fn end(&self) -> u64 {
        self.first + self.packets
    }
}

/// The result of [`Requester::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing is left that may be sent now.
    Idle,
    /// More may be sent, but the budget is used up.
    Busy,
}

pub(super) struct Requester {
    pub sq: SendQueue,
    /// Messages without a complete acknowledgement, and at most one that was not sent yet.
    messages: VecDeque<Message>,
    first_psn: Psn,
    mtu: usize,
    dest_qp: u32,
    pkey: u16,
    acked: u64,
    cursor: u64,
    sent: u64,
    /// PSNs below this were sent before the link changed. Packets over the new link overtake theirs, so a gap
    /// among them uses no retry.
    overtaken: u64,
    /// The PSN of the next message.
    end: u64,
    /// Reads (of a piece each) and atomic operations before `cursor` whose response is incomplete.
    reads_open: usize,
    max_reads: usize,
    window: Window,
    acknowledging: Acknowledging,
    retry: Retry,
    /// Bytes of the next request that were copied directly.
    copied: u32,
    /// A local request that cannot be sent. It fails once all earlier ones are complete.
    failing: Option<(u64, u32)>,
    /// Requests are sent: the queue pair is in RTS, or in SQD.
    is_open: bool,
    /// No request is begun: the queue pair is in SQD.
    is_draining: bool,
}

impl Requester {
    /// ENOMEM.
    pub(super) fn new(max_send_wr: u32, mode: Mode) -> Result<Self, Errno> {
        let mut messages = VecDeque::new();
        messages.try_reserve_exact(max_send_wr as usize).map_err(|_| libc::ENOMEM)?;
        Ok(Self {
            sq: SendQueue::new(max_send_wr)?,
            messages,
            first_psn: Psn::new(0),
            mtu: 0,
            dest_qp: 0,
            pkey: 0,
            acked: 0,
            cursor: 0,
            sent: 0,
            overtaken: 0,
            end: 0,
            reads_open: 0,
            max_reads: 1,
            window: Window::new(mode),
            acknowledging: Acknowledging::of_requester(mode),
            retry: Retry::new(mode),
            copied: 0,
            failing: None,
            is_open: false,
            is_draining: false,
        })
    }

    pub(super) fn open(&mut self, path: &ReceiveTerms, terms: &SendTerms) {
        let mtu = path.mtu.bytes();
        (self.mtu, self.dest_qp, self.pkey) = (mtu, path.dest_qp, path.pkey);
        self.first_psn = terms.sq_psn;
        self.max_reads = terms.reads();
        self.window.open(mtu);
        self.retry.open(terms);
        self.is_open = true;
    }

    /// Begins no request, or begins requests again.
    pub(super) fn drain(&mut self, on: bool) {
        self.is_draining = on;
    }

    /// What was sent is lost, or late.
    pub(super) fn change_link(&mut self) {
        self.retry.change_link();
        self.overtaken = self.sent;
        self.window.settled();
        if self.cursor > self.acked {
            self.go_back();
        }
    }

    /// Whether all requests that were begun are complete.
    pub(super) fn is_drained(&self) -> bool {
        self.messages.is_empty() && self.copied == 0
    }

    /// The link may take packets again.
    pub(super) fn unblock(&mut self) {
        self.retry.unblock();
    }

    fn psn(&self, sequence: u64) -> Psn {
        self.first_psn.add(sequence as u32)
    }

    /// Takes what was posted, and sends what the window permits.
    pub(super) fn send(
        &mut self,
        host: &mut impl PacketLink,
        buf: &mut PacketBuf,
        qp_num: u32,
        budget: &mut Quota,
    ) -> Result<Sent, End> {
        let sent = loop {
            while !self.sq.is_full() {
                let Some(wr) = host.next_send() else { break };
                self.sq.push(wr);
            }
            if self.messages.is_empty() {
                // What was refused is complete.
                self.retry.forget_refusal();
            }
            if !self.is_open || !self.retry.may_send() {
                break Sent::Idle;
            }
            // A direct copy that was begun is completed.
            let begins = (!self.is_draining || self.copied > 0) && self.failing.is_none();
            if begins {
                match self.transfer(host, budget)? {
                    Transferred::Requests => {
                        self.sq.retire(host, qp_num);
                        continue;
                    }
                    Transferred::Part => break Sent::Busy,
                    Transferred::Nothing => {}
                }
            }
            if self.cursor == self.end && !(begins && self.begin_next(host)?) {
                break Sent::Idle;
            }
            let Some(message) = self.message_at(self.cursor) else { break Sent::Idle };
            // What comes before a request that cannot be sent is still sent again.
            if self.failing.is_some_and(|(position, _)| message.position >= position) {
                break Sent::Idle;
            }
            let packets = self.packets_of_request(&message);
            let outstanding = self.cursor - self.acked;
            if outstanding > 0 && outstanding + packets > u64::from(self.window.packets()) {
                break Sent::Idle;
            }
            if message.is_answered && self.reads_open >= self.max_reads {
                break Sent::Idle;
            }
            if budget.is_used_up() {
                break Sent::Busy;
            }
            let ack_req = match self.send_packet(host, buf, &message, packets, budget.bytes) {
                Ok(Some(ack_req)) => ack_req,
                Ok(None) => {
                    let peer_makes_room = host.peer_makes_room();
                    self.retry.refused(peer_makes_room);
                    if self.sent == self.acked && peer_makes_room {
                        // Only this timer ends the wait if the peer has stopped reading.
                        self.retry.arm(host, self.cursor, false);
                    }
                    break Sent::Idle;
                }
                Err(status) => {
                    self.failing = Some((message.position, status));
                    break Sent::Idle;
                }
            };
            self.acknowledging.count(ack_req);
            budget.charge(1, buf.len());
            if self.sent == self.acked {
                self.retry.started();
            }
            self.cursor += packets;
            let is_new = self.cursor > self.sent;
            if is_new {
                self.window.settled();
            }
            self.retry.arm(host, self.cursor, is_new);
            self.sent = self.sent.max(self.cursor);
            self.reads_open += usize::from(message.is_answered);
        };
        self.sq.retire(host, qp_num);
        self.fail_unsendable()?;
        Ok(sent)
    }

    /// When [`Self::expire`] is due.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.retry.deadline()
    }

    /// Nothing is outstanding, and nothing waits to be sent.
    pub(super) fn is_at_rest(&self) -> bool {
        self.messages.is_empty() && self.sq.next_position().is_none()
    }

    /// A request that cannot be sent ends the connection when all before it are complete.
    fn fail_unsendable(&self) -> Result<(), End> {
        match (self.failing, self.messages.front()) {
            (Some((position, status)), Some(front)) if front.position == position => {
                Err(End::Request(Failed { position, status }))
            }
            _ => Ok(()),
        }
    }

    /// Gives the next request its PSNs; requests without a message are carried out. False when there is none
    /// that may be begun.
    fn begin_next(&mut self, host: &mut impl PacketLink) -> Result<bool, End> {
        while let Some(position) = self.sq.next_position() {
            let Some(entry) = self.sq.at(position) else { return Ok(false) };
            let wr = &entry.wr;
            if !self.messages.is_empty() && waits_to_transfer(host, wr) {
                return Ok(false);
            }
            if wr.fence && self.messages.iter().any(|message| message.is_answered) {
                return Ok(false);
            }
            if let Some(result) = local_operation(host, wr) {
                match result {
                    Ok(()) => entry.progress = Progress::Done(status::SUCCESS),
                    Err(status) if self.messages.is_empty() => {
                        return Err(End::Request(Failed { position, status }));
                    }
                    // Repeated when the requests before it are complete: only then it may fail.
                    Err(_) => return Ok(false),
                }
                self.sq.advance();
                continue;
            }
            let is_answered = wr.is_answered();
            let bytes = if wr.is_atomic() { 0 } else { wr.len as usize };
            let packets = bytes.div_ceil(self.mtu).max(1) as u64;
            entry.progress = Progress::Awaiting;
            self.sq.advance();
            self.messages.push_back(Message { position, first: self.end, packets, is_answered });
            self.end += packets;
            return Ok(true);
        }
        Ok(false)
    }

    /// The message with this PSN.
    fn message_at(&self, sequence: u64) -> Option<Message> {
        let behind = self.messages.partition_point(|message| message.first <= sequence);
        self.messages.get(behind.checked_sub(1)?).copied()
    }

    /// The PSNs that the request at the cursor takes: those of the rest of a piece of a read, else one.
    fn packets_of_request(&self, message: &Message) -> u64 {
        if !message.is_answered {
            return 1;
        }
        self.piece_end(message, self.cursor) - self.cursor
    }

    /// The end of the piece of a read that has this PSN.
    fn piece_end(&self, message: &Message, sequence: u64) -> u64 {
        let piece = (sequence - message.first) / READ_PIECE;
        (message.first + (piece + 1) * READ_PIECE).min(message.end())
    }

    /// Sends the packet at the cursor; whether it requests an acknowledgement, or `None` if the link takes
    /// nothing. The status of the request, if its memory cannot be read. `budget`: at most so many bytes are
    /// sent in this step.
    fn send_packet(
        &self,
        host: &mut impl PacketLink,
        buf: &mut PacketBuf,
        message: &Message,
        packets: u64,
        budget: usize,
    ) -> Result<Option<bool>, u32> {
        let Some(entry) = self.sq.entry(message.position) else { return Err(status::LOC_QP_OP_ERR) };
        let wr = &entry.wr;
        let index = self.cursor - message.first;
        let offset = index as usize * self.mtu;
        let left = (wr.len as usize).saturating_sub(offset);
        let is_last = self.cursor + packets == message.end();
        let (operation, extension, len) = match wr.op {
            Op::Read => {
                let len = left.min(packets as usize * self.mtu) as u32;
                let va = wr.remote_addr.wrapping_add(offset as u64);
                (Operation::ReadRequest, Extension::Reth(Reth { va, rkey: wr.rkey, len }), 0)
            }
            Op::CompareSwap | Op::FetchAdd => {
                let operation = operation_of(wr.op, true, true);
                (operation, extension_of(wr, operation), 0)
            }
            op => {
                let operation = operation_of(op, index == 0, is_last);
                (operation, extension_of(wr, operation), left.min(self.mtu))
            }
        };
        // Nothing follows it before an acknowledgement.
        let window_left = u64::from(self.window.packets()).saturating_sub(self.cursor + packets - self.acked);
        let ack_req = self.acknowledging.is_due(is_last || window_left == 0);
        let bth = Bth {
            solicited: wr.solicited && is_last && consumes_receive(wr.op),
            pkey: self.pkey,
            ack_req,
            ..Bth::new(Opcode::Rc(operation), self.dest_qp, self.psn(self.cursor))
        };
        buf.begin(bth, &extension, len);
        let (bytes, is_only) = (offset..offset + len, message.packets == 1);
        let following = |n: usize| {
            let is_near = (n as u64) < window_left && (n + 1) * len < budget;
            if is_near {
                payload_behind(&self.sq, message.position, &bytes, is_only, &extension, n)
            } else {
                None
            }
        };
        let sent = buf.send_local(host, &wr.local, offset, len, &following)?;
        Ok(sent.then_some(ack_req))
    }
}
