// SPDX-License-Identifier: BSD-3-Clause
//! Replies to the peer: they leave in the order of the requests, so that no ACK overtakes the data of a read.

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
    /// Acknowledges everything up to this PSN, or, with another syndrome, everything before it.
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

    /// Whether it is a response, or a refusal in its place, to a duplicate or to a new request.
    fn is_answer(&self, to_duplicate: bool) -> bool {
        match *self {
            Self::Read { repeated, .. } | Self::Atomic { repeated, .. } => repeated == to_duplicate,
            Self::Ack { .. } => to_duplicate && self.is_refusal(),
        }
    }

    fn psn(&self) -> Psn {
        match *self {
            Self::Read { psn, .. } | Self::Atomic { psn, .. } | Self::Ack { psn, .. } => psn,
        }
    }

    fn is_ack(&self) -> bool {
        matches!(self, Self::Ack { syndrome: Syndrome::Ack { .. }, .. })
    }

    fn is_rnr(&self) -> bool {
        matches!(self, Self::Ack { syndrome: Syndrome::Rnr { .. }, .. })
    }

    /// A NAK for packets that were lost.
    fn is_gap(&self) -> bool {
        matches!(self, Self::Ack { syndrome: Syndrome::Nak(Nak::PsnSequence), .. })
    }

    /// A NAK that ends the connection of a peer that still waits for this request.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Ack { syndrome: Syndrome::Nak(code), .. } => *code != Nak::PsnSequence,
            _ => false,
        }
    }
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
    /// Responses and refusals in the queue, to new requests and to duplicates: the peer counts each request
    /// once, so a duplicate takes no room from a new one.
    answers: [usize; 2],
    next_number: u64,
    blocked: bool,
    /// Replies that may wait: the peer decides how many there would be.
    max: usize,
}

impl Replies {
    /// ENOMEM.
    pub(super) fn open(&mut self, reads: usize) -> Result<(), Errno> {
        self.max = 4 * reads + SPARE_REPLIES;
        self.queue.try_reserve_exact(self.max).map_err(|_| libc::ENOMEM)
    }

    /// Whether one more read or atomic operation may be taken, or a duplicate of one.
    pub(super) fn has_room(&self, reads: u16, is_duplicate: bool) -> bool {
        self.answers[usize::from(is_duplicate)] < usize::from(reads)
    }

    /// Whether a response waits for a flush to persistence.
    pub(super) fn await_durability(&self) -> bool {
        self.queue.iter().any(|reply| matches!(reply, Reply::Read { pending: Some(_), .. }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of the next flush.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Adds a reply. Of ACKs and NAKs behind each other, one is left, however many packets the peer sends
    /// between two reads: the last one, unless it is an ACK that covers less than the NAK before it. A
    /// refusal stays beside an ACK of later requests, which would hide it, and so does an RNR NAK. False: the
    /// reply was dropped. The queue is full, and the peer repeats the request; or it is a NAK for a gap
    /// behind an RNR NAK, from which the peer sends everything again: the NAK would cost it a retry.
    pub(super) fn push(&mut self, reply: Reply) -> bool {
        if reply.is_gap() && self.queue.iter().any(Reply::is_rnr) {
            return false;
        }
        if let (Some(last), Reply::Ack { psn, .. }) = (self.queue.back_mut(), &reply) {
            if let Reply::Ack { psn: before, .. } = *last {
                let distance = psn.distance(before);
                match (last.is_refusal(), reply.is_refusal()) {
                    (true, true) if distance == 0 => return true,
                    (true, _) => {}
                    (false, true) if distance > 0 => {
                        self.answers[1] += 1;
                        *last = reply;
                        return true;
                    }
                    (false, true) => {}
                    // A copy of the request came from a former link, and has been executed. What followed the
                    // request was dropped, and the peer knows that from the RNR NAK alone.
                    (false, false) if last.is_rnr() && reply.is_ack() && distance >= 0 => {}
                    (false, false) => {
                        // Behind the packet that a NAK requests: it has arrived.
                        if last.is_ack() || !reply.is_ack() || distance >= 0 {
                            *last = reply;
                        }
                        return true;
                    }
                }
            }
        }
        if self.queue.len() >= self.max {
            return false;
        }
        self.answers[0] += usize::from(reply.is_answer(false));
        self.answers[1] += usize::from(reply.is_answer(true));
        self.queue.push_back(reply);
        true
    }

    fn count(&mut self) {
        let of = |kind| self.queue.iter().filter(|reply| reply.is_answer(kind)).count();
        self.answers = [false, true].map(of);
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

    /// Drops the first response of a read and all behind it.
    pub(super) fn discard_reads(&mut self) {
        let keep = self.queue.iter().position(|reply| matches!(reply, Reply::Read { .. }));
        self.queue.truncate(keep.unwrap_or(self.queue.len()));
        self.count();
    }

    /// Drops the reply with this PSN and all behind it.
    pub(super) fn discard_from(&mut self, psn: Psn) {
        let keep = self.queue.iter().position(|reply| reply.psn().distance(psn) >= 0);
        self.queue.truncate(keep.unwrap_or(self.queue.len()));
        self.count();
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
            let Some(front) = self.queue.front_mut() else { return Ok(Replied::All) };
            if self.blocked {
                return Ok(Replied::Blocked);
            }
            if budget.is_used_up() {
                return Ok(Replied::Busy);
            }
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
                        // Only a peer that still waits for the data acts on this NAK.
                        Err(_) if *repeated => {
                            let syndrome = Syndrome::Nak(Nak::RemoteAccess);
                            *front = Reply::Ack { psn, msn: *msn, syndrome };
                            continue;
                        }
                        Err(_) => {
                            self.queue.clear();
                            self.count();
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
                    let extension = Extension::Aeth(Aeth { syndrome: *syndrome, msn: *msn });
                    buf.begin(bth(terms, Operation::Acknowledge, *psn), &extension, 0);
                    buf.send(host, NO_PAYLOAD).is_ok_and(|sent| sent).then_some(true)
                }
            };
            let Some(is_complete) = is_complete else {
                self.blocked = true;
                return Ok(Replied::Blocked);
            };
            budget.charge(1, buf.len());
            if is_complete {
                self.answers[0] -= usize::from(front.is_answer(false));
                self.answers[1] -= usize::from(front.is_answer(true));
                self.queue.pop_front();
            }
        }
    }
}

fn bth(terms: &ReceiveTerms, operation: Operation, psn: Psn) -> Bth {
    Bth { pkey: terms.pkey, ..Bth::new(Opcode::Rc(operation), terms.dest_qp, psn) }
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
