// SPDX-License-Identifier: BSD-3-Clause
//! Copies of a value that seldom changes. A reader keeps one and reads a single word to learn whether it is
//! still the latest, so that it needs neither a lock nor a reference count of its own.
//!
//! Until the reader looks again, its copy keeps alive what the value refers to.

use super::sync::{AtomicU32, Ordering};

/// How often a value has changed.
#[derive(Debug)]
pub(crate) struct Version(AtomicU32);

impl Version {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The value has changed: called after the change.
    pub(crate) fn changed(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A reader's copy of a value.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    /// The version of the value, or an earlier one.
    version: u32,
    value: T,
}

impl<T> Seen<T> {
    /// A copy of the initial value.
    pub(crate) fn new(value: T) -> Self {
        Self { version: 0, value }
    }

    /// The latest value, which `read` returns; it is called only if the value has changed.
    #[inline]
    pub(crate) fn latest(&mut self, version: &Version, read: impl FnOnce() -> T) -> &mut T {
        let latest = version.0.load(Ordering::Acquire);
        if latest != self.version {
            // In this order: the value may change once more, and is then read again.
            *self = Self { version: latest, value: read() };
        }
        &mut self.value
    }

    /// Gives the copy away: the next look reads the value again.
    pub(crate) fn take(&mut self) -> T
    where
        T: Default,
    {
        self.version = self.version.wrapping_sub(1);
        std::mem::take(&mut self.value)
    }
}
