// SPDX-License-Identifier: BSD-3-Clause
//! Heuristics: predictions of what a program, a peer or the network will do next. Each is a value: events and
//! times go in, a decision comes out. None has a lock, a clock or an invariant, and correctness must not
//! depend on any decision.
//!
//! A heuristic implements [`Policy`], so it states what a wrong decision costs at most; the compiler requires
//! that, since [`mode::Decisions`], which every heuristic needs to follow its mode, belongs to a `Policy`. A
//! `trial` of each, in every mode and on a virtual clock, holds it to this cost. Here are the heuristics of
//! the protocols; those of softverbs implement the same trait.

pub(crate) mod acknowledge;
pub mod backoff;
pub(crate) mod congestion;
pub mod mode;
pub(crate) mod probe;
#[cfg(any(test, feature = "testing"))]
pub mod trial;

use std::time::Duration;

use mode::Mode;

/// A heuristic.
pub trait Policy {
    /// What a wrong decision costs at most, in every mode.
    const WORST: Cost;

    /// A heuristic that has seen nothing, and decides in this mode.
    fn new(mode: Mode) -> Self;
}

/// What a wrong decision costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A request, a message or a completion is late by this time.
    Delay(Duration),
    /// Processor time: so many times what a setting permits, after each piece of work.
    Spins(u32),
    /// A system call in so many polls.
    CallInPolls(u32),
    /// A round trip for so many packets.
    RoundTripForPackets(u32),
    /// So many packets have to wait for one acknowledgement.
    AcknowledgedPackets(u32),
    /// The oldest packets are sent again so many times.
    Probes(u32),
}

#[cfg(test)]
mod tests {
    use super::acknowledge::Acknowledging;
    use super::backoff::Backoff;
    use super::congestion::Window;
    use super::probe::Probe;
    use super::trial::check;

    #[test]
    fn no_heuristic_costs_more_than_it_states() {
        check::<Acknowledging>();
        check::<Backoff>();
        check::<Probe>();
        check::<Window>();
    }
}
