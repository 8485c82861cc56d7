// SPDX-License-Identifier: BSD-3-Clause
//! Connection management over iWARP: TCP sockets, and the MPA handshake on them.
//!
//! [`transport::iwarp::cm`] decides what follows from each byte of the handshake and each timeout.
//! [`local`] has the socket of an identifier until it connects or listens; then [`connect`], [`listen`] and
//! [`incoming`] own the sockets and timers, and the engine serves them.

mod binding;
mod connect;
mod incoming;
mod listen;
mod local;
mod offers;
mod pending;
mod request;
mod socket;

pub(super) use local::Local;
use socket::{prepare, send_reply};
