// SPDX-License-Identifier: BSD-3-Clause
//! The link of a RoCE queue pair: packets, which the network may lose, duplicate or reorder.

use crate::access::{Access, Unreachable};
use crate::direct::DirectAccess;
use crate::roce::wire::ICRC_LEN;
use crate::route::Route;

/// Why a received packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is malformed, or of another transport service.
    Malformed,
    /// Its P_Key is not that of the queue pair.
    Pkey,
    /// A request that follows a gap, a response to no outstanding request, or a packet of an unreliable
    /// connection that continues no message.
    Psn,
    /// A request behind deferred ones, of which there are too many.
    Overflow,
    /// A datagram whose Q_Key is not that of the queue pair.
    Qkey,
    /// A datagram, or a message of an unreliable connection, for which no receive is posted, or no completion
    /// has room.
    NoReceive,
    /// A message that is longer than the receive.
    TooLong,
    /// A write of an unreliable connection that the memory or the queue pair does not permit.
    Access,
}

/// A prediction: the payload of the n-th packet behind one that is sent, from 0 on, as long as they have
/// headers of the same length and lie in one range of registered memory each. So the link may read several in
/// one call. It holds until the end of the step, or [`PacketLink::send_batch`]: then the program, or a
/// response, may change the memory.
pub type Following<'a> = &'a dyn Fn(usize) -> Option<Access>;

/// The payload of a packet.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The bytes of registered memory.
    Memory {
        /// The payload of this packet.
        from: Access,
        /// That of the next packets.
        following: Following<'a>,
    },
}

impl Payload<'_> {
    /// Its length in bytes, without pad.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory { from, .. } => from.len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Packets in one buffer, each followed by its ICRC, which was checked. They have equal lengths, except that
/// the last one may be shorter.
#[derive(Clone, Debug)]
pub struct Batch<B> {
    buffer: B,
    /// From packet to packet.
    stride: usize,
}

impl<B: AsRef<[u8]>> Batch<B> {
    /// Packets that have `stride` bytes with their ICRCs.
    pub fn new(buffer: B, stride: usize) -> Self {
        Self { buffer, stride: stride.max(1) }
    }

    /// The whole buffer, the input of [`Host::settle`](crate::host::Host::settle).
    pub fn buffer(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// How many packets there are.
    pub fn count(&self) -> usize {
        self.buffer().len().div_ceil(self.stride)
    }

    /// Where a packet is in the buffer.
    pub fn offset(&self, index: usize) -> usize {
        index * self.stride
    }

    /// A packet, from the BTH to the pad.
    pub fn packet(&self, index: usize) -> Option<&[u8]> {
        let chunk = self.buffer().get(self.offset(index)..).filter(|rest| !rest.is_empty())?;
        let len = chunk.len().min(self.stride);
        Some(&chunk[..len.saturating_sub(ICRC_LEN)])
    }
}

/// A host whose link carries packets, from the base transport header to the padding. The link adds the ICRC
/// to what it sends, and checks that of what it delivers.
pub trait PacketLink: DirectAccess {
    /// The buffer of received packets.
    type Buffer: AsRef<[u8]>;

    /// Sends a packet: the headers, the payload, and padding to a multiple of four bytes. False: the link
    /// takes nothing now; a step with [`WRITABLE`](crate::step::reason::WRITABLE) follows when it does.
    /// `Err`: the memory of the payload cannot be read; nothing was sent.
    fn send_packet(&mut self, headers: &[u8], payload: Payload<'_>) -> Result<bool, Unreachable>;
    /// Passes on what [`Self::send_packet`] has collected. A step ends with that, too.
    fn send_batch(&mut self);
    /// Of a queue pair without a peer: the next packets go this way. False as for [`Self::send_packet`].
    fn aim(&mut self, route: &Route) -> bool;
    /// The next packets that arrived from the peer for this queue pair. If that has none, each packet is
    /// behind [`IP_HEADER_LEN`](crate::roce::wire::IP_HEADER_LEN) bytes with the IP header.
    fn receive_packets(&mut self) -> Option<Batch<Self::Buffer>>;
    /// Whether the link has changed since the last call, at this side or, as the last received packets show,
    /// at the peer. The connection calls it at the beginning and the end of a step, and after each received
    /// batch.
    fn has_changed(&mut self) -> bool;
    /// Whether the link has dropped packets since the last call because it had no room for them. They may be
    /// those of another queue pair.
    fn has_lost_packets(&mut self) -> bool;
    /// Whether packets have arrived at this process that it has not received yet. They may be those of
    /// another queue pair.
    fn has_unread_packets(&self) -> bool {
        false
    }
    /// Whether only the peer can make room in the link when it is full. Then a full link does not stop the
    /// transport timer: the peer may not run.
    fn peer_makes_room(&self) -> bool {
        false
    }
    /// A received packet was dropped.
    fn dropped_packet(&mut self, why: Dropped);
    /// Of a queue pair without acknowledgements: a request fails, so the queue pair enters SQE. Called before
    /// the completions with errors.
    fn send_failed(&mut self);
}
