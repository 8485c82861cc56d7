// SPDX-License-Identifier: BSD-3-Clause
//! The base transport header, 12 bytes (IBTA 9.2; FECN and BECN: annex A17).

use super::bytes::{be16, be24, put16, put24};
use super::error::Malformed;
use super::opcode::Opcode;
use super::psn::Psn;

/// Bytes of the BTH.
pub const BTH_LEN: usize = 12;
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
const ACK_REQ: u8 = 0x80;
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
        out[4] = flag(FECN, self.fecn) | flag(BECN, self.becn) | (self.reserved_6 & CONGESTION_RESERVED);
        put24(&mut out, 5, self.dest_qp);
        out[8] = flag(ACK_REQ, self.ack_req) | (self.reserved_7 & ACK_RESERVED);
        put24(&mut out, 9, self.psn.get());
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
            fecn: bytes[4] & FECN != 0,
            becn: bytes[4] & BECN != 0,
            dest_qp: be24(bytes, 5),
            ack_req: bytes[8] & ACK_REQ != 0,
            psn: Psn::new(be24(bytes, 9)),
            reserved_6: bytes[4] & CONGESTION_RESERVED,
            reserved_7: bytes[8] & ACK_RESERVED,
        })
    }
}

/// Whether two P_Keys permit communication: the same partition, and at least one full member (IBTA 10.9).
#[inline]
pub fn is_same_partition(one: u16, other: u16) -> bool {
    (one ^ other) & !FULL_MEMBER == 0 && (one | other) & FULL_MEMBER != 0
}
