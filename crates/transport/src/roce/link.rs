// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: packets, which the network may lose, duplicate or reorder.

use crate::host::Host;

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
}
