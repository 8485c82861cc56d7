// SPDX-License-Identifier: BSD-3-Clause
//! The device as a RoCE device: programs connect its queue pairs without rdma_cm.
//!
//! ```text
//! transitions   the transitions of a queue pair, with their required and optional attributes
//! modify        ibv_modify_qp: attributes, and the calls of the connection
//! neighbour     MAC addresses
//! gid_table     the GID table
//! changes       asynchronous events of the port
//! ah            address handles
//! ```

mod ah;
mod by_terms;
mod changes;
mod gid_table;
mod modify;
mod neighbour;
mod transitions;

use libc::c_int;
use rdma_sys::{
    ib_uverbs_query_port_flags, ibv_ah, ibv_ah_attr, ibv_device_attr, ibv_grh, ibv_mtu, ibv_node_type, ibv_pd,
};
use rdma_sys::{ibv_port_attr, ibv_port_cap_flags, ibv_port_state, ibv_qp_attr, ibv_transport_type, ibv_wc};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::interfaces;
use super::qp_object::QpOwn;
use super::transport::{Gid, GidType, OnTerms, Transport};
use crate::cm::path::{self, Path};
use crate::guid::guid;
use crate::limits::{MAX_GROUP_QPS, MAX_GROUPS};
use crate::lock;
use crate::process::PerProcess;
use crate::qp::modify::Change;
use crate::qp::{Kind, Qp, State};
use crate::sys::Errno;
use crate::{config, port};
use ::transport::access::{FLUSH_GLOBAL, FLUSH_PERSISTENT, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use ::transport::roce::rc::{ReceiveTerms, SendTerms};
use ::transport::roce::ud;
use ::transport::roce::wire::cm::UDP_QKEY;
use ::transport::roce::wire::{PathMtu, Psn};
use ::transport::route::Route;
pub(crate) use ah::destination;
pub(crate) use by_terms::{datagram_path, init_for_datagrams, receive as receive_of_cm, send as send_of_cm};
use gid_table::GidTable;
pub(crate) use modify::Modified;
use modify::{Connection, Network};

/// The advice for a program that creates a queue pair of an unsupported type.
const REMEDY: &str = "as a RoCE device soft0 offers reliable and unreliable connections (IBV_QPT_RC, IBV_QPT_UC), which the program connects with \
                      ibv_modify_qp, and datagrams (IBV_QPT_UD); use the program's option for one of them, for example -c RC of perftest";
/// The access that rdma_cm grants to the peer of a queue pair: as the kernel does on a device with these
/// operations.
const CM_ACCESS: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT;
/// The local ACK delay that the device reports: 4.096 us * 2^15, as a process may have to wait for a
/// processor before it acknowledges.
const ACK_DELAY: u8 = 15;

/// The physical state of a port that is down.
const PHYS_DISABLED: u8 = 3;

pub(super) struct Roce;

impl Transport for Roce {
    fn types(&self) -> (ibv_transport_type::Type, ibv_node_type::Type) {
        (ibv_transport_type::IBV_TRANSPORT_IB, ibv_node_type::IBV_NODE_CA)
    }

    fn guid(&self) -> u64 {
        guid()
    }

    fn complete_device(&self, attr: &mut ibv_device_attr) {
        attr.max_ah = attr.max_qp;
        attr.max_mcast_grp = MAX_GROUPS as c_int;
        attr.max_mcast_qp_attach = MAX_GROUP_QPS as c_int;
        attr.max_total_mcast_qp_attach = (MAX_GROUPS * MAX_GROUP_QPS) as c_int;
        attr.local_ca_ack_delay = ACK_DELAY;
    }

    fn complete_port(&self, attr: &mut ibv_port_attr) {
        if !changes::is_active(&interfaces::addresses()) {
            (attr.state, attr.phys_state) = (ibv_port_state::IBV_PORT_DOWN, PHYS_DISABLED);
        }
        attr.active_mtu = ibv_mtu::Type::from(active_mtu().code());
        attr.port_cap_flags |= ibv_port_cap_flags::IBV_PORT_IP_BASED_GIDS.0;
        // All routes are global.
        attr.flags |= ib_uverbs_query_port_flags::IB_UVERBS_QPF_GRH_REQUIRED.0 as u8;
    }

    fn opened(&self) {
        if let Err(e) = changes::watch() {
            let e = std::io::Error::from_raw_os_error(e);
            log::warn!("soft0 raises no events when addresses change: {e}");
        }
    }

    fn gid_type(&self) -> GidType {
        // IBV_GID_TYPE_ROCE_V2, IBV_GID_TYPE_SYSFS_ROCE_V2.
        GidType { verbs: 2, sysfs: 1 }
    }

    fn gid_count(&self) -> usize {
        gid_table::LEN
    }

    fn gids(&self) -> Vec<Gid> {
        with_table(|table| {
            let all = (0..gid_table::LEN).filter_map(|index| Some((index, table.get(index)?)));
            all.map(|(index, (ip, interface))| Gid { index, ip, interface }).collect()
        })
    }

    fn has_flush_and_atomic_write(&self) -> bool {
        true
    }

    fn has_type(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Rc | Kind::Uc | Kind::Ud)
    }

    fn has_ib_ports(&self) -> bool {
        true
    }

    fn enter_init(&self, own: &QpOwn) -> Result<(), Errno> {
        let (mut modified, connection) = (lock(&own.modified), own.connection());
        match own.qp.kind {
            Kind::Ud => by_terms::begin_datagrams(&mut modified, &connection, UDP_QKEY),
            kind => by_terms::enter_init(kind, &mut modified, &connection, CM_ACCESS),
        }
    }

    fn on_terms(&self, own: &QpOwn) -> Option<OnTerms> {
        let (modified, connection, kind) = (Arc::downgrade(&own.modified), own.connection(), own.qp.kind);
        Some(Box::new(move |terms| {
            let Some(modified) = modified.upgrade() else { return Err(libc::EINVAL) };
            by_terms::connect(kind, &mut lock(&modified), &connection, terms, CM_ACCESS)
        }))
    }

    fn remedy(&self) -> &'static str {
        REMEDY
    }

    fn allocate_number(&self) -> Result<u32, Errno> {
        port::allocate_number()
    }

    fn release_number(&self, num: u32) {
        port::release_number(num);
    }

    /// Carries out a transition, or changes attributes within a state. EINVAL: an attribute is missing, not
    /// permitted or out of range, a GID is not an address, or the path MTU exceeds that of the route; a
    /// warning names the cause. EOPNOTSUPP: automatic path migration, or an attribute that cannot be changed
    /// in SQD. Otherwise the error of the route lookup.
    fn modify(&self, own: &QpOwn, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        let modified = lock(&own.modified).modify(own.qp.kind, attr, mask, &own.connection(), &ThisHost);
        modified.map_err(|refusal| {
            log::warn!("ibv_modify_qp of queue pair {}: {refusal}", own.qp.num);
            refusal.errno
        })
    }

    fn query(&self, own: &QpOwn, attr: &mut ibv_qp_attr) {
        let (state, cap) = (attr.qp_state, attr.cap);
        *attr = *lock(&own.modified).attributes();
        (attr.qp_state, attr.cur_qp_state, attr.cap) = (state, state, cap);
    }

    unsafe fn create_ah(&self, pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
        // SAFETY: as required of the caller.
        unsafe { ah::create(pd, attr, &ThisHost) }
    }

    unsafe fn destroy_ah(&self, ah: *mut ibv_ah) -> c_int {
        // SAFETY: as required of the caller.
        unsafe { ah::destroy(ah) };
        0
    }

    fn sender(&self, wc: &ibv_wc, grh: &ibv_grh) -> Result<ibv_ah_attr, Errno> {
        ah::sender(wc, grh, |ip| with_table(|table| table.find(ip)))
    }

    fn resolve(&self, attr: &ibv_ah_attr) -> Result<[u8; 6], Errno> {
        ah::resolve(attr, &ThisHost)
    }
}

