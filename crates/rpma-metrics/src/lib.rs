// SPDX-License-Identifier: BSD-3-Clause
//! Counters of a process's RDMA operations, for `RPMA_METRICS`: connections, operations, completions,
//! latencies, regions; and the thread that serves them.
//!
//! Software RDMA counts in the instruments of a queue pair, whether the program uses librpma or verbs;
//! librpma counts the operations of a device in a wrapper of its provider. A process without metrics has no
//! [`Process`].
//!
//! [`findings`] is independent of that: counts of all processes of a run, for `rpma run --fail-on-misuse`.
//!
//! The first call of [`process`] that finds the variable starts the thread. A child of fork(2) has separate
//! counters, which start at zero, and starts another thread at its first call.

// Locks that check their order.
#[cfg(lock_order)]
extern crate lock_order as std;

mod connection;
mod counters;
mod counts;
pub mod findings;
pub mod flushes;
pub mod packets;
mod serve;
pub mod setting;
mod socket;
mod start;
mod state;
mod text;
mod thread;

pub use connection::{Connection, Copies, Place};
pub use counters::Event;
pub use counts::{Copied, Kind, ServedKind};
pub use start::{at_exit, counting, process};
pub use state::{Process, Warn};
