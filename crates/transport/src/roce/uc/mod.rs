// SPDX-License-Identifier: BSD-3-Clause
//! Unreliable connections (UC): sends and RDMA writes to one peer, which acknowledges nothing (IBTA 9.8.2).
//!
//! Messages arrive whole and in order, or not at all. A packet that is missing, or does not continue its
//! message, ends the message: nothing of it is reported, and its receive is used by the next one. Packets are
//! dropped up to the next first or only packet, whose PSN is the expected one then. What the standard calls
//! errors of class D (9.9.3) drops the message as well: no receive is posted, or it is too short, the memory
//! or the queue pair does not permit a write, a length is wrong. A receive of a shared queue completes with
//! an error then (class E), or the queue pairs that share it would lose it. Only the memory of a receive that
//! cannot be written ends the queue pair (class A).
//!
//! In one respect it is stricter than the standard, whose networks do not repeat packets: a first or only
//! packet with a PSN shortly before the expected one is late or a duplicate, and is dropped.

#[cfg(test)]
mod tests;

use std::fmt;

use super::unreliable::{NotTaken, Outgoing, Service, Unreliable};
use crate::host::Host;
use crate::roce::cause::Cause;
use crate::roce::inbound::{Inbound, Permits, Stop};
use crate::roce::link::{Dropped, PacketLink};
use crate::roce::rc::ReceiveTerms;
use crate::roce::request::{consumes_receive, extension_of, local_operation, operation_of};
use crate::roce::wire::{Bth, Opcode, Operation, Packet, Psn, is_same_partition};
use crate::rq::RecvQueue;
use crate::wr::{Op, SendWr, status};

/// A packet at most this number of PSNs before the expected one is late or a duplicate, and is dropped. At a
/// million packets a second that is 4 ms. A larger value would drop more packets of a peer that restarts with
/// lower PSNs, and after a forged packet with a higher one.
const LATE: i32 = 1 << 12;

/// A queue pair of type UC.
pub type Uc = Unreliable<Connected>;

/// What a queue pair of type UC sends and takes.
pub struct Connected {
    terms: Option<ReceiveTerms>,
    inbound: Inbound,
    /// The PSN of the next packet of the peer.
    expected: Psn,
    /// A packet of the peer has arrived. The first one may have any PSN, since programs need not agree on it.
    has_arrived: bool,
}

impl Uc {
    /// The transition to RTR: messages are received. There are no reads and no RNR NAK, so `reads` and
    /// `rnr_timer` have no effect.
    pub fn receive(&mut self, terms: ReceiveTerms) {
        self.service.expected = terms.rq_psn;
        self.service.terms = Some(terms);
        self.begin();
    }

    /// Changes `qp_access_flags` of a queue pair that receives; `None`: as before.
    pub fn change(&mut self, access: Option<u32>) {
        if let Some(terms) = &mut self.service.terms {
            terms.access = access.unwrap_or(terms.access);
        }
    }
}

impl Service for Connected {
    const IS_CONNECTED: bool = true;

    fn new(num: u32) -> Self {
        Self { terms: None, inbound: Inbound::new(num), expected: Psn::new(0), has_arrived: false }
    }

    fn rq(&self) -> &RecvQueue {
        &self.inbound.rq
    }

    fn rq_mut(&mut self) -> &mut RecvQueue {
        &mut self.inbound.rq
    }

    fn carry_out(&mut self, host: &mut impl Host, wr: &SendWr) -> Option<Result<(), u32>> {
        local_operation(host, wr)
    }

