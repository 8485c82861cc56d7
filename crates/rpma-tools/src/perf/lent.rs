// SPDX-License-Identifier: BSD-3-Clause
//! The memory that the server lends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::library::Memory;

/// The state that all connections share.
pub(super) struct Lent {
    pub(super) memory: Memory,
    /// The same bytes, registered separately for flushes to persistence: with the soft provider each read of
    /// such a region makes writes durable.
    pub(super) durable: Memory,
    /// The number of the session, or 0.
    pub(super) session: AtomicU32,
    pub(super) began: Instant,
}

impl Lent {
    /// Ends the session.
    pub(super) fn end_session(&self) {
        self.session.store(0, Ordering::Release);
    }
}
