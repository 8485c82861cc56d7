// SPDX-License-Identifier: BSD-3-Clause
//! The primitives of this room: those of std, or loom's when the models are checked.

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

/// Locks a mutex of this room.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
