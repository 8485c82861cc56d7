// SPDX-License-Identifier: BSD-3-Clause
//! Connection management (rdma_cm): identifiers, their events and addresses, listening and connecting.
//!
//! [`calls`] has a function for each C function of rdma_cm that acts on an identifier. [`phase`] decides
//! which call is permitted and which event is due; [`exchange`] decides what follows from each byte of the
//! MPA handshake and each timeout. Both are plain values without socket, lock or clock, and a simulation
//! (`sim.rs`) tests them against each other. An identifier connects by an
//! [`id::Protocol`]; that of [`iwarp`] owns the sockets and timers.

pub(crate) mod addr;
pub(crate) mod calls;
pub(crate) mod event;
mod exchange;
pub(crate) mod id;
mod iwarp;
mod limited_log;
pub(crate) mod negotiate;
pub(crate) mod options;
pub(crate) mod path;
mod phase;
mod ports;
pub(crate) mod protocol;
mod roce;
#[cfg(test)]
mod sim;

pub(crate) use protocol::Params;
