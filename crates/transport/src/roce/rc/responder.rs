// SPDX-License-Identifier: BSD-3-Clause
//! The responder: carries out the requests of the peer in the order of their PSNs (IBTA 9.7.4).
//!
//! A packet with a later PSN than the expected one shows a loss: one NAK, then silence until the expected
//! packet arrives ([`replies`]); after a NAK that was a guess ([`Responder::lost_packets`]), one more. A
//! packet with an earlier PSN is a duplicate: it is not carried out again, but acknowledged, answered from
//! memory (a read) or from the saved result (an atomic operation, an atomic write, a flush).

mod execute;
mod flush;
mod replies;

pub(super) use replies::Replied;

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::ending::{End, Refusal};
use super::run::{MOST, Run, is_full};
use super::terms::ReceiveTerms;
use crate::access::{Access, REMOTE_READ, REMOTE_WRITE};
use crate::host::{Host, Served};
use crate::limits::MAX_READS;
use crate::policy::Policy;
use crate::policy::acknowledge::Acknowledging;
use crate::policy::mode::Mode;
use crate::roce::cause::Cause;
use crate::roce::inbound::{Inbound, Stop};
use crate::roce::link::{Dropped, PacketLink};
use crate::roce::packet::PacketBuf;
use crate::roce::wire::{AtomicEth, Extension, Nak, Opcode, Operation, Packet, Psn, Reth, Syndrome};
use crate::step::Quota;
use crate::units::Errno;
use crate::wr::WORD;
use replies::{Replies, Reply, higher};

/// Requests that are carried out before an acknowledgement that is due leaves. A fixed trade-off, no
/// prediction: the peer prepares its next requests while this side carries out more of those that have
/// arrived, but each acknowledgement costs a system call at both sides.
const TOGETHER: u32 = MOST as u32;

/// The result of a request, for its duplicates.
#[derive(Clone, Copy, Debug)]
struct Saved {
    psn: Psn,
    msn: u32,
    /// The original value that an atomic operation returns; other operations return none.
    original: Option<u64>,
}

pub(super) struct Responder {
    pub inbound: Inbound,
    terms: Option<ReceiveTerms>,
    expected: Psn,
    msn: u32,
    /// A NAK was sent for the expected packet, or waits to be sent.
    is_silent: bool,
    /// No packet behind the expected one was seen when that NAK was queued.
    is_guess: bool,
    replies: Replies,
    /// An atomic write that waits for a flush to persistence, or an atomic operation that waits for the next
    /// step, and the packets behind it.
    pub deferred: VecDeque<Vec<u8>>,
    /// The highest PSN behind those for which there was no room.
    overflowed: Option<Psn>,
    /// The results of the last requests that must not be carried out again, for duplicates.
    saved: VecDeque<Saved>,
    ack_due: bool,
    /// Requests without a response that were carried out since the last acknowledgement.
    unacknowledged: u32,
    /// The newest packet that was carried out and has no response. An ACK with the PSN of a response would be
    /// taken for it: rxe completes a read of one packet, and fails between the packets of a longer one.
    acknowledged: Psn,
    acknowledging: Acknowledging,
    /// What the connection ended with: repeated if the peer repeats the request.
    refused: Option<(Psn, Syndrome)>,
}

impl Responder {
    pub(super) fn new(qp_num: u32, mode: Mode) -> Self {
        Self {
            inbound: Inbound::new(qp_num),
            terms: None,
            expected: Psn::new(0),
            msn: 0,
            is_silent: false,
            is_guess: false,
            replies: Replies::default(),
            deferred: VecDeque::new(),
            overflowed: None,
            saved: VecDeque::new(),
            ack_due: false,
            unacknowledged: 0,
            acknowledged: Psn::new(0),
            acknowledging: Acknowledging::new(mode),
            refused: None,
        }
    }

    /// ENOMEM.
    pub(super) fn open(&mut self, terms: ReceiveTerms) -> Result<(), Errno> {
        let reads = terms.reads.min(MAX_READS).into();
        self.saved.try_reserve_exact(reads).map_err(|_| libc::ENOMEM)?;
        self.replies.open(reads)?;
        self.expected = terms.rq_psn;
        self.acknowledged = terms.rq_psn.previous();
        self.terms = Some(terms);
        Ok(())
    }

