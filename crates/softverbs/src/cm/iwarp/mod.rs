// SPDX-License-Identifier: BSD-3-Clause
//! Connection management over iWARP: TCP sockets, and the MPA handshake on them.
//!
//! [`exchange`](super::exchange) decides what follows from each byte of the handshake and each timeout.
//! [`connect`], [`listen`] and [`incoming`] own the sockets and timers, and the engine serves them.

pub(super) mod binding;
pub(super) mod connect;
mod incoming;
pub(super) mod listen;
pub(super) mod offers;
mod pending;
pub(super) mod request;
mod socket;

pub(super) use socket::{prepare, send_reply};
