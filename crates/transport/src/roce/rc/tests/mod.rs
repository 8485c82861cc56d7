// SPDX-License-Identifier: BSD-3-Clause
//! Two connections joined by packets that a test carries, drops or changes.

mod faults;
mod hostile;
mod found;
mod pair;
mod refusals;
mod transfer;
