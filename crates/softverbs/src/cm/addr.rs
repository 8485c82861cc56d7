// SPDX-License-Identifier: BSD-3-Clause
//! Socket addresses: conversion between C and Rust, and the socket calls that take addresses.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::ptr::addr_of;

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrAny};

use crate::sys::{self, Errno, to_errno};

/// Reads a C socket address. EINVAL if it is NULL or neither IPv4 nor IPv6, as from librdmacm.
///
/// # Safety
///
/// `addr` must be NULL or point to a socket address of the length that its family has.
pub(crate) unsafe fn read(addr: *const sockaddr) -> Result<SocketAddr, Errno> {
    if addr.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: `addr` is not NULL, so it points to a socket address, and each starts with its family.
    let len = match c_int::from(unsafe { addr_of!((*addr).sa_family).read_unaligned() }) {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: an address has the length of its family; it is copied, so it may be unaligned.
    of_ip(unsafe { SocketAddrAny::read(addr.cast(), len as socklen_t) })
}

/// EINVAL if it is neither IPv4 nor IPv6.
fn of_ip(addr: SocketAddrAny) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(addr).map_err(|_| libc::EINVAL)
}

/// The C form of an address.
pub(crate) fn to_storage(addr: &SocketAddr) -> (sockaddr_storage, socklen_t) {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    // SAFETY: `storage` is writable for the length of any address, and all-zero is valid behind this one.
    unsafe {
        let len = addr.write_sockaddr(storage.as_mut_ptr().cast());
        (storage.assume_init(), len)
    }
}

pub(crate) fn family(addr: &SocketAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

pub(crate) fn bind(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    to_errno(rustix::net::bind(fd, addr))
}

/// Connects a socket. EINPROGRESS on a non-blocking socket, among others.
pub(crate) fn connect(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    to_errno(rustix::net::connect(fd, addr))
}

/// The local address of a socket.
pub(crate) fn local(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    of_ip(to_errno(rustix::net::getsockname(fd))?)
}

/// The address of the peer of a socket.
pub(crate) fn peer(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    of_ip(to_errno(rustix::net::getpeername(fd))?.ok_or(libc::EINVAL)?)
}

/// The source address of the route to `dst`; ENETUNREACH or another error of connect(2) if there is no route.
pub(crate) fn source_for(dst: &SocketAddr) -> Result<SocketAddr, Errno> {
    let socket = sys::udp_socket(family(dst))?;
    connect(&socket, dst)?;
    let mut source = local(&socket)?;
    source.set_port(0);
    Ok(source)
}

/// Whether an address is one of this host.
pub(crate) fn is_of_this_host(addr: &SocketAddr) -> bool {
    addr.ip().is_loopback() || source_for(addr).is_ok_and(|source| source.ip() == addr.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_of_this_host() {
        assert!(
            is_of_this_host(&"127.0.0.9:1".parse().unwrap()) && is_of_this_host(&"[::1]:1".parse().unwrap())
        );
        assert!(!is_of_this_host(&"192.0.2.1:1".parse().unwrap()));
    }

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["127.0.0.1:7204", "[::1]:1", "[fe80::1%3]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            let (storage, _) = to_storage(&addr);
            // SAFETY: `storage` holds the address.
            assert_eq!(unsafe { read(addr_of!(storage).cast()) }, Ok(addr));
        }
        // SAFETY: NULL is allowed, and `unknown` is readable for the length of any address; family 0 is
        // AF_UNSPEC.
        unsafe {
            assert_eq!(read(std::ptr::null()), Err(libc::EINVAL));
            let unknown: sockaddr_storage = std::mem::zeroed();
            assert_eq!(read(addr_of!(unknown).cast()), Err(libc::EINVAL));
        }
    }

    #[test]
    fn an_ipv6_address_keeps_all_that_a_program_gives() {
        let bytes = std::array::from_fn(|i| i as u8 + 1);
        let wanted = sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: 7204u16.to_be(),
            sin6_flowinfo: 0x000a_bcdeu32.to_be(),
            sin6_addr: libc::in6_addr { s6_addr: bytes },
            sin6_scope_id: 3,
        };
        // SAFETY: it is an address of its family.
        let addr = unsafe { read(addr_of!(wanted).cast()) }.unwrap();
        assert_eq!(addr.to_string(), "[102:304:506:708:90a:b0c:d0e:f10%3]:7204");
        let (storage, len) = to_storage(&addr);
        assert_eq!(len as usize, size_of::<sockaddr_in6>());
        // SAFETY: `storage` is as large and aligned as any address.
        let got = unsafe { addr_of!(storage).cast::<sockaddr_in6>().read() };
        assert_eq!((got.sin6_family, got.sin6_port), (wanted.sin6_family, wanted.sin6_port));
        assert_eq!((got.sin6_flowinfo, got.sin6_scope_id), (wanted.sin6_flowinfo, wanted.sin6_scope_id));
        assert_eq!(got.sin6_addr.s6_addr, bytes);
    }

    #[test]
    fn a_family_is_that_of_the_address() {
        for (text, expected) in [("127.0.0.1:1", AddressFamily::INET), ("[::1]:1", AddressFamily::INET6)] {
            assert_eq!(family(&text.parse().unwrap()), expected);
        }
    }

    /// UDP sockets: they bind and connect as those of TCP do, and no packet is sent.
    #[test]
    fn sockets_have_the_addresses_they_are_given_or_report_why_not() {
        let socket = || sys::udp_socket(AddressFamily::INET).unwrap();
        let (first, second) = (socket(), socket());
        bind(&first, &"127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = local(&first).unwrap();
        assert!(addr.ip().is_loopback() && addr.port() != 0);
        assert_eq!(bind(&second, &addr), Err(libc::EADDRINUSE));
        assert_eq!(peer(&second), Err(libc::ENOTCONN));
        connect(&second, &addr).unwrap();
        assert_eq!(peer(&second), Ok(addr));
        let other_family = "[::1]:9".parse().unwrap();
        assert_eq!(connect(&socket(), &other_family), Err(libc::EAFNOSUPPORT));
        assert_eq!(source_for(&addr), Ok("127.0.0.1:0".parse().unwrap()));
    }
}