    fn packet<'a>(&self, _num: u32, wr: &'a SendWr, offset: usize, psn: Psn) -> Result<Outgoing<'a>, u32> {
        let (Op::Send | Op::SendWithImm | Op::Write | Op::WriteWithImm, Some(terms)) = (wr.op, &self.terms)
        else {
            return Err(status::LOC_QP_OP_ERR);
        };
        let left = wr.len as usize - offset;
        let len = left.min(terms.mtu.bytes());
        let is_last = len == left;
        let operation = operation_of(wr.op, offset == 0, is_last);
        let extension = extension_of(wr, operation);
        let bth = Bth {
            solicited: wr.solicited && is_last && consumes_receive(wr.op),
            pkey: terms.pkey,
            ..Bth::new(Opcode::Uc(operation), terms.dest_qp, psn)
        };
        Ok(Outgoing { bth, extension, len, is_last, route: None })
    }

    fn take(&mut self, host: &mut impl PacketLink, bytes: &[u8], own_receives: bool) -> Result<(), NotTaken> {
        let packet = Packet::parse(bytes).map_err(|_| Dropped::Malformed)?;
        let (Opcode::Uc(operation), Some(terms)) = (packet.bth.opcode, self.terms) else {
            return Err(Dropped::Malformed.into());
        };
        if !is_same_partition(packet.bth.pkey, terms.pkey) {
            return Err(Dropped::Pkey.into());
        }
        self.follow(host, operation, packet.bth.psn, own_receives)?;
        let permits = Permits { mtu: terms.mtu.bytes(), access: terms.access };
        let checked = self.inbound.check(permits.mtu, operation, &packet).map_err(Stop::from);
        match checked.and_then(|()| self.inbound.take(host, permits, operation, &packet)) {
            Ok(()) => Ok(()),
            Err(Stop::NotReady) => {
                self.inbound.abort();
                Err(Dropped::NoReceive.into())
            }
            Err(Stop::Refused(Cause::Receive)) => {
                self.inbound.rq.fail_current(host, status::LOC_PROT_ERR);
                Err(NotTaken::NotPlaced)
            }
            Err(Stop::Refused(cause)) => {
                let status = cause.status_of_receive().unwrap_or(status::REM_INV_REQ_ERR);
                self.abort(host, status, own_receives);
                Err(dropped_by(cause).into())
            }
        }
    }

    fn explain(&self, status: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match status {
            status::LOC_PROT_ERR => "its memory cannot be read",
            status::LOC_QP_OP_ERR => "an unreliable connection has only sends and RDMA writes",
            status::MW_BIND_ERR => "the memory window cannot be bound or invalidated",
            _ => "a fault was injected",
        })
    }
}

impl Connected {
    /// Whether a packet with this PSN continues the message or begins one.
    fn follow(
        &mut self,
        host: &mut impl Host,
        operation: Operation,
        psn: Psn,
        own_receives: bool,
    ) -> Result<(), Dropped> {
        let distance = psn.distance(self.expected);
        if self.has_arrived && (-LATE..0).contains(&distance) {
            return Err(Dropped::Psn);
        }
        let begins = operation.is_first_or_only();
        if distance != 0 || begins {
            self.abort(host, status::REM_INV_REQ_ERR, own_receives);
        }
        if distance != 0 && !begins {
            return Err(Dropped::Psn);
        }
        // The rest of a message whose beginning was dropped.
        if !begins && !self.inbound.has_begun() {
            return Err(Dropped::Psn);
        }
        (self.expected, self.has_arrived) = (psn.next(), true);
        Ok(())
    }

    /// The message is not continued. `status`: that of its receive, if it is one of a shared queue.
    fn abort(&mut self, host: &mut impl Host, status: u32, own_receives: bool) {
        self.inbound.abort();
        if !own_receives {
            self.inbound.rq.fail_current(host, status);
        }
    }
}

/// How a message that is refused is counted.
fn dropped_by(cause: Cause) -> Dropped {
    match cause {
        Cause::TooLong => Dropped::TooLong,
        Cause::QpAccess | Cause::Denied(_) | Cause::Unmapped => Dropped::Access,
        _ => Dropped::Malformed,
    }
}

crate::step::connection!(Uc, PacketLink);
