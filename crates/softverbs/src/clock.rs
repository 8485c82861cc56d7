// SPDX-License-Identifier: BSD-3-Clause
//! The time that connections and connection managers get.
#![forbid(unsafe_code)]

use std::time::Instant;

use once_cell::race::OnceBox;
use transport::units::Micros;

/// The time since the first call.
pub(crate) fn now() -> Micros {
    static START: OnceBox<Instant> = OnceBox::new();
    START.get_or_init(|| Box::new(Instant::now())).elapsed().as_micros() as Micros
}
