// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs that rdma_cm connects: the attributes of each transition from what the two sides have agreed.
#![forbid(unsafe_code)]

use rdma_sys::{ibv_ah_attr, ibv_qp_attr, ibv_qp_state};

use super::ah::HOP_LIMIT;
use super::modify::{Connection, Modified, blank};
use super::transitions::*;
use super::{ThisHost, with_table};
use crate::cm::event::DatagramPath;
use crate::ffi::verbs::PORT as PORT_NUM;
use crate::qp::Kind;
use crate::sys::Errno;
use transport::roce::cm::{Route, Terms};
use transport::roce::wire::gid;

/// The attributes of a transition, and the mask that selects them.
pub(crate) type Attributes = (ibv_qp_attr, u32);

/// RESET or INIT to INIT.
pub(crate) fn init(access: u32) -> Attributes {
    let mut attr = blank();
    attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
    attr.port_num = PORT_NUM;
    attr.qp_access_flags = access;
    (attr, STATE | PKEY_INDEX | PORT | ACCESS_FLAGS)
}

/// INIT to RTR. EADDRNOTAVAIL: the local address is not in the GID table.
pub(crate) fn receive(kind: Kind, terms: &Terms) -> Result<Attributes, Errno> {
    let index = with_table(|table| table.find(terms.route.local)).ok_or(libc::EADDRNOTAVAIL)?;
    let mut attr = blank();
    attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
    attr.ah_attr = path(terms.route, terms.traffic_class, terms.hop_limit);
    attr.ah_attr.grh.sgid_index = u8::try_from(index).map_err(|_| libc::EADDRNOTAVAIL)?;
    attr.ah_attr.grh.flow_label = terms.flow_label;
    attr.path_mtu = u32::from(terms.mtu.code());
    attr.dest_qp_num = terms.dest_qp;
    attr.rq_psn = terms.rq_psn.get();
    attr.max_dest_rd_atomic = terms.responder_resources;
    let reliable = if kind == Kind::Rc { MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER } else { 0 };
    Ok((attr, STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | reliable))
}

/// RTR to RTS.
pub(crate) fn send(kind: Kind, terms: &Terms) -> Attributes {
    let mut attr = blank();
    attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
    attr.sq_psn = terms.sq_psn.get();
    attr.timeout = terms.ack_timeout;
    attr.retry_cnt = terms.retry_count;
    attr.rnr_retry = terms.rnr_retry_count;
    attr.max_rd_atomic = terms.initiator_depth;
    let reliable = if kind == Kind::Rc { TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC } else { 0 };
    (attr, STATE | SQ_PSN | reliable)
}

/// INIT of a queue pair for datagrams.
pub(crate) fn init_for_datagrams(qkey: u32) -> Attributes {
    let mut attr = blank();
    attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
    attr.port_num = PORT_NUM;
    attr.qkey = qkey;
    (attr, STATE | PKEY_INDEX | PORT | QKEY)
}

/// The path of datagrams, for ibv_create_ah(3), which fails if the local address is no longer in the GID
/// table.
pub(crate) fn datagram_path(to: &DatagramPath) -> ibv_ah_attr {
    let mut attr = path(to.route, to.traffic_class, HOP_LIMIT);
    let index = with_table(|table| table.find(to.route.local));
    attr.grh.sgid_index = index.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX);
    attr
}

/// A path, without the index of the local address.
fn path(route: Route, traffic_class: u8, hop_limit: u8) -> ibv_ah_attr {
    let mut attr = blank().ah_attr;
    attr.is_global = 1;
    attr.port_num = PORT_NUM;
    attr.grh.dgid.raw = gid(route.remote);
    attr.grh.traffic_class = traffic_class;
    attr.grh.hop_limit = hop_limit;
    attr
}

/// Moves a new queue pair to INIT.
pub(super) fn enter_init(
    kind: Kind,
    modified: &mut Modified,
    connection: &impl Connection,
    access: u32,
) -> Result<(), Errno> {
    modify(kind, modified, connection, &init(access))
}

/// Moves a new queue pair for datagrams to RTS, as librdmacm does: the first PSN is 0.
pub(super) fn begin_datagrams(
    modified: &mut Modified,
    connection: &impl Connection,
    qkey: u32,
) -> Result<(), Errno> {
    let to = |state| {
        let mut attr = blank();
        attr.qp_state = state;
        attr
    };
    modify(Kind::Ud, modified, connection, &init_for_datagrams(qkey))?;
    modify(Kind::Ud, modified, connection, &(to(ibv_qp_state::IBV_QPS_RTR), STATE))?;
    modify(Kind::Ud, modified, connection, &(to(ibv_qp_state::IBV_QPS_RTS), STATE | SQ_PSN))
}

/// Moves a queue pair in RESET or INIT to RTS. After an error it is in one of these states or in RTR.
pub(super) fn connect(
    kind: Kind,
    modified: &mut Modified,
    connection: &impl Connection,
    terms: &Terms,
    access: u32,
) -> Result<(), Errno> {
    modify(kind, modified, connection, &init(access))?;
    modify(kind, modified, connection, &receive(kind, terms)?)?;
    modify(kind, modified, connection, &send(kind, terms))
}

fn modify(
    kind: Kind,
    modified: &mut Modified,
    connection: &impl Connection,
    (attr, mask): &Attributes,
) -> Result<(), Errno> {
    modified.modify(kind, attr, *mask, connection, &ThisHost).map_err(|refusal| {
        log::warn!("rdma_cm cannot connect a queue pair: {refusal}");
        refusal.errno
    })
}
