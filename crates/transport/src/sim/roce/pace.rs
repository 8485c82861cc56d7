// SPDX-License-Identifier: BSD-3-Clause
//! When a side sends which packets: what it may send, how often, and when it sends something again.

use crate::roce::wire::{Extension, Opcode, Operation, Packet, Psn, Syndrome, rnr_delay_us};
use crate::units::Micros;

use super::plan::{NUMBERS, SidePlan};

/// The packets of one side, as requester and as responder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    first: Psn,
    mtu: usize,
    /// `None`: no timer.
    timeout_us: Option<Micros>,
    /// The request PSNs that were sent, counted from 0 without wrapping, and the next one if nothing is
    /// repeated.
    sent: u64,
    cursor: u64,
    /// Below this, all are acknowledged.
    acked: u64,
    /// Request packets sent, and how many of them again.
    pub packets: u64,
    pub again: u64,
    /// The most PSNs that were outstanding.
    pub most: u64,
    /// RNR NAKs taken.
    pub rnr: u64,
    /// RNR NAKs since the last progress, and how many there may be, where the wire tells.
    rnr_row: u64,
    rnr_limit: Option<u64>,
    /// Request packets taken, and acknowledgements sent.
    pub taken: u64,
    pub acks: u64,
    /// Since the last request was sent, a response was taken, or the link took nothing for a while: so
    /// another cause than the timer explains that requests are sent again, or the timer expired earlier.
    is_excused: bool,
    /// When the oldest outstanding packet was sent, or the last progress was made, or sending went back.
    quiet_since: Micros,
    /// When something was last sent or taken.
    active_at: Micros,
    rnr_until: Micros,
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

    /// A packet goes out.
    pub(super) fn sends(&mut self, me: usize, packet: &Packet<'_>, now: Micros) {
        let Opcode::Rc(operation) = packet.bth.opcode else { panic!("{packet:?}") };
        assert_eq!(packet.bth.dest_qp, NUMBERS[1 - me]);
        assert!(packet.payload.len() <= self.mtu, "{packet:?} is longer than the path MTU");
        if operation.is_request() {
            self.requests(me, packet, operation, now);
        } else if operation == Operation::Acknowledge {
            self.acks += 1;
            assert!(self.acks <= self.taken, "side {me} sends more acknowledgements than it gets requests");
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
        self.packets += 1;
        let row = self.rnr_row;
        assert!(self.rnr_limit.is_none_or(|limit| row <= limit), "side {me} goes on after {row} RNR NAKs");
        if self.sent == self.acked && sequence == self.sent {
            self.quiet_since = now;
        }
        if sequence < self.sent {
            self.again += 1;
        }
        if sequence < self.cursor {
            if let Some(timeout) = self.timeout_us.filter(|_| !self.is_excused && now > self.rnr_until) {
                let waited = now - self.quiet_since;
                assert!(waited >= timeout, "side {me} sends {packet:?} again after {waited} us");
            }
            if !self.is_excused {
                self.quiet_since = now;
            }
        }
        self.cursor = sequence + count;
        self.sent = self.sent.max(self.cursor);
        self.most = self.most.max(self.sent - self.acked);
        (self.is_excused, self.active_at) = (false, now);
    }

    /// A packet of the peer is taken.
    pub(super) fn takes(&mut self, packet: &Packet<'_>, now: Micros) {
        let Opcode::Rc(operation) = packet.bth.opcode else { return };
        if operation.is_request() {
            self.taken += 1;
            return;
        }
        (self.is_excused, self.active_at) = (true, now);
        let distance = packet.bth.psn.distance(self.psn(self.sent));
        let Some(sequence) = self.sent.checked_add_signed(distance.into()) else { return };
        let (mut end, mut delay) = (sequence + 1, 0);
        if let Extension::Aeth(aeth) = packet.extension {
            match aeth.syndrome {
                Syndrome::Rnr { timer } => {
                    self.rnr += 1;
                    self.rnr_row += u64::from(now >= self.rnr_until);
                    (end, delay) = (sequence, rnr_delay_us(timer));
                }
                Syndrome::Nak(_) => end = sequence,
                _ => {}
            }
        }
        if end > self.acked {
            (self.acked, self.quiet_since, self.rnr_row) = (end, now, u64::from(delay > 0));
        }
        self.rnr_until = self.rnr_until.max(now + delay);
    }

    /// The link takes nothing, or time passes in the middle of a step.
    pub(super) fn excuse(&mut self) {
        self.is_excused = true;
    }

    /// The driver was late, or the network slow: timers are measured from now on.
    pub(super) fn was_late(&mut self, now: Micros) {
        self.active_at = now;
    }

    /// Nothing is due that could be late.
    pub(super) fn is_punctual(&self, now: Micros) -> bool {
        match self.timeout_us {
            Some(timeout) if self.acked < self.sent => {
                now <= self.active_at.max(self.rnr_until) + 4 * timeout
            }
            _ => true,
        }
    }

    /// How many packets may have been sent again because of so many faults. A packet that overtakes others
    /// shows a gap twice: when it arrives, and where it is missing then.
    pub(super) fn may_repeat(&self, faults: u64) -> u64 {
        (2 * faults + self.rnr) * self.most
    }
}
