// SPDX-License-Identifier: BSD-3-Clause
//! Socket addresses: conversion between C and Rust, and the socket calls that take or return an address.
//!
//! Addresses from a program are converted here, once; from then on every address is a [`SocketAddr`], IPv4 or
//! IPv6.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::ptr::addr_of;

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrAny};

use crate::cancel::whole;
use crate::sys::{self, Errno, to_errno};

/// Reads a C socket address, which may be unaligned. EINVAL, as from librdmacm: `addr` is NULL, or its family
/// is neither AF_INET nor AF_INET6.
///
/// # Safety
///
/// `addr` must be NULL or point to a socket address that is as long as its family requires.
pub(crate) unsafe fn read(addr: *const sockaddr) -> Result<SocketAddr, Errno> {
    if addr.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: `addr` is not NULL, so by the contract of this function it points to a socket address, and
    // every socket address starts with its family.
    let len = match c_int::from(unsafe { addr_of!((*addr).sa_family).read_unaligned() }) {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: by the contract of this function the address is as long as its family requires, which is `len`.
    // rustix copies it, so it may be unaligned.
    of_ip(unsafe { SocketAddrAny::read(addr.cast(), len as socklen_t) })
}

/// Converts an address of a socket. EINVAL: it is neither IPv4 nor IPv6.
fn of_ip(addr: SocketAddrAny) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(addr).map_err(|_| libc::EINVAL)
}

/// The C form of an address, and its length.
pub(crate) fn to_storage(addr: &SocketAddr) -> (sockaddr_storage, socklen_t) {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    // SAFETY: `storage` is as large as any address and aligned for it. The bytes that are not written stay
    // zero, and all-zero is a valid sockaddr_storage, so it is initialised.
    unsafe {
        let len = addr.write_sockaddr(storage.as_mut_ptr().cast());
        (storage.assume_init(), len)
    }
}

/// AF_INET or AF_INET6.
pub(crate) fn family(addr: &SocketAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Binds a socket. Errors of bind(2).
pub(crate) fn bind(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    to_errno(rustix::net::bind(fd, addr))
}

/// Connects a socket. EINPROGRESS: the socket is non-blocking, and the connection is being established. Other
/// errors of connect(2).
pub(crate) fn connect(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    to_errno(rustix::net::connect(fd, addr))
}

/// The local address of a socket. Errors of getsockname(2).
pub(crate) fn local(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    of_ip(to_errno(rustix::net::getsockname(fd))?)
}

/// The address of the peer of a socket. ENOTCONN and other errors of getpeername(2).
pub(crate) fn peer(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    of_ip(to_errno(rustix::net::getpeername(fd))?.ok_or(libc::EINVAL)?)
}

/// The source address of the route to `dst`, with port 0. ENETUNREACH or another error of connect(2): there
/// is no route. No packet is sent.
pub(crate) fn source_for(dst: &SocketAddr) -> Result<SocketAddr, Errno> {
    whole(|| {
        let socket = sys::udp_socket(family(dst))?;
        connect(&socket, dst)?;
        let mut source = local(&socket)?;
        source.set_port(0);
        Ok(source)
    })
}

/// Whether `addr` is an address of this host.
pub(crate) fn is_of_this_host(addr: &SocketAddr) -> bool {
    addr.ip().is_loopback() || source_for(addr).is_ok_and(|source| source.ip() == addr.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_belong_to_this_host() {
        assert!(
            is_of_this_host(&"127.0.0.9:1".parse().unwrap()) && is_of_this_host(&"[::1]:1".parse().unwrap())
        );
        assert!(!is_of_this_host(&"192.0.2.1:1".parse().unwrap()));
    }

    /// connect(2) and close(2) are cancellation points.
    #[test]
    fn a_thread_is_not_cancelled_while_it_looks_for_a_route() {
        let looks = || {
            // SAFETY: the thread cancels itself; that is pending from here on.
            assert_eq!(unsafe { libc::pthread_cancel(libc::pthread_self()) }, 0);
            let found = is_of_this_host(&"192.0.2.1:1".parse().unwrap());
            // The thread ends uncancelled.
            std::mem::forget(crate::cancel::Whole::new());
            found
        };
        assert!(!std::thread::spawn(looks).join().unwrap());
    }

    #[test]
    fn an_address_is_the_same_after_conversion_to_c_and_back() {
        for text in ["127.0.0.1:7204", "[::1]:1", "[fe80::1%3]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            let (storage, _) = to_storage(&addr);
            // SAFETY: `to_storage` has written a whole address, and `storage` outlives the call.
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
    fn an_ipv6_address_keeps_all_its_fields() {
        let bytes = std::array::from_fn(|i| i as u8 + 1);
        let wanted = sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: 7204u16.to_be(),
            sin6_flowinfo: 0x000a_bcdeu32.to_be(),
            sin6_addr: libc::in6_addr { s6_addr: bytes },
            sin6_scope_id: 3,
        };
        // SAFETY: `wanted` is a whole sockaddr_in6 of family AF_INET6.
        let addr = unsafe { read(addr_of!(wanted).cast()) }.unwrap();
        assert_eq!(addr.to_string(), "[102:304:506:708:90a:b0c:d0e:f10%3]:7204");
        let (storage, len) = to_storage(&addr);
        assert_eq!(len as usize, size_of::<sockaddr_in6>());
        // SAFETY: `to_storage` has written a sockaddr_in6, and `storage` is aligned for it.
        let got = unsafe { addr_of!(storage).cast::<sockaddr_in6>().read() };
        assert_eq!((got.sin6_family, got.sin6_port), (wanted.sin6_family, wanted.sin6_port));
        assert_eq!((got.sin6_flowinfo, got.sin6_scope_id), (wanted.sin6_flowinfo, wanted.sin6_scope_id));
        assert_eq!(got.sin6_addr.s6_addr, bytes);
    }

    #[test]
    fn each_kind_of_address_has_its_family() {
        for (text, expected) in [("127.0.0.1:1", AddressFamily::INET), ("[::1]:1", AddressFamily::INET6)] {
            assert_eq!(family(&text.parse().unwrap()), expected);
        }
    }

    /// With UDP sockets: bind(2) and connect(2) set the same addresses as with TCP, and no packet is sent.
    #[test]
    fn bind_and_connect_set_the_addresses_or_return_an_errno() {
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
