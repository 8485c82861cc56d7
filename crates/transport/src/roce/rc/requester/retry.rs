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
    /// The transport timer starts again at the next check: since the last one a packet was acknowledged, the
    /// first one was sent, or a wait ended that is not part of the local ACK timeout.
    has_progressed: bool,
    /// How often unread packets have restarted the timer since it fired, or since the last progress.
    unread: u32,
    /// How often they have postponed a probe since the last one, or since the last progress.
    unprobed: u32,
    probe: Probe,
    measured: Measured,
    hold: Hold,
    resend: Resend,
    /// Requests were sent again because of a gap or an RNR NAK, and none was acknowledged since: what still
    /// arrives of the first transmission shows the same gap.
    is_recovering: bool,
}

/// Why nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Nothing,
    /// The link has refused a packet, and takes packets later: what was sent may not have left yet.
    Link,
    /// A full ring has refused a packet. It takes packets when the peer has taken some, which may never
    /// happen.
    Ring,
    /// An RNR NAK, until this time. It replaces a refusal: after the wait a packet is tried.
    Rnr(Micros),
}

/// What must be sent again, until something is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Resend {
    #[default]
    Nothing,
    /// The oldest packets, as a probe: the next check is timed from the send.
    Probe,
    /// All requests without an acknowledgement: the transport timer starts from the send.
    All,
}

/// The round trip that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Nothing,
    /// The round trip of the next request that is sent for the first time.
    Next,
    /// The round trip of a request that was sent once: its end, and when it was sent.
    Since(u64, Micros),
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
            measured: Measured::Next,
            hold: Hold::Nothing,
            resend: Resend::Nothing,
            is_recovering: false,
        }
    }

    pub(super) fn open(&mut self, terms: &SendTerms) {
        self.timeout_us = terms.timeout_us();
        (self.retries, self.rnr_retries) = (terms.retries, terms.rnr_retries);
        (self.retries_left, self.rnr_retries_left) = (terms.retries, terms.rnr_retries);
    }

    /// The first request after a pause is sent.
    pub(super) fn started(&mut self) {
        self.has_progressed = true;
    }

    /// The link has refused a packet.
    pub(super) fn refused(&mut self, peer_makes_room: bool) {
        self.hold = if peer_makes_room { Hold::Ring } else { Hold::Link };
    }

    /// Whether a packet that the link has refused waits for room.
    pub(super) fn waits_for_room(&self) -> bool {
        matches!(self.hold, Hold::Link | Hold::Ring)
    }

    /// The link may take packets again. What could not be sent has the whole timeout, unless it was up to the
    /// peer to make room: then this may be no more than a poll, which always reports it.
    pub(super) fn unblock(&mut self) {
        self.has_progressed |= self.hold == Hold::Link;
        self.forget_refusal();
    }

    /// There is another link.
    pub(super) fn change_link(&mut self) {
        self.has_progressed |= self.waits_for_room();
        self.forget_refusal();
    }

    /// What the link has refused need not be sent any more, or may be tried again.
    pub(super) fn forget_refusal(&mut self) {
        if self.waits_for_room() {
            self.hold = Hold::Nothing;
        }
    }

    /// Packets were acknowledged. If it waits after an RNR NAK, another copy of the packet has found a
    /// receive.
    pub(super) fn progressed(&mut self) {
        self.has_progressed = true;
        if self.is_waiting() {
            self.hold = Hold::Nothing;
        }
        (self.unread, self.unprobed) = (0, 0);
        self.is_recovering = false;
        (self.retries_left, self.rnr_retries_left) = (self.retries, self.rnr_retries);
    }

    /// Everything before `end` is acknowledged: measures the round trip.
    pub(super) fn measure(&mut self, host: &mut impl Host, end: u64) {
        match self.measured {
            Measured::Since(measured, begin) if measured <= end => {
                self.measured = Measured::Nothing;
                self.probe.measured(host.now() - begin);
            }
            _ => {}
        }
    }

    /// Requests must be sent again.
    pub(super) fn goes_back(&mut self) {
        self.resend = Resend::All;
        self.measure_again();
    }

    /// An acknowledgement may be that of either transmission: measures the next request.
    fn measure_again(&mut self) {
        self.measured = Measured::Next;
    }

    /// A request with this end was sent, `is_new`: for the first time; or a full ring has refused the only
    /// one. Starts the transport timer if it does not run, and again for a retransmission.
    pub(super) fn arm(&mut self, host: &mut impl Host, end: u64, is_new: bool) {
        let Some(timeout) = self.timeout_us else { return };
        let resent = std::mem::take(&mut self.resend);
        if resent == Resend::All {
            self.has_progressed = false;
        }
        let starts = resent == Resend::All || self.deadline.is_none();
        let measures = is_new && self.measured == Measured::Next;
        if !starts && resent == Resend::Nothing && !measures {
            return;
        }
        let now = host.now();
        if starts {
            self.expires = now + timeout;
        }
        if starts || resent == Resend::Probe {
            self.check_after(now);
        }
        if measures {
            self.measured = Measured::Since(end, now);
        }
    }

    /// Times the next check: for a probe if its acknowledgement could arrive before the timer expires,
    /// otherwise when the timer expires.
    fn check_after(&mut self, now: Micros) {
        let wait = self.probe.wait_us().filter(|wait| now.saturating_add(2 * wait) <= self.expires);
        self.deadline = Some(wait.map_or(self.expires, |wait| now + wait));
    }

    /// Whether it waits after an RNR NAK.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.hold, Hold::Rnr(_))
    }

    /// Whether requests may be sent.
    pub(super) fn may_send(&self) -> bool {
        self.hold == Hold::Nothing
    }

    /// When [`Self::expire`] is due.
    pub(super) fn deadline(&self) -> Option<Micros> {
        match self.hold {
            Hold::Rnr(until) => Some(until),
            _ => self.deadline,
        }
    }

    /// What has expired at this time. `has_unread`: packets have arrived that were not read yet.
    pub(super) fn expire(
        &mut self,
        now: Micros,
        is_outstanding: bool,
        has_unread: impl Fn() -> bool,
    ) -> Expired {
        if let Hold::Rnr(until) = self.hold {
            if now < until {
                return Expired::Nothing;
            }
            self.hold = Hold::Nothing;
            // The wait is not part of the local ACK timeout.
            self.has_progressed = true;
            return Expired::Rnr;
        }
        match (self.deadline, self.timeout_us) {
            (Some(deadline), Some(timeout)) if now >= deadline => {
                if self.measured == Measured::Nothing {
                    self.measured = Measured::Next;
                }
                if !is_outstanding {
                    self.deadline = None;
                    return Expired::Nothing;
                }
                let is_unsent = self.hold == Hold::Nothing && self.resend == Resend::All;
                let is_held = is_unsent || self.hold == Hold::Link;
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
                    (false, false) if self.hold != Hold::Ring && self.probe.is_lost() => {
                        self.unprobed = 0;
                        self.measure_again();
                        self.resend = Resend::Probe;
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
        self.hold = Hold::Rnr(now + delay_us.max(1));
        // The peer drops what follows a packet without a receive. rxe reports that as a gap.
        self.is_recovering = true;
        true
    }
}
