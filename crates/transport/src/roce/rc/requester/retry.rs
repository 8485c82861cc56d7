// SPDX-License-Identifier: BSD-3-Clause
//! When requests are sent again, and how often.
//!
//! The timer is not restarted for each acknowledgement. It is checked from time to time, and if something was
//! acknowledged since the last check, it starts again, so it fires between one and two local ACK timeouts
//! after the last progress; the specification permits four (IBTA 9.7.6.1.3). At a check without progress
//! before the timeout, the oldest packets are sent again if [`Probe`] predicts that they are lost. That uses
//! no retry. The clock is read once for each check, and for each measured round trip.
//!
//! The timer does not count while the socket is full, since the last packets of a message request its
//! acknowledgement, and a retransmission starts it when its first packet leaves. It does while a ring in
//! shared memory is full, since only the peer makes room there, but nothing is sent again before it expires.
//! Nor does it count while received packets are unread, up to the fourth timeout: the acknowledgement may be
//! among them.

use crate::host::Host;
use crate::policy::Policy;
use crate::policy::mode::Mode;
use crate::policy::probe::Probe;
use crate::roce::rc::terms::{RNR_UNLIMITED, SendTerms};
use crate::units::Micros;

/// How often unread packets restart the transport timer, so that it fires within four timeouts, and postpone
/// a probe: the traffic of other queue pairs may never pause.
const MOST_UNREAD: u32 = 2;

/// What has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Nothing, or requests that made progress since, or that could not be sent.
    Nothing,
    /// The wait after an RNR NAK.
    Rnr,
    /// Requests without progress are predicted to be lost, before the transport timer expires.
    Probe,
    /// The transport timer.
    Transport,
}

#[derive(Debug)]
pub(super) struct Retry {
    timeout_us: Option<Micros>,
    retries: u8,
    rnr_retries: u8,
    retries_left: u8,
    rnr_retries_left: u8,
    /// When the timer is checked next.
    deadline: Option<Micros>,
    /// When the transport timer expires, if there was no progress at the check.
    expires: Micros,
    /// A packet was acknowledged, or the first one was sent, since the last check.
    has_progressed: bool,
    /// How often unread packets have restarted the timer since it fired, or since the last progress.
    unread: u32,
    /// How often they have postponed a probe since the last one, or since the last progress.
    unprobed: u32,
    probe: Probe,
    /// A probe has gone back, and nothing was sent since: the next check is timed from the send.
    is_probing: bool,
    /// The round trip that is being measured: the end of a request that was sent once, and when.
    measuring: Option<(u64, Micros)>,
    /// The next request that is sent for the first time is measured.
    measures: bool,
    /// Until when nothing is sent because of an RNR NAK.
    waits_until: Option<Micros>,
    /// Requests were sent again because of a gap or an RNR NAK, and none was acknowledged since: what still
    /// arrives of the first transmission shows the same gap.
    is_recovering: bool,
    /// Requests must be sent again, and none was: the link is full, or the budget is used up.
    is_pending: bool,
}

/// Whether the link takes packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Some,
    /// It takes them later: what was sent may not have left yet.
    None,
    /// It does when the peer has taken what is in it, which it may never do.
    NoneOfPeer,
}

