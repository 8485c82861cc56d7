// SPDX-License-Identifier: BSD-3-Clause
//! The protocols of software RDMA, as values.
//!
//! A connection is plain data that its driver steps ([`step`]). It calls a [`host::Host`] to send and receive
//! bytes, to access registered memory, and for work requests and completions. Nothing in this crate performs
//! I/O, reads a clock, takes a lock or starts a thread, so two connections joined by a simulated link (`sim`)
//! run through millions of schedules in seconds, and the results apply to every driver that makes one step at
//! a time.
//!
//! ```text
//! host      what a connection calls: the trait Host
//! direct    one-sided operations that the host carries out itself: the trait DirectAccess
//! step      what its driver passes to it and gets back
//! wr        work requests and completions
//! access    accesses to registered memory, and why they are denied
//! sq, rq    the send queue and the receive queue of a queue pair
//! limits    bounds on what a program or a hostile peer may request
//! policy    heuristics, which affect performance only
//! cm        the phases of an identifier of rdma_cm
//! iwarp     RDMA over TCP: wire formats, the connection, and connection management
//! testing   memory, queues and links of tests, if compiled for them
//! roce      RDMA over UDP: wire formats, a reliable connection, datagrams, and connection management
//! route     the route of packets
//! ```
#![forbid(unsafe_code)]

pub mod access;
mod bytes;
pub mod cm;
pub mod direct;
pub mod host;
pub mod iwarp;
pub mod limits;
pub mod policy;
pub mod roce;
pub mod route;
mod rq;
#[cfg(test)]
mod sim;
mod sq;
pub mod step;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod testing;
pub mod units;
pub mod wr;
