// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions: metrics count them, and strict mode reports those that are deregistered too early.

use std::sync::atomic::{AtomicBool, Ordering};

use super::counting;

/// A registered memory region.
pub(crate) struct Registration {
    /// The metrics count the region.
    is_counted: AtomicBool,
}

impl Registration {
    /// A region of this length was registered.
    pub(crate) fn new(length: usize) -> Self {
        let process = counting::process();
        if let Some(process) = process {
            process.counters.registered(length);
        }
        Self { is_counted: AtomicBool::new(process.is_some()) }
    }

    /// The region has another length.
    pub(crate) fn resized(&self, from: usize, to: usize) {
        let process = rpma_metrics::counting().filter(|_| self.is_counted.load(Ordering::Relaxed));
        if let Some(process) = process {
            process.counters.deregistered(from);
            process.counters.registered(to);
        }
    }

    /// The region of this length was deregistered, or does not belong to the program. Repeated calls have no
    /// effect.
    pub(crate) fn ends(&self, length: usize) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            if let Some(process) = rpma_metrics::counting() {
                process.counters.deregistered(length);
            }
        }
    }
}
