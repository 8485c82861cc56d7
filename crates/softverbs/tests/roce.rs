// SPDX-License-Identifier: BSD-3-Clause
//! The device as a RoCE device. The environment is read once in a process, so each test starts itself again
//! with SOFTVERBS_TRANSPORT=roce.

mod common;

use common::restart::child;
use libc::c_int;
use rdma_sys::*;
use softverbs::verbs;
use std::mem::{MaybeUninit, zeroed};
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;

const STATE: u32 = 1;
const ACCESS_FLAGS: u32 = 1 << 3;
const PKEY_INDEX: u32 = 1 << 4;
const PORT: u32 = 1 << 5;
const AV: u32 = 1 << 7;
const PATH_MTU: u32 = 1 << 8;
const RQ_PSN: u32 = 1 << 12;
const MIN_RNR_TIMER: u32 = 1 << 15;
const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
const DEST_QPN: u32 = 1 << 20;
const INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
const RTR: u32 = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn port() -> ibv_port_attr {
    // SAFETY: the context is that of the device, all-zero attributes are valid, and they are written.
    unsafe {
        let mut attr: ibv_port_attr = zeroed();
        assert_eq!(verbs::ibv_query_port(softverbs::context(), 1, &mut attr), 0);
        attr
    }
}

fn gid(index: c_int) -> Option<[u8; 16]> {
    let mut gid = ibv_gid { raw: [7; 16] };
    // SAFETY: as above.
    unsafe {
        match verbs::ibv_query_gid(softverbs::context(), 1, index, &mut gid) {
            0 => Some(gid.raw),
            _ => {
                assert_eq!((errno(), gid.raw), (libc::EINVAL, [7; 16]));
                None
            }
        }
    }
}

/// The index of 127.0.0.1.
fn loopback() -> u8 {
    let wanted = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    (0..=255).find(|index| gid(c_int::from(*index)) == Some(wanted)).expect("the GID of 127.0.0.1")
}

#[test]
fn the_device_is_one_of_roce() {
    if !child("the_device_is_one_of_roce", &[("SOFTVERBS_MTU", "2048")]) {
        return;
    }
    // SAFETY: the calls are made with the device and its context, and results are valid for writes.
    unsafe {
        let device = softverbs::device();
        assert_eq!((*device).transport_type, ibv_transport_type::IBV_TRANSPORT_IB);
        assert_eq!((*device).node_type, ibv_node_type::IBV_NODE_CA);
        let guid = verbs::ibv_get_device_guid(device);
        assert_eq!(guid.to_ne_bytes()[..3], [0x02, b's', b'o']);
        assert_ne!(guid.to_ne_bytes(), *b"\x02soft\0\0\0", "that of iWARP");
        let mut attr: ibv_device_attr = zeroed();
        assert_eq!(verbs::ibv_query_device(softverbs::context(), &mut attr), 0);
        assert_eq!((attr.node_guid, attr.sys_image_guid, attr.phys_port_cnt), (guid, guid, 1));
        let mut pkey = 0;
        assert_eq!(verbs::ibv_query_pkey(softverbs::context(), 1, 0, &mut pkey), 0);
        assert_eq!(pkey, 0xffff);
        let port = port();
        assert_eq!((port.link_layer, port.state), (2, ibv_port_state::IBV_PORT_ACTIVE));
        assert_eq!(port.active_mtu, ibv_mtu::IBV_MTU_2048, "SOFTVERBS_MTU");
        assert_eq!((port.flags & 1, port.gid_tbl_len, port.lid), (1, 256, 0));
        // Newer headers have a field behind those of ibv_port_attr.
        let mut longer = MaybeUninit::<[u32; 16]>::zeroed();
        let context: *mut verbs_context =
            softverbs::context().byte_sub(std::mem::offset_of!(verbs_context, context)).cast();
        assert_eq!(
            (*context).query_port.unwrap()(softverbs::context(), 1, longer.as_mut_ptr().cast(), 56),
            0
        );
        let longer = longer.assume_init();
        assert_eq!(
            (longer[13], longer[14]),
            (u32::from(port.active_speed), 0),
            "active_speed_ex, and no more"
        );
    }
}

