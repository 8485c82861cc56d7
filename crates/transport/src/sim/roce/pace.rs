// SPDX-License-Identifier: BSD-3-Clause
//! The pace of one side: which PSNs it may send, how often, and when it may send them again.
//!
//! A side sends requests again for one of these causes only: a response showed a gap, once for each gap; it
//! waited for the time of an RNR NAK; nothing was acknowledged for a local ACK timeout; nothing was
//! acknowledged for the shortest wait of [`probe`](crate::policy::probe), not too often before the next
//! acknowledgement; or its link has changed.

use std::collections::VecDeque;
use std::ops::Range;

use crate::policy::probe;
use crate::roce::wire::{Extension, Nak, Opcode, Operation, Packet, Psn, Syndrome, rnr_delay_us};
use crate::units::Micros;

use super::plan::{NUMBERS, SidePlan};

/// The packets of one side, as requester and as responder.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    first: Psn,
    mtu: usize,
    /// `None`: no timer.
    timeout_us: Option<Micros>,
    /// The end of the request PSNs that were sent, counted from 0 without wrapping, and the PSN behind the
    /// last packet.
    sent: u64,
    cursor: u64,
    /// Below this, all are acknowledged.
    acked: u64,
    /// The PSNs from `acked` on that only a response acknowledges.
    answered: VecDeque<Range<u64>>,
    /// Request packets sent, and how many of them again.
    pub packets: u64,
    pub again: u64,
    /// The largest number of outstanding PSNs.
    pub most: u64,
    /// The largest number of requests that waited for a response.
    most_answered: u64,
    /// RNR NAKs received.
    pub rnr: u64,
    /// RNR NAKs since the last progress, and the limit, unless the network may repeat them.
    rnr_row: u64,
    rnr_limit: Option<u64>,
    /// Request packets received, and acknowledgements sent.
    pub taken: u64,
    pub acks: u64,
    /// How often the link has reported that it had no room: a NAK may follow.
    pub losses: u64,
    /// A response has shown a gap since the last request was sent, or the link has changed.
    has_gap: bool,
    /// How often the link has changed.
    pub changes: u64,
    /// That gap was the first one since the last progress: what arrives behind it shows the same one.
    is_recovering: bool,
    /// The timer may have expired since the last request was sent, and before the last acknowledgement.
    has_expired: bool,
    /// When the timer may have started last: the oldest outstanding packet was sent or sent again, a packet
    /// was acknowledged, or the link took packets again.
    quiet_since: Micros,
    /// When something was acknowledged or sent again last, whether [`probe::SHORTEST_US`] has passed between
    /// that and the last acknowledgement, and how often requests were sent again since without another cause.
    probed_at: Micros,
    may_probe: bool,
    probes: u32,
    /// The link has refused a request.
    is_blocked: bool,
    /// When a packet was last sent or received.
    active_at: Micros,
    /// The end of the wait after an RNR NAK; it is over when a request is sent.
    rnr_until: Micros,
    is_waiting: bool,
    /// The longest wait, and its end: a NAK begins another one if the previous wait has expired unseen.
    rnr_wait: Micros,
    rnr_latest: Micros,
}

impl Pace {
    /// `is_exact`: the network neither repeats nor delays packets.
    pub(super) fn new(plan: &SidePlan, is_exact: bool) -> Self {
        let timeout_us = plan.timeout_us();
        // With requests that have a response, an RNR NAK may be too early to count.
        let is_limited = is_exact && plan.terms.rnr_retries < 7 && !plan.mix.has_answered();
        let rnr_limit = is_limited.then_some(plan.terms.rnr_retries.into());
        Self {
            rnr_limit,
            first: plan.terms.sq_psn,
            mtu: plan.path.mtu.bytes(),
            timeout_us,
            ..Self::default()
        }
    }

    fn psn(&self, sequence: u64) -> Psn {
        self.first.add(sequence as u32)
    }

