// SPDX-License-Identifier: BSD-3-Clause
//! Plain numbers with a unit.

/// A positive error number.
pub type Errno = i32;

/// A moment: microseconds since one that the driver has chosen.
pub type Micros = u64;
