// SPDX-License-Identifier: BSD-3-Clause
//! Responses to the requests of this side: acknowledgements, data of reads, results of atomic operations,
//! NAKs (IBTA 9.7.5, 9.7.7, 9.7.8, A19).

use super::retry::Expired;
use super::{End, Failed, Requester};
use crate::access::LOCAL_WRITE;
use crate::host::Host;
use crate::roce::link::{Dropped, PacketLink};
use crate::roce::payload::place_all;
use crate::roce::rc::run::{Run, is_full};
use crate::roce::wire::{Aeth, Extension, Nak, Operation, Packet, Psn, Syndrome, rnr_delay_us};
use crate::sq::Progress;
use crate::wr::{Op, WORD, status};

impl Requester {
    /// Takes a response. One that belongs to no request that was sent is dropped: it is late, or forged.
    pub(in crate::roce::rc) fn receive(
        &mut self,
        host: &mut impl PacketLink,
        operation: Operation,
        packet: &Packet<'_>,
    ) -> Result<(), End> {
        let Some(sequence) = self.sequence(packet.bth.psn) else {
            if self.requests_next(operation, packet) {
                return self.acknowledge(self.sent);
            }
            host.dropped_packet(Dropped::Psn);
            return Ok(());
        };
        let taken = match packet.extension {
            Extension::Aeth(aeth) if operation == Operation::Acknowledge => {
                self.acknowledged(host, sequence, aeth)
            }
            Extension::Aeth(_) | Extension::None => self.data(host, sequence, operation, packet.payload),
            Extension::AtomicAck(_, original) => self.atomic_result(host, sequence, original),
            _ => Ok(()),
        };
        self.retry.measure(host, self.acked);
        taken
    }

    /// Takes the first packets of a run in the middle of the response to a read, of which this is the first
    /// one. Returns how many: the next one must be taken on its own.
    pub(in crate::roce::rc) fn receive_run<B: AsRef<[u8]>>(
        &mut self,
        host: &mut impl Host,
        run: &Run<'_, B>,
        packet: &Packet<'_>,
    ) -> usize {
        let (Some(sequence), Some(&front)) = (self.sequence(packet.bth.psn), self.messages.front()) else {
            return 0;
        };
        let Some(entry) = self.sq.entry(front.position) else { return 0 };
        let end = sequence + run.count as u64;
        let is_expected = sequence == self.acked && end <= self.sent && entry.wr.op == Op::Read;
        if !is_expected || !is_full(packet, self.mtu) {
            return 0;
        }
        let offset = (sequence - front.first) as usize * self.mtu;
        if offset + run.count * self.mtu > entry.wr.len as usize {
            return 0;
        }
        let local =
            |n: usize| Some(entry.wr.local.parts((offset + n * self.mtu) as u32, self.mtu, LOCAL_WRITE));
        let count = run.place(host, local);
        for sequence in sequence..sequence + count as u64 {
            self.answered(sequence);
        }
        self.retry.measure(host, self.acked);
        count
    }

    /// The request packet that a response is about; `None` if it was acknowledged, or never sent.
    fn sequence(&self, psn: Psn) -> Option<u64> {
        let distance = psn.distance(self.psn(self.acked));
        let sequence = self.acked.checked_add_signed(distance.into())?;
        (distance >= 0 && sequence < self.sent).then_some(sequence)
    }

    /// Whether it is a NAK for the packet that is sent next: all before it have arrived. The peer has lost
    /// packets, and cannot know of which queue pair.
    fn requests_next(&self, operation: Operation, packet: &Packet<'_>) -> bool {
        let is_nak = matches!(
            packet.extension,
            Extension::Aeth(Aeth { syndrome: Syndrome::Nak(Nak::PsnSequence), .. })
        );
        operation == Operation::Acknowledge
            && is_nak
            && self.acked < self.sent
            && packet.bth.psn == self.psn(self.sent)
    }

    fn acknowledged(&mut self, host: &mut impl Host, sequence: u64, aeth: Aeth) -> Result<(), End> {
        match aeth.syndrome {
            Syndrome::Ack { .. } => self.acknowledge(sequence + 1),
            Syndrome::Rnr { timer } => {
                self.acknowledge(sequence)?;
                // While it waits, another one repeats it.
                if self.acked != sequence || self.retry.is_waiting() {
                    return Ok(());
                }
                self.go_back();
                match self.retry.wait_for_receiver(host.now(), rnr_delay_us(timer)) {
                    true => Ok(()),
                    false => Err(self.fail_oldest(status::RNR_RETRY_EXC_ERR)),
                }
            }
            Syndrome::Nak(code) => {
                self.acknowledge(sequence)?;
                if self.acked != sequence {
                    return Ok(());
                }
                match code {
                    Nak::PsnSequence => self.gap(),
                    Nak::InvalidRequest => Err(self.fail_oldest(status::REM_INV_REQ_ERR)),
                    Nak::RemoteAccess => Err(self.fail_oldest(status::REM_ACCESS_ERR)),
                    Nak::RemoteOperational => Err(self.fail_oldest(status::REM_OP_ERR)),
                    _ => Ok(()),
                }
            }
            Syndrome::Reserved(_) => Ok(()),
        }
    }

    /// All before this packet are acknowledged. A request with a response is not: that would have come first,
    /// so it is lost.
    fn acknowledge(&mut self, end: u64) -> Result<(), End> {
        while let Some(&front) = self.messages.front() {
            if end <= self.acked {
                break;
            }
            if front.is_answered {
                return self.gap();
            }
            self.advance(end.min(front.end()));
        }
        Ok(())
    }

