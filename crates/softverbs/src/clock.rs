// SPDX-License-Identifier: BSD-3-Clause
//! The time that connections and connection managers get, and that of completions.
#![forbid(unsafe_code)]

use std::time::Instant;

use once_cell::race::OnceBox;
use rustix::time::{ClockId, clock_gettime};
use transport::units::Micros;

/// The time since the first call.
pub(crate) fn now() -> Micros {
    static START: OnceBox<Instant> = OnceBox::new();
    START.get_or_init(|| Box::new(Instant::now())).elapsed().as_micros() as Micros
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW, the clock of the device.
pub(crate) fn raw() -> u64 {
    nanoseconds(ClockId::MonotonicRaw)
}

/// The time of the wall clock, CLOCK_REALTIME in nanoseconds, at a time of [`raw`].
pub(crate) fn wall_at(time: u64) -> u64 {
    let age = raw().saturating_sub(time);
    nanoseconds(ClockId::Realtime).saturating_sub(age)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
