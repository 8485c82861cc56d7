// SPDX-License-Identifier: BSD-3-Clause
//! ibv_modify_qp(3) for a queue pair that the program connects itself: checks and stores the attributes, and
//! calls the connection.

use rdma_sys::{ibv_ah_attr, ibv_mig_state, ibv_qp_attr};
use std::fmt;
use std::io;
use std::net::IpAddr;

use super::gid_table::ip_of;
use super::transitions::*;
use crate::cm::path::Path;
use crate::ffi::verbs::mr::{ACCESS_KNOWN, ACCESS_OPTIONAL};
use crate::ffi::verbs::qp_state::state_of;
use crate::ffi::verbs::{PKEY, PORT as PORT_NUM};
use crate::qp::modify::Change;
use crate::qp::{Kind, State};
use crate::sys::Errno;
use transport::limits::MAX_READS;
use transport::roce::rc::{ReceiveTerms, SendTerms};
use transport::roce::ud;
use transport::roce::wire::{PathMtu, Psn};
use transport::route::Route;

/// The operations of a connection that transitions need.
pub(super) trait Connection {
    /// RESET to INIT and back.
    fn set_init(&self, init: bool);
    /// INIT to RTR.
    fn ready_to_receive(&self, route: Route, terms: ReceiveTerms) -> Result<(), Errno>;
    /// RTR to RTS.
    fn ready_to_send(&self, terms: SendTerms) -> Result<(), Errno>;
    /// INIT to RTR of a queue pair of type UD.
    fn ready_for_datagrams(&self, terms: ud::Terms) -> Result<(), Errno>;
    /// RTR to RTS of a queue pair of type UD.
    fn send_datagrams(&self, psn: Psn) -> Result<(), Errno>;
    /// SQE to RTS.
    fn resume(&self) -> Result<(), Errno>;
    /// RTS to SQD and back. `notify`: raise an event when the send queue is drained.
    fn drain(&self, on: bool, notify: bool) -> Result<(), Errno>;
    /// Changes attributes in RTR, RTS or SQD.
    fn change(&self, change: Change) -> Result<(), Errno>;
    /// To RESET.
    fn reset(&self) -> Result<(), Errno>;
    /// To ERR.
    fn disconnect(&self);
    /// The state of its queue pair.
    fn state(&self) -> State;
}

/// The addresses of the host and the paths from them.
pub(super) trait Network {
    /// The address and interface with this index in the GID table; `None`: the entry is empty.
    fn source(&self, index: usize) -> Option<(IpAddr, u32)>;
    /// The path from an address of the host to a peer.
    fn path(&self, local: IpAddr, peer: IpAddr, scope: u32) -> Result<Path, Errno>;
    /// The path MTU of the port.
    fn port_mtu(&self) -> PathMtu;
    /// Checks that the next hop of the path answers. ETIMEDOUT: it does not.
    fn check_neighbour(&self, local: IpAddr, peer: IpAddr, scope: u32) -> Result<(), Errno>;
}

/// The reason why ibv_modify_qp(3) or ibv_create_ah(3) fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub errno: Errno,
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

fn invalid<T>(why: impl fmt::Display) -> Result<T, Refusal> {
    Err(Refusal { errno: libc::EINVAL, why: why.to_string() })
}

