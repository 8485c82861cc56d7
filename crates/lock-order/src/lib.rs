// SPDX-License-Identifier: BSD-3-Clause
//! std with locks that check the order in which they are taken.
//!
//! ThreadSanitizer reports races, but no inverted lock order: the locks of std are futexes, in which it
//! cannot recognize a mutex. With `--cfg lock_order`, `rpma`, `rpma-metrics` and `softverbs` use this crate
//! under the name `std`. A thread that takes a lock in an order that contradicts an earlier one, of any
//! thread, then panics, whether the threads meet or not. See tools/check-threads.
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
