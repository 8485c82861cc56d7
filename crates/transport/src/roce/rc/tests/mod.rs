// SPDX-License-Identifier: BSD-3-Clause
//! Two connections joined by packets that a test carries, drops or changes.

mod faults;
mod found;
mod hostile;
mod pair;
mod placement;
mod policies;
mod refusals;
mod transfer;
