// SPDX-License-Identifier: BSD-3-Clause
//! The synchronization primitives of this module: those of std, or loom's for the models.

#[cfg(all(test, loom))]
pub(super) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

/// Locks a mutex of this module.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
