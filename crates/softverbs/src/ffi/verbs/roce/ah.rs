// SPDX-License-Identifier: BSD-3-Clause
//! Address handles: destinations of datagrams.

use rdma_sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 as UdWr;
use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_grh, ibv_pd, ibv_wc, ibv_wc_flags};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::addr_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::modify::{Network, Refusal, addresses};
use super::neighbour;
use crate::ffi::context::next_number;
use crate::ffi::object::Object;
use crate::ffi::verbs::pd::PdObject;
use crate::ffi::verbs::{PORT, interfaces};
use crate::sys::Errno;
use transport::roce::wire::{MULTICAST_QP, gid};
use transport::route::Route;
use transport::wr::Destination;

/// An address handle and the route of its datagrams.
type AhObject = Object<ibv_ah, Arc<Route>>;

/// The destination of a datagram. EINVAL: it has no address handle.
///
/// # Safety
///
/// The address handle must be NULL, or come from [`create`] and not have been destroyed.
pub(crate) unsafe fn destination(ud: UdWr) -> Result<Destination, Errno> {
    if ud.ah.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: it is not NULL, so it comes from `create` and has not been destroyed.
    let route = unsafe { AhObject::own(ud.ah) }.clone();
    Ok(Destination { route, qp: ud.remote_qpn & MULTICAST_QP, qkey: ud.remote_qkey })
}

/// The default hop limit of Linux, used if the program specifies none.
pub(super) const HOP_LIMIT: u8 = 64;

fn log<T>(call: &str, result: Result<T, Refusal>) -> Result<T, Errno> {
    result.map_err(|refusal| {
        log::warn!("{call}: {refusal}");
        refusal.errno
    })
}

/// Creates an address handle; also to an address of this host.
///
/// EINVAL: not a global route, an empty entry of the GID table, or a GID that is not an address.
///
/// # Safety
///
/// `pd` must be a protection domain of softverbs that has not been deallocated.
pub(super) unsafe fn create(
    pd: *mut ibv_pd,
    attr: &ibv_ah_attr,
    network: &impl Network,
) -> Result<*mut ibv_ah, Errno> {
    let (local, peer, scope) = log("ibv_create_ah", addresses(attr, network))?;
    let hop_limit = if attr.grh.hop_limit == 0 { HOP_LIMIT } else { attr.grh.hop_limit };
    let route = Route { local, peer, scope, traffic_class: attr.grh.traffic_class, hop_limit };
    // SAFETY: `pd` has not been deallocated, and its `context` never changes.
    let context = unsafe {
        PdObject::own(pd).users.fetch_add(1, Ordering::AcqRel);
        addr_of!((*pd).context).read()
    };
    Ok(AhObject::create(ibv_ah { context, pd, handle: next_number() }, Arc::new(route)))
}

/// Destroys an address handle.
///
/// # Safety
///
/// `ah` must come from [`create`] and not be used afterwards.
pub(super) unsafe fn destroy(ah: *mut ibv_ah) {
    // SAFETY: `ah` comes from `create` and is not used afterwards. Its protection domain cannot be
    // deallocated before `users` is decremented.
    unsafe {
        let pd = addr_of!((*ah).pd).read();
        PdObject::own(pd).users.fetch_sub(1, Ordering::AcqRel);
        AhObject::free(ah);
    }
}

/// The attributes of an address handle for the sender of a datagram, from its completion `wc` and the 40
/// bytes before its data, `grh`. `find`: the index of an address in the GID table.
///
/// EINVAL: the completion has no IBV_WC_GRH, or the destination is no longer in the GID table.
pub(super) fn sender(
    wc: &ibv_wc,
    grh: &ibv_grh,
    find: impl FnOnce(IpAddr) -> Option<usize>,
) -> Result<ibv_ah_attr, Errno> {
    if wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 == 0 {
        log::warn!(
            "ibv_init_ah_from_wc: the completion has no IBV_WC_GRH, so it is not the completion of a RoCE datagram"
        );
        return Err(libc::EINVAL);
    }
    // SAFETY: an ibv_grh is 40 bytes without padding.
    let bytes = unsafe { &*std::ptr::from_ref(grh).cast::<[u8; 40]>() };
    let header = Header::parse(bytes);
    let Some(index) = find(header.to).and_then(|index| u8::try_from(index).ok()) else {
        log::warn!(
            "ibv_init_ah_from_wc: the GID table has no entry for {}, which the datagram was sent to",
            header.to
        );
        return Err(libc::EINVAL);
    };
    // SAFETY: all-zero is a valid ibv_ah_attr.
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    attr.src_path_bits = wc.dlid_path_bits;
    attr.port_num = PORT;
    attr.is_global = 1;
    attr.grh.dgid.raw = gid(header.from);
    attr.grh.sgid_index = index;
    attr.grh.flow_label = header.flow_label;
    attr.grh.traffic_class = header.traffic_class;
    attr.grh.hop_limit = header.hop_limit;
    Ok(attr)
}

