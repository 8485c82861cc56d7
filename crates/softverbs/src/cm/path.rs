// SPDX-License-Identifier: BSD-3-Clause
//! The path from an address of the host to a peer, from the routing table of the kernel.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use super::addr;
use crate::sys::{self, Errno};
use transport::roce::wire::PathMtu;

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Maximum length of an IP packet in bytes.
    pub mtu: usize,
    pub hop_limit: u8,
}

/// Length of the headers without IP in bytes: UDP, BTH, the longest extension headers of a full packet (RETH
/// and immediate data), ICRC.
const OVERHEAD: usize = 8 + 12 + 16 + 4 + 4;

impl Path {
    /// Whether full packets of this path MTU fit.
    pub(crate) fn fits(&self, mtu: PathMtu, peer: IpAddr) -> bool {
        let ip = if peer.is_ipv4() { 20 } else { 40 };
        mtu.bytes() + OVERHEAD + ip <= self.mtu
    }

    /// The largest path MTU that fits.
    pub(crate) fn largest(&self, peer: IpAddr) -> Option<PathMtu> {
        PathMtu::ALL.into_iter().rev().find(|mtu| self.fits(*mtu, peer))
    }
}

/// The path from `local` to `peer`; link-local addresses and groups of IPv6 need the interface `scope`. Sends
/// no packets.
/// ENETUNREACH and other errors of connect(2): there is no path.
pub(crate) fn find(local: IpAddr, peer: IpAddr, scope: u32) -> Result<Path, Errno> {
    let socket_addr = |ip, port| match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    };
    // With the port of RoCE: policy routing can depend on it.
    let peer = socket_addr(peer, 4791);
    let socket = sys::udp_socket(addr::family(&peer))?;
    addr::bind(&socket, &socket_addr(local, 0))?;
    if peer.ip().is_multicast() && peer.is_ipv6() {
        // connect(2) uses the scope ID of link-local groups only.
        let interface = i32::try_from(scope).map_err(|_| libc::EINVAL)?;
        sys::require_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, interface)?;
    }
    addr::connect(&socket, &peer)?;
    let (level, mtu, hops) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU, libc::IP_TTL),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU, libc::IPV6_UNICAST_HOPS),
    };
    let mtu = sys::get_option::<i32>(socket.as_raw_fd(), level, mtu)?;
    let hops = sys::get_option::<i32>(socket.as_raw_fd(), level, hops)?;
    Ok(Path { mtu: usize::try_from(mtu).unwrap_or(0), hop_limit: u8::try_from(hops).unwrap_or(64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_over_loopback_carries_4096_bytes() {
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let path = find(lo, lo, 0).unwrap();
        assert!(path.fits(PathMtu::Mtu4096, lo) && path.hop_limit > 0, "{path:?}");
        assert!(find(lo, "192.0.2.1".parse().unwrap(), 0).is_err(), "from 127.0.0.1 to another host");
    }

    #[test]
    fn the_largest_path_mtu_leaves_room_for_the_headers() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap());
        let largest = |mtu, ip| Path { mtu, hop_limit: 64 }.largest(ip).map(PathMtu::bytes);
        assert_eq!((largest(1500, v4), largest(1500, v6)), (Some(1024), Some(1024)));
        assert_eq!((largest(4160, v4), largest(4159, v4)), (Some(4096), Some(2048)));
        assert_eq!((largest(4180, v6), largest(4179, v6)), (Some(4096), Some(2048)));
        assert_eq!(largest(256, v4), None);
    }
}
