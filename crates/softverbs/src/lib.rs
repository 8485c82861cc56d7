// SPDX-License-Identifier: BSD-3-Clause
//! softverbs: a software RDMA provider in user space.
//!
//! It offers the verbs and rdma_cm objects that librpma needs, with the C structures and the errno conventions of libibverbs and
//! librdmacm, and needs no device, no root and no kernel module. On the wire it is iWARP over TCP, so a kernel siw or an iWARP adapter
//! can be the other side.
//!
//! ```text
//! verbs, cm (C signatures)      the objects a program holds: context, pd, mr, cq, srq, qp; ids, events
//!   │            ops            the five data-path calls, reached through ibv_context.ops
//!   ▼             ▼
//! cq, channel   qp ── tx, rx    queues; requests become FPDUs, FPDUs become placed bytes and completions
//!   │             │  └─ memory  who may touch which bytes
//!   ▼             ▼
//! engine        wire            one thread that moves bytes while the program sleeps; bytes in, events out
//! worker                        one thread that waits for a disk, once a flush has met one
//! ```
//!
//! Locks, outermost first: a completion queue's list of queue pairs, a queue pair's `rx`, `tx`, `rq`, then the leaves: an id's state and
//! the channel it raises events in, a completion ring and its channel, the engine's tables, a shared receive queue, the memory table's
//! free list. The engine calls its sources without any lock of its own held.
//!
//! Trouble that a program cannot learn from an error number alone is reported through the [`log`] facade, target `softverbs`.

mod channel;
pub mod cm;
pub mod config;
mod context;
mod cq;
mod engine;
mod limits;
mod memory;
mod object;
mod ops;
mod qp;
mod sys;
pub mod verbs;
mod worker;

pub use context::{context, owns};

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex. A thread that panicked while it held one has ended the process (panics abort), but in tests it may not have.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