    /// Changes attributes; `None`: as before. Returns whether an access is not permitted any more.
    pub(super) fn change(&mut self, access: Option<u32>, rnr_timer: Option<u8>) -> bool {
        let Some(terms) = &mut self.terms else { return false };
        let before = terms.access;
        terms.access = access.unwrap_or(before);
        terms.rnr_timer = rnr_timer.unwrap_or(terms.rnr_timer);
        before & !terms.access != 0
    }

    /// Takes a request of the peer.
    pub(super) fn receive(
        &mut self,
        host: &mut impl PacketLink,
        operation: Operation,
        packet: &Packet<'_>,
    ) -> Result<(), End> {
        let Some(terms) = self.terms else { return Ok(()) };
        let psn = packet.bth.psn;
        let distance = psn.distance(self.expected);
        if distance > 0 {
            host.dropped_packet(Dropped::Psn);
            self.is_silent &= !std::mem::take(&mut self.is_guess);
            self.gap();
            self.replies.note_dropped(psn);
            return Ok(());
        }
        if distance < 0 {
            self.duplicate(&terms, operation, packet, distance);
            return Ok(());
        }
        match self.execute(host, &terms, operation, packet) {
            Ok(packets) => {
                self.expect(psn.add(packets));
                // A response is an acknowledgement.
                if !operation.has_response() {
                    self.count_unacknowledged(psn, packet.bth.ack_req);
                }
                Ok(())
            }
            Err(Stop::NotReady) => {
                self.negative(Syndrome::Rnr { timer: terms.rnr_timer });
                Ok(())
            }
            Err(Stop::Refused(cause)) => {
                if let Some(status) = cause.status_of_receive() {
                    self.inbound.rq.refuse_current(status);
                }
                let range = range_of(&packet.extension);
                Err(self.refuse(psn, Refusal { operation: name_of(operation), range, cause }))
            }
        }
    }

    /// Takes the first packets of a run, of which this is the first one. Returns how many: the next one must
    /// be taken on its own.
    pub(super) fn receive_run<B: AsRef<[u8]>>(
        &mut self,
        host: &mut impl Host,
        run: &Run<'_, B>,
        packet: &Packet<'_>,
    ) -> usize {
        let (Some(terms), psn) = (self.terms, packet.bth.psn) else { return 0 };
        if psn != self.expected || !self.deferred.is_empty() {
            return 0;
        }
        let count = match self.inbound.rest_of_write() {
            Some(rest) => self.middle_of_write(host, terms.mtu.bytes(), rest, run, packet),
            None if self.inbound.has_begun() => 0,
            None => self.small_writes(host, &terms, run),
        };
        if count > 0 {
            self.expect(psn.add(count as u32));
        }
        for (n, ack_req) in (0..).zip(run.ack_reqs().take(count)) {
            self.count_unacknowledged(psn.add(n), ack_req);
        }
        count
    }

    /// Packets in the middle of a write, of which `rest` is left.
    fn middle_of_write<B: AsRef<[u8]>>(
        &mut self,
        host: &mut impl Host,
        mtu: usize,
        rest: Access,
        run: &Run<'_, B>,
        packet: &Packet<'_>,
    ) -> usize {
        // The last bytes come in the last packet.
        let is_middle = packet.bth.opcode == Opcode::Rc(Operation::WriteMiddle);
        if !is_middle || !is_full(packet, mtu) || run.count * mtu >= rest.len {
            return 0;
        }
        let part = |n: usize| {
            let addr = rest.addr.wrapping_add((n * mtu) as u64);
            Some(std::iter::once(Access { addr, len: mtu, ..rest }))
        };
        let count = run.place(host, part);
        self.inbound.advance(count * mtu);
        if count > 0 {
            host.served(Served::Write, 0, (count * mtu) as u64);
        }
        count
    }

