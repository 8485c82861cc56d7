// SPDX-License-Identifier: BSD-3-Clause
//! Name resolution: rdma_getaddrinfo(3) and rdma_freeaddrinfo(3).
//!
//! getaddrinfo(3) resolves the names. Every block of a result comes from calloc(3), so a program may free and
//! replace the addresses in it, as with librdmacm.

use std::ffi::CStr;

use libc::{c_char, c_int, sockaddr, socklen_t};
use rdma_sys::rdma_addrinfo;
use std::net::SocketAddr;
use std::ptr::{addr_of_mut, null_mut};

use super::finish;
use crate::cm::addr::{family, read, to_storage};

pub(super) const PASSIVE: c_int = rdma_sys::RAI_PASSIVE as c_int;
const NUMERICHOST: c_int = rdma_sys::RAI_NUMERICHOST as c_int;
const FAMILY: c_int = rdma_sys::RAI_FAMILY as c_int;

/// Whether a service is a port number or may be a name. getaddrinfo(3) must not see an invalid number: it
/// uses the lower 16 bits of any number, and treats an empty string as no service, so the program would use
/// another port than it believes.
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

/// Resolves the host name `node` and the service name or port number `service` to IPv4 and IPv6 addresses,
/// and stores a list of results in `res`, which the caller frees with [`rdma_freeaddrinfo`]. The addresses
/// are source addresses with RAI_PASSIVE, otherwise destination addresses; the source address of an active
/// result is `ai_src_addr` of the hints. Without `node` and `service` the result has the addresses of the
/// hints.
///
/// In `ai_flags` of the hints, RAI_PASSIVE, RAI_NUMERICHOST and RAI_FAMILY (with `ai_family`) are supported;
/// RAI_NOROUTE has no effect, because no route is resolved here. `ai_qp_type` and `ai_port_space` select the
/// type of service; if both are 0, IBV_QPT_RC and RDMA_PS_TCP.
///
/// Returns 0 or an `EAI_*` error of getaddrinfo(3): EAI_SERVICE also for a port number above 65535,
/// EAI_SOCKTYPE if queue pair type and port space do not match, EAI_FAMILY for a family other than AF_INET
/// and AF_INET6, EAI_NONAME if neither a name nor the hints have an address, EAI_MEMORY if out of memory. If
/// `node`, `service` and `hints` are all NULL, returns -1 and errno EINVAL, as librdmacm does.
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
    if node.is_null() && service.is_null() && hints.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `service` is not NULL here, so rdma_getaddrinfo(3) requires that it is a C string.
    if !service.is_null() && !may_be_service(unsafe { CStr::from_ptr(service) }.to_bytes()) {
        return libc::EAI_SERVICE;
    }
    // SAFETY: the requirements of `Hints::read` are those of rdma_getaddrinfo(3), which the caller meets.
    let hints = match unsafe { Hints::read(hints) } {
        Ok(hints) => hints,
        Err(e) => return e,
    };
    if node.is_null() && service.is_null() {
        let given = if hints.passive() { hints.src } else { hints.dst };
        if given.is_none() {
            return libc::EAI_NONAME;
        }
        return match make_info(&hints, hints.src, hints.dst.filter(|_| !hints.passive())) {
            Ok(info) => {
                // SAFETY: rdma_getaddrinfo(3) requires that `res` is valid for writes of a pointer.
                unsafe { res.write(info) };
                0
            }
            Err(e) => e,
        };
    }
    // SAFETY: all-zero is a valid addrinfo: it holds only integers and nullable pointers.
    let mut criteria: libc::addrinfo = unsafe { std::mem::zeroed() };
    criteria.ai_socktype = if hints.qp_type == UD { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    criteria.ai_family = hints.family;
    criteria.ai_flags = if hints.passive() { libc::AI_PASSIVE } else { 0 }
        | if hints.flags & NUMERICHOST != 0 { libc::AI_NUMERICHOST } else { 0 };
    let mut found: *mut libc::addrinfo = null_mut();
    // SAFETY: rdma_getaddrinfo(3) requires that `node` and `service` are NULL or C strings; `criteria` and
    // `found` are local variables.
    let ret = unsafe { libc::getaddrinfo(node, service, &criteria, &mut found) };
    if ret != 0 {
        return ret;
    }
    let mut first: *mut rdma_addrinfo = null_mut();
    let mut link: *mut *mut rdma_addrinfo = &mut first;
    let mut next: *const libc::addrinfo = found;
    let mut result = libc::EAI_NONAME;
    while !next.is_null() {
        // SAFETY: `next` is not NULL, so it is an entry of the list that getaddrinfo has returned, which is
        // freed only after the loop.
        let entry = unsafe { &*next };
        next = entry.ai_next;
        // SAFETY: getaddrinfo stores in each entry an address as long as its family requires.
        let Ok(addr) = (unsafe { read(entry.ai_addr) }) else { continue };
        let (src, dst) = if hints.passive() { (Some(addr), None) } else { (hints.src, Some(addr)) };
        let info = match make_info(&hints, src, dst) {
            Ok(info) => info,
            Err(e) => {
                result = e;
                break;
            }
        };
        result = 0;
        // SAFETY: `link` is the address of `first` or of `ai_next` in the last entry of the new list, and no
        // entry of it has been freed.
        unsafe {
            link.write(info);
            link = addr_of_mut!((*info).ai_next);
        }
    }
    // SAFETY: `found` was returned by getaddrinfo and is not used afterwards; the new list has copies of the
    // addresses.
    unsafe { libc::freeaddrinfo(found) };
    if result == 0 {
        // SAFETY: rdma_getaddrinfo(3) requires that `res` is valid for writes of a pointer.
        unsafe { res.write(first) };
    } else {
        // SAFETY: `first` is NULL or the list built above, to which nothing else points.
        unsafe { rdma_freeaddrinfo(first) };
    }
    result
}

