// SPDX-License-Identifier: BSD-3-Clause
//! The RoCE v2 wire format: the UDP payload of a packet in, its fields out, and back.
//!
//! A packet is a base transport header ([`Bth`]), the extension headers of its opcode ([`Extension`]),
//! payload, pad and the invariant CRC ([`icrc`]). [`Packet`] parses and encodes everything in front of the
//! CRC. Packets to queue pair 1 carry the datagrams of connection management ([`cm`]).
//!
//! This module owns no socket and no buffer, and does not allocate memory. Whatever a peer sends results in a
//! packet or in [`Malformed`], never in a panic. All multi-byte fields are big-endian except the CRC.
//!
//! Parsing checks what needs no queue pair. Whether the payload has the length that the opcode and the path
//! MTU require, whether opcodes are in sequence and whether keys and PSNs are valid is left to the queue
//! pair, which answers such errors with a NAK; a malformed packet is dropped without one.
//!
//! Standard: InfiniBand Architecture Specification, Volume 1 (IBTA): chapter 9 (transport), chapter 12
//! (connection management), annex A17 (RoCE v2), annex A19 (memory placement extensions).

mod bth;
pub mod cm;
mod error;
mod extension;
mod gid;
pub mod icrc;
mod ip;
mod mtu;
mod opcode;
mod packet;
mod psn;
mod syndrome;

#[cfg(test)]
pub(super) mod tests;

use crate::bytes;

pub use bth::{
    ACK_REQ, ACK_REQ_AT, BTH_LEN, Bth, CONGESTION_AT, DEFAULT_PKEY, GSI_QP, MULTICAST_QP, PSN_AT, QPN_AT,
    is_same_partition, psn_of,
};
pub use error::Malformed;
pub use extension::{Aeth, AtomicEth, Deth, Extension, Feth, Reth, Selectivity};
pub use gid::gid;
pub use icrc::{Addresses, BadIcrc, Flow, ICRC_LEN};
pub use ip::{IP_HEADER_LEN, ip_header};
pub use mtu::PathMtu;
pub use opcode::{Opcode, Operation};
pub use packet::{MAX_HEADERS, Packet, pad_len};
pub use psn::Psn;
pub use syndrome::{Nak, Syndrome, rnr_delay_us};

/// The UDP destination port of every RoCE v2 packet (annex A17).
pub const UDP_PORT: u16 = 4791;
