// SPDX-License-Identifier: BSD-3-Clause
//! The sending side of atomic operations: our requests, and the responses to the peer's (RFC 7306).

use crate::iwarp::wire::codes::{QN_ATOMIC_RESPONSE, QN_REQUEST};
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{AtomicRequest, AtomicResponse, Opcode};

use super::SendHalf;
use crate::iwarp::conn::fpdu::{Fpdu, Origin};
use crate::sq::Entry;
use crate::wr::{Local, Op, SendWr};

fn whole(opcode: Opcode, qn: u32, msn: u32) -> Header {
    Header::Untagged { opcode, last: true, inv_stag: 0, qn, msn, mo: 0 }
}

impl SendHalf {
    /// Makes the Atomic Request of a work request. The MSN is its request identifier.
    #[cold]
    pub(super) fn atomic_request(&mut self, position: u64) -> Option<Fpdu> {
        let Entry { wr, .. } = self.sq.at(position)?;
        let SendWr { op, rkey, remote_addr, .. } = *wr;
        let Local::Atomic { compare_add, swap, .. } = wr.local else { return None };
        let msn = self.read_msn;
        let request = match op {
            Op::FetchAdd => AtomicRequest::fetch_add(msn, rkey, remote_addr, compare_add),
            _ => AtomicRequest::cmp_swap(msn, rkey, remote_addr, compare_add, swap),
        };
        self.read_msn = msn.wrapping_add(1);
        self.reads_open += 1;
        self.message_taken(true);
        let header = whole(Opcode::AtomicRequest, QN_REQUEST, msn);
        let origin = Origin::Request { position, last: true };
        Some(Fpdu::short(&header, &request.encode(), self.framing.crc, origin))
    }

    /// Makes the Atomic Response at the head of `responses`.
    #[cold]
    pub(super) fn atomic_response(&mut self, answer: &AtomicResponse) -> Fpdu {
        self.responses.pop_front();
        self.answer_next = false;
        let header = whole(Opcode::AtomicResponse, QN_ATOMIC_RESPONSE, self.atomic_response_msn);
        self.atomic_response_msn = self.atomic_response_msn.wrapping_add(1);
        Fpdu::short(&header, &answer.encode(), self.framing.crc, Origin::Response)
    }
}
