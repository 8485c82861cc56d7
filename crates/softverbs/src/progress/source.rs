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

/// Something that the engine looks at with each tick.
pub(crate) trait Ticking: Send + Sync {
    /// A look; says whether there is to be another one.
    fn tick(self: Arc<Self>) -> Tick;
}
