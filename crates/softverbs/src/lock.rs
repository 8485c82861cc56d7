// SPDX-License-Identifier: BSD-3-Clause
//! Locking without poisoning, and waiting for other threads.
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use crate::cancel::whole;

/// Locks a mutex. A poisoned one is locked as well: in a program a panic aborts the process, so poisoning
/// occurs only in tests.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks a mutex by this time, for a thread that must not wait for others. `None`: another thread has it.
pub(crate) fn lock_until<T: ?Sized>(mutex: &Mutex<T>, deadline: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Checks of [`wait_until`] between which it only yields.
const YIELDS: u32 = 100;
/// The time between the later ones.
const PAUSE: Duration = Duration::from_micros(50);

/// Waits for a condition that another thread brings about soon. sched_yield(2) never lets a thread of lower
/// real-time priority run, so this sleeps after some checks.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let mut checks = 0;
    while !condition() {
        if checks < YIELDS {
            checks += 1;
            std::thread::yield_now();
        } else {
            whole(|| std::thread::sleep(PAUSE));
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sys::sleeps;

    #[test]
    fn a_long_wait_leaves_the_processor_to_threads_of_any_priority() {
        let before = sleeps();
        let mut checks = 0;
        wait_until(|| {
            checks += 1;
            checks > YIELDS + 10
        });
        assert!(sleeps() - before >= 10, "{} times", sleeps() - before);
    }
}
