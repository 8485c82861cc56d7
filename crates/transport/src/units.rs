// SPDX-License-Identifier: BSD-3-Clause
//! Plain numbers with a unit.

/// A positive error number.
pub type Errno = i32;

/// A point in time: microseconds since an epoch that the driver chooses.
pub type Micros = u64;
