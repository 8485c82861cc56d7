// SPDX-License-Identifier: BSD-3-Clause
//! The messages of connection management other than REQ (IBTA 12.6.6 to 12.6.11, 12.11).

use super::super::bytes::{be16, be24, be32, be64, put16, put24, put32, put64};
use super::super::error::Malformed;
use super::super::psn::Psn;
use super::{Answered, BODY_LEN, Reason, Req, ServiceId, SidrStatus, array, put};

const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

/// A message of connection management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgement: the answer takes longer.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply to a request for communication.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Disconnection request.
    Dreq(Dreq),
    /// Disconnection reply.
    Drep(Drep),
    /// Service id resolution request: the queue pair of a datagram service.
    SidrReq(SidrReq),
    /// Service id resolution reply.
    SidrRep(SidrRep),
}

impl Message {
    /// The name that the specification gives the message.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }

    pub(super) fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => REQ,
            Self::Mra(_) => MRA,
            Self::Rej(_) => REJ,
            Self::Rep(_) => REP,
            Self::Rtu(_) => RTU,
            Self::Dreq(_) => DREQ,
            Self::Drep(_) => DREP,
            Self::SidrReq(_) => SIDR_REQ,
            Self::SidrRep(_) => SIDR_REP,
        }
    }

    pub(super) fn encode(&self) -> [u8; BODY_LEN] {
        match self {
            Self::Req(req) => req.encode(),
            Self::Mra(mra) => mra.encode(),
            Self::Rej(rej) => rej.encode(),
            Self::Rep(rep) => rep.encode(),
            Self::Rtu(rtu) => rtu.encode(),
            Self::Dreq(dreq) => dreq.encode(),
            Self::Drep(drep) => drep.encode(),
            Self::SidrReq(req) => req.encode(),
            Self::SidrRep(rep) => rep.encode(),
        }
    }

    pub(super) fn decode(attribute: u16, body: &[u8; BODY_LEN]) -> Result<Self, Malformed> {
        Ok(match attribute {
            REQ => Self::Req(Req::decode(body)),
            MRA => Self::Mra(Mra::decode(body)),
            REJ => Self::Rej(Rej::decode(body)),
            REP => Self::Rep(Rep::decode(body)),
            RTU => Self::Rtu(Rtu::decode(body)),
            DREQ => Self::Dreq(Dreq::decode(body)),
            DREP => Self::Drep(Drep::decode(body)),
            SIDR_REQ => Self::SidrReq(SidrReq::decode(body)),
            SIDR_REP => Self::SidrRep(SidrRep::decode(body)),
            _ => return Err(Malformed::MadAttribute(attribute)),
        })
    }
}

/// Message receipt acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The communication id of the sender.
    pub local_comm_id: u32,
    /// The communication id of the receiver.
    pub remote_comm_id: u32,
    /// The message that was received.
    pub answered: Answered,
    /// Time until the answer: 4.096 us * 2^n, 5 bits.
    pub service_timeout: u8,
    /// Private data, zero-filled.
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE_DATA_LEN: usize = 222;

    fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.local_comm_id);
        put32(&mut out, 4, self.remote_comm_id);
        out[8] = (self.answered as u8) << 6;
        out[9] = self.service_timeout << 3;
        put(&mut out, 10, &self.private_data);
        out
    }

    fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            answered: Answered::from_bits(body[8] >> 6),
            service_timeout: body[9] >> 3,
            private_data: array(body, 10),
        }
    }
}

/// Reject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The communication id of the sender; 0 if it has none.
    pub local_comm_id: u32,
    /// The communication id of the receiver.
    pub remote_comm_id: u32,
    /// The message that is rejected.
    pub answered: Answered,
    /// Bytes of additional information, 7 bits.
    pub info_len: u8,
    /// Why.
    pub reason: Reason,
    /// Additional information, zero-filled.
    pub info: [u8; Self::INFO_LEN],
    /// Private data, zero-filled.
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl Rej {
    /// Bytes of private data.
    pub const PRIVATE_DATA_LEN: usize = 148;
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;

    fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.local_comm_id);
        put32(&mut out, 4, self.remote_comm_id);
        out[8] = (self.answered as u8) << 6;
        out[9] = self.info_len << 1;
        put16(&mut out, 10, self.reason.0);
        put(&mut out, 12, &self.info);
        put(&mut out, 84, &self.private_data);
        out
    }

    fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            answered: Answered::from_bits(body[8] >> 6),
            info_len: body[9] >> 1,
            reason: Reason(be16(body, 10)),
            info: array(body, 12),
            private_data: array(body, 84),
        }
    }
}

