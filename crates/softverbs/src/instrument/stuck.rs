// SPDX-License-Identifier: BSD-3-Clause
//! Strict mode: detects threads that wait for a completion event while only unsignalled requests are
//! outstanding.
//!
//! A wait is checked once, some time after it has begun, as another thread may post meanwhile. A wait while
//! nothing is outstanding is legitimate, since other threads may post at any time. A mistake is an
//! unsignalled request without a later completion, on a queue pair whose send completion queue has this
//! channel, if no signalled request and no receive is outstanding.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::strict::{self, Rule, Strict};
use crate::channel::EventQueue;
use crate::cq::Cq;
use crate::lock;
use crate::progress::Outstanding;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::sys;

/// Milliseconds after which strict mode checks a thread that waits for a completion: other threads may post
/// before that.
const STUCK_WAIT_MS: u64 = 1000;

/// The completion queues of a channel. Other threads create and destroy some during the wait.
type Queues = Mutex<Vec<Arc<Cq>>>;

/// The channel on which a thread waits.
struct Waited(Weak<Queues>);

/// A waiting thread; dropped when the wait ends.
pub(crate) struct Waiting {
    _waited: Arc<dyn Source>,
    _timer: Timer,
}

impl Waiting {
    /// Registers a thread that is about to take an event of a channel. `None` without strict mode, if the
    /// channel is non-blocking, or if the engine cannot be started.
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
    /// The completion queue with the unsignalled requests for which the thread waits in vain, if any.
    fn in_vain(&self) -> Option<Arc<Cq>> {
        // A copy, since the connections of the queues are locked below.
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
    /// Not called: no descriptor belongs to this source.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        if let Some(cq) = self.in_vain() {
            strict::remark(
                cq.logged(),
                Rule::Wait,
                format_args!(
                    "a thread waits for a completion event, but no signalled request or receive is outstanding on its queue pairs"
                ),
                format_args!(
                    "post the request that is waited for with IBV_SEND_SIGNALED (RPMA_F_COMPLETION_ALWAYS), and wait once for as \
                     many completions as there are"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cq::Producer;
    use crate::progress::{By, Driven};
    use Outstanding::{Nothing, Unsignalled};
    use transport::wr::Completion;

    /// A connection with this outstanding.
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

    /// The index of the completion queue that is reported.
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
        assert!(Producer::new(full.clone(), None, None).unwrap().push(Completion::default()));
        assert_eq!(reported(std::slice::from_ref(&full)), None, "it is in the queue");
        full.poll(1, |_, _, _| ());
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
        assert!(waited.in_vain().is_none(), "the channel is destroyed");
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
