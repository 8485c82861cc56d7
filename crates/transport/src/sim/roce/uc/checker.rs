// SPDX-License-Identifier: BSD-3-Clause
//! What the sender may send and the receiver must do with it.

use super::plan::Plan;
use crate::access::{Access, LOCAL_WRITE, REMOTE_WRITE};
use crate::roce::link::Dropped;
use crate::roce::wire::{Extension, Opcode, Packet, Reth};
use crate::sim::memory;
use crate::sim::roce::plan::NUMBERS;
use crate::testing::memory::Regions;
use crate::wr::{Completion, Extra, Op, RecvWr, SendWr, opcode, status};

/// A packet: the message that it belongs to, and which part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    message: usize,
    offset: usize,
    len: usize,
    is_first: bool,
    is_last: bool,
}

/// What a receiver must do with the packet that it has taken last.
#[derive(Clone, Copy, Debug)]
struct Expected {
    part: Part,
    /// Otherwise the packet has no effect.
    is_accepted: bool,
    /// The message before it is not continued.
    breaks_off: bool,
    placed: usize,
    completed: bool,
    dropped: Option<Dropped>,
    /// Causes for which it may be dropped.
    no_receive: bool,
    denied: bool,
}

#[derive(Debug, Default)]
pub(super) struct Checker {
    pub requests: Vec<SendWr>,
    /// The request whose packets are sent, and how much of it was sent.
    sending: usize,
    offset: usize,
    has_begun: bool,
    /// Requests whose packets were all sent.
    sent: Vec<bool>,
    pub done: usize,
    /// Packets that were sent, by their sequence.
    parts: Vec<Part>,
    sender_denied: bool,
    pub in_sqe: bool,
    // The receiver.
    expected: Option<Expected>,
    /// The packet whose receive has a completion for which there was no room.
    kept: Option<Expected>,
    /// The packet with the highest sequence that was accepted.
    highest: Option<u64>,
    /// The message that the next packet may continue, and where.
    current: Option<(usize, usize)>,
    /// Receives that were taken.
    pub taken: Vec<RecvWr>,
    pub received: usize,
    last_received: Option<usize>,
    pub messages: u64,
    pub receiver_denied: bool,
    pub ended: [bool; 2],
    pub disconnected: bool,
    /// What has happened, in all schedules.
    pub seen: Vec<(&'static str, u64)>,
}

impl Checker {
    pub(super) fn begin(&mut self) {
        *self = Self { seen: std::mem::take(&mut self.seen), ..Self::default() };
    }

    pub(super) fn see(&mut self, what: &'static str) {
        match self.seen.iter_mut().find(|(name, _)| *name == what) {
            Some((_, count)) => *count += 1,
            None => self.seen.push((what, 1)),
        }
    }

    // ---- the sender ------------------------------------------------------------------------------------

    pub(super) fn posted(&mut self, wr: SendWr) {
        self.requests.push(wr);
        self.sent.push(false);
    }

    /// The sender sends its next packet; gives its sequence.
    pub(super) fn sends(&mut self, packet: &Packet<'_>, memory: &Regions, plan: &Plan) -> u64 {
        let sequence = self.parts.len() as u64;
        let Opcode::Uc(operation) = packet.bth.opcode else { panic!("{packet:?}") };
        assert_eq!((packet.bth.dest_qp, packet.bth.ack_req), (NUMBERS[1], false));
        assert_eq!(packet.bth.psn, plan.first.add(sequence as u32), "a packet out of order or again");
        let wr = &self.requests[self.sending];
        let (offset, len) = (self.offset, packet.payload.len());
        let is_first = !self.has_begun;
        let is_last = offset + len == wr.len as usize;
        assert!(is_last || len == plan.mtu.bytes(), "{packet:?} of {wr:?} at {offset}");
        assert!(len <= plan.mtu.bytes() && (is_first || len > 0), "{packet:?}");
        assert_eq!(
            (operation.is_first_or_only(), operation.is_last_or_only()),
            (is_first, is_last),
            "{wr:?}"
        );
        let is_write = matches!(wr.op, Op::Write | Op::WriteWithImm);
        assert!(operation.is_write() == is_write && operation.is_send() != is_write);
        let reth = Reth { va: wr.remote_addr, rkey: wr.rkey, len: wr.len };
        let has_imm = is_last && matches!(wr.op, Op::SendWithImm | Op::WriteWithImm);
        let expected = match (is_write && is_first, has_imm) {
            (true, true) => Extension::RethImm(reth, wr.imm),
            (true, false) => Extension::Reth(reth),
            (false, true) => Extension::Imm(wr.imm),
            (false, false) => Extension::None,
        };
        assert_eq!(packet.extension, expected, "{wr:?}");
        let solicits = is_last && wr.solicited && wr.op != Op::Write;
        assert_eq!(packet.bth.solicited, solicits, "{wr:?}");
        assert!(memory::is_sent(memory, 0, wr, offset, packet.payload), "wrong bytes of {wr:?} at {offset}");
        self.parts.push(Part { message: self.sending, offset, len, is_first, is_last });
        (self.offset, self.has_begun) = (offset + len, true);
        if is_last {
            self.sent[self.sending] = true;
            self.next_request(self.sending + 1);
        }
        sequence
    }

