// SPDX-License-Identifier: BSD-3-Clause
//! When requests are sent again, and how often.
//!
//! The transport timer is not restarted for each acknowledgement: when it expires after progress, it starts
//! again. So it fires between one and two local ACK timeouts after the last progress; the specification
//! permits four (IBTA 9.7.6.1.3), and the clock is read only when the timer starts.
//!
//! It does not count while the link is full, since the last packets of a message request its acknowledgement,
//! and a retransmission starts it when its first packet leaves.

use crate::host::Host;
use crate::roce::rc::terms::{RNR_UNLIMITED, SendTerms};
use crate::units::Micros;

/// What has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Nothing, or requests that made progress since, or that could not be sent.
    Nothing,
    /// The wait after an RNR NAK.
    Rnr,
    /// The transport timer.
    Transport,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    timeout_us: Option<Micros>,
    retries: u8,
    rnr_retries: u8,
    retries_left: u8,
    rnr_retries_left: u8,
    /// When the transport timer expires.
    deadline: Option<Micros>,
    /// A packet was acknowledged, or the first one was sent, since the transport timer started.
    has_progressed: bool,
    /// Until when nothing is sent because of an RNR NAK.
    waits_until: Option<Micros>,
    /// Requests were sent again because of a gap or an RNR NAK, and none was acknowledged since: what still
    /// arrives of the first transmission shows the same gap.
    is_recovering: bool,
    /// Requests must be sent again, and none was: the link is full, or the budget is used up.
    is_pending: bool,
}

impl Retry {
    pub(super) fn new(terms: &SendTerms) -> Self {
        Self {
            timeout_us: terms.timeout_us(),
            retries: terms.retries,
            rnr_retries: terms.rnr_retries,
            retries_left: terms.retries,
            rnr_retries_left: terms.rnr_retries,
            ..Self::default()
        }
    }

    /// The first request after a pause is sent, or the link takes packets again.
    pub(super) fn started(&mut self) {
        self.has_progressed = true;
    }

    /// Packets were acknowledged.
    pub(super) fn progressed(&mut self) {
        self.has_progressed = true;
        self.is_recovering = false;
        (self.retries_left, self.rnr_retries_left) = (self.retries, self.rnr_retries);
    }

    /// Requests must be sent again.
    pub(super) fn goes_back(&mut self) {
        self.is_pending = true;
    }

    /// A request was sent: starts the transport timer if it does not run, and again for a retransmission.
    pub(super) fn arm(&mut self, host: &mut impl Host) {
        let is_resent = std::mem::take(&mut self.is_pending);
        if is_resent {
            self.has_progressed = false;
        }
        if let (true, Some(timeout)) = (is_resent || self.deadline.is_none(), self.timeout_us) {
            self.deadline = Some(host.now() + timeout);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    /// When [`Self::expire`] is due.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.waits_until.or(self.deadline)
    }

    /// What has expired at this time.
    pub(super) fn expire(&mut self, now: Micros, is_outstanding: bool, is_blocked: bool) -> Expired {
        if let Some(until) = self.waits_until {
            if now < until {
                return Expired::Nothing;
            }
            self.waits_until = None;
            return Expired::Rnr;
        }
        match (self.deadline, self.timeout_us) {
            (Some(deadline), Some(timeout)) if now >= deadline => {
                if !is_outstanding {
                    self.deadline = None;
                    return Expired::Nothing;
                }
                self.deadline = Some(now + timeout);
                let is_waiting = std::mem::take(&mut self.has_progressed) || self.is_pending || is_blocked;
                if is_waiting { Expired::Nothing } else { Expired::Transport }
            }
            _ => Expired::Nothing,
        }
    }

    /// A gap in what the peer received or sent. False: it has led to a retry already.
    pub(super) fn finds_gap(&mut self) -> bool {
        !std::mem::replace(&mut self.is_recovering, true)
    }

    /// Uses a retry. False when none is left.
    pub(super) fn again(&mut self) -> bool {
        let left = self.retries_left.checked_sub(1);
        self.retries_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Waits after an RNR NAK. False when no RNR retry is left.
    pub(super) fn wait_for_receiver(&mut self, now: Micros, delay_us: Micros) -> bool {
        if self.rnr_retries < RNR_UNLIMITED {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else { return false };
            self.rnr_retries_left = left;
        }
        self.waits_until = Some(now + delay_us.max(1));
        // The peer drops what follows a packet without a receive. rxe reports that as a gap.
        self.is_recovering = true;
        true
    }
}
