// SPDX-License-Identifier: BSD-3-Clause
//! Connection management: identifiers and their events, addresses, listening and connecting.

pub(crate) mod addr;
pub(crate) mod connect;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod listen;
mod socket;

pub(crate) use socket::{rejection, send_reply};