    /// Writes of one packet each.
    fn small_writes<B: AsRef<[u8]>>(
        &mut self,
        host: &mut impl Host,
        terms: &ReceiveTerms,
        run: &Run<'_, B>,
    ) -> usize {
        if terms.access & REMOTE_WRITE == 0 {
            return 0;
        }
        let range = |packet: &[u8]| {
            let Packet { extension: Extension::Reth(reth), payload, bth } = Packet::parse(packet).ok()?
            else {
                return None;
            };
            let is_write = bth.opcode == Opcode::Rc(Operation::WriteOnly);
            let has_length =
                payload.len() == reth.len as usize && (1..=terms.mtu.bytes()).contains(&payload.len());
            (is_write && has_length).then(|| access_of(&reth, REMOTE_WRITE))
        };
        let ranges: ArrayVec<_, MOST> = run.packets().map_while(range).collect();
        let count = run.place(host, |n| ranges.get(n).map(|range| std::iter::once(*range)));
        self.msn = (self.msn + count as u32) & 0x00ff_ffff;
        if count > 0 {
            let bytes = ranges.iter().take(count).map(|range: &Access| range.len as u64).sum();
            host.served(Served::Write, count as u64, bytes);
        }
        count
    }

    /// A request that has no response was carried out.
    fn count_unacknowledged(&mut self, psn: Psn, ack_req: bool) {
        let is_due = self.acknowledging.is_due(ack_req);
        self.acknowledging.count(is_due);
        self.ack_due |= is_due;
        self.unacknowledged += 1;
        self.acknowledged = psn;
    }

    /// All packets before `next` were executed.
    fn expect(&mut self, next: Psn) {
        self.expected = next;
        self.is_guess = false;
        self.is_silent = self.replies.has_nak() && self.replies.advance_nak(next, self.msn);
    }

    /// Packets before this one were lost. While an RNR NAK is queued, the peer needs no other one, which
    /// would cost it a retry: it will send them again.
    fn gap(&mut self) {
        if !self.is_silent && !self.replies.has_rnr() {
            self.negative(Syndrome::Nak(Nak::PsnSequence));
        }
    }

    /// The link had no room for packets, and all that it had room for were received. In the middle of a
    /// message the expected packet is most likely one of the others: a peer sends a message without a pause.
    /// Those were the last ones of a burst, so no packet behind them shows the gap. Their PSNs are not known:
    /// if the expected packet arrives before the NAK can leave, the timer of the peer finds the others.
    pub(super) fn lost_packets(&mut self) {
        if self.inbound.has_begun() && self.deferred.is_empty() && !self.is_silent {
            self.gap();
            self.is_guess = self.is_silent;
        }
    }

    /// Requests the expected packet again.
    fn negative(&mut self, syndrome: Syndrome) {
        self.acknowledge();
        self.replies.set_nak(self.expected, self.msn, syndrome);
        (self.is_silent, self.is_guess) = (true, false);
    }

    fn refuse(&mut self, psn: Psn, refusal: Refusal) -> End {
        let syndrome = Syndrome::Nak(refusal.cause.nak());
        self.replies.withdraw_nak();
        self.acknowledge();
        self.replies.push(Reply::Ack { psn, msn: self.msn, syndrome });
        self.refused = Some((psn, syndrome));
        End::Refused(refusal)
    }

    /// After the end: a peer that sends the refused request again, or one before it, has not received the
    /// NAK. That acknowledges all before it, so a peer whose window is small by then gets it for each of
    /// them.
    pub(super) fn receive_after_end(&mut self, packet: &Packet<'_>) {
        if let Some((psn, syndrome)) = self.refused.filter(|(psn, _)| packet.bth.psn.distance(*psn) <= 0) {
            self.replies.push(Reply::Ack { psn, msn: self.msn, syndrome });
        }
    }

    /// Whether an ACK is due and should not wait for more requests.
    pub(super) fn must_acknowledge(&self) -> bool {
        self.ack_due && self.unacknowledged >= TOGETHER
    }

    /// Queues the ACK that is due, behind the responses of requests that came before.
    pub(super) fn acknowledge(&mut self) {
        self.unacknowledged = 0;
        if std::mem::take(&mut self.ack_due) {
            let (psn, msn) = (self.acknowledged, self.msn);
            self.replies.push(Reply::Ack { psn, msn, syndrome: Syndrome::ACK });
        }
    }

