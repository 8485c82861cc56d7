// SPDX-License-Identifier: BSD-3-Clause
//! The sockets of the port and their options.
//!
//! They are never connected: a connected socket receives all packets of its peer whatever the filter
//! returns, and sends IPv4 identifications other than 0, which the ICRC covers.
//!
//! IP_PMTUDISC_PROBE sets DF and the identification 0, as IP_PMTUDISC_DO does, but limits a packet by the MTU
//! of the interface alone. Both UDP ports are known, so anyone can forge the ICMP message that shrinks the
//! path MTU in the routing cache, and connections would fail until that entry expires.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::AddressFamily;

use super::Unavailable;
use super::slot::Slot;
use crate::lock;
use crate::socket::Socket;
use crate::sys::{self, Epoll, Errno};
use transport::roce::wire::UDP_PORT;

/// Requested size in bytes of the socket buffers, which all queue pairs of the process share. The kernel
/// limits them to twice net.core.rmem_max and wmem_max, but not the receive buffer of a process that has
/// CAP_NET_ADMIN in the initial user namespace. With 208 KiB, the usual rmem_max, it holds 50 packets of 4
/// KiB, and rxe sends 128 at once.
const BUFFER_LEN: i32 = 8 << 20;
/// Receive packets over IPv6 without a UDP checksum, as adapters and rxe send them (linux/udp.h).
const UDP_NO_CHECK6_RX: i32 = 102;
/// Counters of a socket, the last one of packets without room (linux/sock_diag.h).
const SO_MEMINFO: i32 = 55;
/// As IP_MULTICAST_ALL (linux/in6.h).
const IPV6_MULTICAST_ALL: i32 = 29;
const IN: u32 = libc::EPOLLIN as u32;
const IN_AND_OUT: u32 = (libc::EPOLLIN | libc::EPOLLOUT) as u32;

/// The IP version of a socket, and of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The loopback address.
    pub(super) fn loopback(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::LOCALHOST.into(),
            Self::V6 => Ipv6Addr::LOCALHOST.into(),
        }
    }
}

/// The token of the slot's socket in the epoll set.
pub(super) const SLOT_TOKEN: u64 = 2;

/// A socket bound to the port, and the queue pairs that wait until it is writable.
struct Bound {
    socket: Socket,
    /// Queue pair numbers.
    waiting: Mutex<Vec<u32>>,
    /// Whether any queue pair waits. Changed with the lock held, read without it.
    is_awaited: AtomicBool,
    /// Packets that the kernel had no room for, by the last look.
    lost: AtomicU32,
}

pub(super) struct Sockets {
    v4: Bound,
    /// `None` on a host without IPv6.
    v6: Option<Bound>,
    /// Epoll set of these sockets and the slot's, level-triggered. The token is the index of the family, or
    /// [`SLOT_TOKEN`].
    pub(super) set: Epoll,
}