    fn next_request(&mut self, index: usize) {
        (self.sending, self.offset, self.has_begun) = (index, 0, false);
    }

    /// The oldest request is complete.
    pub(super) fn completes_send(&mut self, status: u32) {
        let (index, wr) = (self.done, &self.requests[self.done]);
        match status {
            status::SUCCESS => assert!(self.sent[index], "{wr:?} succeeds before it is sent"),
            status::LOC_PROT_ERR => {
                assert!(self.in_sqe && self.sender_denied && index == self.sending, "{wr:?}");
                self.see("LOC_PROT_ERR");
            }
            status::WR_FLUSH_ERR => assert!(self.in_sqe || self.disconnected, "{wr:?} is flushed"),
            other => panic!("status {other} of {:?}", self.requests[index]),
        }
        self.done += 1;
        if status != status::SUCCESS {
            self.next_request(self.sending.max(self.done));
        }
    }

    // ---- the receiver ----------------------------------------------------------------------------------

    /// The receiver takes a packet.
    pub(super) fn takes(&mut self, sequence: u64) {
        self.settles();
        let part = self.parts[sequence as usize];
        let is_new = self.highest.is_none_or(|highest| sequence > highest);
        let continues = self.current == Some((part.message, part.offset)) && !part.is_first;
        // What is missing between it and the accepted one: then it continues nothing.
        let is_next = self.highest.is_some_and(|highest| sequence == highest + 1);
        let is_accepted = is_new && (part.is_first || (continues && is_next));
        let breaks_off = is_new && !(continues && is_next) && self.current.take().is_some();
        if breaks_off {
            self.see("a message is broken off");
        }
        if is_accepted {
            self.highest = Some(sequence);
        }
        let what = match (is_new, is_accepted) {
            (false, _) => "a packet is late",
            (true, false) => "a packet continues nothing",
            (true, true) => "a packet is accepted",
        };
        self.see(what);
        self.expected = Some(Expected {
            part,
            is_accepted,
            breaks_off,
            placed: 0,
            completed: false,
            dropped: None,
            no_receive: false,
            denied: false,
        });
    }

    /// The receiver has done all that it does with the last packet.
    pub(super) fn settles(&mut self) {
        let Some(expected) = self.expected.take().filter(|_| !self.ended[1]) else { return };
        let Expected { part, is_accepted, placed, completed, dropped, no_receive, denied, .. } = expected;
        let wr = &self.requests[part.message];
        if !is_accepted {
            assert!(placed == 0 && !completed, "{part:?} has an effect");
            assert_eq!(dropped, Some(Dropped::Psn), "{part:?}");
            return;
        }
        if let Some(why) = dropped {
            let (is_caused, what) = match why {
                Dropped::NoReceive => (no_receive, "no receive"),
                Dropped::Access => (denied && wr.op != Op::Send, "access denied"),
                Dropped::TooLong => (self.is_too_long(wr), "too long"),
                _ => (false, "?"),
            };
            assert!(is_caused, "{part:?} of {wr:?} is dropped: {why:?}");
            self.see(what);
            self.current = None;
            return;
        }
        assert_eq!(placed, part.len, "{part:?} of {wr:?} is not placed");
        let completes = part.is_last && wr.op != Op::Write;
        assert_eq!(completed, completes, "{part:?} of {wr:?}");
        self.current = (!part.is_last).then_some((part.message, part.offset + part.len));
        if part.is_last {
            self.messages += 1;
            self.see("a message arrives");
        }
    }

    fn is_too_long(&self, wr: &SendWr) -> bool {
        self.taken.last().is_some_and(|receive| receive.capacity() < wr.len)
    }

    fn now(&mut self, what: &str) -> &mut Expected {
        self.expected.as_mut().unwrap_or_else(|| panic!("{what} without a packet"))
    }