    /// A request that was carried out: its acknowledgement or response was lost, or the network duplicated
    /// it.
    fn duplicate(&mut self, terms: &ReceiveTerms, operation: Operation, packet: &Packet<'_>, distance: i32) {
        let psn = packet.bth.psn;
        match packet.extension {
            Extension::Reth(reth) if operation == Operation::ReadRequest => {
                let packets = packets_of(reth.len, terms);
                let was_requested = i64::from(distance) + i64::from(packets) <= 0;
                let access = access_of(&reth, REMOTE_READ);
                if was_requested && terms.access & REMOTE_READ != 0 {
                    let reply = Reply::read(psn, self.msn, access, true, None);
                    self.replies.push_duplicate(terms.reads, terms.mtu.bytes(), reply);
                }
            }
            _ if operation.has_response() => {
                // The latest: PSNs come again.
                let saved = self.saved.iter().rev().find(|saved| saved.psn == psn).copied();
                let saved = saved.filter(|saved| saved.original.is_some() == operation.is_atomic());
                if let Some(saved) = saved {
                    self.replies.push_duplicate(terms.reads, terms.mtu.bytes(), saved.reply(true, None));
                }
            }
            _ => self.ack_due = true,
        }
    }

    /// Responds to the request that was just carried out, and keeps the result for its duplicates. `pending`:
    /// the response waits for this flush.
    fn answer(&mut self, terms: &ReceiveTerms, psn: Psn, original: Option<u64>, pending: Option<u64>) {
        self.acknowledge();
        self.msn = (self.msn + 1) & 0x00ff_ffff;
        let saved = Saved { psn, msn: self.msn, original };
        if self.saved.len() >= usize::from(terms.reads) {
            self.saved.pop_front();
        }
        self.saved.push_back(saved);
        self.replies.push(saved.reply(false, pending));
    }

    /// The flush of a response has completed; see [`Host::make_durable`].
    pub(super) fn durable(&mut self, number: u64, durable: bool) -> Result<(), End> {
        let Some(psn) = self.replies.release(number) else { return Ok(()) };
        if durable {
            return Ok(());
        }
        self.replies.discard_from(psn);
        let (operation, cause) = ("flush to persistence", Cause::NotDurable);
        Err(self.refuse(psn, Refusal { operation, range: None, cause }))
    }

    /// Sends replies.
    pub(super) fn send_replies(
        &mut self,
        host: &mut impl PacketLink,
        buf: &mut PacketBuf,
        budget: &mut Quota,
    ) -> Result<Replied, End> {
        let Some(terms) = &self.terms else { return Ok(Replied::All) };
        match self.replies.send(host, buf, terms, budget) {
            Ok(replied) => Ok(replied),
            Err(psn) => {
                let (operation, cause) = ("RDMA read", Cause::Unmapped);
                Err(self.refuse(psn, Refusal { operation, range: None, cause }))
            }
        }
    }

    /// The program has ended the connection: nothing is read any more.
    pub(super) fn discard_reads(&mut self) {
        self.replies.discard_reads();
    }

    /// The link takes packets again.
    pub(super) fn unblock(&mut self) {
        self.replies.unblock();
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.replies.is_empty()
    }
}

impl Saved {
    /// The response, `repeated` to a duplicate.
    fn reply(self, repeated: bool, pending: Option<u64>) -> Reply {
        let Self { psn, msn, original } = self;
        match original {
            Some(original) => Reply::Atomic { psn, msn, original, repeated },
            None => Reply::done(psn, msn, repeated, pending),
        }
    }
}

/// The PSNs that a read of this length takes.
fn packets_of(len: u32, terms: &ReceiveTerms) -> u32 {
    len.div_ceil(terms.mtu.bytes() as u32).max(1)
}

fn access_of(reth: &Reth, rights: u32) -> Access {
    Access { stag: reth.rkey, addr: reth.va, len: reth.len as usize, rights }
}

/// The memory that a packet names, in log messages.
fn range_of(extension: &Extension) -> Option<Reth> {
    match *extension {
        Extension::Reth(reth) | Extension::RethImm(reth, _) | Extension::Flush(_, reth) => Some(reth),
        Extension::Atomic(AtomicEth { va, rkey, .. }) => Some(Reth { va, rkey, len: WORD as u32 }),
        _ => None,
    }
}

/// The name of the operation of a packet, in log messages.
fn name_of(operation: Operation) -> &'static str {
    match operation {
        Operation::ReadRequest => "RDMA read",
        Operation::CompareSwap | Operation::FetchAdd => "atomic operation",
        Operation::Flush => "flush",
        Operation::AtomicWrite => "atomic write",
        _ if operation.is_write() => "RDMA write",
        _ => "send",
    }
}
