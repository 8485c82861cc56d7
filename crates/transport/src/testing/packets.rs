// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE connection: packets in both directions.

use std::collections::VecDeque;

use super::recorder::{Call, Recorder};
use super::world::World;
use crate::access::Unreachable;
use crate::host::Host;
use crate::roce::link::{Batch, Dropped, PacketLink, Payload};
use crate::roce::wire::ICRC_LEN;
use crate::route::Route;

/// A byte of an ICRC, which is not checked again.
const ICRC: u8 = 0xee;

/// Packets that are delivered together, at most.
const TOGETHER: usize = 5;

/// A world whose link carries packets.
pub trait PacketWorld: World {
    /// Takes a packet to the peer; false: not now.
    fn transmit(&mut self, packet: &[u8]) -> bool;
    /// The next packet from the peer.
    fn arrive(&mut self) -> Option<Vec<u8>>;
    /// The length of the next packet, if it is delivered together with the one before.
    fn follows(&mut self) -> Option<usize>;
    /// The packets of a queue pair without a peer go this way; false: not now.
    fn aim(&mut self, _route: &Route) -> bool {
        true
    }
    /// See [`PacketLink::has_changed`].
    fn link_has_changed(&mut self) -> bool {
        false
    }
    /// Whether the link had no room for packets.
    fn has_lost(&mut self) -> bool {
        false
    }
    /// See [`PacketLink::has_unread_packets`].
    fn has_unread(&self) -> bool {
        false
    }
    /// See [`PacketLink::peer_makes_room`].
    fn is_room_of_peer(&self) -> bool {
        false
    }
    /// A packet was dropped.
    fn dropped(&mut self, _why: Dropped) {}
    /// A request of a queue pair without acknowledgements fails.
    fn enters_sqe(&mut self) {}
}

impl<W: PacketWorld> PacketLink for W {
    type Buffer = Vec<u8>;

    fn send_packet(&mut self, headers: &[u8], payload: Payload<'_>) -> Result<bool, Unreachable> {
        self.uses("sends");
        let mut packet = headers.to_vec();
        match payload {
            Payload::Bytes(bytes) => packet.extend_from_slice(bytes),
            Payload::Memory { from, .. } => {
                packet.resize(headers.len() + from.len, 0);
                self.fetch(from, &mut packet[headers.len()..])?;
            }
        }
        packet.resize(packet.len().next_multiple_of(4), 0);
        self.elsewhere();
        Ok(self.transmit(&packet))
    }

    fn send_batch(&mut self) {}

    fn aim(&mut self, route: &Route) -> bool {
        PacketWorld::aim(self, route)
    }

    fn receive_packets(&mut self) -> Option<Batch<Vec<u8>>> {
        self.elsewhere();
        let mut packets = self.arrive()?;
        let len = packets.len();
        packets.extend([ICRC; ICRC_LEN]);
        let mut is_last = false;
        for _ in 1..TOGETHER {
            let Some(following) = self.follows().filter(|following| !is_last && *following <= len) else {
                break;
            };
            let Some(packet) = self.arrive() else { break };
            is_last = following < len;
            packets.extend(packet);
            packets.extend([ICRC; ICRC_LEN]);
        }
        Some(Batch::new(packets, len + ICRC_LEN))
    }

    fn has_changed(&mut self) -> bool {
        self.link_has_changed()
    }

    fn has_lost_packets(&mut self) -> bool {
        self.has_lost()
    }

    fn has_unread_packets(&self) -> bool {
        self.has_unread()
    }

    fn peer_makes_room(&self) -> bool {
        self.is_room_of_peer()
    }

    fn dropped_packet(&mut self, why: Dropped) {
        self.dropped(why);
    }

    fn send_failed(&mut self) {
        self.enters_sqe();
    }
}

/// Packets that were sent, and those that have arrived and were not taken.
#[derive(Debug, Default)]
pub struct Packets {
    /// To the peer.
    pub sent: Vec<Vec<u8>>,
    /// Where those of a queue pair without a peer went.
    pub aimed: Vec<Route>,
    /// From the peer.
    pub arrived: VecDeque<Vec<u8>>,
    /// How many more the link takes.
    pub room: Option<usize>,
    /// Only the peer makes room.
    pub is_room_of_peer: bool,
    /// The link has changed.
    pub has_changed: bool,
    /// It changes when no packet is found in it.
    pub ends: bool,
    /// There was no room for packets.
    pub has_lost: bool,
    /// Packets were not received yet.
    pub has_unread: bool,
    /// Why packets were dropped.
    pub dropped: Vec<Dropped>,
}

impl PacketWorld for Recorder<Packets> {
    fn transmit(&mut self, packet: &[u8]) -> bool {
        match &mut self.link.room {
            Some(0) => return false,
            Some(room) => *room -= 1,
            None => {}
        }
        self.link.sent.push(packet.to_vec());
        true
    }

    fn aim(&mut self, route: &Route) -> bool {
        let takes = self.link.room != Some(0);
        if takes {
            self.link.aimed.push(*route);
        }
        takes
    }

    fn arrive(&mut self) -> Option<Vec<u8>> {
        let packet = self.link.arrived.pop_front();
        self.link.has_changed |= packet.is_none() && std::mem::take(&mut self.link.ends);
        packet
    }

    fn follows(&mut self) -> Option<usize> {
        self.link.arrived.front().map(Vec::len)
    }

    fn link_has_changed(&mut self) -> bool {
        std::mem::take(&mut self.link.has_changed)
    }

    fn has_lost(&mut self) -> bool {
        std::mem::take(&mut self.link.has_lost)
    }

    fn has_unread(&self) -> bool {
        self.link.has_unread
    }

    fn is_room_of_peer(&self) -> bool {
        self.link.is_room_of_peer
    }

    fn dropped(&mut self, why: Dropped) {
        self.link.dropped.push(why);
    }

    fn enters_sqe(&mut self) {
        self.calls.push(Call::SendFailed);
    }
}