    /// The side sends a packet.
    pub(super) fn sends(&mut self, me: usize, packet: &Packet<'_>, now: Micros) {
        let Opcode::Rc(operation) = packet.bth.opcode else { panic!("{packet:?}") };
        assert_eq!(packet.bth.dest_qp, NUMBERS[1 - me]);
        assert!(packet.payload.len() <= self.mtu, "{packet:?} is longer than the path MTU");
        if operation.is_request() {
            self.requests(me, packet, operation, now);
        } else if operation == Operation::Acknowledge {
            self.acks += 1;
            assert!(
                self.acks <= self.taken + self.losses,
                "side {me} sends more acknowledgements than it receives requests"
            );
        }
    }

    fn requests(&mut self, me: usize, packet: &Packet<'_>, operation: Operation, now: Micros) {
        let count = match packet.extension {
            Extension::Reth(reth) if operation == Operation::ReadRequest => {
                u64::from(reth.len.div_ceil(self.mtu as u32).max(1))
            }
            _ => 1,
        };
        let distance = packet.bth.psn.distance(self.psn(self.sent));
        let sequence = self.sent.checked_add_signed(distance.into()).expect("a PSN before the first one");
        assert!(sequence <= self.sent, "side {me} leaves out PSNs: {packet:?}");
        assert!(sequence >= self.acked, "side {me} sends again what is acknowledged: {packet:?}");
        assert!(now >= self.rnr_until, "side {me} sends {packet:?} within the wait after an RNR NAK");
        let row = self.rnr_row;
        assert!(self.rnr_limit.is_none_or(|limit| row <= limit), "side {me} continues after {row} RNR NAKs");
        if self.sent == self.acked {
            self.quiet_since = now;
        }
        if sequence < self.cursor {
            self.repeats(me, packet, now);
        }
        self.packets += 1;
        self.again += u64::from(sequence < self.sent);
        if sequence == self.sent && operation.has_response() {
            self.answered.push_back(sequence..sequence + count);
            self.most_answered = self.most_answered.max(self.answered.len() as u64);
        }
        self.cursor = sequence + count;
        self.sent = self.sent.max(self.cursor);
        self.most = self.most.max(self.sent - self.acked);
        (self.has_gap, self.has_expired, self.is_waiting) = (false, false, false);
        self.active_at = now;
    }

    /// The first packet that is sent again: there is a cause.
    fn repeats(&mut self, me: usize, packet: &Packet<'_>, now: Micros) {
        let waited = now - self.probed_at;
        let is_lost = self.may_probe || waited >= probe::SHORTEST_US;
        if !self.has_gap && self.timeout_us.is_some() && is_lost && self.probes < probe::MOST {
            self.probes += 1;
        } else {
            let is_caused = self.has_gap || self.has_expired || self.is_expired(now);
            assert!(is_caused, "side {me} sends {packet:?} again without a cause, after {waited} us");
            self.quiet_since = now;
        }
        (self.probed_at, self.may_probe) = (now, false);
    }

    /// The transport timer may have expired.
    fn is_expired(&self, now: Micros) -> bool {
        self.timeout_us.is_some_and(|timeout| now - self.quiet_since >= timeout)
    }

