// SPDX-License-Identifier: BSD-3-Clause
//! Heuristics: values that turn events and times into a decision. Correctness must not depend on any of them.

pub(crate) mod congestion;
pub mod mode;
