// SPDX-License-Identifier: BSD-3-Clause
//! What the fuzz target `connection` drives: the handshake, the connection and the table of memory regions
//! together, without a socket.
//!
//! [`handshake`] decides what the connection begins with; the rest is the harness of crate transport, which
//! asserts what must hold, on the table of memory regions of this crate ([`memory`]). The module is there for
//! tests and with `--cfg fuzzing`.
#![forbid(unsafe_code)]

mod memory;
#[cfg(test)]
mod tests;

use transport::testing::connection::input::Input;
use transport::testing::connection::{Start, handshake, run};

/// One connection, from its handshake to its end.
#[allow(unreachable_pub, reason = "fuzz targets call it, with cfg(fuzzing)")]
pub fn connection(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some((agreed, early)) = handshake::run(&mut input) else { return };
    let start = Start { crc: agreed.crc, ord: agreed.ord.into(), role: agreed.role, early: &early };
    run(&mut input, start, memory::Array::new());
}
