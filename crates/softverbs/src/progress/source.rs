// SPDX-License-Identifier: BSD-3-Clause
//! The interface of objects that the engine calls.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::attention::Tick;

/// An object that acts when its descriptor is ready or its timer expires.
pub(crate) trait Source: Send + Sync {
    /// The descriptor is ready, with these epoll events; 0: another thread has called
    /// [`super::engine::Engine::kick`].
    fn ready(self: Arc<Self>, events: u32);
    /// A timer of [`super::engine::Engine::schedule`] has expired. The source checks whether it still
    /// matters.
    fn timeout(self: Arc<Self>) {}
}

/// An object that the engine checks at ticks.
pub(crate) trait Ticking: Send + Sync {
    /// Checks the object; returns when to check it again.
    fn tick(self: Arc<Self>) -> Tick;
}
