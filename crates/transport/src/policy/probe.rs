// SPDX-License-Identifier: BSD-3-Clause
//! Whether requests without an acknowledgement are lost, long before the local ACK timeout.
//!
//! The last packets before a pause show no gap when they are lost: nothing follows them. The same is true for
//! a read request, the last packets of its response, and an acknowledgement. The local ACK timeout, which the
//! program sets, is often a thousand round trips, and those of rdma_cm are seconds. So the requester measures
//! round trips, and when nothing was acknowledged for several of them, it predicts a loss and sends the
//! oldest packets again, without using a retry. If this is not acknowledged either, it waits twice as long
//! before it does so again, until a packet that was sent only once is acknowledged: that is the next round
//! trip that can be measured.
//!
//! Worst cost of a wrong prediction: before the local ACK timeout, the oldest packets are sent again [`MOST`]
//! times at most, and each time the congestion window shrinks to two packets, as after the timeout; or a loss
//! is not noticed before it.

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};
use crate::units::Micros;

/// Round trips without an acknowledgement that predict a loss.
const ROUND_TRIPS: u64 = 4;
/// The shortest wait, in microseconds: the thread of a busy peer may wait so long for a processor.
pub(crate) const SHORTEST_US: Micros = 4_000;
/// The longest wait: no local ACK timeout is so long.
const LONGEST_US: Micros = 1 << 40;
/// How often requests are sent again before the local ACK timeout.
pub(crate) const MOST: u32 = 8;

/// The requests of one direction.
#[derive(Debug)]
pub(crate) struct Probe {
    /// The longest recent round trip.
    round_trip_us: Micros,
    /// Predictions since the last round trip was measured.
    made: u32,
    decisions: Decisions<Self>,
}

impl Policy for Probe {
    const WORST: Cost = Cost::Probes(MOST);

    fn new(mode: Mode) -> Self {
        Self { round_trip_us: 0, made: 0, decisions: Decisions::new(mode) }
    }
}

impl Probe {
    /// A packet that was sent once was acknowledged after this time.
    pub(crate) fn measured(&mut self, round_trip_us: Micros) {
        self.round_trip_us = round_trip_us.max(self.round_trip_us - self.round_trip_us / 8);
        self.made = 0;
    }

    /// The local ACK timeout has expired: it decides alone, until a round trip is measured.
    pub(crate) fn gives_up(&mut self) {
        self.made = MOST;
    }

    /// How long nothing must be acknowledged before [`Self::is_lost`] is called; `None`: no further call.
    pub(crate) fn wait_us(&self) -> Option<Micros> {
        let wait = self.round_trip_us.saturating_mul(ROUND_TRIPS).max(SHORTEST_US);
        (self.made < MOST).then(|| wait.saturating_mul(1 << self.made).min(LONGEST_US))
    }

    /// Nothing was acknowledged for [`Self::wait_us`]: whether the oldest packets are sent again.
    pub(crate) fn is_lost(&mut self) -> bool {
        self.made += 1;
        self.decisions.prescribed().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::Trial;
    use super::*;

    /// How often packets are sent again that are acknowledged after this time, over and over.
    fn wrong(probe: &mut Probe, round_trip_us: Micros) -> u32 {
        let (mut now, mut again) = (0, 0);
        while let Some(wait) = probe.wait_us().filter(|wait| now + wait < round_trip_us) {
            now += wait;
            again += u32::from(probe.is_lost());
        }
        // Only a packet that was sent once can be measured.
        if again == 0 {
            probe.measured(round_trip_us);
        }
        again
    }

    impl Trial for Probe {
        fn costs(mode: Mode) -> Vec<Cost> {
            let round_trips = [10, 4_001, 20_000, 1 << 20, 1 << 40];
            let costs = round_trips.into_iter().flat_map(|round_trip| {
                let mut probe = Self::new(mode);
                (0..100).map(|_| wrong(&mut probe, round_trip)).collect::<Vec<_>>()
            });
            costs.map(Cost::Probes).collect()
        }
    }

    #[test]
    fn a_long_round_trip_is_learned() {
        let mut probe = Probe::new(Mode::Adaptive);
        let rounds: Vec<_> = (0..6).map(|_| wrong(&mut probe, 50_000)).collect();
        assert_eq!(rounds, [3, 1, 0, 0, 0, 0]);
        assert_eq!(probe.wait_us(), Some(200_000));
    }

    #[test]
    fn waits_longer_each_time_until_a_round_trip_is_measured() {
        let mut probe = Probe::new(Mode::Adaptive);
        let waits: Vec<_> = (0..10)
            .map_while(|_| {
                let wait = probe.wait_us();
                probe.is_lost();
                wait
            })
            .collect();
        assert_eq!(waits, [4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000]);
        probe.measured(100);
        assert_eq!(probe.wait_us(), Some(SHORTEST_US));
        probe.gives_up();
        assert_eq!(probe.wait_us(), None);
    }

    #[test]
    fn a_mode_decides_at_the_same_times() {
        let decisions = |mode| {
            let mut probe = Probe::new(mode);
            let mut decisions = Vec::new();
            while probe.wait_us().is_some() {
                decisions.push(probe.is_lost());
            }
            decisions
        };
        assert_eq!(decisions(Mode::Never), [false; MOST as usize]);
        assert_eq!(decisions(Mode::Always), [true; MOST as usize]);
        assert!(decisions(Mode::Random(1)).contains(&true) && decisions(Mode::Random(1)).contains(&false));
    }
}
