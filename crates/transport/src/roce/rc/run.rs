// SPDX-License-Identifier: BSD-3-Clause
//! Packets in the middle of a message that have arrived together: their payload is placed by one call.
//!
//! That is an optimization alone: if anything about them is not as expected, they are processed one by one,
//! as all other packets are.

use crate::access::Access;
use crate::host::Host;
use crate::roce::link::Batch;
use crate::roce::wire::{
    ACK_REQ, ACK_REQ_AT, BTH_LEN, CONGESTION_AT, Operation, Packet, Psn, QPN_AT, psn_of,
};

/// Packets of one run at most.
const MOST: usize = 64;

/// Packets with equal headers and consecutive PSNs.
pub(super) struct Run<'a, B> {
    batch: &'a Batch<B>,
    first: usize,
    pub count: usize,
}

impl<'a, B: AsRef<[u8]>> Run<'a, B> {
    /// The packets of the batch that begin with this one, if there are several in the middle of a message.
    pub(super) fn find(batch: &'a Batch<B>, first: usize, operation: Operation, psn: Psn) -> Option<Self> {
        if !matches!(operation, Operation::WriteMiddle | Operation::ReadMiddle) {
            return None;
        }
        let model = batch.packet(first)?;
        let continues = |n: &usize| {
            let next = batch.packet(first + n);
            next.is_some_and(|next| is_alike(model, next) && psn_of(next) == Some(psn.add(*n as u32)))
        };
        let count = 1 + (1..MOST).take_while(continues).count();
        (count > 1).then_some(Self { batch, first, count })
    }

    /// Whether each of the packets requests an acknowledgement.
    pub(super) fn ack_reqs(&self) -> impl Iterator<Item = bool> {
        let packets = (self.first..self.first + self.count).map(|index| self.batch.packet(index));
        packets.map(|packet| packet.is_some_and(|packet| packet[ACK_REQ_AT] & ACK_REQ != 0))
    }

    /// Bytes of the packets.
    pub(super) fn len(&self) -> usize {
        self.count * self.batch.packet(self.first).map_or(0, <[u8]>::len)
    }

    /// Places the payload of the n-th packet in the parts that `parts` returns for n, if `whole` permits all
    /// of it. False: not all of it was placed.
    pub(super) fn place<P: Iterator<Item = Access>>(
        &self,
        host: &mut impl Host,
        mut whole: impl Iterator<Item = Access>,
        parts: impl Fn(usize) -> P,
    ) -> bool {
        if whole.any(|part| host.check(part).is_err()) {
            return false;
        }
        for n in 0..self.count {
            let mut from = self.batch.offset(self.first + n) + BTH_LEN;
            for part in parts(n) {
                if host.place(part, from).is_err() {
                    // What is in the batch precedes what failed.
                    let _ = host.settle(self.batch.buffer());
                    return false;
                }
                from += part.len;
            }
        }
        host.settle(self.batch.buffer()).is_ok()
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