/// Reply to a request for communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The communication id that the passive side has chosen.
    pub local_comm_id: u32,
    /// The communication id of the active side.
    pub remote_comm_id: u32,
    /// Q_Key; 0 for RC.
    pub local_qkey: u32,
    /// The queue pair of the passive side, 24 bits.
    pub local_qpn: u32,
    /// The PSN with which the active side starts.
    pub starting_psn: Psn,
    /// Reads and atomics that the passive side accepts at a time.
    pub responder_resources: u8,
    /// Reads and atomics that the passive side may have outstanding.
    pub initiator_depth: u8,
    /// Time that the passive side needs for an acknowledgement: 4.096 us * 2^n, 5 bits.
    pub target_ack_delay: u8,
    /// Whether the alternate path was accepted, 2 bits; 0: yes, or there is none.
    pub failover_accepted: u8,
    /// The passive side implements end-to-end flow control.
    pub end_to_end_flow_control: bool,
    /// RNR retry count, 3 bits; 7 is without end.
    pub rnr_retry_count: u8,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// The GUID of the passive side's adapter.
    pub local_ca_guid: u64,
    /// Private data, zero-filled.
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE_DATA_LEN: usize = 196;

    fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.local_comm_id);
        put32(&mut out, 4, self.remote_comm_id);
        put32(&mut out, 8, self.local_qkey);
        put24(&mut out, 12, self.local_qpn);
        put24(&mut out, 20, self.starting_psn.get());
        out[24] = self.responder_resources;
        out[25] = self.initiator_depth;
        out[26] = (self.target_ack_delay << 3)
            | ((self.failover_accepted & 0x03) << 1)
            | u8::from(self.end_to_end_flow_control);
        out[27] = (self.rnr_retry_count << 5) | (u8::from(self.srq) << 4);
        put64(&mut out, 28, self.local_ca_guid);
        put(&mut out, 36, &self.private_data);
        out
    }

    fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            local_qkey: be32(body, 8),
            local_qpn: be24(body, 12),
            starting_psn: Psn::new(be24(body, 20)),
            responder_resources: body[24],
            initiator_depth: body[25],
            target_ack_delay: body[26] >> 3,
            failover_accepted: (body[26] >> 1) & 0x03,
            end_to_end_flow_control: body[26] & 1 != 0,
            rnr_retry_count: body[27] >> 5,
            srq: body[27] & 0x10 != 0,
            local_ca_guid: be64(body, 28),
            private_data: array(body, 36),
        }
    }
}

macro_rules! acknowledgement {
    ($(#[doc = $doc:literal])+ $name:ident) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The communication id of the sender.
            pub local_comm_id: u32,
            /// The communication id of the receiver.
            pub remote_comm_id: u32,
            /// Private data, zero-filled.
            pub private_data: [u8; Self::PRIVATE_DATA_LEN],
        }

        impl $name {
            /// Bytes of private data.
            pub const PRIVATE_DATA_LEN: usize = 224;

            fn encode(&self) -> [u8; BODY_LEN] {
                let mut out = [0; BODY_LEN];
                put32(&mut out, 0, self.local_comm_id);
                put32(&mut out, 4, self.remote_comm_id);
                put(&mut out, 8, &self.private_data);
                out
            }

            fn decode(body: &[u8; BODY_LEN]) -> Self {
                Self {
                    local_comm_id: be32(body, 0),
                    remote_comm_id: be32(body, 4),
                    private_data: array(body, 8),
                }
            }
        }
    };
}

acknowledgement! {
    /// Ready to use.
    Rtu
}

acknowledgement! {
    /// Disconnection reply.
    Drep
}

/// Disconnection request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The communication id of the sender.
    pub local_comm_id: u32,
    /// The communication id of the receiver.
    pub remote_comm_id: u32,
    /// The queue pair of the receiver, 24 bits.
    pub remote_qpn: u32,
    /// Private data, zero-filled.
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE_DATA_LEN: usize = 220;

    fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.local_comm_id);
        put32(&mut out, 4, self.remote_comm_id);
        put24(&mut out, 8, self.remote_qpn);
        put(&mut out, 12, &self.private_data);
        out
    }

    fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            remote_qpn: be24(body, 8),
            private_data: array(body, 12),
        }
    }
}

/// Service id resolution request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// The request id that the active side has chosen.
    pub request_id: u32,
    /// The partition.
    pub pkey: u16,
    /// What the request is for.
    pub service_id: ServiceId,
    /// Private data, zero-filled; see [`CmaHeader`](super::CmaHeader).
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl SidrReq {
    /// Bytes of private data, those of rdma_cm included.
    pub const PRIVATE_DATA_LEN: usize = 216;

    fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.request_id);
        put16(&mut out, 4, self.pkey);
        put64(&mut out, 8, self.service_id.0);
        put(&mut out, 16, &self.private_data);
        out
    }

    fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            request_id: be32(body, 0),
            pkey: be16(body, 4),
            service_id: ServiceId(be64(body, 8)),
            private_data: array(body, 16),
        }
    }
}

/// Service id resolution reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The request id of the request.
    pub request_id: u32,
    /// Whether `qpn` and `qkey` are valid, or why not.
    pub status: SidrStatus,
    /// Bytes of additional information.
    pub info_len: u8,
    /// The queue pair of the service, 24 bits.
    pub qpn: u32,
    /// The service id of the request.
    pub service_id: ServiceId,
    /// The Q_Key of the queue pair.
    pub qkey: u32,
    /// Additional information, zero-filled.
    pub info: [u8; Self::INFO_LEN],
    /// Private data, zero-filled.
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl SidrRep {
    /// Bytes of private data.
    pub const PRIVATE_DATA_LEN: usize = 136;
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;

    fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.request_id);
        out[4] = self.status.0;
        out[5] = self.info_len;
        put24(&mut out, 8, self.qpn);
        put64(&mut out, 12, self.service_id.0);
        put32(&mut out, 20, self.qkey);
        put(&mut out, 24, &self.info);
        put(&mut out, 96, &self.private_data);
        out
    }

    fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            request_id: be32(body, 0),
            status: SidrStatus(body[4]),
            info_len: body[5],
            qpn: be24(body, 8),
            service_id: ServiceId(be64(body, 12)),
            qkey: be32(body, 20),
            info: array(body, 24),
            private_data: array(body, 96),
        }
    }
}
