// SPDX-License-Identifier: BSD-3-Clause
//! A connection attempt that fails by fault injection. The protocol of the identifier takes no part in it.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, Weak};

use super::event::{self, Event};
use super::id::Id;
use crate::instrument::FailedConnect;
use crate::lock;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::sys::Errno;

struct Attempt {
    id: Weak<Id>,
    event: Mutex<Option<Event>>,
}

/// Starts the attempt of an identifier. Its event is queued by the engine, as that of every other attempt.
/// EMFILE, ENOMEM: the engine cannot be started.
#[cold]
pub(super) fn start(
    id: &Arc<Id>,
    FailedConnect { event, errno, reason }: FailedConnect,
) -> Result<(), Errno> {
    let mut event = Event::new(0, event::number(event), -errno);
    event.reason = Some(reason);
    let attempt = Attempt { id: Arc::downgrade(id), event: Mutex::new(Some(event)) };
    Engine::get()?.kick(Arc::new(attempt));
    Ok(())
}

impl Source for Attempt {
    fn ready(self: Arc<Self>, _events: u32) {
        let event = lock(&self.event).take();
        if let (Some(id), Some(event)) = (self.id.upgrade(), event) {
            id.raise(event);
        }
    }
}
