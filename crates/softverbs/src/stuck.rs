// SPDX-License-Identifier: BSD-3-Clause
//! In strict mode: threads that wait for a completion event which nothing outstanding can generate.
//!
//! Whether nothing is outstanding is looked at a moment after the wait has begun, since another thread may post meanwhile, and unsignalled
//! requests take their time.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::cq::Cq;
use crate::limits::STUCK_WAIT_MS;
use crate::lock;
use crate::progress::engine::{Engine, Source};
use crate::progress::timers::Timer;
use crate::strict::{self, Strict};

/// The completion queues of a channel on which a thread waits.
struct Waited(Vec<Weak<Cq>>);

/// A thread that waits; dropped when it waits no more.
pub(crate) struct Waiting {
    _queues: Arc<dyn Source>,
    _timer: Timer,
}

impl Waiting {
    /// A thread begins to wait for an event of one of these queues. `None` without strict mode, or if the engine cannot be had.
    #[inline]
    pub(crate) fn begin(queues: &Mutex<Vec<Arc<Cq>>>) -> Option<Self> {
        if strict::mode() == Strict::Off { None } else { Self::begin_strictly(queues) }
    }

    #[cold]
    fn begin_strictly(queues: &Mutex<Vec<Arc<Cq>>>) -> Option<Self> {
        let engine = Engine::get().ok()?;
        let queues: Arc<dyn Source> = Arc::new(Waited(lock(queues).iter().map(Arc::downgrade).collect()));
        let timer = engine.schedule(Duration::from_millis(STUCK_WAIT_MS), &queues);
        Some(Self { _queues: queues, _timer: timer })
    }
}

impl Source for Waited {
    /// No descriptor leads here.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        let queues: Vec<Arc<Cq>> = self.0.iter().filter_map(Weak::upgrade).collect();
        if let Some(first) = queues.first().filter(|_| !queues.iter().any(|cq| cq.is_expecting())) {
            first.remark_wait();
        }
    }
}
