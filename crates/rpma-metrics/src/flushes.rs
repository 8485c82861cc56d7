// SPDX-License-Identifier: BSD-3-Clause
//! Flushes to persistence that software RDMA carries out for remote peers. No call of the program stands for
//! them, so they are counted where they are done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

static IS_COUNTED: AtomicBool = AtomicBool::new(false);
static DONE: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
static SYNCS: AtomicU64 = AtomicU64::new(0);
static NANOS: AtomicU64 = AtomicU64::new(0);

/// Flushes to persistence since [`count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flushes {
    /// Those after which the range is durable.
    pub done: u64,
    /// Those after which it may not be.
    pub failed: u64,
    /// Calls of msync(2), one for flushes that meet, or of what stands for it.
    pub syncs: u64,
    /// The time that they took.
    pub time: Duration,
}

/// From now on flushes are counted.
pub fn count() {
    IS_COUNTED.store(true, Relaxed);
}

/// Begins from zero.
pub(super) fn reset() {
    for counter in [&DONE, &FAILED, &SYNCS, &NANOS] {
        counter.store(0, Relaxed);
    }
}

/// The flushes of this process, if they are counted.
pub(super) fn counted() -> Option<Flushes> {
    IS_COUNTED.load(Relaxed).then(|| Flushes {
        done: DONE.load(Relaxed),
        failed: FAILED.load(Relaxed),
        syncs: SYNCS.load(Relaxed),
        time: Duration::from_nanos(NANOS.load(Relaxed)),
    })
}

/// Makes a range durable by `sync`.
pub fn synced<T>(sync: impl FnOnce() -> T) -> T {
    if !IS_COUNTED.load(Relaxed) {
        return sync();
    }
    let began = Instant::now();
    let result = sync();
    SYNCS.fetch_add(1, Relaxed);
    NANOS.fetch_add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    result
}

/// A flush has ended.
pub fn flushed(is_done: bool) {
    if IS_COUNTED.load(Relaxed) {
        let counter = if is_done { &DONE } else { &FAILED };
        counter.fetch_add(1, Relaxed);
    }
}