impl Sockets {
    /// Binds the port.
    pub(super) fn bind(slot: &Slot, with_ip_fields: bool) -> Result<Self, Unavailable> {
        let user = sys::effective_user();
        if user != slot.user() {
            let why = format!(
                "this process had user {} when its first queue pair was created and now has user {user}: \
                 it cannot share UDP port {UDP_PORT} with the processes of either",
                slot.user()
            );
            return Err(Unavailable { errno: libc::EPERM, why });
        }
        let v4 = bind(Family::V4, with_ip_fields).map_err(|e| unavailable(Family::V4, e))?;
        let v6 = match bind(Family::V6, with_ip_fields) {
            Ok(bound) => Some(bound),
            Err(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => None,
            Err(e) => return Err(unavailable(Family::V6, e)),
        };
        let set = Epoll::new()?;
        set.add(v4.socket.as_raw_fd(), IN, Family::V4 as u64)?;
        if let Some(v6) = &v6 {
            set.add(v6.socket.as_raw_fd(), IN, Family::V6 as u64)?;
        }
        set.add(slot.socket().as_raw_fd(), IN, SLOT_TOKEN)?;
        Ok(Self { v4, v6, set })
    }

    /// Whether the kernel had no room for packets since the last call.
    pub(super) fn has_lost(&self, family: Family) -> bool {
        let Some(bound) = self.bound(family) else { return false };
        let counters = sys::get_option::<[u32; 9]>(bound.socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO);
        counters.is_ok_and(|[.., lost]| bound.lost.swap(lost, Ordering::Relaxed) != lost)
    }

    /// Whether any of the sockets has a datagram.
    pub(super) fn has_unread(&self) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 3];
        let count = self.set.wait(&mut events, Some(Duration::ZERO));
        events[..count].iter().any(|event| { event.events } & IN != 0)
    }

    fn bound(&self, family: Family) -> Option<&Bound> {
        match family {
            Family::V4 => Some(&self.v4),
            Family::V6 => self.v6.as_ref(),
        }
    }

    pub(super) fn get(&self, family: Family) -> Option<&Socket> {
        self.bound(family).map(|bound| &bound.socket)
    }

    /// Receives the traffic class and the hop limit of each packet from now on.
    pub(super) fn receive_ip_fields(&self) {
        for family in Family::ALL {
            if let Some(socket) = self.get(family) {
                receive_ip_fields(socket, family);
            }
        }
    }

    /// Requests a call of [`super::Endpoint::writable`] for a queue pair when the socket is writable.
    pub(super) fn await_writable(&self, family: Family, num: u32) {
        let Some(bound) = self.bound(family) else { return };
        let mut waiting = lock(&bound.waiting);
        if !waiting.contains(&num) {
            waiting.push(num);
        }
        bound.is_awaited.store(true, Ordering::Relaxed);
        // Modifying a member of the set does not fail: it allocates nothing. The events are level-triggered:
        // a socket that is already writable is reported, too.
        let _ = self.set.modify(bound.socket.as_raw_fd(), IN_AND_OUT, family as u64);
    }

    /// Whether a queue pair waits until the socket is writable.
    pub(super) fn is_awaited(&self, family: Family) -> bool {
        self.bound(family).is_some_and(|bound| bound.is_awaited.load(Ordering::Relaxed))
    }

    /// The socket is writable: returns the queue pairs that waited, and stops waiting.
    pub(super) fn stop_waiting(&self, family: Family) -> Vec<u32> {
        let Some(bound) = self.bound(family) else { return Vec::new() };
        let mut waiting = lock(&bound.waiting);
        let _ = self.set.modify(bound.socket.as_raw_fd(), IN, family as u64);
        bound.is_awaited.store(false, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    }
}

fn bind(family: Family, with_ip_fields: bool) -> Result<Bound, Errno> {
    let (domain, any): (_, IpAddr) = match family {
        Family::V4 => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        Family::V6 => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = Socket::noted(|| sys::datagram_socket(domain))?;
    // Required: options that every supported kernel has and the protocol needs. The others are optional.
    sys::require_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    match family {
        Family::V4 => {
            sys::require_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            sys::require_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            // Not the packets of groups that only other processes have joined.
            sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        }
        Family::V6 => {
            sys::require_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            sys::require_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            let discover = libc::IPV6_MTU_DISCOVER;
            sys::require_option(&socket, libc::IPPROTO_IPV6, discover, libc::IPV6_PMTUDISC_PROBE)?;
            sys::set_option(&socket, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1);
            sys::set_option(&socket, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
        }
    }
    sys::set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_LEN);
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_LEN);
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER_LEN);
    if with_ip_fields {
        // Before the first packet arrives.
        receive_ip_fields(&socket, family);
    }
    sys::bind_datagrams(&socket, &SocketAddr::new(any, UDP_PORT))?;
    Ok(Bound {
        socket,
        waiting: Mutex::default(),
        is_awaited: AtomicBool::new(false),
        lost: AtomicU32::new(0),
    })
}

fn receive_ip_fields(socket: &Socket, family: Family) {
    let (level, options) = match family {
        Family::V4 => (libc::IPPROTO_IP, [libc::IP_RECVTOS, libc::IP_RECVTTL]),
        Family::V6 => (libc::IPPROTO_IPV6, [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT]),
    };
    options.into_iter().for_each(|option| sys::set_option(socket, level, option, 1));
}

fn unavailable(family: Family, errno: Errno) -> Unavailable {
    let remedy = match errno {
        libc::EADDRINUSE => {
            ". Another user's process has it (ss -ulnp 'sport = :4791' shows whose), or the kernel's rxe \
             (remove it by rmmod rdma_rxe); or run the program in a network namespace of its own"
        }
        _ => "",
    };
    let text = std::io::Error::from_raw_os_error(errno);
    Unavailable { errno, why: format!("cannot bind UDP port {UDP_PORT} of {family:?}: {text}{remedy}") }
}
