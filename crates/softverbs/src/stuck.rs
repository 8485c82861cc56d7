// SPDX-License-Identifier: BSD-3-Clause
//! In strict mode: threads that wait for a completion event although there are only unsignalled requests.
//!
//! A wait is checked once, some time after it has begun: another thread may post meanwhile. A thread that
//! waits while nothing is outstanding is no mistake, since other threads may post at any time. Evidence of a
//! mistake is an unsignalled request that no taken completion follows, on a queue pair whose send completion
//! queue has this channel, if no signalled request and no receive is outstanding beside it.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::channel::EventQueue;
use crate::cq::Cq;
use crate::limits::STUCK_WAIT_MS;
use crate::lock;
use crate::progress::Outstanding;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::strict::{self, Strict};
use crate::sys;

/// The completion queues of a channel. Other threads create and destroy some during the wait.
type Queues = Mutex<Vec<Arc<Cq>>>;

/// The channel on which a thread waits.
struct Waited(Weak<Queues>);

/// A thread that waits; dropped when it waits no more.
pub(crate) struct Waiting {
    _waited: Arc<dyn Source>,
    _timer: Timer,
}

impl Waiting {
    /// A thread is about to take an event of a channel. `None` without strict mode, if it does not block, or
    /// if the engine cannot be started.
    #[inline]
    pub(crate) fn begin(events: &EventQueue<usize>, queues: &Arc<Queues>) -> Option<Self> {
        if strict::mode() == Strict::Off { None } else { Self::begin_strictly(events, queues) }
    }

    #[cold]
    fn begin_strictly(events: &EventQueue<usize>, queues: &Arc<Queues>) -> Option<Self> {
        if events.contains(|_| true) || sys::is_non_blocking(events) {
            return None;
        }
        let engine = Engine::get().ok()?;
        let waited: Arc<dyn Source> = Arc::new(Waited(Arc::downgrade(queues)));
        let timer = engine.schedule(Duration::from_millis(STUCK_WAIT_MS), &waited);
        Some(Self { _waited: waited, _timer: timer })
    }
}

impl Waited {
    /// The completion queue of unsignalled requests for which the thread waits in vain, if it does.
    fn in_vain(&self) -> Option<Arc<Cq>> {
        // A copy: below, the connections of the queues are locked.
        let queues = lock(&*self.0.upgrade()?).clone();
        let mut found = None;
        for cq in queues {
            match cq.outstanding() {
                Outstanding::Completion => return None,
                Outstanding::Unsignalled if found.is_none() => found = Some(cq),
                Outstanding::Unsignalled | Outstanding::Nothing => {}
            }
        }
        found
    }
}

impl Source for Waited {
    /// No descriptor leads here.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        if let Some(cq) = self.in_vain() {
            cq.remark_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{By, Driven};
    use Outstanding::{Nothing, Unsignalled};
    use transport::wr::Completion;

    /// A connection that has this outstanding.
    struct Has(Outstanding);

    impl Driven for Has {
        fn drive(&self, _reasons: u32, _by: By) -> bool {
            true
        }

        fn drive_listed(&self) {}

        fn drive_deferred(&self) {}

        fn flush_deferred(&self) {}

        fn outstanding(&self, _cq: usize) -> Outstanding {
            self.0
        }
    }

    fn cq(connections: &[Outstanding]) -> Arc<Cq> {
        let cq = Arc::new(Cq::new(4, None).unwrap());
        connections.iter().for_each(|&outstanding| cq.attach(Arc::new(Has(outstanding))).unwrap());
        cq
    }

    /// Which of these completion queues is reported.
    fn reported(queues: &[Arc<Cq>]) -> Option<usize> {
        let list = Arc::new(Mutex::new(queues.to_vec()));
        let found = Waited(Arc::downgrade(&list)).in_vain()?;
        queues.iter().position(|cq| Arc::ptr_eq(cq, &found))
    }

    #[test]
    fn a_wait_is_in_vain_if_there_are_only_unsignalled_requests() {
        assert_eq!(reported(&[cq(&[Unsignalled])]), Some(0));
        assert_eq!(reported(&[cq(&[Nothing]), cq(&[Nothing, Unsignalled]), cq(&[Unsignalled])]), Some(1));
    }

    #[test]
    fn a_wait_for_other_threads_to_post_is_not_in_vain() {
        assert_eq!(reported(&[]), None);
        assert_eq!(reported(&[cq(&[Nothing])]), None);
        assert_eq!(reported(&[cq(&[])]), None);
        assert_eq!(reported(&[cq(&[Unsignalled]), cq(&[])]), None, "no queue pair yet");
    }

    #[test]
    fn a_wait_for_a_completion_that_can_come_is_not_in_vain() {
        assert_eq!(reported(&[cq(&[Unsignalled, Outstanding::Completion])]), None);
        assert_eq!(reported(&[cq(&[Unsignalled]), cq(&[Outstanding::Completion])]), None);
        let full = cq(&[Unsignalled]);
        assert!(full.push(Completion::default(), None));
        assert_eq!(reported(std::slice::from_ref(&full)), None, "it is in the queue");
        full.poll(1, |_, _| ());
        assert_eq!(reported(&[full]), Some(0));
    }

    #[test]
    fn a_completion_queue_that_is_created_during_the_wait_counts() {
        let queues = Arc::new(Mutex::new(vec![cq(&[Unsignalled])]));
        let waited = Waited(Arc::downgrade(&queues));
        assert!(waited.in_vain().is_some());
        lock(&queues).push(cq(&[Outstanding::Completion]));
        assert!(waited.in_vain().is_none());
        lock(&queues).pop();
        assert!(waited.in_vain().is_some());
        drop(queues);
        assert!(waited.in_vain().is_none(), "there is no channel any more");
    }

    #[test]
    fn only_a_call_that_blocks_is_checked() {
        let (events, queues) = (EventQueue::new().unwrap(), Arc::default());
        let is_checked = || Waiting::begin_strictly(&events, &queues).is_some();
        assert!(is_checked());
        events.push(1);
        assert!(!is_checked());
        assert_eq!(events.take(), Ok(1));
        assert!(is_checked());
        sys::set_non_blocking(&events);
        assert!(!is_checked());
    }
}
