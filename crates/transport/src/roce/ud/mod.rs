// SPDX-License-Identifier: BSD-3-Clause
//! Unreliable datagrams (UD): a queue pair without a peer.
//!
//! A send is one packet with its own destination. A packet that arrives with the Q_Key of the queue pair
//! fills a receive, behind the IP header that it came with; without a receive it is dropped (IBTA 9.8.3).

#[cfg(test)]
mod tests;

use std::fmt;

use super::unreliable::{NotTaken, Outgoing, Service, Unreliable};
use crate::host::Host;
use crate::roce::link::{Dropped, PacketLink};
use crate::roce::payload::{self, Piece};
use crate::roce::wire::{
    Bth, DEFAULT_PKEY, Deth, Extension, IP_HEADER_LEN, Opcode, Operation, Packet, PathMtu, Psn,
    is_same_partition,
};
use crate::rq::{Current, RecvQueue};
use crate::wr::{Completion, Destination, Extra, OWN_QKEY, Op, SendWr, Sender, opcode, status};

/// The attributes of the transition to RTR.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The most bytes of a datagram.
    pub mtu: PathMtu,
    /// The Q_Key of packets that it accepts.
    pub qkey: u32,
}

/// A queue pair of type UD.
pub type Ud = Unreliable<Datagrams>;

/// What a queue pair of type UD sends and takes.
pub struct Datagrams {
    terms: Terms,
    rq: RecvQueue,
}

impl Ud {
    /// The transition to RTR: datagrams are received.
    pub fn receive(&mut self, terms: Terms) {
        self.service.terms = terms;
        self.begin();
    }

    /// Changes the Q_Key.
    pub fn set_qkey(&mut self, qkey: u32) {
        self.service.terms.qkey = qkey;
    }
}

impl Service for Datagrams {
    const IS_CONNECTED: bool = false;

    fn new(num: u32) -> Self {
        let mut rq = RecvQueue::new(num);
        rq.wait_for_receives = false;
        Self { terms: Terms { mtu: PathMtu::Mtu256, qkey: 0 }, rq }
    }

    fn rq(&self) -> &RecvQueue {
        &self.rq
    }

    fn rq_mut(&mut self) -> &mut RecvQueue {
        &mut self.rq
    }

    fn carry_out(&mut self, _host: &mut impl Host, _wr: &SendWr) -> Option<Result<(), u32>> {
        None
    }

    fn packet<'a>(&self, num: u32, wr: &'a SendWr, _offset: usize, psn: Psn) -> Result<Outgoing<'a>, u32> {
        let (Op::Send | Op::SendWithImm, Some(Destination { route, qp, qkey })) = (wr.op, &wr.to) else {
            return Err(status::LOC_QP_OP_ERR);
        };
        let len = wr.len as usize;
        if len > self.terms.mtu.bytes() {
            return Err(status::LOC_LEN_ERR);
        }
        let qkey = if qkey & OWN_QKEY == 0 { *qkey } else { self.terms.qkey };
        let deth = Deth { qkey, source_qp: num };
        let (operation, extension) = match wr.op {
            Op::SendWithImm => (Operation::SendOnlyImm, Extension::DethImm(deth, wr.imm)),
            _ => (Operation::SendOnly, Extension::Deth(deth)),
        };
        let bth = Bth { solicited: wr.solicited, ..Bth::new(Opcode::Ud(operation), *qp, psn) };
        Ok(Outgoing { bth, extension, len, is_last: true, route: Some(route) })
    }

    /// Fills a receive with a datagram behind its IP header.
    fn take(&mut self, host: &mut impl PacketLink, bytes: &[u8], own_receives: bool) -> Result<(), NotTaken> {
        let (header, datagram) = bytes.split_at_checked(IP_HEADER_LEN).ok_or(Dropped::Malformed)?;
        let Packet { bth, extension, payload } = Packet::parse(datagram).map_err(|_| Dropped::Malformed)?;
        let (Deth { qkey, source_qp }, extra) = match extension {
            Extension::Deth(deth) => (deth, Extra::Nothing),
            Extension::DethImm(deth, imm) => (deth, Extra::Imm(imm)),
            _ => return Err(Dropped::Malformed.into()),
        };
        if !is_same_partition(bth.pkey, DEFAULT_PKEY) {
            return Err(Dropped::Pkey.into());
        }
        if qkey != self.terms.qkey {
            return Err(Dropped::Qkey.into());
        }
        if self.rq.keeps_completions() {
            return Err(Dropped::NoReceive.into());
        }
        let wr = match self.rq.current.take() {
            Some(current) => current.wr,
            None => self.rq.take(host).ok().flatten().ok_or(Dropped::NoReceive)?,
        };
        let byte_len = (IP_HEADER_LEN + payload.len()) as u32;
        if byte_len > wr.capacity() {
            self.rq.current = Some(Current { wr, filled: 0 });
            // One of the queue pair's own receives is used by the next datagram (IBTA 9.9.3, class D); the
            // others are lost to the queue pairs that share them unless they complete (class E).
            if !own_receives {
                self.rq.fail_current(host, status::LOC_LEN_ERR);
            }
            return Err(Dropped::TooLong.into());
        }
        let from = bytes.len() - usize::from(bth.pad) - payload.len();
        let pieces = [
            Piece { ranges: wr.parts(0, IP_HEADER_LEN), from: 0, len: IP_HEADER_LEN },
            Piece { ranges: wr.parts(IP_HEADER_LEN as u32, payload.len()), from, len: payload.len() },
        ];
        if payload::place(host, pieces, bytes).is_err() {
            self.rq.current = Some(Current { wr, filled: 0 });
            self.rq.fail_current(host, status::LOC_PROT_ERR);
            return Err(NotTaken::NotPlaced);
        }
        let completion = Completion {
            wr_id: wr.wr_id,
            opcode: opcode::RECV,
            byte_len,
            extra,
            solicited: bth.solicited,
            sender: Some(Sender { qp: source_qp, is_ipv4: header[0] >> 4 != 6 }),
            ..Completion::default()
        };
        self.rq.complete(host, completion);
        Ok(())
    }

    fn explain(&self, status: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match status {
            status::LOC_LEN_ERR => {
                let most = self.terms.mtu.bytes();
                write!(f, "a datagram has at most {most} bytes, active_mtu of the port")
            }
            status::LOC_PROT_ERR => f.write_str("its memory cannot be read"),
            status::LOC_QP_OP_ERR => f.write_str("only sends with an address handle can be posted"),
            _ => f.write_str("a fault was injected"),
        }
    }
}

crate::step::connection!(Ud, PacketLink);
