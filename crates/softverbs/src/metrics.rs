// SPDX-License-Identifier: BSD-3-Clause
//! The metrics of this process, if `RPMA_METRICS` enables them.
#![forbid(unsafe_code)]

use rpma_metrics::{Process, flushes};

/// The counters of this process, if enabled. The first call starts the thread that serves them; it is made
/// for the first region or queue pair, not when the library is loaded or the device opened.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    let process = rpma_metrics::process(|text| log::warn!("{text}"));
    process.inspect(|_| flushes::count())
}
