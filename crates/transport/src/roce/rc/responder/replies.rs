// SPDX-License-Identifier: BSD-3-Clause
//! Replies to the peer: they leave in the order of the requests, so that no ACK overtakes the data of a read.
//! Those to duplicates leave in the order of their PSNs, before all that are for later requests.
//!
//! A NAK for the expected packet leaves behind all of them. If that packet is executed before the NAK could
//! leave (copies of packets arrive late and out of order), the NAK follows the expected PSN as long as
//! packets behind it were dropped; otherwise it is withdrawn.

use std::collections::VecDeque;

use crate::access::{Access, Unreachable};
use crate::limits::SPARE_REPLIES;
use crate::roce::link::{PacketLink, Payload};
use crate::roce::packet::PacketBuf;
use crate::roce::rc::terms::ReceiveTerms;
use crate::roce::wire::{Aeth, Bth, Extension, Nak, Opcode, Operation, Psn, Syndrome};
use crate::step::Quota;
use crate::units::Errno;

const NO_PAYLOAD: Payload<'static> = Payload::Bytes(&[]);

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    /// The bytes from `sent` on, once `pending` is durable.
    Read {
        psn: Psn,
        msn: u32,
        access: Access,
        sent: usize,
        pending: Option<u64>,
        /// The request is a duplicate.
        repeated: bool,
    },
    Atomic {
        psn: Psn,
        msn: u32,
        original: u64,
        /// The request is a duplicate.
        repeated: bool,
    },
    /// Acknowledges everything up to this PSN; as a refusal or an RNR NAK, everything before it.
    Ack { psn: Psn, msn: u32, syndrome: Syndrome },
}

impl Reply {
    pub(super) fn read(psn: Psn, msn: u32, access: Access, repeated: bool, pending: Option<u64>) -> Self {
        Self::Read { psn, msn, access, sent: 0, pending, repeated }
    }

    /// The response to a request without data: that of a read of no bytes.
    pub(super) fn done(psn: Psn, msn: u32, repeated: bool, pending: Option<u64>) -> Self {
        Self::read(psn, msn, Access { stag: 0, addr: 0, len: 0, rights: 0 }, repeated, pending)
    }

    /// Whether it is a response to a duplicate or to a new request.
    fn is_answer(&self, to_duplicate: bool) -> bool {
        match *self {
            Self::Read { repeated, .. } | Self::Atomic { repeated, .. } => repeated == to_duplicate,
            Self::Ack { .. } => false,
        }
    }

    fn psn(&self) -> Psn {
        match *self {
            Self::Read { psn, .. } | Self::Atomic { psn, .. } | Self::Ack { psn, .. } => psn,
        }
    }

    fn msn(&self) -> u32 {
        match *self {
            Self::Read { msn, .. } | Self::Atomic { msn, .. } | Self::Ack { msn, .. } => msn,
        }
    }

    /// A part of it was sent.
    fn has_begun(&self) -> bool {
        matches!(*self, Self::Read { sent, .. } if sent > 0)
    }

    /// Whether it is a response to a duplicate whose unsent part covers this PSN.
    fn covers(&self, psn: Psn, mtu: usize) -> bool {
        match *self {
            Self::Read { psn: first, access, sent, repeated: true, .. } => {
                let offset = psn.distance(first) as i64 * mtu as i64;
                offset == 0 && sent == 0 || (1.max(sent as i64)..access.len as i64).contains(&offset)
            }
            Self::Atomic { psn: queued, repeated: true, .. } => queued == psn,
            _ => false,
        }
    }

    /// It leaves before this one: its MSN counts no request that is answered later.
    fn leaves_before(&mut self, next: &Self) {
        let limit = next.msn().wrapping_sub(next.is_answer(false).into()) & 0x00ff_ffff;
        let is_later = Psn::new(self.msn()).distance(Psn::new(limit)) > 0;
        if let (true, Self::Read { msn, .. } | Self::Atomic { msn, .. }) = (is_later, self) {
            *msn = limit;
        }
    }

    /// Sending it requires memory of the program, or the completion of a flush.
    fn needs_memory(&self) -> bool {
        matches!(self, Self::Read { access, pending, .. } if access.len > 0 || pending.is_some())
    }

    fn is_ack(&self) -> bool {
        matches!(self, Self::Ack { syndrome: Syndrome::Ack { .. }, .. })
    }

    fn is_rnr(&self) -> bool {
        matches!(self, Self::Ack { syndrome: Syndrome::Rnr { .. }, .. })
    }

    /// A NAK that ends the connection of a peer that still waits for this request.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Ack { syndrome: Syndrome::Nak(_), .. })
    }
}

