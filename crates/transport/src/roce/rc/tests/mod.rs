// SPDX-License-Identifier: BSD-3-Clause
//! Two connections joined by packets that a test carries, drops or changes.

mod direct;
mod duplicates;
mod faults;
mod flush;
mod found;
mod hostile;
mod loss;
mod pair;
mod policies;
mod refusals;
mod replies;
mod transfer;