const UD: c_int = rdma_sys::ibv_qp_type::IBV_QPT_UD as c_int;

/// The hints that are supported, with defaults filled in.
struct Hints {
    flags: c_int,
    family: c_int,
    qp_type: c_int,
    port_space: c_int,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
}

impl Hints {
    /// Reads hints; NULL selects the defaults. EAI_FAMILY: a family or an address that is neither IPv4 nor
    /// IPv6. EAI_SOCKTYPE: queue pair type and port space do not match.
    ///
    /// # Safety
    ///
    /// `hints` must be NULL or as for rdma_getaddrinfo(3).
    unsafe fn read(hints: *const rdma_addrinfo) -> Result<Self, c_int> {
        use rdma_sys::ibv_qp_type::IBV_QPT_RC;
        use rdma_sys::rdma_port_space::{RDMA_PS_TCP, RDMA_PS_UDP};
        let (rc, tcp, udp) = (IBV_QPT_RC as c_int, RDMA_PS_TCP as c_int, RDMA_PS_UDP as c_int);
        if hints.is_null() {
            return Ok(Self { flags: 0, family: 0, qp_type: rc, port_space: tcp, src: None, dst: None });
        }
        // SAFETY: `hints` is not NULL, so the caller guarantees that it points to an rdma_addrinfo; it holds
        // only integers and addresses, and is copied.
        let given = unsafe { hints.read() };
        let (qp_type, port_space) = match (given.ai_qp_type, given.ai_port_space) {
            (0, 0) => (rc, tcp),
            (0, ps) => (if ps == udp { UD } else { rc }, ps),
            (qp_type, 0) => (qp_type, if qp_type == UD { udp } else { tcp }),
            given => given,
        };
        if (qp_type == rc && port_space == udp) || (qp_type == UD && port_space == tcp) {
            return Err(libc::EAI_SOCKTYPE);
        }
        let family = if given.ai_flags & FAMILY == 0 { libc::AF_UNSPEC } else { given.ai_family };
        if !matches!(family, libc::AF_UNSPEC | libc::AF_INET | libc::AF_INET6) {
            return Err(libc::EAI_FAMILY);
        }
        let address = |addr: *mut sockaddr, len| {
            if len == 0 {
                return Ok(None);
            }
            // SAFETY: the length is not 0, so rdma_getaddrinfo(3) requires that `addr` points to an address
            // as long as its family requires.
            unsafe { read(addr) }.map(Some).map_err(|_| libc::EAI_FAMILY)
        };
        Ok(Self {
            flags: given.ai_flags,
            family,
            qp_type,
            port_space,
            src: address(given.ai_src_addr, given.ai_src_len)?,
            dst: address(given.ai_dst_addr, given.ai_dst_len)?,
        })
    }

    fn passive(&self) -> bool {
        self.flags & PASSIVE != 0
    }
}

/// Copies `value` to a block of calloc(3), which the program may free and replace. EAI_MEMORY.
fn allocate<T: Copy>(value: T) -> Result<*mut T, c_int> {
    // SAFETY: calloc(3) has no requirement on its arguments; the result is checked below.
    let block: *mut T = unsafe { libc::calloc(1, size_of::<T>()) }.cast();
    if block.is_null() {
        return Err(libc::EAI_MEMORY);
    }
    // SAFETY: the block is not NULL, as large as a `T` and aligned for any type, and nothing else points to
    // it.
    unsafe { block.write(value) };
    Ok(block)
}

