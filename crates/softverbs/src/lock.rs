// SPDX-License-Identifier: BSD-3-Clause
//! Locking without poisoning.
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex. A poisoned one is locked as well: in a program a panic aborts the process, so poisoning
/// occurs only in tests.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