/// Calls `read` with the current GID table.
fn with_table<T>(read: impl FnOnce(&GidTable) -> T) -> T {
    static TABLE: PerProcess<GidTable> = PerProcess::new();
    let now = interfaces::addresses();
    let mut guard = lock(TABLE.get());
    let table = guard.get_or_insert_default();
    table.update(&now);
    read(table)
}

/// The largest path MTU that fits all interfaces that are up and have an address, except loopback;
/// SOFTVERBS_MTU overrides it.
fn active_mtu() -> PathMtu {
    let measured = || {
        let others = interfaces::addresses().into_iter().filter(|a| a.is_up && !a.ip.is_loopback());
        let smallest = others.filter_map(|address| interfaces::mtu(address.interface)).min();
        smallest.map_or(PathMtu::Mtu4096, |mtu| PathMtu::of_interface(mtu).unwrap_or(PathMtu::Mtu256))
    };
    config::get().path_mtu.unwrap_or_else(measured)
}

/// The attributes with which rdma_cm moves a queue pair to INIT.
pub(crate) fn init_of_cm() -> by_terms::Attributes {
    by_terms::init(CM_ACCESS)
}

/// The network of this host.
struct ThisHost;

impl Network for ThisHost {
    fn source(&self, index: usize) -> Option<(IpAddr, u32)> {
        with_table(|table| table.get(index))
    }