fn unsupported<T>(why: &str) -> Result<T, Refusal> {
    Err(Refusal { errno: libc::EOPNOTSUPP, why: why.to_owned() })
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Refusal {
    move |errno| Refusal { errno, why: format!("{what}: {}", io::Error::from_raw_os_error(errno)) }
}

/// The attributes of a queue pair that the program has set.
pub(crate) struct Modified {
    attr: ibv_qp_attr,
}

impl Modified {
    /// The attributes of a new queue pair.
    pub(crate) fn new() -> Self {
        Self { attr: blank() }
    }

    /// The attributes that were set since RESET; the others are 0.
    pub(super) fn attributes(&self) -> &ibv_qp_attr {
        &self.attr
    }

    /// Carries out a transition of a queue pair of type `kind`, or changes attributes within a state. An
    /// error changes nothing.
    pub(super) fn modify(
        &mut self,
        kind: Kind,
        attr: &ibv_qp_attr,
        mask: u32,
        connection: &impl Connection,
        network: &impl Network,
    ) -> Result<(), Refusal> {
        let from = connection.state();
        let to = if mask & STATE == 0 { Some(from) } else { state_of(attr.qp_state) };
        let Some(to) = to else { return invalid(format_args!("{} is not a state", attr.qp_state)) };
        self.apply(kind, from, to, attr, mask, connection, network)
            .map_err(|Refusal { errno, why }| Refusal { errno, why: format!("{from} to {to}: {why}") })
    }

    #[expect(clippy::too_many_arguments, reason = "the call, and what it may read and change")]
    fn apply(
        &mut self,
        kind: Kind,
        from: State,
        to: State,
        attr: &ibv_qp_attr,
        mask: u32,
        connection: &impl Connection,
        network: &impl Network,
    ) -> Result<(), Refusal> {
        check(kind, from, to, mask).or_else(invalid)?;
        if mask & CUR_STATE != 0 && state_of(attr.cur_qp_state) != Some(from) {
            return invalid(format_args!("cur_qp_state is {}", attr.cur_qp_state));
        }
        check_ranges(attr, mask)?;
        let next = merged(self.attr, attr, mask);
        match (from, to) {
            (State::Reset | State::Init, State::Reset) => connection.set_init(false),
            (_, State::Reset) => connection.reset().map_err(failed("the queue pair cannot be reset"))?,
            (_, State::Init) => connection.set_init(true),
            (State::Init, State::Rtr) if kind == Kind::Ud => {
                let terms = ud::Terms { mtu: network.port_mtu(), qkey: next.qkey };
                connection.ready_for_datagrams(terms).map_err(failed("no packets can be received"))?;
            }
            (State::Init, State::Rtr) => {
                let (route, terms) = receive_terms(&next, network)?;
                connection.ready_to_receive(route, terms).map_err(failed("no packets can be received"))?;
            }
            (State::Rtr, State::Rts) => {
                self.change(&next, connection)?;
                let sends = match kind {
                    Kind::Ud => connection.send_datagrams(Psn::new(next.sq_psn)),
                    Kind::Rc | Kind::Uc => connection.ready_to_send(send_terms(&next)),
                };
                sends.map_err(failed("no packets can be sent"))?;
            }
            (State::Sqd, State::Rts) => {
                self.change(&next, connection)?;
                connection.drain(false, false).map_err(failed("the send queue cannot be resumed"))?;
            }
            (State::Sqe, State::Rts) => {
                self.change(&next, connection)?;
                connection.resume().map_err(failed("the send queue cannot be resumed"))?;
            }
            (State::Rts, State::Sqd) => {
                let notify = mask & EN_SQD_ASYNC_NOTIFY != 0 && attr.en_sqd_async_notify != 0;
                connection.drain(true, notify).map_err(failed("the send queue cannot be drained"))?;
            }
            (State::Sqd, State::Sqd) => {
                self.check_fixed(&next)?;
                self.change(&next, connection)?;
            }
            (_, State::Rts) => self.change(&next, connection)?,
            (State::Err, State::Err) => {}
            (_, State::Err) => connection.disconnect(),
            _ => return invalid(Wrong::Transition),
        }
        self.attr = if to == State::Reset { blank() } else { next };
        Ok(())
    }

    /// Passes changed attributes to the connection.
    fn change(&self, next: &ibv_qp_attr, connection: &impl Connection) -> Result<(), Refusal> {
        let before = &self.attr;
        let change = Change {
            access: (next.qp_access_flags != before.qp_access_flags).then_some(next.qp_access_flags),
            rnr_timer: (next.min_rnr_timer != before.min_rnr_timer).then_some(next.min_rnr_timer),
            qkey: (next.qkey != before.qkey).then_some(next.qkey),
        };
        if change == Change::default() {
            return Ok(());
        }
        connection.change(change).map_err(failed("the attributes cannot be changed"))
    }

    /// Rejects changes that the specification permits in SQD but a connection does not support.
    fn check_fixed(&self, next: &ibv_qp_attr) -> Result<(), Refusal> {
        let fixed = |attr: &ibv_qp_attr| {
            let grh = attr.ah_attr.grh;
            let path = (gid_of(&attr.ah_attr), grh.sgid_index, grh.traffic_class, grh.hop_limit);
            let retries = (attr.timeout, attr.retry_cnt, attr.rnr_retry);
            (path, retries, attr.max_rd_atomic, attr.max_dest_rd_atomic)
        };
        if fixed(next) != fixed(&self.attr) {
            return unsupported("path, retries and depths of a connection cannot be changed");
        }
        Ok(())
    }
}

pub(super) fn blank() -> ibv_qp_attr {
    // SAFETY: all-zero is a valid ibv_qp_attr.
    unsafe { std::mem::zeroed() }
}

/// `attr` with the attributes in `mask`, the others as in `set`.
fn merged(set: ibv_qp_attr, attr: &ibv_qp_attr, mask: u32) -> ibv_qp_attr {
    let mut next = set;
    macro_rules! take {
        ($($bit:ident: $($field:ident),+;)*) => { $(if mask & $bit != 0 { $(next.$field = attr.$field;)+ })* };
    }
    take! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
    }
    next
}

