// SPDX-License-Identifier: BSD-3-Clause
//! Whether other processes will forward more packets to this one, so that a poll looks at all sockets of the
//! RoCE port and not only at that of the network.
//!
//! Worst cost of a wrong prediction: a forwarded packet waits for two ticks of the engine, 2 x [`LONGEST`],
//! as after each tick a poll looks at all sockets in every mode; or each of [`POLLS`] polls makes one more
//! system call.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::trust::LONGEST;
use super::{Cost, Policy};

/// Polls that look at all sockets after packets were received that other processes had forwarded.
const POLLS: u32 = 256;

/// What the thread that receives has seen of forwarded packets.
pub(crate) struct Forwarded {
    /// Polls that still look at all sockets.
    polls: u32,
    decisions: Decisions<Self>,
}

impl Policy for Forwarded {
    const WORST: Cost = Cost::Delay(Duration::from_micros(1600));

    fn new(mode: Mode) -> Self {
        Self { polls: 0, decisions: Decisions::new(mode) }
    }
}

const _: () = assert!(2 * LONGEST.as_micros() == 1600);

impl Forwarded {
    /// Whether this poll looks at all sockets, although no tick requires it.
    pub(crate) fn will_follow(&self) -> bool {
        self.decisions.prescribed().unwrap_or(self.polls > 0)
    }

    /// A thread has looked at all sockets. `any`: packets were there that other processes had forwarded.
    pub(crate) fn looked(&mut self, any: bool) {
        self.polls = if any { POLLS } else { self.polls.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program polls every 10 us, with a tick of the engine between some polls; a packet is forwarded at
    /// this time. Returns how long it waits. `polled_before`: another one was forwarded at the beginning.
    #[cfg(not(loom))]
    fn unseen_for(at: Duration, polled_before: bool, mode: Mode) -> Duration {
        let mut forwarded = Forwarded::new(mode);
        if polled_before {
            forwarded.looked(true);
        }
        let (mut now, mut tick, mut has_ticked) = (Duration::ZERO, LONGEST, false);
        loop {
            if now >= tick {
                (tick, has_ticked) = (tick + LONGEST, true);
            }
            if forwarded.will_follow() || std::mem::take(&mut has_ticked) {
                if now >= at {
                    return now - at;
                }
                forwarded.looked(false);
            }
            now += Duration::from_micros(10);
        }
    }

    #[cfg(not(loom))]
    impl transport::policy::trial::Trial for Forwarded {
        fn costs(mode: Mode) -> Vec<Cost> {
            let times = (0..5_000).step_by(7).map(Duration::from_micros);
            let costs = times.flat_map(|at| [false, true].map(|before| unseen_for(at, before, mode)));
            costs.map(Cost::Delay).collect()
        }
    }

    #[test]
    fn polls_look_at_all_sockets_for_a_while() {
        let mut forwarded = Forwarded::new(Mode::Adaptive);
        assert!(!forwarded.will_follow());
        forwarded.looked(true);
        for _ in 0..POLLS {
            assert!(forwarded.will_follow());
            forwarded.looked(false);
        }
        assert!(!forwarded.will_follow());
    }

    #[test]
    fn a_mode_decides_whatever_was_forwarded() {
        let looks = |mode| {
            let mut forwarded = Forwarded::new(mode);
            forwarded.looked(true);
            (0..100).filter(|_| forwarded.will_follow()).count()
        };
        assert_eq!((looks(Mode::Never), looks(Mode::Always)), (0, 100));
        assert!((25..75).contains(&looks(Mode::Random(1))));
    }
}
