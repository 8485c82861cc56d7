// SPDX-License-Identifier: BSD-3-Clause
//! The extension headers between the BTH and the payload (IBTA 9.3, A17.9.3, A19).

use super::bytes::{be24, be32, be64, put24, put32, put64};
use super::opcode::{Opcode, Operation};
use super::syndrome::Syndrome;
use crate::access::{FLUSH_GLOBAL, FLUSH_PERSISTENT};

/// Bytes of the longest extension headers, AtomicETH.
pub(super) const MAX_EXTENSION_LEN: usize = AtomicEth::LEN;

const IMM_LEN: usize = 4;
const IETH_LEN: usize = 4;
const CNP_LEN: usize = 16;

/// RDMA extended transport header: the remote memory of a READ, WRITE, FLUSH or ATOMIC WRITE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// The remote virtual address.
    pub va: u64,
    /// The key of the remote region.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits: the number of requests that the responder has completed.
    pub msn: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// The remote virtual address.
    pub va: u64,
    /// The key of the remote region.
    pub rkey: u32,
    /// The value to store (CmpSwap) or to add (FetchAdd).
    pub swap_add: u64,
    /// The value to compare with; 0 for FetchAdd.
    pub compare: u64,
}

/// Datagram extended transport header. Its reserved byte is sent as 0 and ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The Q_Key of the destination queue pair.
    pub qkey: u32,
    /// The queue pair of the sender, 24 bits.
    pub source_qp: u32,
}

/// FLUSH extended transport header (annex A19). Its reserved bits are sent as 0 and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    /// The placement type, 4 bits: [`Feth::GLOBAL_VISIBILITY`], [`Feth::PERSISTENCE`] or both. The other bits
    /// are reserved.
    pub placement: u8,
    /// What to flush.
    pub selectivity: Selectivity,
}

/// What a FLUSH covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selectivity {
    /// The range in the RETH.
    Range,
    /// The whole region; address and length in the RETH are ignored.
    Region,
    /// A reserved value, 2 or 3.
    Reserved(u8),
}

/// The extension headers of a packet. Which ones there are follows from its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// SEND and WRITE packets without other headers, the middle packets of a READ response.
    None,
    /// First or only packet of a WRITE, READ request, ATOMIC WRITE.
    Reth(Reth),
    /// WRITE only with immediate data.
    RethImm(Reth, [u8; IMM_LEN]),
    /// Immediate data, opaque to the transport (ImmDt).
    Imm([u8; IMM_LEN]),
    /// The key that a SEND invalidates (IETH).
    Ieth(u32),
    /// ACK, RNR NAK, NAK, and READ response packets except the middle ones.
    Aeth(Aeth),
    /// CmpSwap, FetchAdd.
    Atomic(AtomicEth),
    /// The response to an atomic operation, with the original value (AtomicAckETH).
    AtomicAck(Aeth, u64),
    /// FLUSH.
    Flush(Feth, Reth),
    /// UD SEND.
    Deth(Deth),
    /// UD SEND with immediate data.
    DethImm(Deth, [u8; IMM_LEN]),
    /// The reserved bytes of a CNP.
    Cnp([u8; CNP_LEN]),
}

impl Extension {
    /// Decodes the extension headers of `opcode` at the start of `bytes`, and returns them with what follows;
    /// `None` if they are not complete.
    #[inline]
    pub(super) fn decode(opcode: Opcode, bytes: &[u8]) -> Option<(Self, &[u8])> {
        use Operation::{
            Acknowledge, AtomicAcknowledge, AtomicWrite, CompareSwap, FetchAdd, Flush, ReadFirst, ReadLast,
            ReadMiddle, ReadOnly, ReadRequest, SendFirst, SendLast, SendLastImm, SendLastInv, SendMiddle,
            SendOnly, SendOnlyImm, SendOnlyInv, WriteFirst, WriteLast, WriteLastImm, WriteMiddle, WriteOnly,
            WriteOnlyImm,
        };
        let operation = match opcode {
            Opcode::Rc(operation) | Opcode::Uc(operation) => operation,
            Opcode::Ud(operation) => {
                let (deth, rest) = take(bytes)?;
                let deth = Deth::decode(deth);
                if operation.has_immediate() {
                    let (imm, rest) = take(rest)?;
                    return Some((Self::DethImm(deth, *imm), rest));
                }
                return Some((Self::Deth(deth), rest));
            }
            Opcode::Cnp => return take(bytes).map(|(reserved, rest)| (Self::Cnp(*reserved), rest)),
        };
        Some(match operation {
            SendFirst | SendMiddle | SendLast | SendOnly | WriteMiddle | WriteLast | ReadMiddle => {
                (Self::None, bytes)
            }
            WriteFirst | WriteOnly | ReadRequest | AtomicWrite => {
                let (reth, rest) = take(bytes)?;
                (Self::Reth(Reth::decode(reth)), rest)
            }
            WriteOnlyImm => {
                let (reth, rest) = take(bytes)?;
                let (imm, rest) = take(rest)?;
                (Self::RethImm(Reth::decode(reth), *imm), rest)
            }
            SendLastImm | SendOnlyImm | WriteLastImm => {
                let (imm, rest) = take(bytes)?;
                (Self::Imm(*imm), rest)
            }
            SendLastInv | SendOnlyInv => {
                let (rkey, rest) = take::<IETH_LEN>(bytes)?;
                (Self::Ieth(u32::from_be_bytes(*rkey)), rest)
            }
            ReadFirst | ReadLast | ReadOnly | Acknowledge => {
                let (aeth, rest) = take(bytes)?;
                (Self::Aeth(Aeth::decode(aeth)), rest)
            }
            AtomicAcknowledge => {
                let (aeth, rest) = take(bytes)?;
                let (original, rest) = take(rest)?;
                (Self::AtomicAck(Aeth::decode(aeth), u64::from_be_bytes(*original)), rest)
            }
            CompareSwap | FetchAdd => {
                let (atomic, rest) = take(bytes)?;
                (Self::Atomic(AtomicEth::decode(atomic)), rest)
            }
            Flush => {
                let (feth, rest) = take(bytes)?;
                let (reth, rest) = take(rest)?;
                (Self::Flush(Feth::decode(feth), Reth::decode(reth)), rest)
            }
        })
    }

