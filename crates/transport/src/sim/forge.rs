// SPDX-License-Identifier: BSD-3-Clause
//! A peer that violates the protocol: at times it sends a message between two of its FPDUs that no connection
//! of ours would send. Its payload must be placed nowhere, and it must end the connection.

use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use crate::iwarp::wire::stream;

use super::memory::{self, READABLE, RECEIVES, SINKS, WRITABLE};
use super::world::{Sim, say};

/// A byte of which no memory has as many in a row.
const FORGED: u8 = 0xee;
const MOST: usize = 200;

impl Sim {
    /// Side `me` sends a message that its peer must refuse, if it can here.
    pub(super) fn forge(&mut self, me: usize) -> bool {
        let peer = 1 - me;
        let model = &self.checker.sides[me];
        let pipe = &self.pipes[me];
        let has_sent = model.outbound.first_end.is_some() && self.checker.sides[peer].open;
        if !has_sent
            || !model.outbound.between_fpdus()
            || model.closed
            || pipe.reset
            || pipe.fin
            || model.outbound.forged
        {
            return false;
        }
        let Some((header, len)) = self.forgery(me) else { return false };
        let mut body = [FORGED; MOST];
        if header.opcode() == Opcode::ReadRequest {
            let request = ReadRequest {
                sink_stag: memory::stag(me, SINKS),
                sink_to: memory::base(me, SINKS),
                size: 64,
                src_stag: memory::stag(peer, WRITABLE),
                src_to: memory::base(peer, WRITABLE),
            };
            body[..ReadRequest::LEN].copy_from_slice(&request.encode());
        }
        let mut fpdu = [0; stream::fpdu_len(stream::MAX_HEADER_LEN + MOST)];
        if header.opcode() == Opcode::AtomicRequest {
            // No right to that access.
            let (stag, to) = (memory::stag(peer, WRITABLE), memory::base(peer, WRITABLE));
            body[..AtomicRequest::LEN].copy_from_slice(&AtomicRequest::fetch_add(1, stag, to, 1).encode());
        }
        if header.opcode() == Opcode::AtomicResponse {
            // No request has this number.
            let answer = AtomicResponse { request_id: 0x7777_7777, original: u64::MAX };
            body[..AtomicResponse::LEN].copy_from_slice(&answer.encode());
        }
        let n = stream::encode_fpdu(&header, &body[..len], self.plan.sides[me].framing.crc, &mut fpdu);
        say!(self, "side {me} forges {header:?} of {len} bytes");
        self.pipes[me].write(&fpdu[..n]);
        self.checker.forged(me);
        true
    }

    fn forgery(&mut self, me: usize) -> Option<(Header, usize)> {
        let peer = 1 - me;
        let kind = self.draw.below(8);
        let answered = |len: usize, to: u64, stag: u32, last: bool| {
            (len <= MOST).then_some((Header::Tagged { opcode: Opcode::ReadResponse, last, stag, to }, len))
        };
        let (stag, base) = (memory::stag(peer, SINKS), memory::base(peer, SINKS));
        let extra = self.draw.between(1, 32);
        // The read that is answered next, and what is missing of its answer.
        let open = self.checker.open_read(peer).map(|(msn, len, done)| {
            // Its sink is not a region.
            (done as u64, 0xff00_0000 | msn as u32, len - done)
        });
        match (kind, open) {
            (0 | 1, Some((to, sink, left))) if left > 0 => answered(left + extra, to, sink, kind == 0),
            (2, Some((to, sink, left))) if left > extra => answered(left - extra, to, sink, true),
            (3, Some((to, sink, left))) if left > 1 => answered(left, to ^ 4, sink, true),
            (4, Some((to, sink, left))) if left > 0 => match self.draw.below(4) {
                0 => answered(left, to, memory::stag(peer, RECEIVES), true),
                1 => answered(left, to, memory::stag(peer, SINKS), true),
                2 => answered(left, to, sink + 1, true),
                _ => Some((Header::Tagged { opcode: Opcode::Write, last: true, stag: sink, to }, extra)),
            },
            (0..4, None) => answered(extra, base, stag, true),
            (4, _) => {
                let region = self.draw.one_of(&[RECEIVES, SINKS, READABLE]);
                let (stag, to) = (memory::stag(peer, region), memory::base(peer, region));
                Some((Header::Tagged { opcode: Opcode::Write, last: true, stag, to }, extra))
            }
            (5, _) if self.draw.below(2) == 0 => {
                let msn = self.checker.sides[me].outbound.read_requests() as u32 + 1;
                let header = Header::Untagged {
                    opcode: Opcode::ReadRequest,
                    last: true,
                    inv_stag: 0,
                    qn: 1,
                    msn,
                    mo: 0,
                };
                Some((header, ReadRequest::LEN))
            }
            (6, _) => {
                let msn = self.checker.sides[me].outbound.atomic_answers() as u32 + 1;
                let opcode = Opcode::AtomicResponse;
                Some((
                    Header::Untagged { opcode, last: true, inv_stag: 0, qn: 3, msn, mo: 0 },
                    AtomicResponse::LEN,
                ))
            }
            (7, _) => {
                let msn = self.checker.sides[me].outbound.read_requests() as u32 + 1;
                let opcode = Opcode::AtomicRequest;
                Some((
                    Header::Untagged { opcode, last: true, inv_stag: 0, qn: 1, msn, mo: 0 },
                    AtomicRequest::LEN,
                ))
            }
            _ => {
                let header = Header::Untagged {
                    opcode: Opcode::Send,
                    last: true,
                    inv_stag: 0,
                    qn: 0,
                    msn: 77_777,
                    mo: 0,
                };
                Some((header, extra))
            }
        }
    }
}