/// Creates an entry of a result. The entry and each address in it are blocks of calloc(3). EAI_MEMORY.
fn make_info(
    hints: &Hints,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
) -> Result<*mut rdma_addrinfo, c_int> {
    let address = |addr: Option<SocketAddr>| -> Result<(*mut sockaddr, socklen_t), c_int> {
        let Some(addr) = addr else { return Ok((null_mut(), 0)) };
        let (storage, len) = to_storage(&addr);
        Ok((allocate(storage)?.cast(), len))
    };
    // SAFETY: all-zero is a valid rdma_addrinfo: it holds only integers and nullable pointers.
    let info = allocate(unsafe { std::mem::zeroed::<rdma_addrinfo>() })?;
    // SAFETY: `info` is a new block with an rdma_addrinfo, to which nothing else points.
    let filled = (|| unsafe {
        (*info).ai_flags = hints.flags & PASSIVE;
        (*info).ai_family = dst.or(src).map_or(libc::AF_UNSPEC, |addr| family(&addr).as_raw().into());
        (*info).ai_qp_type = hints.qp_type;
        (*info).ai_port_space = hints.port_space;
        ((*info).ai_src_addr, (*info).ai_src_len) = address(src)?;
        ((*info).ai_dst_addr, (*info).ai_dst_len) = address(dst)?;
        Ok(())
    })();
    match filled {
        Ok(()) => Ok(info),
        Err(e) => {
            // SAFETY: the program has not seen `info`; each address in it is NULL or a block of calloc(3)
            // from `address`.
            unsafe { rdma_freeaddrinfo(info) };
            Err(e)
        }
    }
}

/// Frees a list of results with free(3): each entry, its addresses, its canonical names, and its route and
/// connection data. As with librdmacm, a program may replace these, or pass a list that it has built itself,
/// provided that each is NULL or a block of malloc(3). Does nothing for NULL.
///
/// # Safety
///
/// As for rdma_freeaddrinfo(3).
pub unsafe fn rdma_freeaddrinfo(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: rdma_freeaddrinfo(3) requires that `info` is an entry of a list that has not been freed and
        // is not used afterwards, that it is a block of malloc(3), and that each of these fields is NULL or
        // such a block. The entry is copied before it is freed.
        unsafe {
            let entry = info.read();
            for block in [
                entry.ai_src_addr.cast(),
                entry.ai_dst_addr.cast(),
                entry.ai_src_canonname.cast(),
                entry.ai_dst_canonname.cast(),
                entry.ai_route,
                entry.ai_connect,
                info.cast(),
            ] {
                libc::free(block);
            }
            info = entry.ai_next;
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
            // SAFETY: the hints are NULL, both names are C strings, and `res` is a local variable.
            let ret = unsafe { rdma_getaddrinfo(c"127.0.0.1".as_ptr(), service.as_ptr(), null(), &mut res) };
            assert_eq!((ret, res), (libc::EAI_SERVICE, null_mut()), "{service:?}");
        }
        for service in [&b"0"[..], b"1", b"65535", b"0065535", b" 80", b"+80", b"http", b"x-1"] {
            assert!(may_be_service(service), "{service:?}");
        }
    }

    #[test]
    fn a_numeric_host_is_resolved() {
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

    /// Copies `value` to a block of malloc(3), as a program does.
    fn malloced<T: Copy>(value: T) -> *mut T {
        // SAFETY: the block is as large as `value` and aligned for any type (a failed malloc(3) ends the
        // test), and it is written before it is used.
        unsafe {
            let block = libc::malloc(size_of::<T>()).cast::<T>();
            block.write(value);
            block
        }
    }

    #[test]
    fn blocks_allocated_by_the_program_are_freed() {
        let address = |text: &str| to_storage(&text.parse().unwrap());
        let ((src, src_len), (dst, dst_len)) = (address("127.0.0.1:1"), address("[::1]:2"));
        // SAFETY: all-zero is a valid rdma_addrinfo, each pointer is NULL or a block of malloc(3) that
        // nothing else points to, and the list is freed once.
        unsafe {
            let mut own: rdma_addrinfo = std::mem::zeroed();
            own.ai_src_len = src_len;
            own.ai_src_addr = malloced(src).cast();
            own.ai_dst_len = dst_len;
            own.ai_dst_addr = malloced(dst).cast();
            own.ai_src_canonname = libc::strdup(c"source".as_ptr());
            own.ai_dst_canonname = libc::strdup(c"destination".as_ptr());
            own.ai_route_len = 8;
            own.ai_route = malloced([7u8; 8]).cast();
            own.ai_connect_len = 4;
            own.ai_connect = malloced([7u8; 4]).cast();
            own.ai_next = malloced::<rdma_addrinfo>(std::mem::zeroed());
            rdma_freeaddrinfo(malloced(own));
        }
    }

    #[test]
    fn a_replaced_address_is_freed_once() {
        let mut res = null_mut();
        // SAFETY: the hints are NULL, and both names are C strings. The old address is freed here, and the
        // new one is a block of malloc(3).
        unsafe {
            assert_eq!(rdma_getaddrinfo(c"127.0.0.1".as_ptr(), c"7204".as_ptr(), null(), &mut res), 0);
            libc::free((*res).ai_dst_addr.cast());
            let (other, len) = to_storage(&"[::1]:7205".parse().unwrap());
            (*res).ai_dst_addr = malloced(other).cast();
            (*res).ai_dst_len = len;
            rdma_freeaddrinfo(res);
        }
    }
}
