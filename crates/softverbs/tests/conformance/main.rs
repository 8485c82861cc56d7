// SPDX-License-Identifier: BSD-3-Clause
//! Conformance with RFC 5040, 5041, 5044, 6581 and 7306: tables of rows, each with the bytes of a raw TCP
//! peer and the bytes that must come back. The peer's bytes are written out or come from the encoder in
//! `peer`, which shares no code with the one under test. While a table runs, another connection moves and
//! checks data.

mod atomics;
mod bystander;
mod exits;
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
