// SPDX-License-Identifier: BSD-3-Clause
//! The primitives of this room: those of std, or loom's when the models are checked.

#[cfg(loom)]
pub(super) use loom::sync::Mutex;
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::Mutex;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
