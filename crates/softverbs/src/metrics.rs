// SPDX-License-Identifier: BSD-3-Clause
//! Whether this process counts what it does (`RPMA_METRICS`).
#![forbid(unsafe_code)]

use rpma_metrics::{Process, flushes};

/// The process, if it counts. The first call starts the thread that serves the counters; it is made for the
/// first region or queue pair, not when the library is loaded or the device opened.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    let process = rpma_metrics::process(|text| log::warn!("{text}"));
    process.inspect(|_| flushes::count())
}
