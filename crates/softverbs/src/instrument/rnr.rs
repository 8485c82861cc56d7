// SPDX-License-Identifier: BSD-3-Clause
//! Messages that find no receive, in strict mode.
//!
//! Software RDMA delivers such a message as soon as a receive is posted. An adapter answers it with an RNR
//! NAK, and the sender repeats it when the timer that the NAK carries has expired, as often as the parameters
//! of the connection permit. The message is here already, so each retry only checks for a receive: in
//! [`Strict::Adapter`] there is no check between two retries.

use super::strict::{self, Rule, Strict};
use crate::logged::Logged;
use transport::roce::rc::RNR_UNLIMITED;
use transport::units::Micros;

/// The default timer of an adapter's RNR NAK (`min_rnr_timer` 0 of ibv_modify_qp(3), which rdma_cm sets).
const RNR_TIMER_US: u64 = 655_360;

/// How a message without a receive is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// It is delivered when there is a receive.
    Waits,
    /// There is no check for a receive before [`Rnr::deadline`].
    Repeated,
    /// The retry count is exhausted.
    Exceeded,
}

#[derive(Default)]
pub(super) struct Rnr {
    /// How often a message may be repeated ([`RNR_UNLIMITED`]: no limit).
    limit: u8,
    /// How often the current one was repeated.
    repeated: u8,
    until: Option<Micros>,
    logged: Logged,
}

impl Rnr {
    pub(super) fn set_limit(&mut self, limit: u8) {
        self.limit = limit;
    }

    /// When the timer expires, if it runs.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.until
    }

    /// Whether receives are held back now.
    pub(super) fn holds(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the timer has expired: then receives are held back no longer.
    pub(super) fn expires(&mut self, now: impl FnOnce() -> Micros) -> bool {
        let expired = self.until.is_some_and(|until| now() >= until);
        if expired {
            self.until = None;
            self.repeated = self.repeated.saturating_add(1);
        }
        expired
    }

    /// The connection has ended; true if receives were held back.
    pub(super) fn ends(&mut self) -> bool {
        self.until.take().is_some()
    }

    /// The queue pair has no connection; the next one starts with all its retries.
    pub(super) fn reset(&mut self) {
        (self.limit, self.repeated, self.until) = (0, 0, None);
    }

    /// No message waits for a receive.
    pub(super) fn delivered(&mut self) {
        self.repeated = 0;
    }

    /// A message of this queue pair waits for a receive.
    pub(super) fn late(&mut self, num: u32, mode: Strict, now: impl FnOnce() -> Micros) -> Late {
        if mode == Strict::Off {
            return Late::Waits;
        }
        strict::report(
            &self.logged,
            mode,
            Rule::Receive,
            format_args!(
                "queue pair {num}: a message found no receive; an adapter answers with an RNR NAK, and the sender repeats the message \
                 after {} ms",
                RNR_TIMER_US / 1000
            ),
            format_args!(
                "post receives (ibv_post_recv, rpma_recv) before the remote peer may send, those for its first messages before \
                 rdma_connect or rdma_accept (rpma_conn_req_recv)"
            ),
        );
        match (mode, self.until) {
            (Strict::Adapter, Some(_)) => Late::Repeated,
            (Strict::Adapter, None) if self.limit < RNR_UNLIMITED && self.repeated >= self.limit => {
                Late::Exceeded
            }
            (Strict::Adapter, None) => {
                self.until = Some(now() + RNR_TIMER_US);
                Late::Repeated
            }
            _ => Late::Waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rnr(limit: u8) -> Rnr {
        let mut rnr = Rnr::default();
        rnr.set_limit(limit);
        rnr
    }

    #[test]
    fn software_waits_for_a_receive() {
        for mode in [Strict::Off, Strict::Warn] {
            let mut rnr = rnr(7);
            assert_eq!(rnr.late(1, mode, || 0), Late::Waits);
            assert!(!rnr.holds() && !rnr.expires(|| RNR_TIMER_US) && !rnr.ends());
            assert_eq!(rnr.logged.is_first(Rule::Receive as u32), mode == Strict::Off);
        }
    }

    #[test]
    fn an_adapter_checks_for_a_receive_when_the_message_is_repeated() {
        let mut rnr = rnr(7);
        let end = RNR_TIMER_US;
        for round in 0..20 {
            let begin = round * end;
            assert!(!rnr.holds());
            assert_eq!(rnr.late(1, Strict::Adapter, || begin), Late::Repeated);
            assert_eq!(rnr.deadline(), Some(begin + end));
            assert!(rnr.holds() && !rnr.expires(|| begin + end - 1));
            assert_eq!(rnr.late(1, Strict::Adapter, || begin + end - 1), Late::Repeated);
            assert!(rnr.expires(|| begin + end));
        }
        rnr.late(1, Strict::Adapter, || 0);
        assert!(rnr.ends() && !rnr.holds() && !rnr.ends());
    }

    #[test]
    fn the_next_connection_has_all_its_retries() {
        let mut rnr = rnr(1);
        assert_eq!(rnr.late(1, Strict::Adapter, || 0), Late::Repeated);
        assert!(rnr.expires(|| RNR_TIMER_US));
        assert_eq!(rnr.late(1, Strict::Adapter, || 0), Late::Exceeded);
        rnr.reset();
        rnr.set_limit(1);
        assert_eq!(rnr.late(1, Strict::Adapter, || 0), Late::Repeated);
        rnr.reset();
        assert!(!rnr.holds());
    }

    #[test]
    fn a_message_is_repeated_as_often_as_the_connection_permits() {
        for limit in 1..7 {
            let mut rnr = rnr(limit);
            for message in 0..2 {
                let mut now = message * 1_000_000_000;
                for _ in 0..limit {
                    assert_eq!(rnr.late(1, Strict::Adapter, || now), Late::Repeated);
                    now += RNR_TIMER_US;
                    assert!(rnr.expires(|| now));
                }
                if message == 0 {
                    // The last one found a receive.
                    rnr.delivered();
                }
            }
            assert_eq!(rnr.late(1, Strict::Adapter, || 0), Late::Exceeded);
        }
    }
}