    fn path(&self, local: IpAddr, peer: IpAddr, scope: u32) -> Result<Path, Errno> {
        path::find(local, peer, scope)
    }

    fn port_mtu(&self) -> PathMtu {
        active_mtu()
    }

    fn check_neighbour(&self, local: IpAddr, peer: IpAddr, scope: u32) -> Result<(), Errno> {
        let is_local = || interfaces::addresses().into_iter().any(|address| address.ip == peer);
        if peer.is_loopback() || is_local() { Ok(()) } else { neighbour::check(local, peer, scope) }
    }
}

/// The connection of a queue pair, which may be destroyed.
pub(super) struct QpConnection {
    qp: Weak<Qp>,
    notifies_drained: Arc<AtomicBool>,
}

impl QpOwn {
    fn connection(&self) -> QpConnection {
        QpConnection { qp: Arc::downgrade(&self.qp), notifies_drained: self.notifies_drained.clone() }
    }
}

impl QpConnection {
    fn qp(&self) -> Result<Arc<Qp>, Errno> {
        self.qp.upgrade().ok_or(libc::EINVAL)
    }
}

impl Connection for QpConnection {
    fn set_init(&self, init: bool) {
        if let Ok(qp) = self.qp() {
            qp.set_init(init);
        }
    }

    fn ready_to_receive(&self, route: Route, terms: ReceiveTerms) -> Result<(), Errno> {
        self.qp()?.ready_to_receive(route, terms)
    }

    fn ready_to_send(&self, terms: SendTerms) -> Result<(), Errno> {
        self.qp()?.ready_to_send(terms)
    }

    fn ready_for_datagrams(&self, terms: ud::Terms) -> Result<(), Errno> {
        self.qp()?.ready_for_datagrams(terms)
    }

    fn send_datagrams(&self, psn: Psn) -> Result<(), Errno> {
        self.qp()?.send_datagrams(psn)
    }

    fn resume(&self) -> Result<(), Errno> {
        self.qp()?.resume()
    }

    fn drain(&self, on: bool, notify: bool) -> Result<(), Errno> {
        self.notifies_drained.store(notify, Ordering::Relaxed);
        self.qp()?.drain(on)
    }

    fn change(&self, change: Change) -> Result<(), Errno> {
        self.qp()?.change(change)
    }

    fn reset(&self) -> Result<(), Errno> {
        Qp::reset(&*self.qp()?)
    }

    fn disconnect(&self) {
        if let Ok(qp) = self.qp() {
            qp.disconnect();
        }
    }

    fn state(&self) -> State {
        self.qp().map_or(State::Err, |qp| qp.state())
    }
}
