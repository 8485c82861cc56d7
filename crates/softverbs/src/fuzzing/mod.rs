// SPDX-License-Identifier: BSD-3-Clause
//! What the fuzz target `connection` drives: the handshake, the connection and the table of memory regions
//! together, without a socket.
//!
//! It is the harness of crate transport, which asserts what must hold, on the table of memory regions of this
//! crate ([`memory`]). The module is there for tests and with `--cfg fuzzing`.
#![forbid(unsafe_code)]

mod memory;
#[cfg(test)]
mod tests;

/// One connection, from its handshake to its end.
#[allow(unreachable_pub, reason = "fuzz targets call it, with cfg(fuzzing)")]
pub fn connection(bytes: &[u8]) {
    transport::testing::connection::run(bytes, memory::Array::new);
}