/// A NAK for the expected packet: PSN sequence error, or RNR. It acknowledges everything before that packet.
#[derive(Clone, Copy, Debug)]
struct PendingNak {
    psn: Psn,
    msn: u32,
    syndrome: Syndrome,
}

/// The result of [`Replies::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::roce::rc) enum Replied {
    /// None is left, or the first one waits for durability.
    All,
    /// The link is full.
    Blocked,
    /// The budget is used up.
    Busy,
}

#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    /// Is sent behind the queue.
    nak: Option<PendingNak>,
    /// An RNR NAK for a request that was executed meanwhile is in the queue.
    has_rnr: bool,
    /// The highest PSN that was dropped since one of these two was set.
    dropped: Option<Psn>,
    /// Responses in the queue to new requests: the peer counts each request once, so a duplicate takes no
    /// room from a new one.
    answers: usize,
    next_number: u64,
    blocked: bool,
    /// Replies that may wait: the peer decides how many there would be.
    max: usize,
}

impl Replies {
    /// ENOMEM.
    pub(super) fn open(&mut self, reads: usize) -> Result<(), Errno> {
        self.max = 4 * reads + SPARE_REPLIES;
        // One more for an RNR NAK.
        self.queue.try_reserve_exact(self.max + 1).map_err(|_| libc::ENOMEM)
    }

    /// Whether one more read or atomic operation may be taken.
    pub(super) fn has_room(&self, reads: u16) -> bool {
        self.answers < usize::from(reads)
    }

