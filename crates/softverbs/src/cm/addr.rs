// SPDX-License-Identifier: BSD-3-Clause
//! Socket addresses: conversion between C and Rust, and the socket calls that take addresses.

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::addr_of;

use crate::sys::{self, Errno};

/// The size of an address of any family.
const STORAGE_LEN: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

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
    match c_int::from(unsafe { addr_of!((*addr).sa_family).read() }) {
        libc::AF_INET => {
            // SAFETY: an address of family AF_INET is a sockaddr_in; it may be unaligned.
            let v4 = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of family AF_INET6 is a sockaddr_in6; it may be unaligned.
            let v6 = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => Err(libc::EINVAL),
    }
}

/// The C form of an address.
pub(crate) fn to_storage(addr: &SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let to: *mut sockaddr_storage = &mut storage;
    match addr {
        SocketAddr::V4(v4) => {
            let from = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage is large enough and aligned for a sockaddr_in.
            unsafe { to.cast::<sockaddr_in>().write(from) };
            (storage, size_of::<sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(v6) => {
            let from = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: a sockaddr_storage is large enough and aligned for a sockaddr_in6.
            unsafe { to.cast::<sockaddr_in6>().write(from) };
            (storage, size_of::<sockaddr_in6>() as socklen_t)
        }
    }
}

pub(crate) fn family(addr: &SocketAddr) -> c_int {
    if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn check(ret: c_int) -> Result<(), Errno> {
    if ret < 0 { Err(sys::errno()) } else { Ok(()) }
}

pub(crate) fn bind(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    let (storage, len) = to_storage(addr);
    // SAFETY: `storage` holds an address of `len` bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), addr_of!(storage).cast(), len) })
}

/// Connects a socket. EINPROGRESS on a non-blocking socket, among others.
pub(crate) fn connect(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    let (storage, len) = to_storage(addr);
    // SAFETY: `storage` holds an address of `len` bytes and outlives the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), addr_of!(storage).cast(), len) })
}

type NameCall = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

fn name(fd: &OwnedFd, call: NameCall) -> Result<SocketAddr, Errno> {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = STORAGE_LEN;
    // SAFETY: `storage` is writable for `len` bytes, and `call` is getsockname or getpeername, which writes
    // no more.
    check(unsafe { call(fd.as_raw_fd(), storage.as_mut_ptr().cast(), &mut len) })?;
    // SAFETY: the call has stored an address, and all of `storage` is initialised, so it has the length of
    // any family.
    unsafe { read(storage.as_ptr().cast()) }
}

/// The local address of a socket.
pub(crate) fn local(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    name(fd, libc::getsockname)
}

/// The address of the peer of a socket.
pub(crate) fn peer(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    name(fd, libc::getpeername)
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
    fn a_family_is_that_of_the_address() {
        for (text, expected) in [("127.0.0.1:1", libc::AF_INET), ("[::1]:1", libc::AF_INET6)] {
            assert_eq!(family(&text.parse().unwrap()), expected);
        }
    }

    /// UDP sockets: they bind and connect as those of TCP do, and no packet is sent.
    #[test]
    fn sockets_have_the_addresses_they_are_given_or_report_why_not() {
        let socket = || sys::udp_socket(libc::AF_INET).unwrap();
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
