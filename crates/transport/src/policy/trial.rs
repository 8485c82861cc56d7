// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the worst cost of a heuristic.

use super::mode::{MODES, Mode};
use super::{Cost, Policy};

/// A heuristic with a test of its worst cost.
pub trait Trial: Policy {
    /// Makes the heuristic decide wrongly, on a virtual clock and in this mode. Returns the costs.
    fn costs(mode: Mode) -> Vec<Cost>;
}

/// Holds a heuristic to its worst cost in all modes.
pub fn check<P: Trial>() {
    for mode in MODES {
        let costs = P::costs(mode);
        assert!(!costs.is_empty(), "the trial of {} shows nothing, {mode:?}", std::any::type_name::<P>());
        for cost in costs {
            let (worst, name) = (P::WORST, std::any::type_name::<P>());
            assert!(cost.is_within(worst), "{name}: {cost:?} exceeds {worst:?}, {mode:?}");
        }
    }
}

impl Cost {
    /// Whether this is no worse than `worst`, of the same kind.
    fn is_within(self, worst: Self) -> bool {
        match (self, worst) {
            (Self::Delay(this), Self::Delay(most)) => this <= most,
            (Self::Spins(this), Self::Spins(most))
            | (Self::AcknowledgedPackets(this), Self::AcknowledgedPackets(most))
            | (Self::Probes(this), Self::Probes(most)) => this <= most,
            (Self::CallInPolls(this), Self::CallInPolls(fewest))
            | (Self::RoundTripForPackets(this), Self::RoundTripForPackets(fewest)) => this >= fewest,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn costs_are_compared_by_their_kind() {
        let delay = |us| Cost::Delay(Duration::from_micros(us));
        assert!(delay(5).is_within(delay(5)) && !delay(6).is_within(delay(5)));
        assert!(Cost::Spins(1).is_within(Cost::Spins(1)) && !Cost::Spins(2).is_within(Cost::Spins(1)));
        assert!(Cost::CallInPolls(9).is_within(Cost::CallInPolls(8)), "fewer calls");
        assert!(!Cost::CallInPolls(7).is_within(Cost::CallInPolls(8)));
        assert!(!Cost::RoundTripForPackets(1).is_within(Cost::RoundTripForPackets(2)));
        assert!(!Cost::Probes(9).is_within(Cost::Probes(8)));
        assert!(!Cost::AcknowledgedPackets(17).is_within(Cost::AcknowledgedPackets(16)));
        assert!(!delay(1).is_within(Cost::Spins(1)), "of another kind");
    }
}
