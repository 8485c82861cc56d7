// SPDX-License-Identifier: BSD-3-Clause
//! What the provider puts on the wire and how it reacts to what is there, as RFC 5040, 5041, 5044, 6581 and
//! 7306 ask for it: tables of rows, each with the bytes of a raw TCP peer and the bytes that must come back.
//! The peer's bytes are written out or made by the encoder in `peer`, which shares nothing with the one under
//! test. While a table runs, another connection moves data that it checks.

mod atomics;
mod bystander;
mod handshake;
mod messages;
mod outgoing;
mod peer;
mod refused;
mod reply;
mod requests;
mod violations;

#[path = "../common/mod.rs"]
mod common;
