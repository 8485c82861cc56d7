// SPDX-License-Identifier: BSD-3-Clause
//! The peer: segments that are in order, unless the input wants one byte of them to be another.

use crate::iwarp::wire::codes::{QN_ATOMIC_RESPONSE, QN_REQUEST, QN_SEND, QN_TERMINATE};
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use crate::iwarp::wire::stream;

use super::input::Input;
use super::memory::Table;
use super::world::{Fuzzed, Requested};

pub(super) struct Peer {
    crc: bool,
    send_msn: u32,
    mo: u32,
    read_msn: u32,
    atomic_response_msn: u32,
    /// Bytes of the response to the oldest read that were sent.
    answered: u32,
}

impl Peer {
    pub(super) fn new(crc: bool) -> Self {
        Self { crc, send_msn: 1, mo: 0, read_msn: 1, atomic_response_msn: 1, answered: 0 }
    }

    /// The next FPDU.
    pub(super) fn bytes(&mut self, input: &mut Input<'_>, world: &mut Fuzzed<impl Table>) -> Vec<u8> {
        let [what, region, at, len] = input.bytes();
        let len = usize::from(len) * if what & 8 != 0 { 2 } else { 1 };
        let last = what & 16 == 0;
        let (key, addr) = world.memory.place(region, at);
        let body = vec![what; len];
        let (header, body) = match what % 8 {
            0 | 1 => (Header::Tagged { opcode: Opcode::Write, last, stag: key, to: addr }, body),
            2 | 3 => self.send(region, last, body),
            4 if what & 32 != 0 => {
                // Masks, and operations that there are not.
                let request = AtomicRequest {
                    operation: if region & 0x80 != 0 { at & 3 } else { at & 2 },
                    request_id: u32::from(len as u8),
                    stag: key,
                    to: if len & 1 == 0 { addr & !7 } else { addr },
                    data: 0x0101_0101_0101_0101u64.wrapping_mul(u64::from(what)),
                    data_mask: if len & 2 == 0 { 0 } else { u64::MAX << (len & 63) },
                    compare: 0,
                    compare_mask: if len & 4 == 0 { 0 } else { 1 << (len & 63) },
                };
                self.read_msn = self.read_msn.wrapping_add(1);
                let msn = self.read_msn.wrapping_sub(1);
                (untagged(Opcode::AtomicRequest, true, QN_REQUEST, msn, 0), request.encode().to_vec())
            }
            4 => {
                let size = if region & 0x80 != 0 { u32::MAX } else { len as u32 };
                let request = ReadRequest {
                    sink_stag: 0x700,
                    sink_to: u64::MAX - 100,
                    size,
                    src_stag: key,
                    src_to: addr,
                };
                self.read_msn = self.read_msn.wrapping_add(1);
                let msn = self.read_msn.wrapping_sub(1);
                (untagged(Opcode::ReadRequest, true, QN_REQUEST, msn, 0), request.encode().to_vec())
            }
            5 => self.response(world, len),
            6 => {
                let opcode = if region & 1 != 0 { Opcode::Immediate } else { Opcode::ImmediateSe };
                let of_send = if region & 2 != 0 { *b"Send" } else { [0; 4] };
                let msn = self.next_message();
                (untagged(opcode, true, QN_SEND, msn, 0), [*b"imme", of_send].concat())
            }
            _ if region & 0xc0 == 0xc0 => {
                let body = input.take(usize::from(at & 63)).to_vec();
                (untagged(Opcode::Terminate, true, QN_TERMINATE, 1, 0), body)
            }
            _ => (Header::Tagged { opcode: Opcode::Write, last: true, stag: 1, to: 0 }, Vec::new()),
        };
        let mut bytes = vec![0; stream::fpdu_len(header.len() + body.len())];
        stream::encode_fpdu(&header, &body, self.crc, &mut bytes);
        if what & 0xc0 == 0xc0 {
            let [at, with] = input.bytes();
            let end = bytes.len() - 4;
            bytes[usize::from(at) % end] ^= with;
            if self.crc && what & 32 != 0 {
                let sum = stream::fpdu_crc([&bytes[..end]]);
                bytes[end..].copy_from_slice(&sum.to_le_bytes());
            }
        }
        bytes
    }

    fn next_message(&mut self) -> u32 {
        self.mo = 0;
        self.send_msn = self.send_msn.wrapping_add(1);
        self.send_msn.wrapping_sub(1)
    }

    fn send(&mut self, which: u8, last: bool, body: Vec<u8>) -> (Header, Vec<u8>) {
        let opcode = match which % 16 {
            0 => Opcode::SendInv,
            1 => Opcode::SendSeInv,
            2..=5 => Opcode::SendSe,
            _ => Opcode::Send,
        };
        let mo = self.mo;
        let msn = if last {
            self.next_message()
        } else {
            self.mo += body.len() as u32;
            self.send_msn
        };
        (untagged(opcode, last, QN_SEND, msn, mo), body)
    }

    /// A segment of the response to the oldest request that has arrived; if there is none, to no request.
    fn response(&mut self, world: &mut Fuzzed<impl Table>, len: usize) -> (Header, Vec<u8>) {
        let read = match world.requested.front().copied() {
            Some(Requested::Read(read)) => read,
            Some(Requested::Atomic(request)) => {
                world.requested.pop_front();
                return self.atomic_response(request.request_id);
            }
            None if len & 1 == 0 => return self.atomic_response(9),
            None => {
                let header = Header::Tagged { opcode: Opcode::ReadResponse, last: true, stag: 9, to: 0 };
                return (header, vec![3; len]);
            }
        };
        let left = read.size - self.answered;
        let n = left.min(len as u32);
        let to = read.sink_to.wrapping_add(u64::from(self.answered));
        self.answered += n;
        let last = n == left;
        if last {
            world.requested.pop_front();
            self.answered = 0;
        }
        let header = Header::Tagged { opcode: Opcode::ReadResponse, last, stag: read.sink_stag, to };
        (header, vec![0xee; n as usize])
    }

    fn atomic_response(&mut self, request_id: u32) -> (Header, Vec<u8>) {
        let msn = self.atomic_response_msn;
        self.atomic_response_msn = msn.wrapping_add(1);
        let body = AtomicResponse { request_id, original: 0x1122_3344_5566_7788 }.encode();
        (untagged(Opcode::AtomicResponse, true, QN_ATOMIC_RESPONSE, msn, 0), body.to_vec())
    }
}

fn untagged(opcode: Opcode, last: bool, qn: u32, msn: u32, mo: u32) -> Header {
    Header::Untagged { opcode, last, inv_stag: 0, qn, msn, mo }
}
