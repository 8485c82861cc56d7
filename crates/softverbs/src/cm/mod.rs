// SPDX-License-Identifier: BSD-3-Clause
//! Connection management (rdma_cm): identifiers, their events and addresses, listening and connecting.
//!
//! [`calls`] has a function for each C function of rdma_cm that acts on an identifier. The
//! phase of an identifier ([`transport::cm`]) decides which call is permitted and which event is due. An
//! identifier connects by an [`id::Protocol`], which owns sockets and timers; what follows from messages and
//! timeouts is decided by values of crate transport.

pub(crate) mod addr;
pub(crate) mod calls;
pub(crate) mod carrier;
pub(crate) mod event;
pub(crate) mod id;
mod injected;
mod iwarp;
mod limited_log;
pub(crate) mod options;
pub(crate) mod path;
mod ports;
pub(crate) mod protocol;
mod roce;

use std::time::Instant;

use crate::limits::MAX_EXIT_DELAY;
use crate::link;
pub(crate) use protocol::Params;

/// The process ends. Over iWARP the kernel closes the sockets, which ends the connections that are open;
/// those that have ended have sent everything by then.
pub(crate) fn at_exit() {
    let deadline = Instant::now() + MAX_EXIT_DELAY;
    roce::at_exit();
    link::drain(deadline);
}
