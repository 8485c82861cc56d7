// SPDX-License-Identifier: BSD-3-Clause
//! A replacement of std whose locks check the lock order.
//!
//! ThreadSanitizer reports races but not lock-order inversions: the locks of std are futexes, which it does
//! not recognize as mutexes. With `--cfg lock_order`, `rpma`, `rpma-metrics` and `softverbs` use this crate
//! under the name `std`. Then a thread panics when it takes locks in an order that contradicts an earlier one
//! of any thread, even without a deadlock. See tools/check-threads.
#![forbid(unsafe_code)]

pub use std::*;

/// The locks that `rpma` and `softverbs` use, in place of those of std.
pub mod sync {
    pub use std::sync::*;
    pub use tracing_mutex::stdsync::tracing::{
        Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard,
    };
}

#[cfg(test)]
mod tests {
    use super::sync::Mutex;

    #[test]
    #[should_panic(expected = "Found cycle in mutex dependency graph")]
    fn an_inverted_order_panics_without_a_second_thread() {
        let (a, b) = (Mutex::new(()), Mutex::new(()));
        let take = |first: &Mutex<()>, second: &Mutex<()>| {
            let _first = first.lock();
            let _second = second.lock();
        };
        take(&a, &b);
        take(&b, &a);
    }
}
