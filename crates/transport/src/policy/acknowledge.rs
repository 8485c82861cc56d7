// SPDX-License-Identifier: BSD-3-Clause
//! Whether the acknowledgement of a request packet waits for the packets behind it, so that one acknowledges
//! several. Both sides decide that: the requester when it requests an acknowledgement (AckReq), the responder
//! when it sends one that was not requested.
//!
//! The requester predicts that its window outlasts the packets until the next request, the responder that the
//! peer requests an acknowledgement before its window is used up. Behind the last packet of a message or of
//! the window nothing follows: it requests an acknowledgement in every mode.
//!
//! Worst cost of a wrong prediction: the window moves up only after [`MOST`] packets. A peer with a smaller
//! window that requests no acknowledgement waits for its timer.

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// Packets in a long message after which the requester requests an acknowledgement: half of the first window,
/// so that it moves up before it is used up.
const INTERVAL: u32 = 8;
/// Packets that one acknowledgement acknowledges at most.
const MOST: u32 = 16;

/// The request packets of one direction, at one of the two sides.
#[derive(Debug)]
pub(crate) struct Acknowledging {
    /// Packets since the last one with an acknowledgement.
    waiting: u32,
    /// Packets until the next one, as predicted.
    interval: u32,
    decisions: Decisions<Self>,
}

impl Policy for Acknowledging {
    const WORST: Cost = Cost::AcknowledgedPackets(MOST);

    fn new(mode: Mode) -> Self {
        Self { waiting: 0, interval: MOST, decisions: Decisions::new(mode) }
    }
}

impl Acknowledging {
    /// That of a requester.
    pub(crate) fn of_requester(mode: Mode) -> Self {
        Self { interval: INTERVAL, ..Self::new(mode) }
    }

    /// Whether the next packet has to be acknowledged now. `last`: nothing follows it.
    pub(crate) fn is_due(&self, last: bool) -> bool {
        let waiting = self.waiting + 1;
        last || waiting >= MOST
            || match self.decisions.prescribed() {
                None => waiting >= self.interval,
                Some(waits) => !waits,
            }
    }

    /// The packet was sent or received. `due`: an acknowledgement was requested or is sent.
    pub(crate) fn count(&mut self, due: bool) {
        self.waiting = if due { 0 } else { self.waiting + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::MODES;
    use super::super::trial::Trial;
    use super::*;

    /// How many of 1,000 packets have an acknowledgement, and the longest runs up to one.
    fn runs(mut side: Acknowledging) -> Vec<u32> {
        let mut runs = vec![0];
        for _ in 0..1_000 {
            let due = side.is_due(false);
            side.count(due);
            *runs.last_mut().unwrap() += 1;
            if due {
                runs.push(0);
            }
        }
        runs
    }

    impl Trial for Acknowledging {
        fn costs(mode: Mode) -> Vec<Cost> {
            let sides = [Self::new(mode), Self::of_requester(mode)];
            sides.into_iter().flat_map(runs).map(Cost::AcknowledgedPackets).collect()
        }
    }

    #[test]
    fn a_mode_decides_up_to_the_sixteenth_packet() {
        let acknowledged = |side| runs(side).len() - 1;
        assert_eq!(acknowledged(Acknowledging::of_requester(Mode::Adaptive)), 125, "one in 8");
        assert_eq!(acknowledged(Acknowledging::new(Mode::Adaptive)), 62, "one in 16");
        for new in [Acknowledging::new, Acknowledging::of_requester] {
            assert_eq!((acknowledged(new(Mode::Never)), acknowledged(new(Mode::Always))), (1_000, 62));
            assert!((400..600).contains(&acknowledged(new(Mode::Random(1)))));
        }
    }

    #[test]
    fn the_last_packet_does_not_wait() {
        for mode in MODES {
            let side = Acknowledging::of_requester(mode);
            assert!((0..100).all(|_| side.is_due(true)), "{mode:?}");
        }
    }
}