    pub(super) fn placed(&mut self, access: Access, bytes: &[u8], memory: &Regions) {
        let Expected { part, is_accepted, placed, .. } = *self.now("a placement");
        let (wr, at) = (&self.requests[part.message], part.offset + placed);
        assert!(is_accepted, "{part:?} is placed");
        if matches!(wr.op, Op::Write | Op::WriteWithImm) {
            let place = (wr.rkey, wr.remote_addr.wrapping_add(at as u64), REMOTE_WRITE);
            assert_eq!((access.stag, access.addr, access.rights), place, "byte {at} of {wr:?}");
        } else {
            let receive = self.taken.get(self.received).expect("a receive for the message");
            let (sge, addr, left) = memory::entry_at(receive.entries(), at).expect("room");
            assert_eq!((access.stag, access.addr, access.rights), (sge.lkey(), addr, LOCAL_WRITE));
            assert!(bytes.len() <= left);
        }
        assert!(memory::is_sent(memory, 0, wr, at, bytes), "wrong bytes of {wr:?} from byte {at}");
        self.now("a placement").placed += bytes.len();
    }

    /// A receive was taken, or there was none.
    pub(super) fn took_receive(&mut self, wr: Option<&RecvWr>) {
        match wr {
            Some(wr) => self.taken.push(wr.clone()),
            None => self.no_receive(),
        }
    }

    /// There is none, or no room for its completion.
    pub(super) fn no_receive(&mut self) {
        if let Some(expected) = &mut self.expected {
            expected.no_receive = true;
        }
    }

    /// There is no room for the completion of a receive: it is kept.
    pub(super) fn keeps_completion(&mut self) {
        if let Some(expected) = &mut self.expected {
            let wr = &self.requests[expected.part.message];
            expected.completed =
                expected.part.is_last && expected.placed == expected.part.len && wr.op != Op::Write;
            // Nothing is received before it is delivered.
            expected.no_receive = true;
            self.kept = self.kept.or(Some(*expected));
        }
    }

    pub(super) fn completes_receive(
        &mut self,
        completion: &Completion,
        [sender, receiver]: &[Regions; 2],
        plan: &Plan,
    ) {
        let receive = self.taken[self.received].clone();
        self.received += 1;
        let kept = self.kept.take();
        let of = kept.or(self.expected);
        match completion.status {
            status::SUCCESS => {
                let Expected { part, is_accepted, completed, .. } = of.expect("a packet for a completion");
                let wr = &self.requests[part.message];
                let is_its = is_accepted && part.is_last && completed == kept.is_some();
                assert!(is_its, "{part:?} completes {receive:?}");
                assert!(self.last_received.is_none_or(|last| part.message > last), "{wr:?} arrives again");
                let (code, extra) = match wr.op {
                    Op::WriteWithImm => (opcode::RECV_RDMA_WITH_IMM, Extra::Imm(wr.imm)),
                    Op::SendWithImm => (opcode::RECV, Extra::Imm(wr.imm)),
                    _ => (opcode::RECV, Extra::Nothing),
                };
                let got = (completion.opcode, completion.extra, completion.byte_len, completion.solicited);
                assert_eq!(got, (code, extra, wr.len, wr.solicited), "{wr:?}");
                if wr.op != Op::WriteWithImm {
                    let (mut at, end) = (0, wr.len as usize);
                    while at < end {
                        let (_, addr, left) = memory::entry_at(receive.entries(), at).expect("room");
                        let bytes = receiver.at(addr, left.min(end - at));
                        assert!(
                            memory::is_sent(sender, 0, wr, at, bytes),
                            "the bytes of {wr:?} in {receive:?} from byte {at}"
                        );
                        at += bytes.len();
                    }
                }
                self.last_received = Some(part.message);
                if kept.is_none() {
                    self.now("a completion").completed = true;
                }
            }
            status::LOC_PROT_ERR => assert!(self.receiver_denied, "{receive:?}"),
            status::LOC_LEN_ERR if plan.shared => {
                let message = of.expect("a packet for a completion").part.message;
                assert!(receive.capacity() < self.requests[message].len);
                self.see("LOC_LEN_ERR of a shared receive");
            }
            status::REM_INV_REQ_ERR if plan.shared => {
                // A write may fail behind the receive that its immediate data takes.
                assert!(of.is_some_and(|of| of.breaks_off || of.denied), "{receive:?}");
                self.see("REM_INV_REQ_ERR of a shared receive");
            }
            status::WR_FLUSH_ERR => {
                assert!(self.disconnected || self.receiver_denied, "{receive:?} is flushed")
            }
            other => panic!("status {other} of {receive:?}"),
        }
    }

    pub(super) fn dropped(&mut self, why: Dropped) {
        let expected = self.now("a drop");
        assert!(expected.dropped.replace(why).is_none(), "dropped twice");
    }

    /// An access has failed.
    pub(super) fn failed(&mut self, me: usize, access: Access) {
        if me == 0 {
            self.sender_denied = true;
            return;
        }
        self.receiver_denied |= access.rights == LOCAL_WRITE;
        if let Some(expected) = &mut self.expected {
            expected.denied = true;
        }
    }

    /// A queue pair permits no writes.
    pub(super) fn denies_writes(&mut self) {
        if let Some(expected) = &mut self.expected {
            expected.denied = true;
        }
    }
}
