// SPDX-License-Identifier: BSD-3-Clause
//! Flushes to persistence that software RDMA carries out for remote peers. They do not result from a call of
//! the program, so they are counted where they are carried out.

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
    /// Successful flushes.
    pub done: u64,
    /// Failed flushes: the range may not be durable.
    pub failed: u64,
    /// Calls of msync(2) or a replacement; adjoining flushes share one.
    pub syncs: u64,
    /// The total duration of these calls.
    pub time: Duration,
}

/// Starts counting.
pub fn count() {
    IS_COUNTED.store(true, Relaxed);
}

/// Resets the counters.
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

/// Makes a range durable with `sync`, which is counted.
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
