// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: packets, which the network may lose, duplicate or reorder.

use crate::host::Host;

/// Why a received packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is malformed, or of another transport service.
    Malformed,
    /// Its P_Key is not that of the queue pair.
    Pkey,
    /// A request that follows a gap, or a response to no outstanding request.
    Psn,
}

/// A host whose link carries packets, from the base transport header to the padding. The link adds the ICRC
/// to what it sends, and checks and removes it from what it delivers.
pub trait PacketLink: Host {
    /// A received packet.
    type Packet: AsRef<[u8]>;

    /// Sends a packet to the peer. False: the link takes nothing now; a step with
    /// [`WRITABLE`](crate::step::reason::WRITABLE) follows when it does.
    fn send_packet(&mut self, packet: &[u8]) -> bool;
    /// The next packet that arrived from the peer for this queue pair.
    fn receive_packet(&mut self) -> Option<Self::Packet>;
    /// A received packet was dropped.
    fn dropped_packet(&mut self, why: Dropped);
}
