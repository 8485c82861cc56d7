// SPDX-License-Identifier: BSD-3-Clause
//! How the heuristics decide: by prediction or, in tests, by rule.
//!
//! A mode replaces predictions only. The guarantees that a heuristic gives whatever it predicts (the longest
//! spin, the fewest polls between two yields) hold in every mode, and with them the worst cost.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Policy;

/// The mode of all heuristics of a process (`SOFTVERBS_POLICY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As predicted.
    #[default]
    Adaptive,
    /// No.
    Never,
    /// Yes.
    Always,
    /// Yes or no, drawn from this seed.
    Random(u64),
}

/// The mode of one heuristic, and how many random decisions it has drawn. The count is part of the value, so
/// a test makes the same decisions in each run.
#[derive(Debug)]
pub struct Decisions<P: Policy> {
    mode: Mode,
    /// Shared by threads, which may draw in any order.
    drawn: AtomicU64,
    of: PhantomData<fn() -> P>,
}

impl<P: Policy> Decisions<P> {
    /// The decisions of one value.
    #[inline]
    pub fn new(mode: Mode) -> Self {
        Self { mode, drawn: AtomicU64::new(0), of: PhantomData }
    }

    /// The next decision, if it is made without a prediction.
    #[inline]
    pub fn prescribed(&self) -> Option<bool> {
        if self.mode == Mode::Adaptive { None } else { Some(self.unpredicted()) }
    }

    #[cold]
    fn unpredicted(&self) -> bool {
        match self.mode {
            Mode::Adaptive | Mode::Never => false,
            Mode::Always => true,
            Mode::Random(seed) => is_yes(seed, self.drawn.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// The random decision with this number.
fn is_yes(seed: u64, number: u64) -> bool {
    mixed(mixed(seed).wrapping_add(number)) % 2 == 1
}

/// The finalizer of SplitMix64: each bit of the result depends on all of the argument.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The modes in which the tests check the worst cost of each heuristic.
#[cfg(any(test, feature = "testing"))]
pub const MODES: [Mode; 6] =
    [Mode::Adaptive, Mode::Never, Mode::Always, Mode::Random(0), Mode::Random(1), Mode::Random(u64::MAX)];

/// For each sequence of `count` decisions, a random mode that begins with it.
#[cfg(any(test, feature = "testing"))]
pub fn random_modes(count: u32) -> impl Iterator<Item = Mode> {
    (0..1 << count).map(move |wanted: u32| {
        let begins_so = |seed: &u64| (0..count).all(|i| is_yes(*seed, i.into()) == (wanted & 1 << i != 0));
        (0..).find(begins_so).map(Mode::Random).expect("half of all seeds begin with a yes")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Cost;
    use super::*;

    /// A heuristic without a prediction.
    struct Yes;

    impl Policy for Yes {
        const WORST: Cost = Cost::Spins(0);

        fn new(_mode: Mode) -> Self {
            Self
        }
    }

    fn decisions(mode: Mode, count: usize) -> Vec<bool> {
        let decisions = Decisions::<Yes>::new(mode);
        (0..count).filter_map(|_| decisions.prescribed()).collect()
    }

    #[test]
    fn only_the_adaptive_mode_leaves_it_to_the_prediction() {
        assert_eq!(decisions(Mode::Adaptive, 10), []);
        assert_eq!(decisions(Mode::Never, 10), [false; 10]);
        assert_eq!(decisions(Mode::Always, 10), [true; 10]);
    }

    #[test]
    fn a_seed_is_a_sequence_and_half_of_it_is_yes() {
        let mut sequences = Vec::new();
        for seed in [0, 1, 2, 1 << 40, u64::MAX] {
            let sequence = decisions(Mode::Random(seed), 1_000);
            assert_eq!(sequence, decisions(Mode::Random(seed), 1_000));
            let yes = sequence.iter().filter(|yes| **yes).count();
            assert!((400..600).contains(&yes), "{yes} of seed {seed}");
            assert!(!sequences.contains(&sequence), "seed {seed} is another one");
            sequences.push(sequence);
        }
    }
}
