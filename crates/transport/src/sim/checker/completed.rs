// SPDX-License-Identifier: BSD-3-Clause
//! Checks of completions: each request completes once and in order, and with success only if it was executed.

use super::super::memory;
use super::{Checker, Outbound, Posted};
use crate::wr::{Completion, Extra, Op, opcode, status};

impl<O: Outbound> Checker<O> {
    /// The next request has succeeded; `read` is what its side has taken from the link.
    fn succeeded(&mut self, side: usize, read: u64) {
        self.pass_placed(side);
        let model = &self.sides[side];
        let (index, posted) = (model.done, &model.requests[model.done]);
        let sent = model.outbound.has_sent(index, posted);
        assert!(sent, "request {index} of side {side} succeeds and was not sent");
        let has_result = !posted.transferred || !model.reads.contains(&index);
        assert!(has_result, "request {index} of side {side} succeeds without its result");
        if posted.is_answered() {
            assert!(
                model.placed_read > posted.number,
                "read {index} of side {side} succeeds without its bytes"
            );
            let answers = self.sides[1 - side].outbound.answers(read);
            assert!(answers > posted.number, "read {index} of side {side} succeeds without an answer");
        }
    }

    pub(in crate::sim) fn release_send(&mut self, side: usize, read: u64) {
        let model = &self.sides[side];
        assert!(model.done < model.taken, "side {side} releases a request that was not taken");
        self.succeeded(side, read);
        self.sides[side].done += 1;
    }

    pub(in crate::sim) fn send_completed(&mut self, side: usize, completion: &Completion, read: u64) {
        let model = &self.sides[side];
        let Completion { wr_id, status, .. } = *completion;
        assert!(!model.destroyed, "side {side} completes {wr_id} after it was destroyed");
        assert!(model.done < model.taken, "side {side} completes {wr_id}, which is not outstanding");
        let wr = model.requests[model.done].wr.clone();
        if status == status::SUCCESS {
            self.succeeded(side, read);
        } else {
            let causes = &model.causes;
            let explained = match status {
                status::WR_FLUSH_ERR => true,
                status::LOC_PROT_ERR => causes.memory,
                status::LOC_QP_OP_ERR => causes.no_reads,
                status::REM_ACCESS_ERR | status::REM_OP_ERR => {
                    wr.is_answered() && self.sides[1 - side].causes.own()
                }
                status::REM_INV_REQ_ERR => wr.is_atomic() && self.sides[1 - side].causes.own(),
                _ => false,
            };
            assert!(explained, "request {wr_id} of side {side} fails with status {status}");
            assert!(model.closed || !model.open, "request {wr_id} fails on an open connection");
        }
        self.sides[side].done += 1;
    }

    pub(in crate::sim) fn receive_completed(&mut self, side: usize, completion: &Completion, read: u64) {
        let model = &self.sides[side];
        let Completion { wr_id, status, .. } = *completion;
        assert!(!model.destroyed, "side {side} completes {wr_id} after it was destroyed");
        let Some(receive) = model.taken_receives.get(model.received).cloned() else {
            panic!("side {side} completes receive {wr_id}, which was not taken");
        };
        let number = model.delivered;
        let peer = &self.sides[1 - side];
        let message = peer.messages.get(number).map(|index| (*index, peer.requests[*index].clone()));
        match status {
            status::SUCCESS => {
                let Some((index, message)) = message else { panic!("a message that was not sent") };
                self.message_received(side, index, &message, completion, read);
                self.sides[side].delivered += 1;
            }
            status::LOC_LEN_ERR => {
                let longer = message.is_some_and(|(_, message)| message.overruns(&receive));
                assert!(longer, "side {side}: message {number} is not too long");
            }
            status::LOC_PROT_ERR => assert!(model.causes.memory, "no memory was refused"),
            status::WR_FLUSH_ERR => {
                assert!(model.closed || !model.open, "side {side} flushes a receive while it is open");
            }
            _ => panic!("side {side}: receive {wr_id} fails with status {status}"),
        }
        self.sides[side].received += 1;
    }

