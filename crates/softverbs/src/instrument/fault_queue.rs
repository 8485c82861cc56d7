// SPDX-License-Identifier: BSD-3-Clause
//! Requests that are delayed or fail: by rules of fault injection, and in strict mode if an adapter would
//! fail them.
//!
//! The fate of a request is decided when it is posted, in the order of the program, and carried out when the
//! connection would take the request. So all requests before it are sent as usual, and all behind it wait. A
//! connection that has ended takes all requests: each completes once.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::strict::Strict;
use crate::faults::{Action, Event, Fault, Plan};
use crate::lock;
use transport::units::Micros;
use transport::wr::{Op, SendWr, status};

/// The action that is due for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Cut the connection.
    Kill,
    /// Fail the request with this status, once those before it are complete.
    Fail(u32),
}

/// The fate of a request.
#[derive(Clone, Copy)]
enum Fate {
    Fault(Fault<'static>),
    /// It fails with a remote access error.
    Denied,
}

impl Fate {
    fn action(self) -> Action {
        match self {
            Self::Fault(fault) => fault.action(),
            Self::Denied => Action::Status(status::REM_ACCESS_ERR),
        }
    }
}

pub(super) struct FaultQueue {
    plan: Option<&'static Plan>,
    /// The number of the queue pair, for the log.
    num: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many requests were posted, and how many were taken.
    posted: u64,
    taken: u64,
    /// The fates of requests that were not taken yet, by position, in order.
    fates: VecDeque<(u64, Fate)>,
    /// Until when the next request is delayed.
    until: Option<Micros>,
    /// The connection has ended, and no request is held back any more.
    is_open: bool,
}

impl State {
    /// The fate of the next request.
    fn front(&self) -> Option<Fate> {
        let (position, fate) = self.fates.front()?;
        (*position == self.taken && !self.is_open).then_some(*fate)
    }
}

impl FaultQueue {
    fn new(plan: Option<&'static Plan>, num: u32) -> Self {
        Self { plan, num, state: Mutex::default() }
    }

    /// That of a queue pair, if it needs one.
    pub(super) fn of(plan: Option<&'static Plan>, mode: Strict, num: u32) -> Option<Self> {
        (plan.is_some() || mode == Strict::Adapter).then(|| Self::new(plan, num))
    }

    /// Posts a request with `push`, and decides its fate; `denied`: the remote memory does not permit its
    /// access.
    pub(super) fn post(
        &self,
        wr: SendWr,
        denied: bool,
        push: impl FnOnce(SendWr) -> Result<(), SendWr>,
    ) -> Result<(), SendWr> {
        let events = [event_of(wr.op), Some(Event::Peer), wr.signaled.then_some(Event::Wc)];
        // Held while the request is pushed: the connection takes it only after its fate is known.
        let mut state = lock(&self.state);
        push(wr)?;
        let position = state.posted;
        state.posted += 1;
        if let Some(plan) = self.plan {
            let faults = events.into_iter().flatten().filter_map(|event| plan.event(event));
            state.fates.extend(faults.map(|fault| (position, Fate::Fault(fault))));
        }
        if denied {
            state.fates.push_back((position, Fate::Denied));
        }
        Ok(())
    }

    /// Takes the next request of a host, unless it is held back.
    pub(super) fn take<H>(
        &self,
        host: &mut H,
        now: impl Fn(&mut H) -> Micros,
        next_send: impl FnOnce(&mut H) -> Option<SendWr>,
    ) -> Option<SendWr> {
        let mut state = lock(&self.state);
        while let Some(fate) = state.front() {
            let Action::Delay(delay) = fate.action() else { return None };
            match state.until {
                Some(until) if now(host) < until => return None,
                Some(_) => {
                    state.until = None;
                    state.fates.pop_front();
                }
                None => {
                    state.until = Some(now(host) + delay.as_micros() as Micros);
                    drop(state);
                    self.log(fate);
                    return None;
                }
            }
        }
        let wr = next_send(host)?;
        state.taken += 1;
        Some(wr)
    }

    /// When the delay of the next request ends.
    pub(super) fn deadline(&self) -> Option<Micros> {
        let state = lock(&self.state);
        state.until.filter(|_| !state.is_open)
    }

    /// After a step: the action that is due now.
    pub(super) fn due(&self) -> Due {
        let state = lock(&self.state);
        match state.front().map(Fate::action) {
            Some(Action::Kill) => Due::Kill,
            Some(Action::Status(status)) => Due::Fail(status),
            _ => Due::Nothing,
        }
    }

