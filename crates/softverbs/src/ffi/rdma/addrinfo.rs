// SPDX-License-Identifier: BSD-3-Clause
//! rdma_getaddrinfo(3) and rdma_freeaddrinfo(3).

use std::ffi::CStr;

use libc::{c_char, c_int, sockaddr, socklen_t};
use rdma_sys::rdma_addrinfo;
use std::net::SocketAddr;
use std::ptr::{addr_of_mut, null_mut};

use super::finish;
use crate::cm::addr::{family, read, to_storage};

pub(super) const RAI_PASSIVE: c_int = 1;
const RAI_NUMERICHOST: c_int = 1 << 1;
const RAI_FAMILY: c_int = 1 << 3;

/// Whether a service is a port, or may be a name. getaddrinfo(3) takes the lower 16 bits of any number, and
/// no service for an empty one: the program would listen somewhere else than it believes.
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

/// Resolves a host name and a service name to IPv4 and IPv6 addresses, the source with RAI_PASSIVE, else the
/// destination. An active result has `ai_src_addr` of the hints as its source. Without `node` and `service`
/// the addresses of the hints are the result.
///
/// Of the hints, RAI_NUMERICHOST and RAI_FAMILY (with `ai_family`) apply; RAI_NOROUTE changes nothing,
/// because no route is resolved here. `ai_qp_type` and `ai_port_space` select the type of service, IBV_QPT_RC
/// and RDMA_PS_TCP if they are 0.
///
/// Returns 0 or an `EAI_*` error of getaddrinfo(3): EAI_SERVICE also for a port number above 65535,
/// EAI_SOCKTYPE if type and port space do not fit, EAI_FAMILY for another family than AF_INET and AF_INET6,
/// EAI_MEMORY if memory is short. Without any of `node`, `service` and `hints` it is -1 and EINVAL, as from
/// librdmacm.
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
    // SAFETY: `service` is NULL or a C string (rdma_getaddrinfo(3)).
    if !service.is_null() && !may_be_service(unsafe { CStr::from_ptr(service) }.to_bytes()) {
        return libc::EAI_SERVICE;
    }
    // SAFETY: `hints` is NULL or as for rdma_getaddrinfo(3).
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
                // SAFETY: `res` points to a pointer for the result (rdma_getaddrinfo(3)).
                unsafe { res.write(info) };
                0
            }
            Err(e) => e,
        };
    }
    // SAFETY: all-zero is a valid addrinfo.
    let mut ask: libc::addrinfo = unsafe { std::mem::zeroed() };
    ask.ai_socktype = if hints.qp_type == UD { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    ask.ai_family = hints.family;
    ask.ai_flags = if hints.passive() { libc::AI_PASSIVE } else { 0 }
        | if hints.flags & RAI_NUMERICHOST != 0 { libc::AI_NUMERICHOST } else { 0 };
    let mut found: *mut libc::addrinfo = null_mut();
    // SAFETY: `node` and `service` are NULL or C strings (rdma_getaddrinfo(3)); `ask` and `found` outlive the
    // call.
    let ret = unsafe { libc::getaddrinfo(node, service, &ask, &mut found) };
    if ret != 0 {
        return ret;
    }
    let mut first: *mut rdma_addrinfo = null_mut();
    let mut link: *mut *mut rdma_addrinfo = &mut first;
    let mut next: *const libc::addrinfo = found;
    let mut result = libc::EAI_NONAME;
    while !next.is_null() {
        // SAFETY: `next` is an entry of the list that getaddrinfo has returned and that is freed only below.
        let entry = unsafe { &*next };
        next = entry.ai_next;
        // SAFETY: getaddrinfo stores an address of the length that its family has.
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
        // SAFETY: `link` is the address of `first` or of ai_next in the last entry, and no entry has been
        // freed.
        unsafe {
            link.write(info);
            link = addr_of_mut!((*info).ai_next);
        }
    }
    // SAFETY: `found` was returned by getaddrinfo and is not used afterwards; the new entries have copies of
    // the addresses.
    unsafe { libc::freeaddrinfo(found) };
    if result == 0 {
        // SAFETY: `res` points to a pointer for the result (rdma_getaddrinfo(3)).
        unsafe { res.write(first) };
    } else {
        // SAFETY: `first` is NULL or the list that was made above, which nothing else points to.
        unsafe { rdma_freeaddrinfo(first) };
    }
    result
}