    fn message_received(&mut self, side: usize, index: usize, sent: &Posted, got: &Completion, read: u64) {
        let wr = &sent.wr;
        let extra = match wr.op {
            Op::Send => Extra::Nothing,
            Op::SendWithInv => Extra::Invalidated(wr.rkey.to_be_bytes()),
            _ => Extra::Imm(wr.imm),
        };
        let kind = if wr.op == Op::WriteWithImm { opcode::RECV_RDMA_WITH_IMM } else { opcode::RECV };
        let expected = (kind, wr.len, extra, wr.solicited);
        assert_eq!(
            (got.opcode, got.byte_len, got.extra, got.solicited),
            expected,
            "message {} of the peer",
            sent.number
        );
        self.placed_up_to(side, index, "a receive completed");
        let invalidating = |posted: &Posted| posted.wr.op == Op::SendWithInv;
        let due =
            self.sides[1 - side].requests[..=index].iter().filter(|posted| invalidating(posted)).count();
        assert_eq!(
            self.sides[side].invalidated, due,
            "side {side}: windows invalidated when a receive completed"
        );
        let peer = &self.sides[1 - side];
        assert!(peer.outbound.is_genuine(sent.number), "side {side} continues after a forged message");
        let arrived = peer.outbound.has_arrived(index, read);
        assert!(arrived, "side {side}: message {} completed before it arrived", sent.number);
        // A peer that answers has received the message: its acknowledgement completes before the answer.
        let model = &self.sides[side];
        if let Some(answered) = sent.knows.checked_sub(1) {
            // Only reads, whose responses have an order of their own, may delay it, and a full completion
            // queue.
            let reads = model.requests.get(model.done).is_some_and(|posted| {
                posted.is_answered() && (posted.wr.len == 0 || model.placed_read <= posted.number)
            });
            let known = model.done > model.messages[answered] || reads || model.send_refused;
            assert!(known, "side {side}: an answer completed before the message that it answers");
        }
    }

    /// A message requests the invalidation of a window: false if that is refused.
    pub(in crate::sim) fn invalidated(&mut self, side: usize, stag: u32) -> bool {
        let number = self.sides[side].invalidated;
        let mut posted = self.sides[1 - side].requests.iter().enumerate();
        let next = posted.by_ref().filter(|(_, posted)| posted.wr.op == Op::SendWithInv).nth(number);
        let Some((index, next)) = next else { panic!("side {side}: no message invalidates {stag:x}") };
        assert_eq!(next.wr.rkey, stag, "side {side}: another window");
        self.placed_up_to(side, index, "a window invalidated");
        let permitted = stag == memory::window(side, index);
        self.sides[side].invalidated += usize::from(permitted);
        permitted
    }

    pub(in crate::sim) fn established(&mut self, side: usize) {
        assert!(!self.sides[side].closed, "side {side} established too late");
    }

    /// A side has ended; `none_left`: all its receives were taken, or are left to others.
    pub(in crate::sim) fn ended(&mut self, side: usize, none_left: bool) {
        let model = &mut self.sides[side];
        assert!(!model.destroyed, "side {side} ends after it was destroyed");
        model.ended = true;
        assert!(model.sends_are_over() || model.send_refused, "side {side} ended before its requests");
        assert!(
            model.received == model.taken_receives.len() || model.receive_refused,
            "side {side} ended before a receive"
        );
        assert!(none_left || model.receive_refused, "side {side} ended before its receives");
    }

    /// Side `side` is over; what its peer gave to the link before a graceful end must have been delivered.
    pub(in crate::sim) fn all_delivered(&self, side: usize, lossy: bool) {
        let (model, peer) = (&self.sides[side], &self.sides[1 - side]);
        let Some(handed) = peer.graceful else { return };
        if lossy || !model.open || model.causes.own() || model.causes.starved {
            return;
        }
        assert!(
            model.delivered >= handed,
            "side {side} received {} of {handed} messages sent before a graceful end",
            model.delivered
        );
    }
}