    /// Writes the encoded headers to the front of `out` and returns their length.
    #[inline]
    pub(super) fn encode(&self, out: &mut [u8; MAX_EXTENSION_LEN]) -> usize {
        match self {
            Self::None => 0,
            Self::Reth(reth) => put(out, 0, &reth.encode()),
            Self::RethImm(reth, imm) => {
                let at = put(out, 0, &reth.encode());
                put(out, at, imm)
            }
            Self::Imm(imm) => put(out, 0, imm),
            Self::Ieth(rkey) => put(out, 0, &rkey.to_be_bytes()),
            Self::Aeth(aeth) => put(out, 0, &aeth.encode()),
            Self::Atomic(atomic) => put(out, 0, &atomic.encode()),
            Self::AtomicAck(aeth, original) => {
                let at = put(out, 0, &aeth.encode());
                put(out, at, &original.to_be_bytes())
            }
            Self::Flush(feth, reth) => {
                let at = put(out, 0, &feth.encode());
                put(out, at, &reth.encode())
            }
            Self::Deth(deth) => put(out, 0, &deth.encode()),
            Self::DethImm(deth, imm) => {
                let at = put(out, 0, &deth.encode());
                put(out, at, imm)
            }
            Self::Cnp(reserved) => put(out, 0, reserved),
        }
    }
}

/// The first `N` bytes, and the rest.
#[inline]
fn take<const N: usize>(bytes: &[u8]) -> Option<(&[u8; N], &[u8])> {
    bytes.split_first_chunk()
}

/// Copies a header to an offset and returns where it ends.
#[inline]
fn put<const N: usize>(out: &mut [u8; MAX_EXTENSION_LEN], at: usize, header: &[u8; N]) -> usize {
    out[at..at + N].copy_from_slice(header);
    at + N
}

impl Reth {
    const LEN: usize = 16;

    #[inline]
    fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put64(&mut out, 0, self.va);
        put32(&mut out, 8, self.rkey);
        put32(&mut out, 12, self.len);
        out
    }

    #[inline]
    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self { va: be64(bytes, 0), rkey: be32(bytes, 8), len: be32(bytes, 12) }
    }
}

impl Aeth {
    const LEN: usize = 4;

    #[inline]
    fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [self.syndrome.to_u8(), 0, 0, 0];
        put24(&mut out, 1, self.msn);
        out
    }

    #[inline]
    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self { syndrome: Syndrome::from_u8(bytes[0]), msn: be24(bytes, 1) }
    }
}

impl AtomicEth {
    const LEN: usize = 28;

    #[inline]
    fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put64(&mut out, 0, self.va);
        put32(&mut out, 8, self.rkey);
        put64(&mut out, 12, self.swap_add);
        put64(&mut out, 20, self.compare);
        out
    }

    #[inline]
    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self { va: be64(bytes, 0), rkey: be32(bytes, 8), swap_add: be64(bytes, 12), compare: be64(bytes, 20) }
    }
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    #[inline]
    fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put32(&mut out, 0, self.qkey);
        put24(&mut out, 5, self.source_qp);
        out
    }

    #[inline]
    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self { qkey: be32(bytes, 0), source_qp: be24(bytes, 5) }
    }
}

impl Feth {
    /// Placement: writes before it are visible to all that access the memory.
    pub const GLOBAL_VISIBILITY: u8 = 1;
    /// Placement: writes before it survive a power failure.
    pub const PERSISTENCE: u8 = 2;

    /// The rights that a placement type requires; reserved bits require none.
    pub fn rights_of(placement: u8) -> u32 {
        let right = |bit, right| if placement & bit != 0 { right } else { 0 };
        right(Self::GLOBAL_VISIBILITY, FLUSH_GLOBAL) | right(Self::PERSISTENCE, FLUSH_PERSISTENT)
    }

    /// The placement type that requires these rights.
    pub fn placement_of(rights: u32) -> u8 {
        let bit = |right, bit| if rights & right != 0 { bit } else { 0 };
        bit(FLUSH_GLOBAL, Self::GLOBAL_VISIBILITY) | bit(FLUSH_PERSISTENT, Self::PERSISTENCE)
    }

    const LEN: usize = 4;
    const PLACEMENT_MASK: u8 = 0x0f;
    const SELECTIVITY_SHIFT: u32 = 4;
    const SELECTIVITY_MASK: u8 = 0x03;

    #[inline]
    fn encode(&self) -> [u8; Self::LEN] {
        let selectivity = match self.selectivity {
            Selectivity::Range => 0,
            Selectivity::Region => 1,
            Selectivity::Reserved(value) => value & Self::SELECTIVITY_MASK,
        };
        [0, 0, 0, (selectivity << Self::SELECTIVITY_SHIFT) | (self.placement & Self::PLACEMENT_MASK)]
    }

    #[inline]
    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let selectivity = match (bytes[3] >> Self::SELECTIVITY_SHIFT) & Self::SELECTIVITY_MASK {
            0 => Selectivity::Range,
            1 => Selectivity::Region,
            value => Selectivity::Reserved(value),
        };
        Self { placement: bytes[3] & Self::PLACEMENT_MASK, selectivity }
    }
}