    /// Whether a response waits for a flush to persistence.
    pub(super) fn await_durability(&self) -> bool {
        self.queue.iter().any(|reply| matches!(reply, Reply::Read { pending: Some(_), .. }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.nak.is_none()
    }

    /// The number of the next flush.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Whether a NAK waits to be sent.
    #[inline]
    pub(super) fn has_nak(&self) -> bool {
        self.nak.is_some() || self.has_rnr
    }

    /// Whether an RNR NAK for a request that was executed meanwhile waits to be sent.
    pub(super) fn has_rnr(&self) -> bool {
        self.has_rnr
    }

    /// Sends a NAK for the expected packet when the replies before it have left. It replaces an RNR NAK for
    /// an earlier packet.
    pub(super) fn set_nak(&mut self, psn: Psn, msn: u32, syndrome: Syndrome) {
        self.withdraw_rnr();
        self.nak = Some(PendingNak { psn, msn, syndrome });
    }

    /// A packet behind the expected one was dropped.
    pub(super) fn note_dropped(&mut self, psn: Psn) {
        if self.has_nak() {
            self.dropped = higher(self.dropped, psn);
        }
    }

    /// The packet of the NAK was executed before the NAK could leave, and `next` is the next expected PSN.
    /// Whether the NAK is for that one now, since packets from there on were dropped.
    ///
    /// An RNR NAK remains one for its packet then, in the queue: the request behind that may need no receive,
    /// and a NAK for a sequence error would cost the peer a retry.
    #[cold]
    pub(super) fn advance_nak(&mut self, next: Psn, msn: u32) -> bool {
        if self.dropped.is_none_or(|dropped| dropped.distance(next) < 0) {
            self.withdraw_nak();
            return false;
        }
        match &mut self.nak {
            Some(PendingNak { psn, msn, syndrome: syndrome @ Syndrome::Rnr { .. } }) => {
                if !self.has_rnr {
                    self.queue.push_back(Reply::Ack { psn: *psn, msn: *msn, syndrome: *syndrome });
                    self.has_rnr = true;
                }
                self.nak = None;
                false
            }
            Some(nak) => {
                (nak.psn, nak.msn) = (next, msn);
                true
            }
            None => false,
        }
    }

    /// No NAK is sent: what it was for has arrived, or the connection ends.
    pub(super) fn withdraw_nak(&mut self) {
        (self.nak, self.dropped) = (None, None);
        self.withdraw_rnr();
    }

    fn withdraw_rnr(&mut self) {
        if std::mem::take(&mut self.has_rnr) {
            self.queue.retain(|reply| !reply.is_rnr());
            self.merge_acks();
        }
    }

    /// Merges adjacent ACKs: the last one remains.
    fn merge_acks(&mut self) {
        let mut at = 1;
        while at < self.queue.len() {
            let are_acks = self.queue[at - 1].is_ack() && self.queue[at].is_ack();
            match are_acks {
                true => drop(self.queue.remove(at - 1)),
                false => at += 1,
            }
        }
    }

    /// Queues the response to a duplicate, ordered by PSN: the peer would take a later one before it for a
    /// gap. It replaces a queued response that covers its PSN, because the peer has received everything
    /// before the packet that it requests. If responses to `reads` duplicates are queued, the one with the
    /// lowest PSN is dropped: the peer has at most `reads` such requests outstanding. One that has begun is
    /// finished and not counted, since the peer may have gone back behind what was sent of it.
    pub(super) fn push_duplicate(&mut self, reads: u16, mtu: usize, mut reply: Reply) {
        let psn = reply.psn();
        if let Some(queued) = self.queue.iter_mut().find(|queued| queued.covers(psn, mtu)) {
            reply.leaves_before(queued);
            *queued = reply;
            return;
        }
        let is_waiting = |queued: &Reply| queued.is_answer(true) && !queued.has_begun();
        let waiting = self.queue.iter().enumerate().filter(|(_, queued)| is_waiting(queued));
        if waiting.clone().count() >= reads.into() {
            let first = waiting.min_by_key(|(_, queued)| queued.psn().distance(psn));
            match first {
                Some((at, queued)) if queued.psn().distance(psn) < 0 => drop(self.queue.remove(at)),
                _ => return,
            }
            self.merge_acks();
        }
        let is_behind = |queued: &Reply| !queued.has_begun() && queued.psn().distance(psn) > 0;
        match self.queue.iter().position(is_behind) {
            Some(at) if self.queue.len() < self.max => {
                reply.leaves_before(&self.queue[at]);
                self.queue.insert(at, reply);
            }
            _ => self.push(reply),
        }
    }

    /// Adds a reply. Of ACKs behind each other the last one is left, however many packets the peer sends
    /// between two reads, and a refusal replaces them. If the queue is full, the reply is dropped, and the
    /// peer repeats the request.
    pub(super) fn push(&mut self, reply: Reply) {
        if let (Some(last @ Reply::Ack { .. }), Reply::Ack { .. }) = (self.queue.back(), &reply) {
            if last.is_refusal() {
                return;
            }
            // Only the RNR NAK tells the peer that packets were dropped.
            if !last.is_rnr() {
                self.queue.pop_back();
            }
        }
        if self.queue.len() < self.max {
            self.answers += usize::from(reply.is_answer(false));
            self.queue.push_back(reply);
        }
    }

    fn count(&mut self) {
        self.answers = self.queue.iter().filter(|reply| reply.is_answer(false)).count();
        self.has_rnr = self.queue.iter().any(Reply::is_rnr);
    }

    /// What this number stands for is durable, or cannot be made so; gives its PSN.
    pub(super) fn release(&mut self, number: u64) -> Option<Psn> {
        self.queue.iter_mut().find_map(|reply| match reply {
            Reply::Read { psn, pending, .. } if *pending == Some(number) => {
                *pending = None;
                Some(*psn)
            }
            _ => None,
        })
    }

    /// Drops the responses that need memory or a flush; behind the first one to a new request it drops
    /// everything, because a later ACK would acknowledge that request.
    pub(super) fn discard_reads(&mut self) {
        self.discard(|reply| reply.needs_memory() && reply.is_answer(false));
        self.queue.retain(|reply| !reply.needs_memory());
        self.merge_acks();
        self.count();
    }

    /// Drops the reply with this PSN and all behind it.
    pub(super) fn discard_from(&mut self, psn: Psn) {
        self.discard(|reply| reply.psn().distance(psn) >= 0);
    }

    fn discard(&mut self, is_first: impl Fn(&Reply) -> bool) {
        if let Some(first) = self.queue.iter().position(is_first) {
            self.queue.truncate(first);
            (self.nak, self.dropped) = (None, None);
            self.count();
        }
    }

    /// Sends replies. `Err`: the memory of a new read, which has this PSN, is gone; no reply is left.
    pub(super) fn send(
        &mut self,
        host: &mut impl PacketLink,
        buf: &mut PacketBuf,
        terms: &ReceiveTerms,
        budget: &mut Quota,
    ) -> Result<Replied, Psn> {
        loop {
            if self.is_empty() {
                return Ok(Replied::All);
            }
            if self.blocked {
                return Ok(Replied::Blocked);
            }
            if budget.is_used_up() {
                return Ok(Replied::Busy);
            }
            // It acknowledges what an ACK before it does.
            let nak = self.nak.filter(|_| self.queue.iter().all(Reply::is_ack));
            if let Some(PendingNak { psn, msn, syndrome }) = nak {
                self.blocked = !send_ack(host, buf, terms, psn, Aeth { syndrome, msn });
                if !self.blocked {
                    budget.charge(1, buf.len());
                    self.queue.clear();
                    (self.nak, self.dropped) = (None, None);
                }
                continue;
            }
            let Some(front) = self.queue.front_mut() else { return Ok(Replied::All) };
            let is_complete = match front {
                Reply::Read { pending: Some(_), .. } => return Ok(Replied::All),
                Reply::Read { psn, msn, access, sent, pending: None, repeated } => {
                    let len = (access.len - *sent).min(terms.mtu.bytes());
                    let psn = psn.add((*sent / terms.mtu.bytes()) as u32);
                    let is_last = *sent + len == access.len;
                    let piece = (*sent, len, is_last);
                    match send_data(host, buf, terms, (psn, *msn), *access, piece) {
                        Ok(true) => {
                            *sent += len;
                            Some(is_last)
                        }
                        Ok(false) => None,
                        // The region may be deregistered by now. Only a peer that still waits for the data
                        // acts on this NAK: a late duplicate means nothing to its sender.
                        Err(_) if *repeated => {
                            let syndrome = Syndrome::Nak(Nak::RemoteAccess);
                            send_ack(host, buf, terms, psn, Aeth { syndrome, msn: *msn }).then_some(true)
                        }
                        Err(_) => {
                            self.discard(|_| true);
                            return Err(psn);
                        }
                    }
                }
                Reply::Atomic { psn, msn, original, .. } => {
                    let aeth = Aeth { syndrome: Syndrome::ACK, msn: *msn };
                    let extension = Extension::AtomicAck(aeth, *original);
                    buf.begin(bth(terms, Operation::AtomicAcknowledge, *psn), &extension, 0);
                    buf.send(host, NO_PAYLOAD).is_ok_and(|sent| sent).then_some(true)
                }
                Reply::Ack { psn, msn, syndrome } => {
                    let aeth = Aeth { syndrome: *syndrome, msn: *msn };
                    send_ack(host, buf, terms, *psn, aeth).then_some(true)
                }
            };
            let Some(is_complete) = is_complete else {
                self.blocked = true;
                return Ok(Replied::Blocked);
            };
            budget.charge(1, buf.len());
            if is_complete {
                self.answers -= usize::from(front.is_answer(false));
                if front.is_rnr() {
                    self.has_rnr = false;
                    self.dropped = self.dropped.filter(|_| self.nak.is_some());
                }
                self.queue.pop_front();
            }
        }
    }
}

/// The higher one of a PSN, if there is one, and another.
pub(super) fn higher(psn: Option<Psn>, other: Psn) -> Option<Psn> {
    psn.filter(|psn| psn.distance(other) > 0).or(Some(other))
}

fn bth(terms: &ReceiveTerms, operation: Operation, psn: Psn) -> Bth {
    Bth { pkey: terms.pkey, ..Bth::new(Opcode::Rc(operation), terms.dest_qp, psn) }
}

/// Sends an ACK or a NAK. False: the link is full.
fn send_ack(
    host: &mut impl PacketLink,
    buf: &mut PacketBuf,
    terms: &ReceiveTerms,
    psn: Psn,
    aeth: Aeth,
) -> bool {
    buf.begin(bth(terms, Operation::Acknowledge, psn), &Extension::Aeth(aeth), 0);
    buf.send(host, NO_PAYLOAD).is_ok_and(|sent| sent)
}

/// Sends a packet with the data of a read; see [`PacketLink::send_packet`].
fn send_data(
    host: &mut impl PacketLink,
    buf: &mut PacketBuf,
    terms: &ReceiveTerms,
    (psn, msn): (Psn, u32),
    access: Access,
    (sent, len, is_last): (usize, usize, bool),
) -> Result<bool, Unreachable> {
    let operation = match (sent == 0, is_last) {
        (true, true) => Operation::ReadOnly,
        (true, false) => Operation::ReadFirst,
        (false, true) => Operation::ReadLast,
        (false, false) => Operation::ReadMiddle,
    };
    let aeth = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn });
    let extension = if operation == Operation::ReadMiddle { Extension::None } else { aeth };
    buf.begin(bth(terms, operation, psn), &extension, len);
    if len == 0 {
        return buf.send(host, NO_PAYLOAD);
    }
    let part = |offset: usize| Access { addr: access.addr.wrapping_add(offset as u64), len, ..access };
    // The packets behind it up to the last one, which has an extension header.
    let following = |n: usize| {
        let offset = sent + (n + 1) * len;
        (operation == Operation::ReadMiddle && offset + len < access.len).then(|| part(offset))
    };
    buf.send(host, Payload::Memory { from: part(sent), following: &following })
}
