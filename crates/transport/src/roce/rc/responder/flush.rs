// SPDX-License-Identifier: BSD-3-Clause
//! The execution of FLUSH and ATOMIC WRITE (IBTA, annex A19).
//!
//! Placed data are visible at once, since processors keep their caches coherent, so a FLUSH to global
//! visibility only checks its rights. The response to a FLUSH to persistence is sent when the host has made
//! the range durable. Later requests are executed in the meantime, except an ATOMIC WRITE, by which a program
//! publishes that the data before it are durable: it is deferred, and so are all packets behind it.

use super::{Responder, access_of, higher};
use crate::access::{FLUSH_PERSISTENT, REMOTE_WRITE};
use crate::host::{Durable, Host, Served};
use crate::limits::MAX_DEFERRED_PACKETS;
use crate::roce::cause::Cause;
use crate::roce::inbound::Stop;
use crate::roce::rc::terms::ReceiveTerms;
use crate::roce::wire::{Feth, Operation, Packet, Psn, Reth, Selectivity};
use crate::wr::WORD;

impl Responder {
    /// Carries out a FLUSH; gives the PSNs that it takes.
    pub(super) fn flush(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        psn: Psn,
        feth: Feth,
        reth: &Reth,
    ) -> Result<u32, Stop> {
        let rights = Feth::rights_of(feth.placement);
        if rights == 0 {
            return Err(Cause::FlushType.into());
        }
        if terms.access & rights != rights {
            return Err(Cause::QpAccess.into());
        }
        if !self.replies.has_room(terms.reads) {
            return Err(Cause::TooMany.into());
        }
        let access = match feth.selectivity {
            Selectivity::Range => access_of(reth, rights),
            Selectivity::Region => host.whole(reth.rkey, rights).map_err(Cause::Denied)?,
            Selectivity::Reserved(_) => return Err(Cause::FlushType.into()),
        };
        host.check(access).map_err(Cause::Denied)?;
        let mut pending = None;
        if rights & FLUSH_PERSISTENT != 0 && access.len > 0 {
            let number = self.replies.next_number();
            let durable = host.make_durable(access, number).map_err(Cause::Denied)?;
            pending = (durable == Durable::Later).then_some(number);
        }
        self.answer(terms, psn, None, pending);
        Ok(1)
    }

    /// Whether a request must be deferred ([`Self::defer`]).
    pub(in crate::roce::rc) fn must_defer(&self, operation: Operation, packet: &Packet<'_>) -> bool {
        operation == Operation::AtomicWrite
            && packet.bth.psn == self.expected
            && self.replies.await_durability()
    }

    /// Defers a packet with this PSN: an ATOMIC WRITE or an atomic operation that must wait, or a packet
    /// behind it. False: there is no room for it.
    pub(in crate::roce::rc) fn defer(&mut self, psn: Psn, packet: &[u8]) -> bool {
        let mut copy = Vec::new();
        let has_room = self.deferred.len() < MAX_DEFERRED_PACKETS
            && self.deferred.try_reserve(1).is_ok()
            && copy.try_reserve_exact(packet.len()).is_ok();
        if has_room {
            copy.extend_from_slice(packet);
            self.deferred.push_back(copy);
        } else {
            self.overflowed = higher(self.overflowed, psn);
        }
        has_room
    }

    /// Deferred packets were executed. After the last one, those for which there was no room are reported as
    /// a gap: they may have been the last ones, behind which no packet shows it.
    pub(in crate::roce::rc) fn resumed(&mut self) {
        if self.deferred.is_empty() {
            match self.overflowed.take() {
                Some(psn) if psn.distance(self.expected) >= 0 => {
                    self.gap();
                    self.replies.note_dropped(psn);
                }
                Some(_) => self.ack_due = true,
                None => {}
            }
        }
    }

    /// Carries out an ATOMIC WRITE; gives the PSNs that it takes.
    pub(super) fn atomic_write(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        psn: Psn,
        reth: &Reth,
        payload: &[u8],
    ) -> Result<u32, Stop> {
        if terms.access & REMOTE_WRITE == 0 {
            return Err(Cause::QpAccess.into());
        }
        let (Ok(word), WORD) = (payload.try_into(), reth.len as usize) else {
            return Err(Cause::Sequence.into());
        };
        if !self.replies.has_room(terms.reads) {
            return Err(Cause::TooMany.into());
        }
        let access = access_of(reth, REMOTE_WRITE);
        host.check(access).map_err(Cause::Denied)?;
        if reth.va % WORD as u64 != 0 {
            return Err(Cause::Misaligned.into());
        }
        host.store(access, word)?;
        host.served(Served::Write, 1, WORD as u64);
        self.answer(terms, psn, None, None);
        Ok(1)
    }
}
