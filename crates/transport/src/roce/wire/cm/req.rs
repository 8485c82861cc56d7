// SPDX-License-Identifier: BSD-3-Clause
//! REQ, the request for a connection (IBTA 12.6.5).

use super::super::bytes::{be16, be24, be32, be64, put16, put24, put32, put64};
use super::super::psn::Psn;
use super::{BODY_LEN, ServiceId, Transport, array, put};

/// Request for communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Req {
    /// The communication id that the active side has chosen.
    pub local_comm_id: u32,
    /// What the request is for.
    pub service_id: ServiceId,
    /// The GUID of the active side's adapter.
    pub local_ca_guid: u64,
    /// Q_Key; 0 for RC.
    pub local_qkey: u32,
    /// The queue pair of the active side, 24 bits.
    pub local_qpn: u32,
    /// Reads and atomics that the active side accepts at a time.
    pub responder_resources: u8,
    /// Reads and atomics that the active side may have outstanding.
    pub initiator_depth: u8,
    /// Time within which the passive side shall answer: 4.096 us * 2^n, 5 bits.
    pub remote_response_timeout: u8,
    /// The transport service.
    pub transport: Transport,
    /// The active side implements end-to-end flow control.
    pub end_to_end_flow_control: bool,
    /// The PSN with which the passive side starts.
    pub starting_psn: Psn,
    /// Time within which the active side answers: 4.096 us * 2^n, 5 bits.
    pub local_response_timeout: u8,
    /// Retry count of the connection, 3 bits.
    pub retry_count: u8,
    /// The partition.
    pub pkey: u16,
    /// The path MTU as [`PathMtu::code`](super::super::PathMtu::code), 4 bits.
    pub path_mtu: u8,
    /// RNR retry count, 3 bits; 7: infinite.
    pub rnr_retry_count: u8,
    /// How often messages of connection management are repeated, 4 bits.
    pub max_cm_retries: u8,
    /// The queue pair has a shared receive queue.
    pub srq: bool,
    /// The service if `transport` is [`Transport::Extended`], 3 bits.
    pub extended_transport: u8,
    /// The path.
    pub primary: Path,
    /// The alternate path; all fields 0 if there is none.
    pub alternate: Path,
    /// Private data, zero-filled; see [`CmaHeader`](super::CmaHeader).
    pub private_data: [u8; Self::PRIVATE_DATA_LEN],
}

impl Req {
    /// Bytes of private data, those of rdma_cm included.
    pub const PRIVATE_DATA_LEN: usize = 92;

    pub(super) fn encode(&self) -> [u8; BODY_LEN] {
        let mut out = [0; BODY_LEN];
        put32(&mut out, 0, self.local_comm_id);
        put64(&mut out, 8, self.service_id.0);
        put64(&mut out, 16, self.local_ca_guid);
        put32(&mut out, 28, self.local_qkey);
        put24(&mut out, 32, self.local_qpn);
        out[35] = self.responder_resources;
        out[39] = self.initiator_depth;
        out[43] = (self.remote_response_timeout << 3)
            | ((self.transport as u8) << 1)
            | u8::from(self.end_to_end_flow_control);
        put24(&mut out, 44, self.starting_psn.get());
        out[47] = (self.local_response_timeout << 3) | (self.retry_count & 0x07);
        put16(&mut out, 48, self.pkey);
        out[50] = (self.path_mtu << 4) | (self.rnr_retry_count & 0x07);
        out[51] = (self.max_cm_retries << 4) | (u8::from(self.srq) << 3) | (self.extended_transport & 0x07);
        put(&mut out, 52, &self.primary.encode());
        put(&mut out, 96, &self.alternate.encode());
        put(&mut out, 140, &self.private_data);
        out
    }

    pub(super) fn decode(body: &[u8; BODY_LEN]) -> Self {
        Self {
            local_comm_id: be32(body, 0),
            service_id: ServiceId(be64(body, 8)),
            local_ca_guid: be64(body, 16),
            local_qkey: be32(body, 28),
            local_qpn: be24(body, 32),
            responder_resources: body[35],
            initiator_depth: body[39],
            remote_response_timeout: body[43] >> 3,
            transport: Transport::from_bits(body[43] >> 1),
            end_to_end_flow_control: body[43] & 1 != 0,
            starting_psn: Psn::new(be24(body, 44)),
            local_response_timeout: body[47] >> 3,
            retry_count: body[47] & 0x07,
            pkey: be16(body, 48),
            path_mtu: body[50] >> 4,
            rnr_retry_count: body[50] & 0x07,
            max_cm_retries: body[51] >> 4,
            srq: body[51] & 0x08 != 0,
            extended_transport: body[51] & 0x07,
            primary: Path::decode(&array(body, 52)),
            alternate: Path::decode(&array(body, 96)),
            private_data: array(body, 140),
        }
    }
}

/// A path, from the active side's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// LID; [`Path::PERMISSIVE_LID`] on Ethernet.
    pub local_lid: u16,
    /// LID; [`Path::PERMISSIVE_LID`] on Ethernet.
    pub remote_lid: u16,
    /// The GID of the active side.
    pub local_gid: [u8; 16],
    /// The GID of the passive side.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate, 6 bits; 0 is the rate of the port.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Both sides are in one subnet.
    pub subnet_local: bool,
    /// Local ACK timeout: 4.096 us * 2^n, 5 bits.
    pub ack_timeout: u8,
}

impl Path {
    /// The LID of a path on Ethernet.
    pub const PERMISSIVE_LID: u16 = 0xffff;

    const LEN: usize = 44;

    fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put16(&mut out, 0, self.local_lid);
        put16(&mut out, 2, self.remote_lid);
        put(&mut out, 4, &self.local_gid);
        put(&mut out, 20, &self.remote_gid);
        put32(&mut out, 36, (self.flow_label << 12) | u32::from(self.rate & 0x3f));
        out[40] = self.traffic_class;
        out[41] = self.hop_limit;
        out[42] = (self.sl << 4) | (u8::from(self.subnet_local) << 3);
        out[43] = self.ack_timeout << 3;
        out
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            local_lid: be16(bytes, 0),
            remote_lid: be16(bytes, 2),
            local_gid: array(bytes, 4),
            remote_gid: array(bytes, 20),
            flow_label: be32(bytes, 36) >> 12,
            rate: bytes[39] & 0x3f,
            traffic_class: bytes[40],
            hop_limit: bytes[41],
            sl: bytes[42] >> 4,
            subnet_local: bytes[42] & 0x08 != 0,
            ack_timeout: bytes[43] >> 3,
        }
    }
}
