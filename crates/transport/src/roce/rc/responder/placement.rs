// SPDX-License-Identifier: BSD-3-Clause
//! The execution of the memory placement extensions (IBTA, annex A19).

use super::replies::Reply;
use super::{Responder, Stop, access_of};
use crate::access::REMOTE_WRITE;
use crate::host::Host;
use crate::roce::rc::ending::Cause;
use crate::roce::rc::terms::ReceiveTerms;
use crate::roce::wire::{Psn, Reth};

/// Bytes that an ATOMIC WRITE stores, and their alignment.
const WORD: usize = 8;

impl Responder {
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
        if !self.replies.has_room(terms.reads, false) {
            return Err(Cause::TooMany.into());
        }
        let access = access_of(reth, REMOTE_WRITE);
        host.check(access).map_err(Cause::Denied)?;
        if reth.va % WORD as u64 != 0 {
            return Err(Cause::Misaligned.into());
        }
        host.store(access, word)?;
        self.acknowledge();
        self.msn = (self.msn + 1) & 0x00ff_ffff;
        self.save(terms, psn, None);
        self.replies.push(Reply::done(psn, self.msn, false, None));
        Ok(1)
    }
}
