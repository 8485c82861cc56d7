// SPDX-License-Identifier: BSD-3-Clause
//! rdma_getaddrinfo(3) and rdma_freeaddrinfo(3).

use std::ffi::CStr;

use libc::{c_char, c_int, sockaddr, sockaddr_storage};
use rdma_sys::rdma_addrinfo;
use std::net::SocketAddr;
use std::ptr::{addr_of, addr_of_mut, null_mut};

use crate::cm::addr::{family, read, to_storage};
use crate::ffi::object::Object;

type AddrInfoObject = Object<rdma_addrinfo, Box<sockaddr_storage>>;

/// Whether a service is a port, or may be a name. getaddrinfo(3) takes the lower 16 bits of any number, and no service for an empty one:
/// the program would listen somewhere else than it believes.
fn may_be_service(service: &[u8]) -> bool {
    let text = service.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        text => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return !text.is_empty();
    }
    let port = digits.iter().fold(0u32, |port, digit| (port * 10 + u32::from(digit - b'0')).min(65_536));
    !negative && port <= 65_535
}

/// Resolves a host name and a service name to IPv4 and IPv6 addresses. Returns 0 or an `EAI_*` error of getaddrinfo(3); EAI_SERVICE also for a port number that there
/// is not.
///
/// # Safety
///
/// As for rdma_getaddrinfo(3).
pub unsafe fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    const RAI_PASSIVE: c_int = 1;
    // SAFETY: `service` is NULL or a C string (rdma_getaddrinfo(3)).
    if !service.is_null() && !may_be_service(unsafe { CStr::from_ptr(service) }.to_bytes()) {
        return libc::EAI_SERVICE;
    }
    const RAI_NUMERICHOST: c_int = 2;
    // SAFETY: all-zero is a valid addrinfo and a valid rdma_addrinfo.
    let (mut ask, none): (libc::addrinfo, rdma_addrinfo) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let hints = if hints.is_null() { &raw const none } else { hints };
    // SAFETY: `hints` points to `none` or to the rdma_addrinfo that the caller has passed.
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
    // SAFETY: `node` and `service` are NULL or C strings (rdma_getaddrinfo(3)); `ask` and `found` outlive the call.
    let ret = unsafe { libc::getaddrinfo(node, service, &ask, &mut found) };
    if ret != 0 {
        return ret;
    }
    let mut first: *mut rdma_addrinfo = null_mut();
    let mut link: *mut *mut rdma_addrinfo = &mut first;
    let mut next: *const libc::addrinfo = found;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list that getaddrinfo has returned and that is freed only below.
        let entry = unsafe { &*next };
        next = entry.ai_next;
        // SAFETY: getaddrinfo stores an address of the length that its family has.
        let Ok(addr) = (unsafe { read(entry.ai_addr) }) else { continue };
        let info = make_info(&addr, passive, qp_type, port_space);
        // SAFETY: `link` is the address of `first` or of ai_next in the last entry, and no entry has been freed.
        unsafe {
            link.write(info);
            link = addr_of_mut!((*info).ai_next);
        }
    }
    // SAFETY: `found` was returned by getaddrinfo and is not used afterwards; the new entries have copies of the addresses.
    unsafe { libc::freeaddrinfo(found) };
    if first.is_null() {
        return libc::EAI_NONAME;
    }
    // SAFETY: `res` points to a pointer for the result (rdma_getaddrinfo(3)).
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

/// Frees the result of [`rdma_getaddrinfo`].
///
/// # Safety
///
/// As for rdma_freeaddrinfo(3).
pub unsafe fn rdma_freeaddrinfo(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: `info` is an entry of a list that [`rdma_getaddrinfo`] has created and that has not been freed; its successor is read
        // before it is freed.
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
    use std::ptr::null;

    #[test]
    fn a_service_is_a_port_or_a_name() {
        for service in
            ["65536", "99999", "18446744073709551616", "99999999999999999999999", "-1", "-0", "", "  ", "1x"]
        {
            let service = std::ffi::CString::new(service).unwrap();
            let mut res = null_mut();
            // SAFETY: the hints are NULL and both names C strings.
            let ret = unsafe { rdma_getaddrinfo(c"127.0.0.1".as_ptr(), service.as_ptr(), null(), &mut res) };
            assert_eq!((ret, res), (libc::EAI_SERVICE, null_mut()), "{service:?}");
        }
        for service in [&b"0"[..], b"1", b"65535", b"0065535", b" 80", b"+80", b"http", b"x-1"] {
            assert!(may_be_service(service), "{service:?}");
        }
    }

    #[test]
    fn a_numeric_name_is_looked_up() {
        for (passive, node) in [(1, c"::1"), (0, c"127.0.0.1")] {
            // SAFETY: all-zero hints are valid, both names are C strings, and the result is freed once.
            unsafe {
                let mut hints: rdma_addrinfo = std::mem::zeroed();
                hints.ai_flags = passive;
                let mut res = null_mut();
                assert_eq!(rdma_getaddrinfo(node.as_ptr(), c"7204".as_ptr(), &hints, &mut res), 0);
                assert_eq!((*res).ai_src_addr.is_null(), passive == 0);
                assert_eq!((*res).ai_dst_addr.is_null(), passive == 1);
                rdma_freeaddrinfo(res);
            }
        }
    }
}