impl Retry {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            timeout_us: None,
            retries: 0,
            rnr_retries: 0,
            retries_left: 0,
            rnr_retries_left: 0,
            deadline: None,
            expires: 0,
            has_progressed: false,
            unread: 0,
            unprobed: 0,
            probe: Probe::new(mode),
            is_probing: false,
            measuring: None,
            measures: true,
            waits_until: None,
            is_recovering: false,
            is_pending: false,
        }
    }

    pub(super) fn open(&mut self, terms: &SendTerms) {
        self.timeout_us = terms.timeout_us();
        (self.retries, self.rnr_retries) = (terms.retries, terms.rnr_retries);
        (self.retries_left, self.rnr_retries_left) = (terms.retries, terms.rnr_retries);
    }

    /// The first request after a pause is sent, or the link takes packets again.
    pub(super) fn started(&mut self) {
        self.has_progressed = true;
    }

    /// Packets were acknowledged. If it waits after an RNR NAK, another copy of the packet has found a
    /// receive.
    pub(super) fn progressed(&mut self) {
        self.has_progressed = true;
        self.waits_until = None;
        (self.unread, self.unprobed) = (0, 0);
        self.is_recovering = false;
        (self.retries_left, self.rnr_retries_left) = (self.retries, self.rnr_retries);
    }

    /// Everything before `end` is acknowledged: measures the round trip.
    pub(super) fn measure(&mut self, host: &mut impl Host, end: u64) {
        if let Some((_, begin)) = self.measuring.filter(|(measured, _)| *measured <= end) {
            self.measuring = None;
            self.probe.measured(host.now() - begin);
        }
    }

    /// Requests must be sent again.
    pub(super) fn goes_back(&mut self) {
        self.is_pending = true;
        self.measure_again();
    }

    /// An acknowledgement may be that of either transmission: measures the next request.
    fn measure_again(&mut self) {
        (self.measuring, self.measures) = (None, true);
    }

    /// A request with this end was sent, `is_new`: for the first time; or a full ring has refused the only
    /// one. Starts the transport timer if it does not run, and again for a retransmission.
    pub(super) fn arm(&mut self, host: &mut impl Host, end: u64, is_new: bool) {
        let Some(timeout) = self.timeout_us else { return };
        let is_resent = std::mem::take(&mut self.is_pending);
        if is_resent {
            self.has_progressed = false;
        }
        let is_probe = std::mem::take(&mut self.is_probing);
        let starts = is_resent || self.deadline.is_none();
        let measures = is_new && std::mem::take(&mut self.measures);
        if !starts && !is_probe && !measures {
            return;
        }
        let now = host.now();
        if starts {
            self.expires = now + timeout;
        }
        if starts || is_probe {
            self.check_after(now);
        }
        if measures {
            self.measuring = Some((end, now));
        }
    }

    /// Times the next check: for a probe if its acknowledgement could arrive before the timer expires,
    /// otherwise when the timer expires.
    fn check_after(&mut self, now: Micros) {
        let wait = self.probe.wait_us().filter(|wait| now.saturating_add(2 * wait) <= self.expires);
        self.deadline = Some(wait.map_or(self.expires, |wait| now + wait));
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    /// When [`Self::expire`] is due.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.waits_until.or(self.deadline)
    }

    /// What has expired at this time. `has_unread`: packets have arrived that were not read yet.
    pub(super) fn expire(
        &mut self,
        now: Micros,
        is_outstanding: bool,
        room: Room,
        has_unread: impl Fn() -> bool,
    ) -> Expired {
        if let Some(until) = self.waits_until {
            if now < until {
                return Expired::Nothing;
            }
            self.waits_until = None;
            // The wait is not part of the local ACK timeout.
            self.has_progressed = true;
            return Expired::Rnr;
        }
        match (self.deadline, self.timeout_us) {
            (Some(deadline), Some(timeout)) if now >= deadline => {
                self.measures |= self.measuring.is_none();
                if !is_outstanding {
                    self.deadline = None;
                    return Expired::Nothing;
                }
                let is_held = match room {
                    Room::Some => self.is_pending,
                    Room::None => true,
                    Room::NoneOfPeer => false,
                };
                let is_waiting = std::mem::take(&mut self.has_progressed) || is_held;
                let has_expired = now >= self.expires;
                if is_waiting || has_expired {
                    self.expires = now + timeout;
                }
                let expired = match (is_waiting, has_expired) {
                    (true, _) => Expired::Nothing,
                    (false, true) if self.unread < MOST_UNREAD && has_unread() => {
                        self.unread += 1;
                        Expired::Nothing
                    }
                    (false, true) => {
                        self.unread = 0;
                        self.probe.gives_up();
                        Expired::Transport
                    }
                    (false, false) if self.unprobed < MOST_UNREAD && has_unread() => {
                        self.unprobed += 1;
                        Expired::Nothing
                    }
                    // A full ring would not take the probe.
                    (false, false) if room != Room::NoneOfPeer && self.probe.is_lost() => {
                        self.unprobed = 0;
                        self.measure_again();
                        self.is_probing = true;
                        Expired::Probe
                    }
                    (false, false) => Expired::Nothing,
                };
                self.check_after(now);
                expired
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