fn check_ranges(attr: &ibv_qp_attr, mask: u32) -> Result<(), Refusal> {
    const MAX_PSN: u32 = (1 << Psn::BITS) - 1;
    const MAX_NUMBER: u32 = (1 << 24) - 1;
    let max_reads = u32::from(MAX_READS);
    let mtu = attr.path_mtu;
    let ranges = [
        (PKEY_INDEX, "pkey_index", u32::from(attr.pkey_index), 0, 0),
        (PORT, "port_num", u32::from(attr.port_num), u32::from(PORT_NUM), u32::from(PORT_NUM)),
        (PATH_MTU, "path_mtu", mtu, u32::from(PathMtu::Mtu256.code()), u32::from(PathMtu::Mtu4096.code())),
        // 0 is invalid, 1 is connection management, and the highest number is multicast.
        (DEST_QPN, "dest_qp_num", attr.dest_qp_num, 2, MAX_NUMBER - 1),
        (RQ_PSN, "rq_psn", attr.rq_psn, 0, MAX_PSN),
        (SQ_PSN, "sq_psn", attr.sq_psn, 0, MAX_PSN),
        (MAX_QP_RD_ATOMIC, "max_rd_atomic", u32::from(attr.max_rd_atomic), 0, max_reads),
        (MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", u32::from(attr.max_dest_rd_atomic), 0, max_reads),
        (MIN_RNR_TIMER, "min_rnr_timer", u32::from(attr.min_rnr_timer), 0, 31),
        (TIMEOUT, "timeout", u32::from(attr.timeout), 0, 31),
        (RETRY_CNT, "retry_cnt", u32::from(attr.retry_cnt), 0, 7),
        (RNR_RETRY, "rnr_retry", u32::from(attr.rnr_retry), 0, 7),
    ];
    for (bit, name, value, min, max) in ranges {
        if mask & bit != 0 && !(min..=max).contains(&value) {
            return match min == max {
                true => invalid(format_args!("{name} is {value}; soft0 has only {min}")),
                false => invalid(format_args!("{name} is {value}, not from {min} to {max}")),
            };
        }
    }
    let unknown = attr.qp_access_flags & !(ACCESS_KNOWN | ACCESS_OPTIONAL);
    if mask & ACCESS_FLAGS != 0 && unknown != 0 {
        return invalid(format_args!("qp_access_flags has unknown flags: {unknown:#x}"));
    }
    let migrates = mask & PATH_MIG_STATE != 0 && attr.path_mig_state != ibv_mig_state::IBV_MIG_MIGRATED;
    if mask & ALT_PATH != 0 || migrates {
        return unsupported("soft0 has no automatic path migration");
    }
    Ok(())
}

/// The GID of the destination.
pub(super) fn gid_of(attr: &ibv_ah_attr) -> [u8; 16] {
    // SAFETY: both forms of a GID are 16 bytes, all of which are valid in the form `raw`.
    unsafe { attr.grh.dgid.raw }
}

/// The local and the remote address of a global route, and the interface if they are link-local.
pub(super) fn addresses(
    attr: &ibv_ah_attr,
    network: &impl Network,
) -> Result<(IpAddr, IpAddr, u32), Refusal> {
    if attr.port_num != PORT_NUM {
        return invalid(format_args!("ah_attr.port_num is {}; soft0 has only {PORT_NUM}", attr.port_num));
    }
    if attr.is_global == 0 {
        return invalid(
            "ah_attr.is_global is 0, and RoCE has no local routes: set it, with the GID of the peer and the index of a GID of \
             this host, in many programs by an option (ibv_rc_pingpong -g 0, perftest -x 0); ibv_devinfo -v lists the GIDs",
        );
    }
    let index = usize::from(attr.grh.sgid_index);
    let Some((local, interface)) = network.source(index) else {
        return invalid(format_args!("grh.sgid_index is {index}, which is an empty entry of the GID table"));
    };
    let gid = gid_of(attr);
    let Some(peer) = ip_of(gid) else {
        let gid = std::net::Ipv6Addr::from(gid);
        return invalid(format_args!("grh.dgid is {gid}, which is not the address of a host or a group"));
    };
    if local.is_ipv4() != peer.is_ipv4() {
        return invalid(format_args!(
            "grh.sgid_index {index} is {local}, and grh.dgid {peer}: one is IPv4, the other IPv6; use the index of another GID"
        ));
    }
    let needs_scope = matches!(peer, IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast());
    Ok((local, peer, if needs_scope { interface } else { 0 }))
}

/// The route and the terms of a queue pair in RTR.
fn receive_terms(attr: &ibv_qp_attr, network: &impl Network) -> Result<(Route, ReceiveTerms), Refusal> {
    let (local, peer, scope) = addresses(&attr.ah_attr, network)?;
    if peer.is_multicast() {
        return invalid(format_args!("grh.dgid is {peer}, which is not the address of a host"));
    }
    let path = network.path(local, peer, scope).map_err(|errno| {
        let error = io::Error::from_raw_os_error(errno);
        Refusal { errno, why: format!("there is no route from {local} to {peer}: {error}") }
    })?;
    // `check_ranges` has checked it.
    let Some(mtu) = u8::try_from(attr.path_mtu).ok().and_then(PathMtu::from_code) else {
        return invalid(format_args!("path_mtu is {}", attr.path_mtu));
    };
    if !path.fits(mtu, peer) {
        let largest = path.largest(peer).map_or(0, PathMtu::bytes);
        return invalid(format_args!(
            "the path MTU is {} bytes, and the route from {local} to {peer} has an MTU of {}, which permits {largest}; \
             ibv_query_port returns in active_mtu what all interfaces permit, and SOFTVERBS_MTU changes that",
            mtu.bytes(),
            path.mtu
        ));
    }
    network.check_neighbour(local, peer, scope).map_err(|errno| Refusal {
        errno,
        why: format!(
            "no neighbour of {local} answers for {peer} (grh.dgid, from grh.sgid_index {}); check the address, and that \
             the host is up and in the same network",
            attr.ah_attr.grh.sgid_index
        ),
    })?;
    // The hop limit of the route replaces that of the program, as in the kernel.
    let Path { hop_limit, .. } = path;
    let route = Route { local, peer, scope, traffic_class: attr.ah_attr.grh.traffic_class, hop_limit };
    let terms = ReceiveTerms {
        mtu,
        dest_qp: attr.dest_qp_num,
        pkey: PKEY,
        rq_psn: Psn::new(attr.rq_psn),
        reads: u16::from(attr.max_dest_rd_atomic),
        rnr_timer: attr.min_rnr_timer,
        access: attr.qp_access_flags,
    };
    Ok((route, terms))
}

fn send_terms(attr: &ibv_qp_attr) -> SendTerms {
    SendTerms {
        sq_psn: Psn::new(attr.sq_psn),
        timeout: attr.timeout,
        retries: attr.retry_cnt,
        rnr_retries: attr.rnr_retry,
        reads: u16::from(attr.max_rd_atomic),
    }
}

#[cfg(test)]
mod tests;