const UD: c_int = rdma_sys::ibv_qp_type::IBV_QPT_UD as c_int;

/// The hints that apply, completed.
struct Hints {
    flags: c_int,
    family: c_int,
    qp_type: c_int,
    port_space: c_int,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
}

impl Hints {
    /// Reads hints; NULL selects the defaults. EAI_FAMILY, EAI_SOCKTYPE.
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
        // SAFETY: `hints` is not NULL, so it points to an rdma_addrinfo, which holds only integers and
        // addresses; it is copied.
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
        let family = if given.ai_flags & RAI_FAMILY == 0 { libc::AF_UNSPEC } else { given.ai_family };
        if !matches!(family, libc::AF_UNSPEC | libc::AF_INET | libc::AF_INET6) {
            return Err(libc::EAI_FAMILY);
        }
        let address = |addr: *mut sockaddr, len| {
            if len == 0 {
                return Ok(None);
            }
            // SAFETY: the length is not 0, so `addr` points to an address as long as its family needs
            // (rdma_getaddrinfo(3)).
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
        self.flags & RAI_PASSIVE != 0
    }
}

/// A copy of `value` in a block of calloc(3), which the program may free and replace, as with librdmacm.
/// EAI_MEMORY.
fn allocate<T: Copy>(value: T) -> Result<*mut T, c_int> {
    // SAFETY: calloc(3) takes any numbers.
    let block: *mut T = unsafe { libc::calloc(1, size_of::<T>()) }.cast();
    if block.is_null() {
        return Err(libc::EAI_MEMORY);
    }
    // SAFETY: the block is as large as a `T`, aligned for any type, and nothing else points to it.
    unsafe { block.write(value) };
    Ok(block)
}

/// An entry of a result. It and the addresses that it points to are blocks of calloc(3). EAI_MEMORY.
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
    // SAFETY: all-zero is a valid rdma_addrinfo.
    let info = allocate(unsafe { std::mem::zeroed::<rdma_addrinfo>() })?;
    // SAFETY: `info` is a block of an rdma_addrinfo that nothing else points to; each address in it is NULL
    // or a block of its own.
    let filled = (|| unsafe {
        (*info).ai_flags = hints.flags & RAI_PASSIVE;
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
            // SAFETY: as above; the program has not seen `info`.
            unsafe { rdma_freeaddrinfo(info) };
            Err(e)
        }
    }
}

/// Frees a list of results: each entry, its addresses, its canonical names and the data of its route and its
/// connection with free(3). So the program may replace them, or pass a list of its own, as far as they are
/// blocks of malloc(3) or NULL, as with librdmacm.
///
/// # Safety
///
/// As for rdma_freeaddrinfo(3).
pub unsafe fn rdma_freeaddrinfo(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        // SAFETY: `info` is an entry of a list that has not been freed and is not used afterwards; it is a
        // block of malloc(3), and each of these fields is one or NULL (rdma_freeaddrinfo(3)). It is copied
        // before it is freed.
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

    /// A copy of `value` as a program has it from malloc(3).
    fn malloced<T: Copy>(value: T) -> *mut T {
        // SAFETY: the block is as large as `value` and aligned for every type, and it is written before it is
        // used.
        unsafe {
            let block = libc::malloc(size_of::<T>()).cast::<T>();
            block.write(value);
            block
        }
    }

    #[test]
    fn what_the_program_has_allocated_is_freed() {
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
    fn what_the_program_has_replaced_is_freed_once() {
        let mut res = null_mut();
        // SAFETY: the hints are NULL and both names C strings. The old address is freed here and the new one
        // is a block of malloc(3).
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
