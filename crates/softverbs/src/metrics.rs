// SPDX-License-Identifier: BSD-3-Clause
//! What this crate counts for its users: flushes to persistence that it carries out for remote peers.
//!
//! Everything else can be counted by whoever makes the calls. Nothing is, until somebody asks for it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static IS_WATCHED: AtomicBool = AtomicBool::new(false);
static DONE: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
static SYNCS: AtomicU64 = AtomicU64::new(0);
static NANOS: AtomicU64 = AtomicU64::new(0);

/// Flushes to persistence since [`watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushes {
    /// Those after which the range is durable.
    pub done: u64,
    /// Those after which it may not be.
    pub failed: u64,
    /// Calls of msync(2), one for flushes that meet, or of what stands for it.
    pub syncs: u64,
    /// The time that they took.
    pub time: Duration,
}

/// From now on flushes are counted, from zero on.
pub fn watch() {
    for counter in [&DONE, &FAILED, &SYNCS, &NANOS] {
        counter.store(0, Relaxed);
    }
    IS_WATCHED.store(true, Relaxed);
}

/// The flushes of this process.
pub fn flushes() -> Flushes {
    Flushes {
        done: DONE.load(Relaxed),
        failed: FAILED.load(Relaxed),
        syncs: SYNCS.load(Relaxed),
        time: Duration::from_nanos(NANOS.load(Relaxed)),
    }
}

/// Makes a range durable by `sync`.
pub(crate) fn synced<T>(sync: impl FnOnce() -> T) -> T {
    if !IS_WATCHED.load(Relaxed) {
        return sync();
    }
    let began = Instant::now();
    let result = sync();
    SYNCS.fetch_add(1, Relaxed);
    NANOS.fetch_add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    result
}

/// A flush is over.
pub(crate) fn flushed(is_done: bool) {
    if IS_WATCHED.load(Relaxed) {
        let counter = if is_done { &DONE } else { &FAILED };
        counter.fetch_add(1, Relaxed);
    }
}
