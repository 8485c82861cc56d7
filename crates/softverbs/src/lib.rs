// SPDX-License-Identifier: BSD-3-Clause
//! softverbs: a software RDMA provider in user space.
//!
//! It offers the verbs and rdma_cm objects that librpma needs, with the C structures and the errno conventions of libibverbs and
//! librdmacm, and needs no device, no root and no kernel module. On the wire it is iWARP over TCP, so a kernel siw or an iWARP adapter
//! can be the other side.
//!
//! ```text
//! ffi                           the objects and calls of verbs and rdma_cm, in C structures
//!   │ └─▶ cm                    connection management: ids, events, listening, connecting
//!   ▼
//! qp ──▶ conn                   one reliable connection as a state machine: requests and bytes in, bytes and completions out
//!  │ └─▶ progress               who drives it: turn, rings, watches, the engine's thread
//!  ├───▶ link                   what carries its bytes: a TCP socket
//!  ├───▶ memory                 who may touch which bytes; placing them; making them durable
//!  └───▶ cq, srq, channel       completions, shared receives, events
//! ```
//!
//! Locks, outermost first: a completion queue's list of connections, the session of a connection (taken only by the holder of its turn), then
//! the leaves: an id's state and the channel it raises events in, a completion ring and its channel, a watch, the engine's tables, a
//! shared receive queue, the memory table's free list. The engine calls its sources without any lock of its own held.
//!
//! Trouble that a program cannot learn from an error number alone is reported through the [`log`] facade, target `softverbs`.

mod access;
mod channel;
mod cm;
pub mod config;
mod conn;
mod cq;
mod ffi;
mod limits;
mod link;
mod memory;
mod progress;
mod qp;
mod srq;
mod sys;

pub use ffi::context::{context, owns};
pub use ffi::{rdma, verbs};

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex. A thread that panicked while it held one has ended the process (panics abort), but in tests it may not have.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
