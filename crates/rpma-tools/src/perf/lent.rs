// SPDX-License-Identifier: BSD-3-Clause
//! What the server lends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::library::Memory;

/// What all connections use.
pub(super) struct Lent {
    pub(super) memory: Memory,
    /// The same bytes for flushes to persistence, and nothing else: on the soft provider each read of such a
    /// region makes writes durable.
    pub(super) durable: Memory,
    /// The number of the session, or 0.
    pub(super) session: AtomicU32,
    pub(super) began: Instant,
}

impl Lent {
    /// The session has ended.
    pub(super) fn end_session(&self) {
        self.session.store(0, Ordering::Release);
    }
}