    /// The side receives a packet.
    pub(super) fn takes(&mut self, packet: &Packet<'_>, now: Micros) {
        let Opcode::Rc(operation) = packet.bth.opcode else { return };
        if operation.is_request() {
            self.taken += 1;
            return;
        }
        self.active_at = now;
        let distance = packet.bth.psn.distance(self.psn(self.sent));
        let Some(sequence) = self.sent.checked_add_signed(distance.into()) else { return };
        let syndrome = match packet.extension {
            Extension::Aeth(aeth) if operation == Operation::Acknowledge => Some(aeth.syndrome),
            _ => None,
        };
        // The peer may have lost packets, and may send a NAK for a PSN that is not sent yet.
        let is_nak = syndrome == Some(Syndrome::Nak(Nak::PsnSequence));
        let is_next = is_nak && sequence == self.sent && self.acked < self.sent;
        if sequence < self.acked || sequence >= self.sent && !is_next {
            return;
        }
        let is_ack = matches!(syndrome, Some(Syndrome::Ack { .. }));
        let is_complete = self.acknowledge(sequence + u64::from(is_ack), now);
        match syndrome {
            Some(Syndrome::Ack { .. }) if is_complete => {}
            _ if is_next && is_complete => {}
            Some(Syndrome::Rnr { timer }) if is_complete => {
                self.rnr_wait = rnr_delay_us(timer);
                self.rnr_latest = now + self.rnr_wait;
                if !std::mem::replace(&mut self.is_waiting, true) {
                    self.rnr += 1;
                    self.rnr_row += 1;
                    self.rnr_until = self.rnr_latest;
                    (self.has_gap, self.is_recovering) = (true, false);
                }
            }
            // The data of a read, the result of an atomic operation, or a response without either.
            None if is_complete => self.advance(sequence + 1, now),
            _ => self.has_gap |= !std::mem::replace(&mut self.is_recovering, true),
        }
    }

    /// Whether all before `end` are acknowledged now: not behind a request whose response is missing.
    fn acknowledge(&mut self, end: u64, now: Micros) -> bool {
        let limit = self.answered.front().map_or(end, |first| first.start);
        if end.min(limit) > self.acked {
            self.advance(end.min(limit), now);
        }
        self.acked == end
    }

    fn advance(&mut self, end: u64, now: Micros) {
        self.acked = end;
        self.has_expired |= self.is_expired(now);
        self.may_probe |= now - self.probed_at >= probe::SHORTEST_US;
        (self.probed_at, self.probes) = (now, 0);
        (self.quiet_since, self.rnr_row, self.is_recovering) = (now, 0, false);
        // What it waits to send again has found a receive.
        (self.rnr_until, self.is_waiting) = (now.min(self.rnr_until), false);
        if let Some(first) = self.answered.front_mut() {
            first.start = first.start.max(end);
            if first.is_empty() {
                self.answered.pop_front();
            }
        }
    }

    /// The link changes.
    pub(super) fn changes_link(&mut self) {
        self.has_gap = true;
        self.changes += 1;
    }

    /// The link refuses a request.
    pub(super) fn is_refused(&mut self, now: Micros) {
        self.has_expired |= self.is_expired(now);
        self.is_blocked = true;
    }

    /// The link takes packets again.
    pub(super) fn unblock(&mut self, now: Micros) {
        if std::mem::take(&mut self.is_blocked) {
            self.quiet_since = now;
        }
    }

    /// The driver was late, or the network slow: timers are measured from now on. So is the wait after an RNR
    /// NAK, which begins when the driver has carried out what arrived before it.
    pub(super) fn was_late(&mut self, now: Micros) {
        self.active_at = now;
        if self.is_waiting {
            self.rnr_latest = now + self.rnr_wait;
        }
    }

    /// No timer that has expired is overdue.
    pub(super) fn is_punctual(&self, now: Micros) -> bool {
        match self.timeout_us {
            Some(timeout) if self.acked < self.sent => {
                now <= self.active_at.max(self.rnr_latest) + 4 * timeout
            }
            _ => true,
        }
    }

    /// How many packets may have been sent again because of so many faults. Each may delay an
    /// acknowledgement, so that requests are taken for lost. A packet that overtakes others shows a gap
    /// twice: when it arrives, and where it is missing then. The ACK of a repeated request covers later
    /// reads, whose responses are behind it: that shows a gap once for each of them.
    pub(super) fn may_repeat(&self, faults: u64) -> u64 {
        ((2 + u64::from(probe::MOST) + self.most_answered) * faults + self.rnr) * self.most
    }
}
