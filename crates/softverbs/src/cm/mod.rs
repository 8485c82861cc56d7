// SPDX-License-Identifier: BSD-3-Clause
//! Connection management: identifiers and their events, addresses, listening and connecting.

pub(crate) mod addr;
pub(crate) mod binding;
pub(crate) mod calls;
pub(crate) mod connect;
pub(crate) mod event;
mod exchange;
pub(crate) mod id;
pub(crate) mod incoming;
mod limited_log;
pub(crate) mod listen;
pub(crate) mod negotiate;
pub(crate) mod offers;
pub(crate) mod options;
mod pending;
mod phase;
pub(crate) mod request;
#[cfg(test)]
mod sim;
mod socket;

use socket::{prepare, send_reply};
