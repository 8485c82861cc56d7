// SPDX-License-Identifier: BSD-3-Clause
//! Addresses: names to addresses, C socket addresses to Rust's and back, and the socket calls that take them.

use libc::{c_char, c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use rdma_sys::rdma_addrinfo;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use crate::ffi::object::Object;
use crate::sys::{self, Errno};

/// Room for an address of any family that we know.
const STORAGE_LEN: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

/// Reads a C socket address; EAFNOSUPPORT when it is neither IPv4 nor IPv6, EINVAL when it is NULL.
///
/// # Safety
///
/// `addr` must be NULL or point to a socket address as long as its family says.
pub(super) unsafe fn read(addr: *const sockaddr) -> Result<SocketAddr, Errno> {
    if addr.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise; every socket address has a family.
    match c_int::from(unsafe { addr_of!((*addr).sa_family).read() }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is this structure.
            let v4 = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is this structure.
            let v6 = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// The C form of an address.
pub(super) fn to_storage(addr: &SocketAddr) -> (sockaddr_storage, socklen_t) {
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
            // SAFETY: a sockaddr_storage has room and alignment for any socket address.
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
            // SAFETY: as above.
            unsafe { to.cast::<sockaddr_in6>().write(from) };
            (storage, size_of::<sockaddr_in6>() as socklen_t)
        }
    }
}

pub(super) fn family(addr: &SocketAddr) -> c_int {
    if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn check(ret: c_int) -> Result<(), Errno> {
    if ret < 0 { Err(sys::errno()) } else { Ok(()) }
}

pub(super) fn bind(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    let (storage, len) = to_storage(addr);
    // SAFETY: the address is readable for its length.
    check(unsafe { libc::bind(fd.as_raw_fd(), addr_of!(storage).cast(), len) })
}

/// Connects a socket; EINPROGRESS from a non-blocking one is the caller's to handle.
pub(super) fn connect(fd: &OwnedFd, addr: &SocketAddr) -> Result<(), Errno> {
    let (storage, len) = to_storage(addr);
    // SAFETY: the address is readable for its length.
    check(unsafe { libc::connect(fd.as_raw_fd(), addr_of!(storage).cast(), len) })
}

type NameCall = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

fn name(fd: &OwnedFd, call: NameCall) -> Result<SocketAddr, Errno> {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut len = STORAGE_LEN;
    // SAFETY: the storage is writable for the length given.
    check(unsafe { call(fd.as_raw_fd(), storage.as_mut_ptr().cast(), &mut len) })?;
    // SAFETY: the call has filled in an address; all of the storage is readable.
    unsafe { read(storage.as_ptr().cast()) }
}

/// The address that a socket has on this host.
pub(super) fn local(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    name(fd, libc::getsockname)
}

/// The address of a socket's peer.
pub(super) fn peer(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    name(fd, libc::getpeername)
}

/// The address that this host would use to reach `dst`; ENETUNREACH and the like when it has no way.
pub(super) fn source_for(dst: &SocketAddr) -> Result<SocketAddr, Errno> {
    let socket = sys::udp_socket(family(dst))?;
    connect(&socket, dst)?;
    let mut source = local(&socket)?;
    source.set_port(0);
    Ok(source)
}

type AddrInfoObject = Object<rdma_addrinfo, Box<sockaddr_storage>>;

/// Looks up a name. 0, or an EAI error of getaddrinfo(3).
///
/// # Safety
///
/// As for rdma_getaddrinfo(3).
pub(super) unsafe fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    const RAI_PASSIVE: c_int = 1;
    const RAI_NUMERICHOST: c_int = 2;
    // SAFETY: all-zero is a valid addrinfo and rdma_addrinfo.
    let (mut ask, none): (libc::addrinfo, rdma_addrinfo) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let hints = if hints.is_null() { &raw const none } else { hints };
    // SAFETY: the hints are readable, by the caller's promise.
    let (flags, qp_type, port_space) = unsafe {
        (
            addr_of!((*hints).ai_flags).read(),
            addr_of!((*hints).ai_qp_type).read(),
            addr_of!((*hints).ai_port_space).read(),
        )
    };
    let passive = flags & RAI_PASSIVE != 0;
    ask.ai_socktype = libc::SOCK_STREAM;
    ask.ai_flags = if passive { libc::AI_PASSIVE } else { 0 }
        | if flags & RAI_NUMERICHOST != 0 { libc::AI_NUMERICHOST } else { 0 };
    let mut found: *mut libc::addrinfo = null_mut();
    // SAFETY: node and service are NULL or strings, by the caller's promise.
    let ret = unsafe { libc::getaddrinfo(node, service, &ask, &mut found) };
    if ret != 0 {
        return ret;
    }
    let mut first: *mut rdma_addrinfo = null_mut();
    let mut link: *mut *mut rdma_addrinfo = &mut first;
    let mut next: *const libc::addrinfo = found;
    while !next.is_null() {
        // SAFETY: getaddrinfo has made a list of valid entries.
        let entry = unsafe { &*next };
        next = entry.ai_next;
        // SAFETY: the entry's address is valid for its family.
        let Ok(addr) = (unsafe { read(entry.ai_addr) }) else { continue };
        let info = make_info(&addr, passive, qp_type, port_space);
        // SAFETY: `link` is the address of `first` or of the last entry's ai_next, both alive.
        unsafe {
            link.write(info);
            link = addr_of_mut!((*info).ai_next);
        }
    }
    // SAFETY: `found` came from getaddrinfo.
    unsafe { libc::freeaddrinfo(found) };
    if first.is_null() {
        return libc::EAI_NONAME;
    }
    // SAFETY: the output is writable, by the caller's promise.
    unsafe { res.write(first) };
    0
}

fn make_info(addr: &SocketAddr, passive: bool, qp_type: c_int, port_space: c_int) -> *mut rdma_addrinfo {
    let (storage, len) = to_storage(addr);
    let mut storage = Box::new(storage);
    let address: *mut sockaddr = (&raw mut *storage).cast();
    // SAFETY: all-zero is a valid rdma_addrinfo.
    let mut info: rdma_addrinfo = unsafe { std::mem::zeroed() };
    info.ai_family = family(addr);
    info.ai_qp_type = if qp_type == 0 { rdma_sys::ibv_qp_type::IBV_QPT_RC as c_int } else { qp_type };
    info.ai_port_space =
        if port_space == 0 { rdma_sys::rdma_port_space::RDMA_PS_TCP as c_int } else { port_space };
    if passive {
        info.ai_src_len = len;
        info.ai_src_addr = address;
    } else {
        info.ai_dst_len = len;
        info.ai_dst_addr = address;
    }
    AddrInfoObject::create(info, storage)
}

/// Frees what [`getaddrinfo`] gave.
///
/// # Safety
///
/// As for rdma_freeaddrinfo(3).
pub(super) unsafe fn freeaddrinfo(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: the caller's promise: a list made by getaddrinfo above.
        unsafe {
            let next = addr_of!((*info).ai_next).read();
            AddrInfoObject::free(info);
            info = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["127.0.0.1:7204", "[::1]:1", "[fe80::1%3]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            let (storage, _) = to_storage(&addr);
            // SAFETY: the storage holds an address.
            assert_eq!(unsafe { read(addr_of!(storage).cast()) }, Ok(addr));
        }
        // SAFETY: NULL is allowed; an address family of 0 is none that we know.
        unsafe {
            assert_eq!(read(std::ptr::null()), Err(libc::EINVAL));
            let unknown: sockaddr_storage = std::mem::zeroed();
            assert_eq!(read(addr_of!(unknown).cast()), Err(libc::EAFNOSUPPORT));
        }
    }

    #[test]
    fn a_numeric_name_is_looked_up() {
        for (passive, node) in [(1, c"::1"), (0, c"127.0.0.1")] {
            // SAFETY: all-zero hints are valid, the strings end with NUL, and the result is freed once.
            unsafe {
                let mut hints: rdma_addrinfo = std::mem::zeroed();
                hints.ai_flags = passive;
                let mut res = null_mut();
                assert_eq!(getaddrinfo(node.as_ptr(), c"7204".as_ptr(), &hints, &mut res), 0);
                assert_eq!((*res).ai_src_addr.is_null(), passive == 0);
                assert_eq!((*res).ai_dst_addr.is_null(), passive == 1);
                freeaddrinfo(res);
            }
        }
    }
}
