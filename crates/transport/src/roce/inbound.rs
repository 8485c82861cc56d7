// SPDX-License-Identifier: BSD-3-Clause
//! Sends and RDMA writes of the peer, packet by packet: into a receive, or into the memory that a write
//! names. Reliable and unreliable connections have this in common. What a missing receive or an error leads
//! to is for them to decide, as are PSNs.

use super::cause::Cause;
use super::payload::place_all;
use super::wire::{Extension, Operation, Packet, Reth};
use crate::access::{Access, REMOTE_WRITE};
use crate::host::{Host, Served};
use crate::limits::MAX_MESSAGE;
use crate::rq::{Current, RecvQueue};
use crate::wr::{Completion, Extra, opcode};

/// The message that the last packet has begun or continued.
#[derive(Clone, Copy, Debug)]
enum Message {
    None,
    Send,
    /// A write of `total` bytes: the rest of it goes to `va`.
    Write {
        va: u64,
        rkey: u32,
        left: u32,
        total: u32,
    },
}

/// Why a packet was not carried out.
pub(super) enum Stop {
    /// There is no receive for it.
    NotReady,
    Refused(Cause),
}

impl<T: Into<Cause>> From<T> for Stop {
    fn from(cause: T) -> Self {
        Self::Refused(cause.into())
    }
}

/// What a queue pair permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permits {
    /// Payload bytes of a packet.
    pub mtu: usize,
    /// `qp_access_flags`.
    pub access: u32,
}

/// The receive queue, and the message that arrives.
pub(super) struct Inbound {
    pub rq: RecvQueue,
    message: Message,
}

impl Inbound {
    pub(super) fn new(qp_num: u32) -> Self {
        let mut rq = RecvQueue::new(qp_num);
        rq.wait_for_receives = false;
        Self { rq, message: Message::None }
    }

    /// Whether a message is in progress.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.message, Message::None)
    }

    /// The message is not continued. Its receive stays the current one, and is empty again.
    pub(super) fn abort(&mut self) {
        self.message = Message::None;
        if let Some(current) = &mut self.rq.current {
            current.filled = 0;
        }
    }

    /// Whether a packet has its place in a message, and the length that its operation and the path MTU
    /// require.
    pub(super) fn check(&self, mtu: usize, operation: Operation, packet: &Packet<'_>) -> Result<(), Cause> {
        let len = packet.payload.len();
        let has_length = match (operation.is_first_or_only(), operation.is_last_or_only()) {
            (_, false) => len == mtu,
            (false, true) => (1..=mtu).contains(&len),
            (true, true) => len <= mtu,
        };
        match self.has_begun() != operation.is_first_or_only() && has_length {
            true => Ok(()),
            false => Err(Cause::Sequence),
        }
    }

    /// Carries out a packet of a send or a write, which [`Self::check`] has passed.
    pub(super) fn take(
        &mut self,
        host: &mut impl Host,
        permits: Permits,
        operation: Operation,
        packet: &Packet<'_>,
    ) -> Result<(), Stop> {
        match packet.extension {
            Extension::Reth(reth) | Extension::RethImm(reth, _) if operation.is_write() => {
                self.begin_write(host, permits.access, &reth)?;
            }
            _ if operation.is_write() || operation.is_send() => {}
            _ => return Err(Cause::Unsupported.into()),
        }
        match operation.is_write() {
            true => self.write(host, operation, packet)?,
            false => self.send(host, operation, packet)?,
        }
        if operation.is_last_or_only() {
            self.message = Message::None;
        }
        Ok(())
    }

    /// Takes a receive for the message, unless it has the one of a message that was not continued.
    fn take_receive(&mut self, host: &mut impl Host) -> Result<(), Stop> {
        if self.rq.keeps_completions() {
            return Err(Stop::NotReady);
        }
        if self.rq.current.is_some() {
            return Ok(());
        }
        match self.rq.take(host) {
            Ok(Some(wr)) => {
                self.rq.current = Some(Current { wr, filled: 0 });
                Ok(())
            }
            // No receive is posted, or there is no room for its completion.
            Ok(None) | Err(_) => Err(Stop::NotReady),
        }
    }

    fn send(&mut self, host: &mut impl Host, operation: Operation, packet: &Packet<'_>) -> Result<(), Stop> {
        let is_first = operation.is_first_or_only();
        if !is_first && !matches!(self.message, Message::Send) {
            return Err(Cause::Sequence.into());
        }
        if is_first {
            self.take_receive(host)?;
            self.message = Message::Send;
        }
        let Some(Current { wr, filled }) = &mut self.rq.current else { return Err(Cause::Sequence.into()) };
        let len = packet.payload.len();
        if len > (wr.capacity() - *filled) as usize {
            return Err(Cause::TooLong.into());
        }
        place_all(host, wr.parts(*filled, len), packet.payload).map_err(|_| Cause::Receive)?;
        *filled += len as u32;
        if operation.is_last_or_only() {
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

    fn begin_write(&mut self, host: &mut impl Host, access: u32, reth: &Reth) -> Result<(), Stop> {
        if access & REMOTE_WRITE == 0 {
            return Err(Cause::QpAccess.into());
        }
        if reth.len > MAX_MESSAGE {
            return Err(Cause::Sequence.into());
        }
        let Reth { va, rkey, len } = *reth;
        if len > 0 {
            let all = Access { stag: rkey, addr: va, len: len as usize, rights: REMOTE_WRITE };
            host.check(all).map_err(Cause::Denied)?;
        }
        self.message = Message::Write { va, rkey, left: len, total: len };
        Ok(())
    }

    fn write(&mut self, host: &mut impl Host, operation: Operation, packet: &Packet<'_>) -> Result<(), Stop> {
        let Message::Write { va, rkey, left, total } = self.message else {
            return Err(Cause::Sequence.into());
        };
        let len = packet.payload.len();
        let fits = if operation.is_last_or_only() { len == left as usize } else { len < left as usize };
        if !fits {
            return Err(Cause::Sequence.into());
        }
        let imm = match packet.extension {
            Extension::Imm(imm) | Extension::RethImm(_, imm) => Some(imm),
            _ => None,
        };
        if imm.is_some() {
            self.take_receive(host).inspect_err(|_| {
                if operation.is_only() {
                    self.message = Message::None;
                }
            })?;
        }
        if len > 0 {
            let access = Access { stag: rkey, addr: va, len, rights: REMOTE_WRITE };
            place_all(host, std::iter::once(access), packet.payload).map_err(|_| Cause::Unmapped)?;
        }
        self.advance(len);
        host.served(Served::Write, operation.is_last_or_only().into(), len as u64);
        if let Some(imm) = imm {
            let opcode = opcode::RECV_RDMA_WITH_IMM;
            self.complete_receive(host, packet, opcode, Extra::Imm(imm), Some(total));
        }
        Ok(())
    }

    /// Where the next bytes of a write go, and how many are left of it; `None`: no write has begun.
    pub(super) fn rest_of_write(&self) -> Option<Access> {
        match self.message {
            Message::Write { va, rkey, left, .. } => {
                Some(Access { stag: rkey, addr: va, len: left as usize, rights: REMOTE_WRITE })
            }
            _ => None,
        }
    }

    /// So many bytes of a write were placed.
    pub(super) fn advance(&mut self, len: usize) {
        if let Message::Write { va, left, .. } = &mut self.message {
            *va = va.wrapping_add(len as u64);
            *left -= len as u32;
        }
    }
}
