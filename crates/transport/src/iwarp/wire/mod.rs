// SPDX-License-Identifier: BSD-3-Clause
//! The iWARP wire format: bytes in, events out.
//!
//! A TCP stream carries one MPA request and one MPA reply ([`mpa`]), then FPDUs in both directions until it
//! is closed ([`stream`]). Each FPDU holds one DDP segment ([`ddp`]); the segments of one DDP message make
//! one RDMAP message ([`rdmap`], [`inbound`]). Their numbers are in [`codes`]. A violation is answered with a
//! Terminate message ([`terminate`]).
//!
//! This module owns no socket, buffer or memory region, and does not allocate memory for messages. Whatever a
//! peer sends results in an event or a [`WireError`], never in a panic. All multi-byte fields are big-endian
//! except the CRC.
//!
//! Standards: RFC 5040 (RDMAP), RFC 5041 (DDP), RFC 5044 (MPA), RFC 6581 (enhanced connection setup),
//! RFC 7306 (immediate data, atomics).

pub mod codes;
pub mod ddp;
pub mod error;
pub mod inbound;
pub mod mpa;
pub mod rdmap;
pub mod stream;
pub mod terminate;

#[cfg(test)]
mod tests;

use crate::bytes;

pub use error::WireError;
pub use inbound::Inbound;
