// SPDX-License-Identifier: BSD-3-Clause
//! softverbs: a software RDMA provider in user space.
//!
//! It provides the verbs and rdma_cm objects that librpma needs, with the C structures and the errno
//! conventions of libibverbs and librdmacm, and requires no RDMA device, no privileges and no kernel module.
//! By default the wire protocol is iWARP over TCP, so the remote peer can also be the kernel's siw or an
//! iWARP adapter; with `SOFTVERBS_TRANSPORT=roce` it is RoCE v2 over UDP.
//!
//! ```text
//! ffi                           the objects and functions of verbs and rdma_cm, as C structures
//!   │ └─▶ cm                    connection management: identifiers, events, listening, connecting
//!   ▼
//! qp ──▶ transport              a reliable connection as a state machine: requests and bytes in, bytes and completions out
//!  │ └─▶ progress               which thread drives it: turn, rings, watches, the engine
//!  ├───▶ policy                 heuristics: what the program will do next
//!  ├───▶ port                   UDP port 4791 of RoCE, which the processes of a user share
//!  ├───▶ link                   the TCP socket that carries its bytes, or memory shared with a peer on the same host
//!  ├───▶ memory                 memory regions: access checks, placement, durability
//!  └───▶ cq, srq, channel       completion queues, shared receive queues, event channels
//!        instrument             strict mode, fault injection and metrics: what the other modules report to
//!        faults                 which events fail
//! ```
//!
//! Lock order, outermost first: the attributes of a queue pair on a RoCE device, the list of connections of a
//! completion queue, the session of a connection (locked only by the holder of its turn), the RNR timer of
//! its instruments, then the innermost locks: the GID table, the state of an identifier and its event
//! channel, the ring of a completion queue and, under it, its channel or, in strict mode, the entries of a
//! send queue, a watch, the tables of the engine, a shared receive queue, the fault queue of a queue pair.
//! The memory table has only a lock for each window, under which nothing is locked; its holder waits for
//! accesses, so it must hold no grant. The engine holds none of its locks when it calls a source.
//! Of `port`, the lock `receiver` is outside of the queue of an endpoint and the tables of the engine; its
//! other locks are innermost ones.
//!
//! Conditions that an error number does not explain are reported through the [`log`] facade. It has fewer
//! levels than librpma: messages about normal operation that an administrator wants to see have the target
//! [`NOTICE`].

// std with locks that check their order; see tools/check-threads.
#[cfg(lock_order)]
extern crate lock_order as std;

mod cancel;
mod channel;
mod choice;
mod clock;
mod cm;
#[cfg(test)]
#[path = "../tests/common/cm_peer.rs"]
#[allow(dead_code, reason = "the integration tests use the rest")]
mod cm_peer;
pub mod config;
mod cq;
mod evidence;
mod faults;
mod ffi;
mod fork;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(all(test, not(fuzzing)))]
mod fuzzing;
mod guid;
mod instrument;
mod limits;
mod link;
mod lock;
mod logged;
mod mapped;
mod memory;
#[cfg(test)]
#[path = "../tests/common/namespace.rs"]
mod namespace;
mod policy;
mod port;
mod probes;
mod process;
mod progress;
mod qp;
mod rendezvous;
mod socket;
mod srq;
mod sys;
mod thread;
mod unix;

pub use cancel::whole;
pub use cq::on_failed_completion;
pub use faults::Faults;
pub use ffi::context::{owns, owns_device};
pub use ffi::soft0::{context, device};
pub use ffi::{ending, event_reason, flushes_by, own_memory, post_at_once, post_denied, rdma, verbs};
pub use instrument::attach_findings;
pub use logged::NOTICE;
pub use port::PortCounter;

pub(crate) use lock::lock;
