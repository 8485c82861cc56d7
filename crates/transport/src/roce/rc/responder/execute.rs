// SPDX-License-Identifier: BSD-3-Clause
//! The execution of the expected request packet: sends, RDMA writes, RDMA reads, atomic operations.

use super::replies::Reply;
use super::{Message, Responder, Stop, access_of, packets_of};
use crate::access::{Access, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::host::{Durable, Host};
use crate::limits::MAX_MESSAGE;
use crate::roce::cause::Cause;
use crate::roce::payload::place_all;
use crate::roce::rc::terms::ReceiveTerms;
use crate::roce::wire::{AtomicEth, Extension, Operation, Packet, Psn, Reth};
use crate::rq::Current;
use crate::wr::{Completion, Extra, WORD, opcode, status};

impl Responder {
    /// Carries out the expected packet; gives the PSNs that it takes.
    pub(super) fn execute(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        operation: Operation,
        packet: &Packet<'_>,
    ) -> Result<u32, Stop> {
        let (len, mtu) = (packet.payload.len(), terms.mtu.bytes());
        let (is_first, is_last) = (operation.is_first_or_only(), operation.is_last_or_only());
        let begins = matches!(self.message, Message::None);
        let has_length = match (is_first, is_last) {
            (_, false) => len == mtu,
            (false, true) => (1..=mtu).contains(&len),
            (true, true) => len <= mtu,
        };
        if begins != is_first || !has_length {
            return Err(Cause::Sequence.into());
        }
        match packet.extension {
            Extension::Atomic(atomic) => return self.atomic(host, terms, packet.bth.psn, operation, &atomic),
            Extension::Reth(reth) if operation == Operation::ReadRequest => {
                return self.read(host, terms, packet.bth.psn, &reth);
            }
            Extension::Flush(feth, reth) => return self.flush(host, terms, packet.bth.psn, feth, &reth),
            Extension::Reth(reth) if operation == Operation::AtomicWrite => {
                return self.atomic_write(host, terms, packet.bth.psn, &reth, packet.payload);
            }
            Extension::Reth(reth) | Extension::RethImm(reth, _) if operation.is_write() => {
                self.begin_write(host, terms, &reth)?;
            }
            _ if operation.is_write() || operation.is_send() => {}
            _ => return Err(Cause::Unsupported.into()),
        }
        if operation.is_write() {
            self.write(host, packet, is_first, is_last)?;
        } else {
            self.send(host, packet, is_first, is_last)?;
        }
        if is_last {
            self.message = Message::None;
            self.msn = (self.msn + 1) & 0x00ff_ffff;
        }
        Ok(1)
    }

    /// Takes a receive for the message.
    fn take_receive(&mut self, host: &mut impl Host) -> Result<(), Stop> {
        match self.rq.take(host) {
            Ok(Some(wr)) => {
                self.rq.current = Some(Current { wr, filled: 0 });
                Ok(())
            }
            // No receive is posted, or there is no room for its completion.
            Ok(None) | Err(_) => Err(Stop::NotReady),
        }
    }

    fn send(
        &mut self,
        host: &mut impl Host,
        packet: &Packet<'_>,
        is_first: bool,
        is_last: bool,
    ) -> Result<(), Stop> {
        if !is_first && !matches!(self.message, Message::Send) {
            return Err(Cause::Sequence.into());
        }
        if is_first {
            self.take_receive(host)?;
            self.message = Message::Send;
        }
        let Some(Current { wr, filled }) = &mut self.rq.current else { return Err(Cause::Sequence.into()) };
        let len = packet.payload.len();
        let failure = if len > (wr.capacity() - *filled) as usize {
            Some((status::LOC_LEN_ERR, Cause::TooLong))
        } else {
            let placed = place_all(host, wr.parts(*filled, len), packet.payload);
            placed.is_err().then_some((status::LOC_PROT_ERR, Cause::Receive))
        };
        if let Some((status, cause)) = failure {
            self.rq.fail_current(host, status);
            return Err(cause.into());
        }
        *filled += len as u32;
        if is_last {
            let extra = match packet.extension {
                Extension::Imm(imm) => Extra::Imm(imm),
                Extension::Ieth(rkey) => {
                    host.invalidate(rkey).map_err(|_| Cause::Invalidate)?;
                    Extra::Invalidated(rkey.to_be_bytes())
                }
                _ => Extra::Nothing,
            };
            self.complete_receive(host, packet, opcode::RECV, extra, None);
        }
        Ok(())
    }

    fn complete_receive(
        &mut self,
        host: &mut impl Host,
        packet: &Packet<'_>,
        opcode: u32,
        extra: Extra,
        written: Option<u32>,
    ) {
        let Some(Current { wr, filled }) = self.rq.current.take() else { return };
        let completion = Completion {
            wr_id: wr.wr_id,
            opcode,
            byte_len: written.unwrap_or(filled),
            extra,
            solicited: packet.bth.solicited,
            ..Completion::default()
        };
        self.rq.complete(host, completion);
    }

    fn begin_write(&mut self, host: &mut impl Host, terms: &ReceiveTerms, reth: &Reth) -> Result<(), Stop> {
        if terms.access & REMOTE_WRITE == 0 {
            return Err(Cause::QpAccess.into());
        }
        if reth.len > MAX_MESSAGE {
            return Err(Cause::Sequence.into());
        }
        if reth.len > 0 {
            host.check(access_of(reth, REMOTE_WRITE)).map_err(Cause::Denied)?;
        }
        let Reth { va, rkey, len } = *reth;
        self.message = Message::Write { va, rkey, left: len, total: len };
        Ok(())
    }

    fn write(
        &mut self,
        host: &mut impl Host,
        packet: &Packet<'_>,
        is_first: bool,
        is_last: bool,
    ) -> Result<(), Stop> {
        let Message::Write { va, rkey, left, total } = self.message else {
            return Err(Cause::Sequence.into());
        };
        let len = packet.payload.len();
        let fits = if is_last { len == left as usize } else { len < left as usize };
        if !fits {
            return Err(Cause::Sequence.into());
        }
        let imm = match packet.extension {
            Extension::Imm(imm) | Extension::RethImm(_, imm) => Some(imm),
            _ => None,
        };
        if imm.is_some() {
            self.take_receive(host).inspect_err(|_| {
                if is_first {
                    self.message = Message::None;
                }
            })?;
        }
        if len > 0 {
            let access = Access { stag: rkey, addr: va, len, rights: REMOTE_WRITE };
            place_all(host, std::iter::once(access), packet.payload).map_err(|_| Cause::Unmapped)?;
        }
        self.message =
            Message::Write { va: va.wrapping_add(len as u64), rkey, left: left - len as u32, total };
        if let Some(imm) = imm {
            let opcode = opcode::RECV_RDMA_WITH_IMM;
            self.complete_receive(host, packet, opcode, Extra::Imm(imm), Some(total));
        }
        Ok(())
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
        if !self.replies.has_room(terms.reads, false) {
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
        if !self.replies.has_room(terms.reads, false) {
            return Err(Cause::TooMany.into());
        }
        let word = Access { stag: rkey, addr: va, len: WORD, rights: REMOTE_ATOMIC };
        let update = |original: u64| match operation {
            Operation::FetchAdd => original.wrapping_add(swap_add),
            _ if original == compare => swap_add,
            _ => original,
        };
        let original = host.change(word, &update)?;
        self.answer(terms, psn, Some(original), None);
        Ok(1)
    }
}
