// SPDX-License-Identifier: BSD-3-Clause
//! Heuristics: what the program will do next. Each is a value: events and times go in, a decision comes out.
//! None has a lock, a clock or an invariant of its own (a clock that most posts need not read is passed in),
//! and correctness must depend on no decision: a wrong one costs time, at most what its file states. So each
//! is given a [`mode::Mode`] when it is created, in which tests have it decide without a prediction.
//!
//! Where several threads share such a value its atomics are relaxed: an update that is lost makes a later
//! decision worse, nothing else.
#![forbid(unsafe_code)]

pub(crate) mod coalesce;
pub(crate) mod mode;
pub(crate) mod poller;
pub(crate) mod settle;
pub(crate) mod spin;
pub(crate) mod trust;
pub(crate) mod yielding;
