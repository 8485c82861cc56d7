// SPDX-License-Identifier: BSD-3-Clause
//! Packets at UDP port 4791 that were dropped or forwarded. Most belong to no connection, so the port counts
//! them, and its counters are read when the text is made.

use once_cell::race::OnceBox;

/// The counters of the port.
pub struct Packets {
    /// The label of each reason, and how many packets were dropped for it.
    pub dropped: Vec<(&'static str, u64)>,
    /// Packets that were given to the process of their queue pair.
    pub forwarded: u64,
}

type Read = fn() -> Option<Packets>;

static READ: OnceBox<Read> = OnceBox::new();

/// Sets the function that returns the counters; `None`: this process has no port.
pub fn read_by(read: Read) {
    let _ = READ.set(Box::new(read));
}

/// The counters, if this process uses RoCE.
pub(super) fn counted() -> Option<Packets> {
    READ.get().and_then(|read| read())
}
