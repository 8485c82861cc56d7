// SPDX-License-Identifier: BSD-3-Clause
//! Packets of one kind that have arrived together: those in the middle of a message, or small RDMA writes.
//! Their payload is placed by one call.
//!
//! That is an optimization alone: from the first packet on that is not as expected, they are processed one by
//! one, as all other packets are.

use arrayvec::ArrayVec;

use crate::access::Access;
use crate::host::Host;
use crate::roce::link::Batch;
use crate::roce::wire::{ACK_REQ, ACK_REQ_AT, BTH_LEN, CONGESTION_AT, Operation, Packet, QPN_AT, psn_of};

/// Packets of one run at most: those that the responder acknowledges together.
pub(super) const MOST: usize = 32;

/// Packets with equal headers and consecutive PSNs.
pub(super) struct Run<'a, B> {
    batch: &'a Batch<B>,
    first: usize,
    pub count: usize,
    /// Length of the headers of each packet in bytes.
    headers: usize,
}

impl<'a, B: AsRef<[u8]>> Run<'a, B> {
    /// The packets of the batch that begin with this one, if there are several of such a kind.
    pub(super) fn find(
        batch: &'a Batch<B>,
        first: usize,
        operation: Operation,
        packet: &Packet<'_>,
    ) -> Option<Self> {
        if !matches!(operation, Operation::WriteMiddle | Operation::ReadMiddle | Operation::WriteOnly) {
            return None;
        }
        let psn = packet.bth.psn;
        let model = batch.packet(first)?;
        let continues = |n: &usize| {
            let next = batch.packet(first + n);
            next.is_some_and(|next| is_alike(model, next) && psn_of(next) == Some(psn.add(*n as u32)))
        };
        let count = 1 + (1..MOST).take_while(continues).count();
        let headers = model.len() - packet.payload.len() - usize::from(packet.bth.pad);
        (count > 1).then_some(Self { batch, first, count, headers })
    }

    /// The packets.
    pub(super) fn packets(&self) -> impl Iterator<Item = &'a [u8]> {
        let batch = self.batch;
        (self.first..self.first + self.count).filter_map(|index| batch.packet(index))
    }

    /// Whether each of the packets requests an acknowledgement.
    pub(super) fn ack_reqs(&self) -> impl Iterator<Item = bool> {
        self.packets().map(|packet| packet[ACK_REQ_AT] & ACK_REQ != 0)
    }

    /// Bytes of a packet.
    pub(super) fn packet_len(&self) -> usize {
        self.batch.packet(self.first).map_or(0, <[u8]>::len)
    }

    /// Places the payload of the first packets, of the n-th one in the parts that `parts` returns for n.
    /// Returns of how many: the next one has no parts, or their memory does not permit it, or is gone.
    pub(super) fn place<P: Iterator<Item = Access>>(
        &self,
        host: &mut impl Host,
        parts: impl Fn(usize) -> Option<P>,
    ) -> usize {
        // How many placements the packets up to each one have.
        let mut ends = ArrayVec::<usize, MOST>::new();
        let mut count = 0;
        'packets: for n in 0..self.count {
            let Some(placed) = parts(n) else { break };
            // A packet is placed as a whole or not at all, since the caller processes it again. A single part
            // is checked where it is placed.
            let is_denied = |part: Access| host.check(part).is_err();
            if parts(n).is_some_and(|parts| parts.count() > 1)
                && parts(n).into_iter().flatten().any(is_denied)
            {
                break;
            }
            let mut from = self.batch.offset(self.first + n) + self.headers;
            for part in placed {
                if host.place(part, from).is_err() {
                    break 'packets;
                }
                from += part.len;
                count += 1;
            }
            ends.push(count);
        }
        match host.settle(self.batch.buffer()) {
            Ok(()) => ends.len(),
            Err(failed) => ends.iter().take_while(|end| **end <= failed).count(),
        }
    }
}

/// Whether the headers are equal, except AckReq, PSN and what routers change.
fn is_alike(a: &[u8], b: &[u8]) -> bool {
    let (Some(a_bth), Some(b_bth)) = (a.first_chunk::<BTH_LEN>(), b.first_chunk::<BTH_LEN>()) else {
        return false;
    };
    a.len() == b.len()
        && a_bth[..CONGESTION_AT] == b_bth[..CONGESTION_AT]
        && a_bth[QPN_AT..ACK_REQ_AT] == b_bth[QPN_AT..ACK_REQ_AT]
}

/// Whether a packet may begin a run of packets of `mtu` bytes of payload.
pub(super) fn is_full(packet: &Packet<'_>, mtu: usize) -> bool {
    packet.payload.len() == mtu && packet.bth.pad == 0
}
