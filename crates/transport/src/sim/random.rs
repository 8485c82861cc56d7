// SPDX-License-Identifier: BSD-3-Clause
//! The source of a schedule's choices: a generator whose state is its seed and a counter, or an enumeration
//! of all choices.

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Draws in one order from one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: mix(seed.wrapping_add(STRIDE)) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STRIDE);
        mix(self.state)
    }

    /// A number from 0 to `n - 1`; 0 when there is no other.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    /// A number of `low..=high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `rate` of 256 cases; a rate of 0 draws nothing.
    pub(crate) fn chance(&mut self, rate: u32) -> bool {
        rate > 0 && (self.next() >> 56) < u64::from(rate)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// The rate of a fault in this schedule: in half of all schedules there is no such fault, in the others
    /// it is rare or frequent.
    pub(crate) fn rate(&mut self, most: u32) -> u32 {
        if self.below(2) == 0 { 0 } else { most >> self.below(6) }
    }
}

/// Enumerates all sequences of choices: an odometer whose wheels are added as choices are drawn.
#[derive(Debug, Default)]
pub(super) struct Count {
    wheels: Vec<(usize, usize)>,
    at: usize,
}

impl Count {
    pub(super) fn below(&mut self, n: usize) -> usize {
        if self.at == self.wheels.len() {
            self.wheels.push((0, n));
        }
        let (value, size) = self.wheels[self.at];
        assert_eq!(size, n, "the same choices must lead to the same question");
        self.at += 1;
        value
    }

    /// The choices so far.
    pub(super) fn choices(&self) -> Vec<usize> {
        self.wheels.iter().map(|(value, _)| *value).collect()
    }

    /// Goes on to the next sequence; false when all were tried.
    pub(super) fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((value, size)) = self.wheels.pop() {
            if value + 1 < size {
                self.wheels.push((value + 1, size));
                return true;
            }
        }
        false
    }
}
