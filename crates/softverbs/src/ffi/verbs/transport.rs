// SPDX-License-Identifier: BSD-3-Clause
//! The transport of the device: what verbs do differently on an iWARP device and on a RoCE device.
//!
//! A process has one transport (SOFTVERBS_TRANSPORT). The functions of verbs are the same for both and get it
//! from [`transport`](super::transport()).

use libc::c_int;
use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_device_attr, ibv_grh, ibv_node_type, ibv_pd, ibv_port_attr};
use rdma_sys::{ibv_qp_attr, ibv_transport_type, ibv_wc};
use std::net::IpAddr;

use super::qp_object::QpOwn;
use crate::qp::Kind;
pub(crate) use crate::qp::OnTerms;
use crate::sys::Errno;

/// An entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gid {
    pub index: usize,
    pub ip: IpAddr,
    /// The index of the interface that has the address.
    pub interface: u32,
}

/// The type of the entries of a GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GidType {
    /// As in `enum ibv_gid_type`.
    pub verbs: u32,
    /// As in `enum ibv_gid_type_sysfs`, which has no number for what is not RoCE.
    pub sysfs: u32,
}

/// What verbs do differently on devices of different transports.
pub(crate) trait Transport: Sync {
    /// The type of transport of the device, and its node type.
    fn types(&self) -> (ibv_transport_type::Type, ibv_node_type::Type);
    /// The GUID of the device in network byte order.
    fn guid(&self) -> u64;
    /// Completes the attributes of the device.
    fn complete_device(&self, attr: &mut ibv_device_attr);
    /// Completes the attributes of its port.
    fn complete_port(&self, attr: &mut ibv_port_attr);
    /// The program has called ibv_open_device(3), and may wait for asynchronous events.
    fn opened(&self);

    /// The type of each GID.
    fn gid_type(&self) -> GidType;
    /// The length of the GID table, holes included.
    fn gid_count(&self) -> usize;
    /// The entries of the GID table that are not holes.
    fn gids(&self) -> Vec<Gid>;

    /// Whether it has flush and atomic write (IBTA, annex A19).
    fn has_flush_and_atomic_write(&self) -> bool;
    /// Whether it has queue pairs of this type.
    fn has_type(&self, kind: Kind) -> bool;
    /// Whether rdma_cm has the port space RDMA_PS_IB.
    fn has_ib_ports(&self) -> bool;
    /// Moves a new queue pair of rdma_cm to INIT, one for datagrams to RTS.
    fn enter_init(&self, own: &QpOwn) -> Result<(), Errno>;
    /// What connects a queue pair for rdma_cm; `None`: the connection does.
    fn on_terms(&self, own: &QpOwn) -> Option<OnTerms>;
    /// The advice in the log for a program that creates a queue pair of an unsupported type.
    fn remedy(&self) -> &'static str;
    /// The number of a new queue pair.
    fn allocate_number(&self) -> Result<u32, Errno>;
    /// The queue pair with this number has been destroyed.
    fn release_number(&self, num: u32);
    /// ibv_modify_qp(3).
    fn modify(&self, own: &QpOwn, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno>;
    /// Stores what the program has set, or what was negotiated, for ibv_query_qp(3).
    fn query(&self, own: &QpOwn, attr: &mut ibv_qp_attr);

    /// ibv_create_ah(3), or the errno.
    ///
    /// # Safety
    ///
    /// `pd` must be a protection domain of softverbs that has not been deallocated.
    unsafe fn create_ah(&self, pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno>;
    /// ibv_destroy_ah(3).
    ///
    /// # Safety
    ///
    /// `ah` must come from [`Self::create_ah`] and not be used afterwards.
    unsafe fn destroy_ah(&self, ah: *mut ibv_ah) -> c_int;
    /// The address of the sender of a datagram: ibv_init_ah_from_wc(3).
    fn sender(&self, wc: &ibv_wc, grh: &ibv_grh) -> Result<ibv_ah_attr, Errno>;
    /// The hardware address behind an address: `ibv_resolve_eth_l2_from_gid`.
    fn resolve(&self, attr: &ibv_ah_attr) -> Result<[u8; 6], Errno>;
}