#[test]
fn gids_are_addresses_with_type_roce_v2_and_holes_are_zeros() {
    if !child("gids_are_addresses_with_type_roce_v2_and_holes_are_zeros", &[]) {
        return;
    }
    let context = softverbs::context();
    let index = c_int::from(loopback());
    // The last of the addresses is one of loopback.
    assert_eq!((gid(255), gid(256), gid(-1)), (Some([0; 16]), None, None));
    let last = (0..256).rev().find(|index| gid(*index) != Some([0; 16])).unwrap();
    let address = std::net::Ipv6Addr::from(gid(last).unwrap()).to_canonical();
    assert!(address.is_loopback(), "{address}");
    /// `struct ibv_gid_entry`.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    struct Entry {
        gid: [u8; 16],
        numbers: [u32; 4],
    }
    // SAFETY: as above; an entry has 32 bytes.
    unsafe {
        let mut entry = Entry { gid: [0; 16], numbers: [0; 4] };
        let to = (&raw mut entry).cast();
        assert_eq!(verbs::_ibv_query_gid_ex(context, 1, index as u32, to, 0, 32), 0);
        let [at, port, kind, interface] = entry.numbers;
        assert_eq!((at, port, kind), (index as u32, 1, 2), "IBV_GID_TYPE_ROCE_V2");
        assert_ne!(interface, 0);
        assert_eq!(verbs::_ibv_query_gid_ex(context, 1, 255, to, 0, 32), libc::ENODATA, "a hole");
        let mut table = [entry; 256];
        let found = verbs::_ibv_query_gid_table(context, table.as_mut_ptr().cast(), 256, 0, 32);
        assert!(found > 0 && found < 256);
        assert!(table[..found as usize].iter().all(|entry| entry.numbers[2] == 2));
        let mut kind = 9;
        assert_eq!((verbs::ibv_query_gid_type(context, 1, index as u32, &mut kind), kind), (0, 1));
        assert_eq!((verbs::ibv_query_gid_type(context, 1, 255, &mut kind), kind), (0, 0), "a hole");
        assert_eq!(verbs::ibv_query_gid_type(context, 1, 256, &mut kind), -1);
    }
    let others = (0..256)
        .filter_map(gid)
        .filter(|gid| *gid != [0; 16])
        .map(|gid| std::net::Ipv6Addr::from(gid).to_canonical());
    if others.into_iter().all(|ip: IpAddr| ip.is_loopback()) {
        assert_eq!(port().active_mtu, ibv_mtu::IBV_MTU_4096, "loopback alone");
    }
}

