// SPDX-License-Identifier: BSD-3-Clause
//! What the engine calls.
#![forbid(unsafe_code)]

use std::sync::Arc;

/// Something that acts when its descriptor is ready or its time has come.
pub(crate) trait Source: Send + Sync {
    /// The descriptor is ready, with these epoll events; 0: another thread has called
    /// [`super::engine::Engine::kick`].
    fn ready(self: Arc<Self>, events: u32);
    /// The time given to [`super::engine::Engine::schedule`] has come. It may no longer matter: the source
    /// checks that.
    fn timeout(self: Arc<Self>) {}
}