/// The fields of an IP header that an address handle needs.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    from: IpAddr,
    to: IpAddr,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
}

impl Header {
    /// An IPv4 header is the last 20 bytes and has a correct checksum; an IPv6 header is all 40 bytes.
    fn parse(grh: &[u8; 40]) -> Self {
        let ipv4 = &grh[20..];
        let is_ipv4 = ipv4[0] == 0x45 && has_checksum(ipv4);
        if is_ipv4 {
            let at = |i: usize| IpAddr::from(Ipv4Addr::new(ipv4[i], ipv4[i + 1], ipv4[i + 2], ipv4[i + 3]));
            let (traffic_class, hop_limit) = (ipv4[1], ipv4[8]);
            return Self { from: at(12), to: at(16), traffic_class, flow_label: 0, hop_limit };
        }
        let [a, b, c, d] = [grh[0], grh[1], grh[2], grh[3]];
        let first = u32::from_be_bytes([a, b, c, d]);
        let at = |i: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&grh[i..i + 16]);
            Ipv6Addr::from(octets).to_canonical()
        };
        Self {
            from: at(8),
            to: at(24),
            traffic_class: ((first >> 20) & 0xff) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit: grh[7],
        }
    }
}

/// Whether the checksum of an IPv4 header is correct.
fn has_checksum(header: &[u8]) -> bool {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    (sum >> 16) + (sum & 0xffff) == 0xffff
}

/// The MAC address for packets to the destination: that of the interface for an address of this host,
/// otherwise that of the neighbour, which is the peer or the next router.
///
/// EINVAL as for [`create`]; EHOSTUNREACH: no neighbour answers; the error of the route.
pub(super) fn resolve(attr: &ibv_ah_attr, network: &impl Network) -> Result<[u8; 6], Errno> {
    const CALL: &str = "ibv_resolve_eth_l2_from_gid";
    let (local, peer, scope) = log(CALL, addresses(attr, network))?;
    if peer.is_loopback() {
        return Ok([0; 6]);
    }
    if let Some(own) = interfaces::addresses().into_iter().find(|address| address.ip == peer) {
        return interfaces::mac(own.interface).ok_or(libc::EOPNOTSUPP);
    }
    neighbour::find(local, peer, scope).inspect_err(|&e| {
        log::warn!("{CALL}: no hardware address for {peer}: {}", io::Error::from_raw_os_error(e));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: [u8; 20] =
        [0x45, 0x20, 0, 0x30, 0, 0, 0x40, 0, 0x3f, 0x11, 0x26, 0xfb, 10, 80, 0, 2, 10, 80, 0, 1];

    fn grh(bytes: [u8; 40]) -> ibv_grh {
        // SAFETY: an ibv_grh is 40 bytes of integers.
        unsafe { std::mem::transmute(bytes) }
    }

    fn with_ipv4() -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[20..].copy_from_slice(&IPV4);
        bytes
    }

    fn completion(wc_flags: u32) -> ibv_wc {
        // SAFETY: all-zero is a valid ibv_wc.
        let mut wc: ibv_wc = unsafe { std::mem::zeroed() };
        wc.wc_flags = wc_flags;
        wc
    }

    #[test]
    fn the_sender_of_a_datagram_over_ipv4_is_in_its_last_20_bytes() {
        let to: IpAddr = "10.80.0.1".parse().unwrap();
        let attr = sender(&completion(1), &grh(with_ipv4()), |ip| (ip == to).then_some(3)).unwrap();
        let from: IpAddr = "10.80.0.2".parse().unwrap();
        assert_eq!(super::super::modify::gid_of(&attr), gid(from));
        assert_eq!((attr.is_global, attr.port_num, attr.grh.sgid_index), (1, 1, 3));
        assert_eq!((attr.grh.traffic_class, attr.grh.hop_limit, attr.grh.flow_label), (0x20, 63, 0));
    }

    #[test]
    fn the_sender_of_a_datagram_over_ipv6_is_in_the_header() {
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&[0x62, 0x01, 0x23, 0x45, 0, 0, 17, 9]);
        bytes[8..24].copy_from_slice(&"fe80::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes[24..].copy_from_slice(&"fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        let (from, to) = ("fe80::2".parse().unwrap(), "fe80::1".parse().unwrap());
        let expected = Header { from, to, traffic_class: 0x20, flow_label: 0x12345, hop_limit: 9 };
        assert_eq!(Header::parse(&bytes), expected);
    }

    #[test]
    fn a_datagram_to_no_address_of_the_host_or_without_grh_has_no_sender() {
        assert_eq!(sender(&completion(1), &grh(with_ipv4()), |_| None).err(), Some(libc::EINVAL));
        assert_eq!(sender(&completion(0), &grh(with_ipv4()), |_| Some(0)).err(), Some(libc::EINVAL));
    }
}
