// SPDX-License-Identifier: BSD-3-Clause
//! What is logged: the level between Info and a warning, and conditions of an object that are logged once. A
//! program that repeats a mistake a million times a second gets one line.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

/// The target of messages of level Info that are a notice, between that level and a warning.
pub const NOTICE: &str = "softverbs::notice";

/// The conditions that were logged for an object, or for calls without an object, as bits.
#[derive(Debug, Default)]
pub(crate) struct Logged(AtomicU32);

impl Logged {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether this is the first time that the condition is to be logged; `condition` is below 32.
    pub(crate) fn is_first(&self, condition: u32) -> bool {
        let bit = 1 << condition;
        self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_is_logged_once_an_object() {
        let (here, there) = (Logged::new(), Logged::new());
        assert!(here.is_first(0) && !here.is_first(0));
        assert!(here.is_first(31) && there.is_first(0));
        assert!(!here.is_first(31) && !here.is_first(0));
    }
}
