// SPDX-License-Identifier: BSD-3-Clause
//! Packet sequence numbers: 24 bits, compared modulo 2^24 (IBTA 9.2, 9.7).

use std::fmt;

/// A packet sequence number.
///
/// There is no order among PSNs: use [`Psn::distance`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Bits of a PSN.
    pub const BITS: u32 = 24;
    const MASK: u32 = (1 << Self::BITS) - 1;

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The number, less than 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN of the next packet.
    #[inline]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The PSN of the packet before.
    #[inline]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// The PSN of the packet that follows `packets` later.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "const, and an operator would hide the modulus")]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// How far `self` is ahead of `from`, -2^23..=2^23 - 1: `self - from` modulo 2^24. Negative if `self` is
    /// behind, as a duplicate is.
    #[inline]
    pub const fn distance(self, from: Self) -> i32 {
        // The difference in the upper 24 bits, so that the shift back extends its sign.
        (self.0.wrapping_sub(from.0) << (32 - Self::BITS)) as i32 >> (32 - Self::BITS)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({:06x})", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}
