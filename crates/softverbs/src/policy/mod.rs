// SPDX-License-Identifier: BSD-3-Clause
//! Heuristics: what the program will do next. Each is a value that implements [`Policy`]: events and times go
//! in, a decision comes out. None has a lock, a clock or an invariant (a clock that most posts need not read
//! is passed in), and correctness must not depend on any decision: a wrong one costs time, at most its
//! `WORST`. So each is created with a [`mode::Mode`], in which tests make it decide without a prediction.
//!
//! Where several threads share a policy its atomics are relaxed: a lost update only makes a later decision
//! worse.
#![forbid(unsafe_code)]

pub(crate) mod coalesce;
pub(crate) mod forwarded;
pub(crate) mod poller;
pub(crate) mod settle;
pub(crate) mod spin;
pub(crate) mod trust;
pub(crate) mod words;
pub(crate) mod yielding;

pub(crate) use transport::policy::{Cost, Policy, mode};

#[cfg(all(test, not(loom)))]
mod tests {
    use transport::policy::trial::check;

    #[test]
    fn no_heuristic_costs_more_than_it_states() {
        check::<super::coalesce::Coalescer>();
        check::<super::forwarded::Forwarded>();
        check::<super::poller::Poller>();
        check::<super::settle::Settling>();
        check::<super::spin::Spin>();
        check::<super::trust::Trust>();
        check::<super::words::Words>();
        check::<super::yielding::Yielding>();
    }
}
