// SPDX-License-Identifier: BSD-3-Clause
//! The messages that an exchange sends.

use super::super::terms::{
    Accept, CommId, Connect, REJECT_DATA_LEN, REPLY_DATA_LEN, REQUEST_DATA_LEN, Route, Settings,
};
use super::{Exchange, Rejection};
use crate::limits::CM_SERVICE_TIMEOUT;
use crate::roce::wire::cm::{
    Answered, CMA_HEADER_LEN, CmaHeader, Drep, Dreq, Message, Mra, Path, Reason, Rej, Rep, Req, Rtu,
};
use crate::roce::wire::gid;
use crate::units::Errno;

/// The private data of a REJ without any.
pub(super) const EMPTY: [u8; REJECT_DATA_LEN] = [0; REJECT_DATA_LEN];

const MAX_QPN: u32 = 0xff_ffff;
/// The largest retry count and RNR retry count, 3 bits.
const MAX_COUNT: u8 = 7;
/// The largest code of a timeout, 5 bits.
const MAX_CODE: u8 = 31;
/// The largest flow label, 20 bits.
const MAX_FLOW_LABEL: u32 = 0xf_ffff;

/// Private data, zero-filled. EINVAL: it is too long.
pub(in super::super) fn padded<const N: usize>(private_data: &[u8]) -> Result<[u8; N], Errno> {
    let mut out = [0; N];
    out.get_mut(..private_data.len()).ok_or(libc::EINVAL)?.copy_from_slice(private_data);
    Ok(out)
}

/// EINVAL: a field does not have room for a value.
fn valid(is_valid: bool) -> Result<(), Errno> {
    if is_valid { Ok(()) } else { Err(libc::EINVAL) }
}

/// EINVAL: not a number of 24 bits, or 0.
pub(in super::super) fn valid_qpn(qpn: u32) -> Result<(), Errno> {
    valid((1..=MAX_QPN).contains(&qpn))
}

pub(super) fn req(id: CommId, settings: &Settings, route: Route, call: &Connect<'_>) -> Result<Req, Errno> {
    let timing = settings.timing;
    valid_qpn(call.qpn)?;
    valid(call.flow_label <= MAX_FLOW_LABEL && call.ack_timeout <= MAX_CODE)?;
    valid(call.retry_count <= MAX_COUNT)?;
    valid(call.rnr_retry_count <= MAX_COUNT)?;
    let header = CmaHeader { source_port: call.source_port, addresses: route.addresses()? };
    let mut private_data = [0; Req::PRIVATE_DATA_LEN];
    private_data[..CMA_HEADER_LEN].copy_from_slice(&header.encode());
    private_data[CMA_HEADER_LEN..].copy_from_slice(&padded::<REQUEST_DATA_LEN>(call.private_data)?);
    Ok(Req {
        local_comm_id: id.0,
        service_id: call.service,
        local_ca_guid: settings.ca_guid,
        local_qkey: 0,
        local_qpn: call.qpn,
        responder_resources: call.responder_resources,
        initiator_depth: call.initiator_depth,
        remote_response_timeout: timing.response_timeout,
        transport: call.transport,
        end_to_end_flow_control: false,
        starting_psn: call.starting_psn,
        local_response_timeout: timing.response_timeout,
        retry_count: call.retry_count,
        pkey: call.pkey,
        path_mtu: call.mtu.code(),
        rnr_retry_count: call.rnr_retry_count,
        max_cm_retries: timing.max_retries,
        srq: call.srq,
        extended_transport: 0,
        primary: Path {
            local_lid: Path::PERMISSIVE_LID,
            remote_lid: Path::PERMISSIVE_LID,
            local_gid: gid(route.local),
            remote_gid: gid(route.remote),
            flow_label: call.flow_label,
            rate: 0,
            traffic_class: call.traffic_class,
            hop_limit: call.hop_limit,
            sl: 0,
            subnet_local: false,
            ack_timeout: call.ack_timeout,
        },
        alternate: Path::default(),
        private_data,
    })
}

pub(super) fn rep(exchange: &Exchange, call: &Accept<'_>) -> Result<Rep, Errno> {
    valid_qpn(call.qpn)?;
    valid(call.rnr_retry_count <= MAX_COUNT)?;
    valid(call.target_ack_delay <= MAX_CODE)?;
    Ok(Rep {
        local_comm_id: exchange.id.0,
        remote_comm_id: exchange.peer.comm_id,
        local_qkey: 0,
        local_qpn: call.qpn,
        starting_psn: call.starting_psn,
        responder_resources: call.responder_resources,
        initiator_depth: call.initiator_depth,
        target_ack_delay: call.target_ack_delay,
        failover_accepted: 0,
        end_to_end_flow_control: false,
        rnr_retry_count: call.rnr_retry_count,
        srq: call.srq,
        local_ca_guid: exchange.ca_guid,
        private_data: padded::<REPLY_DATA_LEN>(call.private_data)?,
    })
}

pub(super) fn rtu(exchange: &Exchange, private_data: &[u8]) -> Result<Rtu, Errno> {
    Ok(Rtu {
        local_comm_id: exchange.id.0,
        remote_comm_id: exchange.peer.comm_id,
        private_data: padded(private_data)?,
    })
}

pub(super) fn mra(exchange: &Exchange, answered: Answered) -> Message {
    Message::Mra(Mra {
        local_comm_id: exchange.id.0,
        remote_comm_id: exchange.peer.comm_id,
        answered,
        service_timeout: CM_SERVICE_TIMEOUT,
        private_data: [0; Mra::PRIVATE_DATA_LEN],
    })
}

/// A REJ. One for a timeout has the GUID of this side: the peer finds the request by it, since it may not
/// have sent its own communication id.
pub(super) fn rej(
    exchange: &Exchange,
    rejection: &Rejection,
    answered: Answered,
    remote_comm_id: u32,
) -> Message {
    let mut rej = Rej {
        local_comm_id: exchange.id.0,
        remote_comm_id,
        answered,
        info_len: 0,
        reason: rejection.reason,
        info: [0; Rej::INFO_LEN],
        private_data: *rejection.private_data,
    };
    if rejection.reason == Reason::TIMEOUT {
        let guid = exchange.ca_guid.to_be_bytes();
        rej.info_len = guid.len() as u8;
        rej.info[..guid.len()].copy_from_slice(&guid);
    }
    Message::Rej(rej)
}

pub(super) fn dreq(exchange: &Exchange, private_data: [u8; Dreq::PRIVATE_DATA_LEN]) -> Message {
    Message::Dreq(Dreq {
        local_comm_id: exchange.id.0,
        remote_comm_id: exchange.peer.comm_id,
        remote_qpn: exchange.peer.qpn,
        private_data,
    })
}

pub(super) fn drep(exchange: &Exchange) -> Message {
    Message::Drep(Drep {
        local_comm_id: exchange.id.0,
        remote_comm_id: exchange.peer.comm_id,
        private_data: [0; Drep::PRIVATE_DATA_LEN],
    })
}
