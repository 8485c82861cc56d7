// SPDX-License-Identifier: BSD-3-Clause
//! The device as an iWARP device: rdma_cm connects its queue pairs, which have reliable connections only.

use libc::c_int;
use rdma_sys::{
    ibv_ah, ibv_ah_attr, ibv_device_attr, ibv_grh, ibv_mtu, ibv_node_type, ibv_pd, ibv_port_attr,
};
use rdma_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, ibv_transport_type, ibv_wc};

use super::qp_object::QpOwn;
use super::qp_state::number_of;
use super::transport::{Gid, GidType, OnTerms, Transport};
use super::{PORT, interfaces};
use crate::ffi::context::next_number;
use crate::ffi::unsupported;
use crate::guid::OUI;
use crate::qp::Kind;
use crate::sys::Errno;
use transport::limits::MAX_READS;

/// The node and system image GUID in network byte order: locally administered, and the same on every host.
const GUID: u64 = u64::from_ne_bytes(*b"\x02soft\0\0\0");
const _: () = assert!(OUI[0] == 0x02 && OUI[1] == b's' && OUI[2] == b'o');

/// What to do if a program requires a queue pair that iWARP does not have. Programs and tests match this
/// text.
const REMEDY: &str = "soft0 offers reliable connections (IBV_QPT_RC) that rdma_cm sets up; use the program's option for rdma_cm, for \
                      example -R of perftest or -cm 1 of qperf";
const DATAGRAMS: &str = "iWARP has no datagrams and therefore no address handles";

pub(super) struct Iwarp;

impl Transport for Iwarp {
    fn types(&self) -> (ibv_transport_type::Type, ibv_node_type::Type) {
        (ibv_transport_type::IBV_TRANSPORT_IWARP, ibv_node_type::IBV_NODE_RNIC)
    }

    fn guid(&self) -> u64 {
        GUID
    }

    fn complete_device(&self, _attr: &mut ibv_device_attr) {}

    fn complete_port(&self, attr: &mut ibv_port_attr) {
        attr.active_mtu = ibv_mtu::IBV_MTU_4096;
    }

    /// Its port has no events.
    fn opened(&self) {}

    fn gid_type(&self) -> GidType {
        // IBV_GID_TYPE_IB, used for every transport but RoCE.
        GidType { verbs: 0, sysfs: 0 }
    }

    fn gid_count(&self) -> usize {
        interfaces::addresses().len()
    }

    fn gids(&self) -> Vec<Gid> {
        let numbered = interfaces::addresses().into_iter().enumerate();
        numbered.map(|(index, address)| Gid { index, ip: address.ip, interface: address.interface }).collect()
    }

    fn has_flush_and_atomic_write(&self) -> bool {
        false
    }

    fn has_type(&self, kind: Kind) -> bool {
        kind == Kind::Rc
    }

    fn has_ib_ports(&self) -> bool {
        false
    }

    fn enter_init(&self, own: &QpOwn) -> Result<(), Errno> {
        own.qp.set_init(true);
        Ok(())
    }

    fn on_terms(&self, _own: &QpOwn) -> Option<OnTerms> {
        None
    }

    fn remedy(&self) -> &'static str {
        REMEDY
    }

    fn allocate_number(&self) -> Result<u32, Errno> {
        Ok(next_number())
    }

    fn release_number(&self, _num: u32) {}

    /// IBV_QPS_ERR ends the connection, and outstanding work requests complete with IBV_WC_WR_FLUSH_ERR.
    /// IBV_QPS_RTR and IBV_QPS_RTS change nothing once rdma_cm has connected the queue pair. Other attributes
    /// are accepted without effect: they belong to other transports, or to the connection, which rdma_cm
    /// negotiates.
    ///
    /// EINVAL: an unknown attribute, a port other than 1, or a state transition that does not exist.
    /// EOPNOTSUPP: RTR or RTS of a queue pair that rdma_cm has not connected, RESET of one that has had a
    /// connection, and SQD, which iWARP does not have; the log says what to do instead.
    fn modify(&self, own: &QpOwn, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        const STATE: u32 = ibv_qp_attr_mask::IBV_QP_STATE.0;
        const PORT_NUM: u32 = ibv_qp_attr_mask::IBV_QP_PORT.0;
        /// All bits up to that of IBV_QP_DEST_QPN.
        const KNOWN: u32 =
            (2 * ibv_qp_attr_mask::IBV_QP_DEST_QPN.0 - 1) | ibv_qp_attr_mask::IBV_QP_RATE_LIMIT.0;
        if mask & !KNOWN != 0 || (mask & PORT_NUM != 0 && attr.port_num != PORT) {
            return Err(libc::EINVAL);
        }
        if mask & STATE == 0 {
            return Ok(());
        }
        use ibv_qp_state::*;
        match (number_of(own.qp.state()), attr.qp_state) {
            (IBV_QPS_RESET | IBV_QPS_INIT, IBV_QPS_RESET) => own.qp.set_init(false),
            (IBV_QPS_RESET | IBV_QPS_INIT, IBV_QPS_INIT) => own.qp.set_init(true),
            (IBV_QPS_RTS, IBV_QPS_RTR | IBV_QPS_RTS) | (IBV_QPS_ERR, IBV_QPS_ERR) => {}
            (IBV_QPS_RTS | IBV_QPS_INIT | IBV_QPS_RESET, IBV_QPS_ERR) => own.qp.disconnect(),
            (IBV_QPS_INIT, IBV_QPS_RTR | IBV_QPS_RTS) => {
                return Err(unsupported(&format!("a queue pair connected without rdma_cm: {REMEDY}")));
            }
            (IBV_QPS_RTS | IBV_QPS_ERR, IBV_QPS_RESET) => {
                return Err(unsupported("resetting a queue pair that has had a connection"));
            }
            (_, IBV_QPS_SQD) => return Err(unsupported("the state SQD, which iWARP does not have")),
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }

    fn query(&self, own: &QpOwn, attr: &mut ibv_qp_attr) {
        attr.path_mtu = ibv_mtu::IBV_MTU_4096;
        attr.port_num = PORT;
        attr.max_rd_atomic = MAX_READS as u8;
        attr.max_dest_rd_atomic = MAX_READS as u8;
        attr.timeout = own.qp.ack_timeout();
    }

    unsafe fn create_ah(&self, _pd: *mut ibv_pd, _attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
        Err(unsupported(DATAGRAMS))
    }

    unsafe fn destroy_ah(&self, _ah: *mut ibv_ah) -> c_int {
        libc::EINVAL
    }

    fn sender(&self, _wc: &ibv_wc, _grh: &ibv_grh) -> Result<ibv_ah_attr, Errno> {
        Err(unsupported(DATAGRAMS))
    }

    fn resolve(&self, _attr: &ibv_ah_attr) -> Result<[u8; 6], Errno> {
        Err(unsupported(DATAGRAMS))
    }
}
