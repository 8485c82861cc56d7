// SPDX-License-Identifier: BSD-3-Clause
//! The network interfaces of the host and their addresses.

use libc::{c_int, sockaddr, sockaddr_ll};
use rustix::net::AddressFamily;
use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use crate::cm::addr;
use crate::sys;

/// An address of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub ip: IpAddr,
    /// The index of its interface.
    pub interface: u32,
    /// Its interface is up.
    pub is_up: bool,
}

/// Calls `visit` with each entry of the list of getifaddrs(3): its name, flags and address.
///
/// The address that `visit` is given is NULL or has the length that its family has.
fn each(mut visit: impl FnMut(&CStr, u32, *const sockaddr)) {
    let mut list: *mut libc::ifaddrs = null_mut();
    // SAFETY: `list` is valid for the address of the result.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return;
    }
    let mut next: *const libc::ifaddrs = list;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list that getifaddrs has returned and that is freed only below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: the name of an interface is a C string.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        visit(name, entry.ifa_flags, entry.ifa_addr.cast());
    }
    // SAFETY: `list` was returned by getifaddrs and is not used afterwards.
    unsafe { libc::freeifaddrs(list) };
}

fn index_of(name: &CStr) -> u32 {
    // SAFETY: `name` is a C string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// The addresses of the host, loopback last, so that a program that takes the first one takes one that others
/// reach, if there is one. They are read each time: they may change.
pub(super) fn addresses() -> Vec<Address> {
    let mut all = Vec::new();
    each(|name, flags, address| {
        // SAFETY: the address of an interface is NULL or has the length that its family has (getifaddrs(3)).
        if let Ok(address) = unsafe { addr::read(address) } {
            let is_up = flags & libc::IFF_UP as u32 != 0;
            all.push(Address { ip: address.ip(), interface: index_of(name), is_up });
        }
    });
    all.sort_by_key(|address| address.ip.is_loopback());
    all
}

/// The hardware address of an Ethernet interface; zeros for loopback, as the kernel has it. `None`: there is
/// no such interface, or it has none of this length.
pub(super) fn mac(interface: u32) -> Option<[u8; 6]> {
    let mut found = None;
    each(|_, _, address| {
        // SAFETY: the address is NULL or begins with its family.
        if address.is_null() || c_int::from(unsafe { (*address).sa_family }) != libc::AF_PACKET {
            return;
        }
        // SAFETY: an address of family AF_PACKET is a sockaddr_ll.
        let link = unsafe { address.cast::<sockaddr_ll>().read_unaligned() };
        if u32::try_from(link.sll_ifindex) == Ok(interface) && link.sll_halen == 6 {
            let [a, b, c, d, e, f, ..] = link.sll_addr;
            found = Some([a, b, c, d, e, f]);
        }
    });
    found
}

/// Whether packets by this interface need the MAC address of a neighbour: it is an Ethernet interface with
/// ARP or neighbour discovery.
pub(super) fn has_neighbours(interface: u32) -> bool {
    const ETHERNET: u16 = 1; // ARPHRD_ETHER
    let mut found = false;
    each(|_, flags, address| {
        // SAFETY: the address is NULL or begins with its family.
        if address.is_null() || c_int::from(unsafe { (*address).sa_family }) != libc::AF_PACKET {
            return;
        }
        // SAFETY: an address of family AF_PACKET is a sockaddr_ll.
        let link = unsafe { address.cast::<sockaddr_ll>().read_unaligned() };
        found |= u32::try_from(link.sll_ifindex) == Ok(interface)
            && link.sll_hatype == ETHERNET
            && flags & libc::IFF_NOARP as u32 == 0;
    });
    found
}

/// The MTU of an interface; `None`: there is none.
pub(super) fn mtu(interface: u32) -> Option<usize> {
    let socket =
        sys::udp_socket(AddressFamily::INET).or_else(|_| sys::udp_socket(AddressFamily::INET6)).ok()?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = c_int::try_from(interface).ok()?;
    // SAFETY: the request has the index of an interface, and is valid for the name that is returned; the
    // second one has a name, and is valid for the MTU.
    unsafe {
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) != 0
            || libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) != 0
        {
            return None;
        }
        usize::try_from(request.ifr_ifru.ifru_mtu).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_an_address_an_mtu_and_a_mac() {
        let all = addresses();
        let loopback = all.iter().find(|address| address.ip.is_loopback()).expect("an address of lo");
        assert!(loopback.is_up && loopback.interface != 0);
        assert!(mtu(loopback.interface).is_some_and(|mtu| mtu >= 1280));
        assert_eq!(mac(loopback.interface), Some([0; 6]));
        assert_eq!((mtu(u32::MAX), mac(u32::MAX)), (None, None));
        assert!(!has_neighbours(loopback.interface) && !has_neighbours(u32::MAX));
        let first_loopback = all.iter().position(|address| address.ip.is_loopback()).unwrap();
        assert!(all[first_loopback..].iter().all(|address| address.ip.is_loopback()));
    }
}
