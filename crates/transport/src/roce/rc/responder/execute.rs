// SPDX-License-Identifier: BSD-3-Clause
//! The execution of the expected request packet: sends, RDMA writes, RDMA reads, atomic operations.

use super::replies::Reply;
use super::{Responder, access_of, packets_of};
use crate::access::{Access, REMOTE_ATOMIC, REMOTE_READ};
use crate::host::{Durable, Host, Served};
use crate::limits::MAX_MESSAGE;
use crate::roce::cause::Cause;
use crate::roce::inbound::{Permits, Stop};
use crate::roce::rc::terms::ReceiveTerms;
use crate::roce::wire::{AtomicEth, Extension, Operation, Packet, Psn, Reth};
use crate::wr::WORD;

impl Responder {
    /// Carries out the expected packet; gives the PSNs that it takes.
    pub(super) fn execute(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        operation: Operation,
        packet: &Packet<'_>,
    ) -> Result<u32, Stop> {
        let permits = Permits { mtu: terms.mtu.bytes(), access: terms.access };
        self.inbound.check(permits.mtu, operation, packet)?;
        match packet.extension {
            Extension::Atomic(atomic) => return self.atomic(host, terms, packet.bth.psn, operation, &atomic),
            Extension::Reth(reth) if operation == Operation::ReadRequest => {
                return self.read(host, terms, packet.bth.psn, &reth);
            }
            Extension::Flush(feth, reth) => return self.flush(host, terms, packet.bth.psn, feth, &reth),
            Extension::Reth(reth) if operation == Operation::AtomicWrite => {
                return self.atomic_write(host, terms, packet.bth.psn, &reth, packet.payload);
            }
            _ => {}
        }
        self.inbound.take(host, permits, operation, packet)?;
        if operation.is_last_or_only() {
            self.msn = (self.msn + 1) & 0x00ff_ffff;
        }
        Ok(1)
    }

    fn read(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        psn: Psn,
        reth: &Reth,
    ) -> Result<u32, Stop> {
        if terms.access & REMOTE_READ == 0 {
            return Err(Cause::QpAccess.into());
        }
        if reth.len > MAX_MESSAGE {
            return Err(Cause::Sequence.into());
        }
        if !self.replies.has_room(terms.reads) {
            return Err(Cause::TooMany.into());
        }
        let access = access_of(reth, REMOTE_READ);
        let mut pending = None;
        if reth.len > 0 {
            host.check(access).map_err(Cause::Denied)?;
            let number = self.replies.next_number();
            let durable = host.make_durable(access, number).map_err(Cause::Denied)?;
            pending = (durable == Durable::Later).then_some(number);
        }
        self.acknowledge();
        self.msn = (self.msn + 1) & 0x00ff_ffff;
        self.replies.push(Reply::read(psn, self.msn, access, false, pending));
        host.served(Served::Read, 1, reth.len.into());
        Ok(packets_of(reth.len, terms))
    }

    fn atomic(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        psn: Psn,
        operation: Operation,
        atomic: &AtomicEth,
    ) -> Result<u32, Stop> {
        let AtomicEth { va, rkey, swap_add, compare } = *atomic;
        if terms.access & REMOTE_ATOMIC == 0 {
            return Err(Cause::QpAccess.into());
        }
        if !self.replies.has_room(terms.reads) {
            return Err(Cause::TooMany.into());
        }
        let word = Access { stag: rkey, addr: va, len: WORD, rights: REMOTE_ATOMIC };
        let update = |original: u64| match operation {
            Operation::FetchAdd => original.wrapping_add(swap_add),
            _ if original == compare => swap_add,
            _ => original,
        };
        let original = host.change(word, &update)?;
        host.served(Served::Atomic, 1, WORD as u64);
        self.answer(terms, psn, Some(original), None);
        Ok(1)
    }
}
