// SPDX-License-Identifier: BSD-3-Clause
//! UDP sockets: datagrams with their addresses, and batches of them.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, socket_with};

use super::{Errno, again, check, check_len, note_received, to_errno};
use crate::cancel::whole;

/// A non-blocking, close-on-exec UDP socket.
pub(crate) fn datagram_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    to_errno(socket_with(family, SocketType::DGRAM, flags, None))
}

/// Sets an integer socket option that the caller cannot do without.
pub(crate) fn require_option(fd: &OwnedFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes and outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) }).map(drop)
}

/// Binds a socket. EADDRINUSE, EADDRNOTAVAIL.
pub(crate) fn bind_datagrams(fd: &OwnedFd, to: &SocketAddr) -> Result<(), Errno> {
    to_errno(rustix::net::bind(fd, to))
}

/// Attaches a filter that selects the socket in the reuseport group of this socket. It replaces an earlier
/// filter.
pub(crate) fn attach_steering(fd: &OwnedFd, filter: &[libc::sock_filter]) -> Result<(), Errno> {
    let len = u16::try_from(filter.len()).map_err(|_| libc::EINVAL)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    let size = size_of_val(&program) as libc::socklen_t;
    let option = libc::SO_ATTACH_REUSEPORT_CBPF;
    // SAFETY: the option takes a sock_fprog, whose filter points to `len` instructions; the kernel only reads
    // them, during the call.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const program).cast(), size)
    })
    .map(drop)
}

const CONTROL_WORDS: usize = 32;

/// Control messages for sendmsg.
struct Control {
    words: [u64; CONTROL_WORDS],
    len: usize,
}

impl Control {
    /// Adds a message; `T` has no padding.
    fn push<T: Copy>(&mut self, level: i32, kind: i32, value: T) {
        let size = size_of::<T>() as u32;
        // SAFETY: both only calculate.
        let (len, space) = unsafe { (libc::CMSG_LEN(size) as usize, libc::CMSG_SPACE(size) as usize) };
        assert!(self.len + space <= size_of_val(&self.words));
        // SAFETY: `space` bytes from `self.len` on are within the buffer. `self.len` is a multiple of the
        // alignment of a header, as the space of a message is, and the buffer is aligned for it; the value
        // is written unaligned.
        unsafe {
            let at = self.words.as_mut_ptr().cast::<u8>().add(self.len);
            let header = at.cast::<libc::cmsghdr>();
            (*header).cmsg_len = len as _;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space;
    }
}

/// Where a datagram goes, and what its IP header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The source address; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    pub to: SocketAddr,
    pub traffic_class: u8,
    /// 0: that of the socket.
    pub hop_limit: u8,
}

impl Route {
    /// To an address, with nothing in particular.
    pub(crate) fn to(to: SocketAddr) -> Self {
        Self { source: None, to, traffic_class: 0, hop_limit: 0 }
    }
}

/// Sends one datagram, which is the concatenation of `parts`, without blocking; with `segment`, one for each
/// so many bytes of it (UDP_SEGMENT). EAGAIN: there is no room in the socket. EINVAL, EIO: the kernel or the
/// route cannot divide datagrams.
pub(crate) fn send_datagram(
    fd: &OwnedFd,
    route: &Route,
    parts: &[IoSlice<'_>],
    segment: Option<u16>,
) -> Result<(), Errno> {
    let mut control = Control { words: [0; CONTROL_WORDS], len: 0 };
    match route.source {
        Some(IpAddr::V4(source)) => {
            let s_addr = u32::from(source).to_be();
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(source)) => {
            // The kernel uses the scope ID of link-local destinations only, not of other groups.
            let interface = if let SocketAddr::V6(to) = route.to { to.scope_id() } else { 0 };
            let ipi6_addr = libc::in6_addr { s6_addr: source.octets() };
            let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: interface };
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    let (level, class, limit) = match route.to {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    if route.traffic_class != 0 {
        control.push(level, class, i32::from(route.traffic_class));
    }
    if route.hop_limit != 0 {
        control.push(level, limit, i32::from(route.hop_limit));
    }
    if let Some(segment) = segment {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    let name = SocketAddrAny::from(route.to);
    // SAFETY: an all-zero msghdr is a valid one.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_name = name.as_ptr().cast_mut().cast();
    msg.msg_namelen = name.addr_len();
    // An IoSlice has the layout of an iovec (std).
    msg.msg_iov = parts.as_ptr().cast_mut().cast();
    msg.msg_iovlen = parts.len() as _;
    if control.len > 0 {
        msg.msg_control = control.words.as_mut_ptr().cast();
        msg.msg_controllen = control.len as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message describes the name, the slices and the control messages, which outlive the call,
    // and which sendmsg only reads.
    check_len(whole(|| again(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &msg, flags) }))).map(drop)
}

/// What routers may change of an IP header. Known of a socket with IP_RECVTOS and IP_RECVTTL, or
/// IPV6_RECVTCLASS and IPV6_RECVHOPLIMIT; otherwise 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IpFields {
    pub traffic_class: u8,
    pub hop_limit: u8,
}

/// The length of the longest socket address.
const NAME_LEN: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

/// What has arrived in one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub len: usize,
    pub source: SocketAddr,
    /// The destination address, of a socket with IP_PKTINFO or IPV6_RECVPKTINFO.
    pub destination: Option<IpAddr>,
    /// The bytes are several datagrams of this length; the last one may be shorter (UDP_GRO).
    pub segment: Option<usize>,
    pub ip: IpFields,
    /// The buffer was too small; the rest is lost.
    pub is_truncated: bool,
}

/// Receives a datagram, or a batch of them from one source, without blocking. EAGAIN: there is none.
pub(crate) fn receive_datagrams(fd: &OwnedFd, into: &mut [u8]) -> Result<Arrived, Errno> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut name = MaybeUninit::<libc::sockaddr_in6>::zeroed();
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: an all-zero msghdr is a valid one.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_name = name.as_mut_ptr().cast();
    msg.msg_namelen = NAME_LEN;
    msg.msg_iov = &raw mut part;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message describes the slice `into`, the name and the control buffer, all writable.
    let call = || unsafe { libc::recvmsg(fd.as_raw_fd(), &mut msg, flags) };
    let len = check_len(whole(|| again(call)))?;
    // SAFETY: the name has this length, and is that of the source, or zero: of no family.
    let source = unsafe { SocketAddrAny::read(name.as_ptr().cast(), NAME_LEN) };
    let source = SocketAddr::try_from(source).map_err(|_| libc::EPROTO)?;
    let is_truncated = msg.msg_flags & libc::MSG_TRUNC != 0;
    let mut arrived = Arrived {
        len: len.min(into.len()),
        source,
        destination: None,
        segment: None,
        ip: IpFields::default(),
        is_truncated,
    };
    // SAFETY: the kernel has written whole control messages into the buffer and their length into `msg`; the
    // macros stay within that. A message of each of these types has at least the value that is read, which
    // consists of numbers and may be unaligned.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&msg);
        while let Some(message) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let address = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
                    arrived.destination = Some(address.into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    arrived.destination = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => arrived.ip.traffic_class = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    arrived.ip.traffic_class = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    arrived.ip.hop_limit = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = data.cast::<i32>().read_unaligned();
                    arrived.segment = usize::try_from(segment).ok().filter(|segment| *segment > 0);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&msg, header);
        }
    }
    // Small packets are no stream, however many there are: their sender waits for acknowledgements.
    note_received(arrived.segment.unwrap_or(len));
    Ok(arrived)
}
