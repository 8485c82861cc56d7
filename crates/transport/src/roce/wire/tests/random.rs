// SPDX-License-Identifier: BSD-3-Clause
//! Random packets: the same in every run.

use super::super::{
    Aeth, AtomicEth, Bth, Deth, Extension, Feth, Opcode, Operation, Psn, Reth, Selectivity, Syndrome, pad_len,
};

/// xorshift64*.
pub(in crate::roce) struct Random(pub(in crate::roce) u64);

impl Random {
    pub(in crate::roce) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(in crate::roce) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    /// A number of this many bits, often one of the largest or smallest.
    pub(in crate::roce) fn bits(&mut self, bits: u32) -> u64 {
        let mask = u64::MAX >> (64 - bits);
        let value = match self.below(4) {
            0 => self.below(3) as u64,
            1 => !(self.below(3) as u64),
            _ => self.next() >> (64 - bits),
        };
        value & mask
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(in crate::roce) fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    pub(in crate::roce) fn flag(&mut self) -> bool {
        self.next() >> 63 != 0
    }

    fn reth(&mut self) -> Reth {
        Reth { va: self.bits(64), rkey: self.bits(32) as u32, len: self.bits(32) as u32 }
    }

    fn aeth(&mut self) -> Aeth {
        Aeth { syndrome: Syndrome::from_u8(self.bits(8) as u8), msn: self.bits(24) as u32 }
    }

    fn deth(&mut self) -> Deth {
        Deth { qkey: self.bits(32) as u32, source_qp: self.bits(24) as u32 }
    }

    fn feth(&mut self) -> Feth {
        let selectivity = match self.below(4) {
            0 => Selectivity::Range,
            1 => Selectivity::Region,
            reserved => Selectivity::Reserved(reserved as u8),
        };
        Feth { placement: self.bits(4) as u8, selectivity }
    }

    fn extension(&mut self, opcode: Opcode) -> Extension {
        use Operation as Op;
        match (opcode, opcode.operation()) {
            (Opcode::Cnp, _) | (_, None) => Extension::Cnp(self.array()),
            (Opcode::Ud(_), Some(Op::SendOnly)) => Extension::Deth(self.deth()),
            (Opcode::Ud(_), Some(_)) => Extension::DethImm(self.deth(), self.array()),
            (_, Some(operation)) => match operation {
                Op::WriteFirst | Op::WriteOnly | Op::ReadRequest | Op::AtomicWrite => {
                    Extension::Reth(self.reth())
                }
                Op::WriteOnlyImm => Extension::RethImm(self.reth(), self.array()),
                Op::SendLastImm | Op::SendOnlyImm | Op::WriteLastImm => Extension::Imm(self.array()),
                Op::SendLastInv | Op::SendOnlyInv => Extension::Ieth(self.bits(32) as u32),
                Op::ReadFirst | Op::ReadLast | Op::ReadOnly | Op::Acknowledge => Extension::Aeth(self.aeth()),
                Op::AtomicAcknowledge => Extension::AtomicAck(self.aeth(), self.bits(64)),
                Op::CompareSwap | Op::FetchAdd => Extension::Atomic(AtomicEth {
                    va: self.bits(64),
                    rkey: self.bits(32) as u32,
                    swap_add: self.bits(64),
                    compare: self.bits(64),
                }),
                Op::Flush => Extension::Flush(self.feth(), self.reth()),
                _ => Extension::None,
            },
        }
    }

    /// A packet of this opcode; all fields are random.
    pub(super) fn packet(&mut self, opcode: Opcode) -> (Bth, Extension, Vec<u8>) {
        let has_payload = opcode.operation().is_some_and(Operation::has_payload);
        let len = if has_payload { self.below(70) } else { 0 };
        let bth = Bth {
            opcode,
            solicited: self.flag(),
            migrated: self.flag(),
            pad: pad_len(len),
            pkey: self.bits(16) as u16,
            fecn: self.flag(),
            becn: self.flag(),
            dest_qp: self.bits(24) as u32,
            ack_req: self.flag(),
            psn: Psn::new(self.bits(24) as u32),
            reserved_6: self.bits(6) as u8,
            reserved_7: self.bits(7) as u8,
        };
        (bth, self.extension(opcode), self.bytes(len))
    }
}

/// All opcodes that are parsed.
pub(super) fn opcodes() -> Vec<Opcode> {
    (0..=255).filter_map(|number| Opcode::from_u8(number).ok()).collect()
}