    /// The packets of the oldest message before `end` are acknowledged.
    fn advance(&mut self, end: u64) {
        if self.cursor < end {
            self.was_late();
        }
        self.window.acknowledged((end - self.acked) as u32);
        self.retry.progressed();
        self.acked = end;
        self.cursor = self.cursor.max(end);
        if let Some(front) = self.messages.front().copied().filter(|front| front.end() <= end) {
            if let Some(entry) = self.sq.at(front.position) {
                entry.progress = Progress::Done(status::SUCCESS);
            }
            self.messages.pop_front();
            // It could not be sent again, and need not be.
            self.failing = self.failing.filter(|(position, _)| *position != front.position);
        }
    }

    /// A packet is acknowledged that was not sent again since a loss was predicted: the peer takes none
    /// behind a gap, so it was late. What had been sent by then is not sent again, unless a response is
    /// awaited: those that may still arrive are not known.
    #[cold]
    fn was_late(&mut self) {
        let Some(next) = self.window.was_late() else { return };
        let sent = self.sent;
        let mut outstanding = self.messages.iter().take_while(|message| message.first < sent);
        if !outstanding.any(|message| message.is_answered) {
            self.cursor = self.cursor.max(next);
        }
    }

    /// The oldest packet of a response arrived: the piece of its read may be complete.
    fn answered(&mut self, sequence: u64) {
        if let Some(&front) = self.messages.front() {
            let end = self.piece_end(&front, sequence);
            if sequence + 1 == end && self.cursor >= end {
                self.reads_open = self.reads_open.saturating_sub(1);
            }
        }
        self.advance(sequence + 1);
    }

    /// The response to a read, or to an atomic write or a flush, which has no data.
    fn data(
        &mut self,
        host: &mut impl Host,
        sequence: u64,
        operation: Operation,
        payload: &[u8],
    ) -> Result<(), End> {
        self.acknowledge(sequence)?;
        if self.acked != sequence {
            return self.gap();
        }
        let Some(&front) = self.messages.front() else { return Ok(()) };
        let Some(entry) = self.sq.entry(front.position) else { return Ok(()) };
        let offset = (sequence - front.first) as usize * self.mtu;
        let expected = match entry.wr.op {
            Op::Read => (entry.wr.len as usize - offset).min(self.mtu),
            Op::AtomicWrite | Op::Flush if operation == Operation::ReadOnly => 0,
            _ => return Ok(()),
        };
        if payload.len() != expected {
            return Err(self.fail_oldest(status::BAD_RESP_ERR));
        }
        let parts = entry.wr.local.parts(offset as u32, payload.len(), LOCAL_WRITE);
        if place_all(host, parts, payload).is_err() {
            return Err(self.fail_oldest(status::LOC_PROT_ERR));
        }
        self.answered(sequence);
        Ok(())
    }

    fn atomic_result(&mut self, host: &mut impl Host, sequence: u64, original: u64) -> Result<(), End> {
        self.acknowledge(sequence)?;
        if self.acked != sequence {
            return self.gap();
        }
        let Some(&front) = self.messages.front() else { return Ok(()) };
        let Some(entry) = self.sq.entry(front.position).filter(|entry| entry.wr.is_atomic()) else {
            return Ok(());
        };
        let parts = entry.wr.local.parts(0, WORD, LOCAL_WRITE);
        if place_all(host, parts, &original.to_ne_bytes()).is_err() {
            return Err(self.fail_oldest(status::LOC_PROT_ERR));
        }
        self.answered(sequence);
        Ok(())
    }

    /// Something between the peer and this side was lost: sends again from the oldest packet without an
    /// acknowledgement, once for each gap.
    fn gap(&mut self) -> Result<(), End> {
        // Nothing was sent since it went back: what was lost is sent again anyway.
        if !self.retry.finds_gap() || self.cursor == self.acked {
            return Ok(());
        }
        if self.acked < self.overtaken {
            self.go_back();
            return Ok(());
        }
        self.send_again()?;
        self.window.lost();
        Ok(())
    }

    fn send_again(&mut self) -> Result<(), End> {
        if !self.retry.again() {
            return Err(self.fail_oldest(status::RETRY_EXC_ERR));
        }
        self.go_back();
        Ok(())
    }

    pub(super) fn go_back(&mut self) {
        self.rewind();
        self.retry.goes_back();
        self.window.settled();
    }

    fn rewind(&mut self) {
        self.cursor = self.acked;
        self.reads_open = 0;
    }

    /// Checks the timers. `has_drained`: all packets that the link has delivered were processed.
    pub(in crate::roce::rc) fn expire(
        &mut self,
        host: &mut impl PacketLink,
        has_drained: bool,
    ) -> Result<(), End> {
        if self.retry.deadline().is_none() {
            return Ok(());
        }
        let is_outstanding = self.sent > self.acked || self.retry.waits_for_room() && self.cursor < self.end;
        let now = host.now();
        let has_unread = || !has_drained || host.has_unread_packets();
        match self.retry.expire(now, is_outstanding, has_unread) {
            Expired::Nothing | Expired::Rnr => return Ok(()),
            Expired::Probe => {
                self.window.probed(self.cursor);
                self.rewind();
            }
            Expired::Transport => {
                self.send_again()?;
                self.window.timed_out();
            }
        }
        Ok(())
    }

    fn fail_oldest(&self, status: u32) -> End {
        match self.messages.front() {
            Some(front) => End::Request(Failed { position: front.position, status }),
            // A response belongs to a request that was sent, and that is in the queue.
            None => End::Lost(libc::EPROTO),
        }
    }
}