    /// The caller carries out what is due: the next request is held back no more, whatever other faults were
    /// drawn for it.
    pub(super) fn done(&self) {
        let mut state = lock(&self.state);
        if let Some(fate) = state.front() {
            let position = state.taken;
            state.fates.retain(|(of, _)| *of != position);
            drop(state);
            self.log(fate);
        }
    }

    /// The connection has ended; true the first time.
    pub(super) fn release_all(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).is_open, true)
    }

    /// All requests were dropped, and the queue pair has no connection: the next request is the first.
    pub(super) fn reset(&self) {
        *lock(&self.state) = State::default();
    }

    /// Called without a lock: the program may have set the function that logs.
    fn log(&self, fate: Fate) {
        // librpma has logged the denied access.
        if let Fate::Fault(fault) = fate {
            fault.log(format_args!("queue pair {}", self.num));
        }
    }
}

fn event_of(op: Op) -> Option<Event> {
    match op {
        Op::Write | Op::WriteWithImm | Op::AtomicWrite => Some(Event::Write),
        Op::Read | Op::Flush => Some(Event::Read),
        Op::CompareSwap | Op::FetchAdd => Some(Event::Atomic),
        Op::Send | Op::SendWithImm | Op::SendWithInv => Some(Event::Send),
        // They are local operations.
        Op::BindMw | Op::LocalInv => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::plan_of;
    use rdma_sys::ibv_wc_status::{IBV_WC_FATAL_ERR, IBV_WC_RETRY_EXC_ERR};
    use std::cell::RefCell;
    use transport::testing::queues::request;
    use transport::wr::status::REM_ACCESS_ERR;

    /// A fault queue, and the ring behind it.
    struct Bench {
        faults: FaultQueue,
        ring: RefCell<VecDeque<SendWr>>,
        now: Micros,
    }

    impl Bench {
        fn new(rules: &str) -> Self {
            Self {
                faults: FaultQueue::new((!rules.is_empty()).then(|| plan_of(rules)), 3),
                ring: RefCell::default(),
                now: 1000,
            }
        }

        fn post(&self, wr_id: u64, op: Op, signaled: bool) {
            self.faults
                .post(request(wr_id, op, signaled), false, |wr| {
                    self.ring.borrow_mut().push_back(wr);
                    Ok(())
                })
                .unwrap();
        }

        /// All that can be taken now.
        fn taken(&self) -> Vec<u64> {
            let pop = |ring: &mut &RefCell<VecDeque<_>>| ring.borrow_mut().pop_front();
            std::iter::from_fn(|| self.faults.take(&mut &self.ring, |_| self.now, pop))
                .map(|wr| wr.wr_id)
                .collect()
        }
    }

    #[test]
    fn requests_that_no_rule_selects_are_taken_at_once() {
        let bench = Bench::new("write:delay=5us@n=9; send:delay=5us@n=1; atomic:delay=5us@n=1; wc:FATAL@n=3");
        (1..=3).for_each(|id| bench.post(id, Op::Write, id > 1));
        bench.post(4, Op::Read, false);
        bench.post(5, Op::BindMw, false);
        assert_eq!((bench.taken(), bench.faults.due()), (vec![1, 2, 3, 4, 5], Due::Nothing));
        assert_eq!(bench.taken(), []);
    }

    #[test]
    fn a_request_that_fails_for_two_reasons_fails_once() {
        let bench = Bench::new("wc:RETRY_EXC@n=1");
        let push = |wr| {
            bench.ring.borrow_mut().push_back(wr);
            Ok(())
        };
        bench.faults.post(request(1, Op::Write, true), true, push).unwrap();
        bench.post(2, Op::Write, true);
        assert_eq!((bench.taken(), bench.faults.due()), (vec![], Due::Fail(IBV_WC_RETRY_EXC_ERR)));
        bench.faults.done();
        assert_eq!(
            (bench.taken(), bench.faults.due()),
            (vec![1, 2], Due::Nothing),
            "the driver takes and fails it"
        );
    }

    #[test]
    fn a_delayed_request_and_those_behind_it_wait() {
        let mut bench = Bench::new("read:delay=20us@every=2");
        (1..=5).for_each(|id| bench.post(id, Op::Read, true));
        assert_eq!((bench.taken(), bench.faults.deadline()), (vec![1], Some(1020)));
        bench.now += 19;
        assert_eq!((bench.taken(), bench.faults.due()), (vec![], Due::Nothing), "it is delayed");
        bench.now += 1;
        assert_eq!((bench.taken(), bench.faults.deadline()), (vec![2, 3], Some(1040)));
        bench.now += 100;
        assert_eq!((bench.taken(), bench.faults.due()), (vec![4, 5], Due::Nothing));
        assert_eq!(bench.faults.deadline(), None);
    }

    #[test]
    fn a_request_that_fails_is_taken_after_those_before_it() {
        let bench = Bench::new("wc:RETRY_EXC@n=2; wc:FATAL@n=3");
        bench.post(1, Op::Write, true);
        bench.post(2, Op::Send, false);
        (3..=5).for_each(|id| bench.post(id, Op::CompareSwap, true));
        assert_eq!((bench.taken(), bench.faults.due()), (vec![1, 2], Due::Fail(IBV_WC_RETRY_EXC_ERR)));
        assert_eq!((bench.taken(), bench.faults.due()), (vec![], Due::Fail(IBV_WC_RETRY_EXC_ERR)));
        bench.faults.done();
        assert_eq!((bench.taken(), bench.faults.due()), (vec![3], Due::Fail(IBV_WC_FATAL_ERR)));
        assert!(bench.faults.release_all() && !bench.faults.release_all());
        assert_eq!((bench.taken(), bench.faults.due()), (vec![4, 5], Due::Nothing));
    }

    #[test]
    fn a_request_may_be_delayed_and_cut_the_connection() {
        let mut bench = Bench::new("peer:kill@n=2; send:delay=1ms@n=1");
        bench.post(1, Op::Write, true);
        bench.post(2, Op::SendWithInv, true);
        bench.post(3, Op::FetchAdd, true);
        assert_eq!((bench.taken(), bench.faults.deadline()), (vec![1], Some(2000)));
        bench.now += 1000;
        assert_eq!((bench.taken(), bench.faults.due()), (vec![], Due::Kill));
        bench.faults.done();
        bench.faults.release_all();
        assert_eq!((bench.taken(), bench.faults.due()), (vec![2, 3], Due::Nothing));
        bench.post(4, Op::Write, true);
        assert_eq!(bench.taken(), [4], "a connection that has ended holds nothing back");
    }

    #[test]
    fn a_denied_access_fails_behind_the_requests_before_it() {
        let bench = Bench::new("");
        bench.post(1, Op::Write, false);
        let push = |wr| {
            bench.ring.borrow_mut().push_back(wr);
            Ok(())
        };
        bench.faults.post(request(2, Op::Write, false), true, push).unwrap();
        bench.post(3, Op::Write, true);
        assert_eq!((bench.taken(), bench.faults.due()), (vec![1], Due::Fail(REM_ACCESS_ERR)));
        bench.faults.done();
        assert_eq!((bench.taken(), bench.faults.due()), (vec![2, 3], Due::Nothing));
        let mode = |mode| FaultQueue::of(None, mode, 1).is_some();
        assert!(mode(Strict::Adapter) && !mode(Strict::Warn) && !mode(Strict::Off));
    }

    #[test]
    fn requests_after_a_reset_have_their_faults() {
        let mut bench = Bench::new("wc:FATAL@n=3; send:delay=20us@n=1; wc:RETRY_EXC@n=5");
        bench.post(1, Op::Send, true);
        (2..=3).for_each(|id| bench.post(id, Op::Write, true));
        assert_eq!((bench.taken(), bench.faults.deadline()), (vec![], Some(1020)));
        bench.ring.get_mut().clear();
        bench.faults.release_all();
        bench.faults.reset();
        assert_eq!((bench.faults.deadline(), bench.faults.due()), (None, Due::Nothing));
        (4..=5).for_each(|id| bench.post(id, Op::Write, true));
        assert_eq!((bench.taken(), bench.faults.due()), (vec![4], Due::Fail(IBV_WC_RETRY_EXC_ERR)));
    }

    #[test]
    fn a_request_that_is_not_posted_counts_for_no_rule() {
        let bench = Bench::new("peer:kill@n=1");
        assert!(bench.faults.post(request(1, Op::Send, true), false, Err).is_err());
        bench.post(2, Op::Send, true);
        assert_eq!((bench.taken(), bench.faults.due()), (vec![], Due::Kill));
    }
}