/// A queue pair and what it needs.
struct Made {
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Made {
    fn new() -> Self {
        // SAFETY: the objects are made in order, and all-zero attributes are valid.
        unsafe {
            let pd = verbs::ibv_alloc_pd(softverbs::context());
            let cq = verbs::ibv_create_cq(softverbs::context(), 8, null_mut(), null_mut(), 0);
            let mut attr = Self::attributes(cq, ibv_qp_type::IBV_QPT_RC);
            let qp = verbs::ibv_create_qp(pd, &mut attr);
            assert!(!qp.is_null());
            Self { pd, cq, qp }
        }
    }

    fn attributes(cq: *mut ibv_cq, qp_type: ibv_qp_type::Type) -> ibv_qp_init_attr {
        // SAFETY: all-zero attributes are valid.
        let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, qp_type);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (4, 4);
        attr
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> c_int {
        // SAFETY: the queue pair lives.
        unsafe { verbs::ibv_modify_qp(self.qp, attr, mask as c_int) }
    }

    fn query(&self) -> ibv_qp_attr {
        // SAFETY: as above; both results are valid for writes.
        unsafe {
            let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = (zeroed(), zeroed());
            assert_eq!(verbs::ibv_query_qp(self.qp, &mut attr, -1, &mut init), 0);
            assert_eq!((attr.qp_state, init.qp_type), ((*self.qp).state, ibv_qp_type::IBV_QPT_RC));
            attr
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: each is destroyed once, and nothing uses it any more.
        unsafe {
            assert_eq!(verbs::ibv_destroy_qp(self.qp), 0);
            assert_eq!(verbs::ibv_destroy_cq(self.cq), 0);
            assert_eq!(verbs::ibv_dealloc_pd(self.pd), 0);
        }
    }
}

fn init() -> ibv_qp_attr {
    // SAFETY: all-zero attributes are valid.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
    (attr.port_num, attr.qp_access_flags) = (1, 0b111);
    attr
}

fn ready(index: u8) -> ibv_qp_attr {
    let mut attr = init();
    attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
    (attr.path_mtu, attr.dest_qp_num, attr.rq_psn) = (ibv_mtu::IBV_MTU_1024, 0x77, 5);
    (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (1, 12);
    attr.ah_attr = address(index);
    attr
}

/// The route to 127.0.0.1.
fn address(index: u8) -> ibv_ah_attr {
    // SAFETY: all-zero attributes are valid.
    let mut attr: ibv_ah_attr = unsafe { zeroed() };
    (attr.is_global, attr.port_num, attr.grh.sgid_index) = (1, 1, index);
    attr.grh.dgid.raw = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    attr
}

#[test]
fn a_queue_pair_goes_from_reset_to_init_and_back() {
    if !child("a_queue_pair_goes_from_reset_to_init_and_back", &[]) {
        return;
    }
    use ibv_qp_state::*;
    let made = Made::new();
    assert_eq!(made.query().qp_state, IBV_QPS_RESET);
    let index = loopback();
    assert_eq!(made.modify(&mut ready(index), RTR), libc::EINVAL, "not from RESET");
    assert_eq!(made.modify(&mut init(), INIT & !PORT), libc::EINVAL, "without the port");
    assert_eq!(made.modify(&mut init(), INIT | DEST_QPN), libc::EINVAL, "with an attribute of RTR");
    assert_eq!(made.query().qp_state, IBV_QPS_RESET);
    assert_eq!(made.modify(&mut init(), INIT), 0);
    let attr = made.query();
    assert_eq!((attr.qp_state, attr.port_num, attr.qp_access_flags), (IBV_QPS_INIT, 1, 0b111));
    assert!(attr.cap.max_inline_data > 0 && attr.cap.max_send_wr == 4);
    let mut reset = init();
    reset.qp_state = IBV_QPS_RESET;
    assert_eq!(made.modify(&mut reset, STATE), 0);
    assert_eq!((made.query().qp_state, made.query().port_num), (IBV_QPS_RESET, 0));
}

#[test]
fn rtr_refuses_paths_that_cannot_be() {
    if !child("rtr_refuses_paths_that_cannot_be", &[]) {
        return;
    }
    let made = Made::new();
    let index = loopback();
    assert_eq!(made.modify(&mut init(), INIT), 0);
    let refused = |spoil: fn(&mut ibv_qp_attr)| {
        let mut attr = ready(index);
        spoil(&mut attr);
        made.modify(&mut attr, RTR)
    };
    assert_eq!(refused(|attr| attr.ah_attr.is_global = 0), libc::EINVAL);
    assert_eq!(refused(|attr| attr.ah_attr.grh.dgid.raw = [0; 16]), libc::EINVAL);
    assert_eq!(refused(|attr| attr.ah_attr.grh.sgid_index = 255), libc::EINVAL);
    assert_eq!(refused(|attr| attr.path_mtu = 6), libc::EINVAL);
    assert_eq!(made.modify(&mut ready(index), RTR & !AV), libc::EINVAL);
    assert_eq!(made.query().qp_state, ibv_qp_state::IBV_QPS_INIT);
}

#[test]
fn other_queue_pairs_are_not_supported_yet() {
    if !child("other_queue_pairs_are_not_supported_yet", &[]) {
        return;
    }
    let made = Made::new();
    // SAFETY: the objects live, and the results are valid for writes.
    unsafe {
        for kind in
            [ibv_qp_type::IBV_QPT_XRC_SEND, ibv_qp_type::IBV_QPT_XRC_RECV, ibv_qp_type::IBV_QPT_DRIVER]
        {
            let mut attr = Made::attributes(made.cq, kind);
            assert!(verbs::ibv_create_qp(made.pd, &mut attr).is_null());
            assert_eq!(errno(), libc::EOPNOTSUPP, "type {kind}");
        }
        let context: *mut verbs_context =
            softverbs::context().byte_sub(std::mem::offset_of!(verbs_context, context)).cast();
        let mut domain: ibv_xrcd_init_attr = zeroed();
        assert!((*context).open_xrcd.unwrap()(softverbs::context(), &mut domain).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP, "an XRC domain");
        assert!(verbs::ibv_reg_dmabuf_mr(made.pd, 0, 4096, 0, 0, 1).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        let mut bytes = [0u8; 64];
        let relaxed = 1 | 1 << 20;
        let mr = verbs::ibv_reg_mr(made.pd, bytes.as_mut_ptr().cast(), 64, relaxed);
        assert!(!mr.is_null(), "IBV_ACCESS_RELAXED_ORDERING");
        let mut sge = ibv_sge { addr: (*mr).addr as u64, length: 64, lkey: (*mr).lkey };
        assert_eq!(verbs::ibv_advise_mr(made.pd, 0, 0, &mut sge, 1), 0);
        assert_eq!(verbs::ibv_dereg_mr(mr), 0);
    }
}

#[test]
fn address_handles_are_made_to_addresses_also_of_the_host() {
    if !child("address_handles_are_made_to_addresses_also_of_the_host", &[]) {
        return;
    }
    let made = Made::new();
    let index = loopback();
    // SAFETY: the protection domain lives, and each handle is destroyed once.
    unsafe {
        let ah = verbs::ibv_create_ah(made.pd, &mut address(index));
        assert!(!ah.is_null() && (*ah).pd == made.pd && (*ah).context == softverbs::context());
        assert_eq!(verbs::ibv_dealloc_pd(made.pd), libc::EBUSY);
        assert_eq!(verbs::ibv_destroy_ah(ah), 0);
        let mut local = address(index);
        local.is_global = 0;
        assert!(verbs::ibv_create_ah(made.pd, &mut local).is_null());
        assert_eq!(errno(), libc::EINVAL);
        let (mut mac, mut vid) = ([9u8; 6], 0);
        let resolve = verbs::ibv_resolve_eth_l2_from_gid;
        assert_eq!(resolve(softverbs::context(), &mut address(index), mac.as_mut_ptr(), &mut vid), 0);
        assert_eq!((mac, vid), ([0; 6], 0xffff), "lo");
        let mut wc: ibv_wc = zeroed();
        let mut found = address(index);
        let mut grh: [u8; 40] = [0; 40];
        let from = verbs::ibv_init_ah_from_wc;
        let wc_at = (&raw mut wc).cast();
        assert_eq!(from(softverbs::context(), 1, wc_at, grh.as_mut_ptr().cast(), &mut found), -1);
        assert_eq!(errno(), libc::EINVAL, "no datagram");
        wc.wc_flags = 1;
        // IPv4 from 127.0.0.1 to 127.0.0.1.
        grh[20..]
            .copy_from_slice(&[69, 0, 0, 48, 0, 0, 64, 0, 64, 17, 0x3c, 0xbb, 127, 0, 0, 1, 127, 0, 0, 1]);
        let wc_at = (&raw mut wc).cast();
        assert_eq!(from(softverbs::context(), 1, wc_at, grh.as_mut_ptr().cast(), &mut found), 0);
        assert_eq!((found.grh.sgid_index, found.is_global), (index, 1));
        let ah = verbs::ibv_create_ah_from_wc(made.pd, wc_at, grh.as_mut_ptr().cast(), 1);
        assert!(!ah.is_null());
        assert_eq!(verbs::ibv_destroy_ah(ah), 0);
    }
}
