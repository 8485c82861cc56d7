// SPDX-License-Identifier: BSD-3-Clause
//! The base transport header, 12 bytes (IBTA 9.2; FECN and BECN: annex A17).

use super::bytes::{be16, be24, put16, put24};
use super::error::Malformed;
use super::opcode::Opcode;
use super::psn::Psn;

/// Bytes of the BTH.
pub const BTH_LEN: usize = 12;
/// Offset of FECN, BECN and 6 reserved bits, which routers change.
pub const CONGESTION_AT: usize = 4;
/// Offset of the destination queue pair number, 3 bytes.
pub const QPN_AT: usize = 5;
/// Offset of AckReq and 7 reserved bits.
pub const ACK_REQ_AT: usize = 8;
/// Offset of the PSN, the last 3 bytes.
pub const PSN_AT: usize = 9;
/// The P_Key of the default partition, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// The queue pair of the general services interface, which carries connection management.
pub const GSI_QP: u32 = 1;
/// The destination queue pair of multicast packets.
pub const MULTICAST_QP: u32 = 0xff_ffff;

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const PAD_MASK: u8 = 0x03;
const VERSION_MASK: u8 = 0x0f;
const VERSION: u8 = 0;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const CONGESTION_RESERVED: u8 = 0x3f;
/// AckReq, in the byte at [`ACK_REQ_AT`].
pub const ACK_REQ: u8 = 0x80;
const ACK_RESERVED: u8 = 0x7f;
const FULL_MEMBER: u16 = 0x8000;

/// The base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Service and operation.
    pub opcode: Opcode,
    /// SE, solicited event: only in the last packet of a message that consumes a receive.
    pub solicited: bool,
    /// M, MigReq: the path state is Migrated, as it is without automatic path migration. rxe sends 0.
    pub migrated: bool,
    /// Bytes of pad after the payload, 0..=3; see [`pad_len`](super::pad_len).
    pub pad: u8,
    /// The partition; see [`is_same_partition`].
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification, set in a CNP.
    pub becn: bool,
    /// The destination queue pair, 24 bits.
    pub dest_qp: u32,
    /// A, AckReq: the responder must acknowledge.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
    /// The 6 reserved bits beside FECN and BECN. Sent as 0, ignored; not covered by the ICRC.
    pub reserved_6: u8,
    /// The 7 reserved bits beside AckReq. Sent as 0, ignored; covered by the ICRC.
    pub reserved_7: u8,
}

/// The PSN of a packet, without parsing the rest; `None` if it is too short.
#[inline]
pub fn psn_of(packet: &[u8]) -> Option<Psn> {
    packet.first_chunk::<BTH_LEN>().map(|bth| Psn::new(be24(bth, PSN_AT)))
}

impl Bth {
    /// A header with MigReq, the default P_Key, and all other fields 0.
    #[inline]
    pub fn new(opcode: Opcode, dest_qp: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
            reserved_6: 0,
            reserved_7: 0,
        }
    }

    /// The header of a congestion notification packet (annex A17.9.3).
    pub fn cnp(dest_qp: u32) -> Self {
        Self { migrated: false, becn: true, ..Self::new(Opcode::Cnp, dest_qp, Psn::new(0)) }
    }

    /// Encodes the header. Bits that exceed the width of their field are dropped.
    #[inline]
    pub fn encode(&self) -> [u8; BTH_LEN] {
        let flag = |bit: u8, set: bool| if set { bit } else { 0 };
        let mut out = [0; BTH_LEN];
        out[0] = self.opcode.to_u8();
        out[1] = flag(SOLICITED, self.solicited)
            | flag(MIGRATED, self.migrated)
            | ((self.pad & PAD_MASK) << PAD_SHIFT)
            | VERSION;
        put16(&mut out, 2, self.pkey);
        out[CONGESTION_AT] =
            flag(FECN, self.fecn) | flag(BECN, self.becn) | (self.reserved_6 & CONGESTION_RESERVED);
        put24(&mut out, QPN_AT, self.dest_qp);
        out[ACK_REQ_AT] = flag(ACK_REQ, self.ack_req) | (self.reserved_7 & ACK_RESERVED);
        put24(&mut out, PSN_AT, self.psn.get());
        out
    }

    /// Decodes the header.
    ///
    /// # Errors
    ///
    /// [`Malformed::Version`], [`Malformed::Opcode`].
    #[inline]
    pub fn decode(bytes: &[u8; BTH_LEN]) -> Result<Self, Malformed> {
        let version = bytes[1] & VERSION_MASK;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        Ok(Self {
            opcode: Opcode::from_u8(bytes[0])?,
            solicited: bytes[1] & SOLICITED != 0,
            migrated: bytes[1] & MIGRATED != 0,
            pad: (bytes[1] >> PAD_SHIFT) & PAD_MASK,
            pkey: be16(bytes, 2),
            fecn: bytes[CONGESTION_AT] & FECN != 0,
            becn: bytes[CONGESTION_AT] & BECN != 0,
            dest_qp: be24(bytes, QPN_AT),
            ack_req: bytes[ACK_REQ_AT] & ACK_REQ != 0,
            psn: Psn::new(be24(bytes, PSN_AT)),
            reserved_6: bytes[CONGESTION_AT] & CONGESTION_RESERVED,
            reserved_7: bytes[ACK_REQ_AT] & ACK_RESERVED,
        })
    }
}

/// Whether two P_Keys permit communication: the same partition, and at least one full member (IBTA 10.9).
#[inline]
pub fn is_same_partition(one: u16, other: u16) -> bool {
    (one ^ other) & !FULL_MEMBER == 0 && (one | other) & FULL_MEMBER != 0
}
