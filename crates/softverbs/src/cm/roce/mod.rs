// SPDX-License-Identifier: BSD-3-Clause
//! Connection management over RoCE: messages to queue pair 1.
//!
//! The exchanges of a process are one value ([`transport::roce::cm::Manager`]). [`agent`] drives it: messages
//! and timers in, messages and events out. [`local`] is the local end of an identifier, its port and its
//! exchange, and [`multicast`] its groups. A connect request is in `agent/request.rs`.
#![forbid(unsafe_code)]

mod agent;
mod local;
mod multicast;

pub(super) use agent::at_exit;
pub(super) use local::Local;
