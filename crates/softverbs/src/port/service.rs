// SPDX-License-Identifier: BSD-3-Clause
//! Services: which process listens on a port of rdma_cm.
//!
//! The port spaces of rdma_cm are not those of TCP and UDP. A process has claimed a port while it holds a UDP
//! socket at a loopback address that is computed from port space, port and local address ([`address`]).
//! The kernel gives this address to one socket, and frees it when the process ends. Processes that receive a
//! request for the service pass it on to this socket, provided that it belongs to their user. That a wildcard
//! address conflicts with all others on its port follows from the list of sockets, after the claim: of two
//! processes that claim conflicting addresses at the same moment, both may fail.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::AddressFamily;

use super::owners;
use super::slot;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use transport::roce::cm::Bound;
use transport::roce::wire::cm::{PortSpace, ServiceId};
use transport::roce::wire::gid;

/// Classes of local addresses in the second byte of a loopback address, and UDP ports.
const CLASSES: u32 = 64;
const PORTS: u32 = 255;

/// The address of the socket that claims a port for a local address. `None`: a port space of other adapters.
fn address(space: PortSpace, port: u16, bound: Bound) -> Option<SocketAddrV4> {
    let first = match space {
        PortSpace::Tcp => 1,
        PortSpace::Ib => 1 + CLASSES,
        PortSpace::Udp => 1 + 2 * CLASSES,
        // It needs an IPoIB interface, also with an adapter.
        PortSpace::Ipoib => return None,
    };
    let class = match bound {
        Bound::Any => 0,
        Bound::AnyV4 => 1,
        Bound::AnyV6 => 2,
        // FNV-1a: two addresses of a host that have the same value cannot listen on the same port.
        Bound::Address(address) => {
            let bytes = gid(address);
            let hash = bytes
                .iter()
                .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            3 + (hash ^ hash >> 16) % (CLASSES * PORTS - 3)
        }
    };
    let [high, low] = port.to_be_bytes();
    let address = Ipv4Addr::new(127, (first + class % CLASSES) as u8, high, low);
    Some(SocketAddrV4::new(address, slot::BASE_PORT + (class / CLASSES) as u16))
}

/// The addresses of the sockets that may have claimed a service for requests to `destination`, the most
/// specific first. `None`: it is no service of rdma_cm that this device has.
pub(super) fn addresses(service: ServiceId, destination: IpAddr) -> Option<[SocketAddrV4; 3]> {
    let (space, port) = service.port()?;
    let any = if destination.is_ipv4() { Bound::AnyV4 } else { Bound::AnyV6 };
    let of = |bound| address(space, port, bound);
    Some([of(Bound::Address(destination))?, of(any)?, of(Bound::Any)?])
}

/// Whether a program of this network namespace, of whichever user, has a port of rdma_cm for a local address.
pub(crate) fn is_claimed(local: SocketAddr) -> bool {
    let service = ServiceId::new(PortSpace::Tcp, local.port());
    let claimed = owners::loopback_sockets(None);
    addresses(service, local.ip()).is_some_and(|wanted| wanted.iter().any(|at| claimed.contains(at)))
}

/// Whether the claims of two sockets are for the same port, and one of them for a wildcard address that
/// includes addresses of the other.
fn conflicts(ours: SocketAddrV4, bound: Bound, other: SocketAddrV4) -> bool {
    let parts = |claim: SocketAddrV4| {
        let [_, class, high, low] = claim.ip().octets();
        let class = u32::from(class).checked_sub(1)?;
        let port = u32::from(claim.port().checked_sub(slot::BASE_PORT)?);
        (class < 3 * CLASSES && port < PORTS).then_some((
            class / CLASSES,
            [high, low],
            class % CLASSES + port * CLASSES,
        ))
    };
    let (Some((space, port, class)), Some((other_space, other_port, other_class))) =
        (parts(ours), parts(other))
    else {
        return false;
    };
    if (space, port) != (other_space, other_port) || class == other_class {
        return false;
    }
    match (bound, other_class) {
        (Bound::AnyV4, 2) | (Bound::AnyV6, 1) => false,
        (Bound::Any | Bound::AnyV4 | Bound::AnyV6, _) | (_, 0) => true,
        (Bound::Address(address), 1) => address.is_ipv4(),
        (Bound::Address(address), 2) => address.is_ipv6(),
        (Bound::Address(_), _) => false,
    }
}

/// A claimed port of rdma_cm; dropping it releases the port.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) socket: Arc<Socket>,
}

impl Claim {
    /// Claims a port for a local address. EADDRINUSE: another process has it. EADDRNOTAVAIL: another process
    /// has the port, and one of the two addresses is a wildcard. EOPNOTSUPP: RDMA_PS_IPOIB.
    pub(crate) fn new(space: PortSpace, port: u16, bound: Bound) -> Result<Self, Errno> {
        let address = address(space, port, bound).ok_or(libc::EOPNOTSUPP)?;
        let socket = Socket::noted(|| sys::datagram_socket(AddressFamily::INET))?;
        sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_FREEBIND, 1);
        sys::bind_datagrams(&socket, &address.into())?;
        let others = owners::loopback_sockets(Some(sys::effective_user()));
        if others.into_iter().any(|other| conflicts(address, bound, other)) {
            return Err(libc::EADDRNOTAVAIL);
        }
        Ok(Self { socket: Arc::new(socket) })
    }
}

/// How long the list of sockets is used after it was read: for a listener that is in it, and for one that is
/// not. A request without a listener is deferred for longer.
const FOUND_FOR: Duration = Duration::from_millis(20);
const ABSENT_FOR: Duration = Duration::from_millis(5);

/// Finds the process that listens on a service.
#[derive(Default)]
pub(super) struct Lookup {
    known: Vec<SocketAddrV4>,
    /// When the list was last read.
    read: Option<Instant>,
}

impl Lookup {
    /// The first of the wanted addresses at which `user` has a socket.
    pub(super) fn find(&mut self, user: Option<u32>, wanted: &[SocketAddrV4]) -> Option<SocketAddr> {
        let user = user?;
        self.find_in(wanted, Instant::now(), || owners::loopback_sockets(Some(user)))
    }

    fn find_in(
        &mut self,
        wanted: &[SocketAddrV4],
        now: Instant,
        read: impl FnOnce() -> Vec<SocketAddrV4>,
    ) -> Option<SocketAddr> {
        let find = |known: &[SocketAddrV4]| {
            wanted.iter().find(|wanted| known.contains(wanted)).map(|found| SocketAddr::V4(*found))
        };
        let age = self.read.map(|read| now.duration_since(read));
        let found = find(&self.known);
        if age.is_some_and(|age| age < if found.is_some() { FOUND_FOR } else { ABSENT_FOR }) {
            return found;
        }
        self.known = read();
        self.read = Some(now);
        find(&self.known)
    }

    /// The slots of `user`.
    pub(super) fn slots(&mut self, user: Option<u32>) -> Vec<u8> {
        // Reads the list if it is old.
        self.find(user, &[]);
        self.known.iter().filter_map(|addr| slot::at((*addr).into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> Bound {
        match text {
            "*" => Bound::Any,
            "0" => Bound::AnyV4,
            "::" => Bound::AnyV6,
            address => Bound::Address(address.parse().unwrap()),
        }
    }

    #[test]
    fn claims_of_one_port_conflict_if_an_address_is_a_wildcard() {
        let conflict = |ours, other| {
            let of = |text| address(PortSpace::Tcp, 7471, bound(text)).unwrap();
            conflicts(of(ours), bound(ours), of(other))
        };
        for (ours, other, expected) in [
            ("*", "0", true),
            ("*", "10.0.0.1", true),
            ("0", "10.0.0.1", true),
            ("0", "fe80::1", true),
            ("0", "::", false),
            ("::", "0", false),
            ("10.0.0.1", "0", true),
            ("10.0.0.1", "::", false),
            ("fe80::1", "::", true),
            ("10.0.0.1", "*", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "10.0.0.1", false),
        ] {
            assert_eq!(conflict(ours, other), expected, "{ours} and {other}");
        }
        let (tcp, ib) = (PortSpace::Tcp, PortSpace::Ib);
        let any = address(tcp, 7471, Bound::Any).unwrap();
        for other in [ib, PortSpace::Udp] {
            let other = address(other, 7471, Bound::AnyV4).unwrap();
            assert!(!conflicts(any, Bound::Any, other), "another space");
        }
        assert!(!conflicts(any, Bound::Any, address(tcp, 7472, Bound::AnyV4).unwrap()), "another port");
        assert!(!conflicts(any, Bound::Any, "127.0.0.1:24701".parse().unwrap()), "a slot");
    }

    #[test]
    fn a_claim_is_found_and_exclusive_until_it_is_dropped() {
        let (space, port) = (PortSpace::Ib, 61_001);
        let address = Bound::Address("127.0.0.1".parse().unwrap());
        let claim = Claim::new(space, port, address).unwrap();
        assert_eq!(Claim::new(space, port, address).err(), Some(libc::EADDRINUSE));
        assert_eq!(Claim::new(space, port, Bound::Any).err(), Some(libc::EADDRNOTAVAIL));
        let other = Claim::new(space, port, Bound::Address("127.0.0.2".parse().unwrap()));
        assert!(other.is_ok() && Claim::new(PortSpace::Tcp, port, address).is_ok());
        let wanted = addresses(ServiceId::new(space, port), "127.0.0.1".parse().unwrap()).unwrap();
        let user = Some(sys::effective_user());
        assert_eq!(Lookup::default().find(user, &wanted), Some(wanted[0].into()));
        assert_eq!(Lookup::default().find(None, &wanted), None, "no process is trusted");
        drop((claim, other));
        assert_eq!(Lookup::default().find(user, &wanted), None);
        assert!(Claim::new(space, port, Bound::Any).is_ok());
    }

    #[test]
    fn the_list_of_sockets_is_not_read_for_each_request_of_a_flood() {
        let (mut lookup, begin) = (Lookup::default(), Instant::now());
        let wanted = addresses(ServiceId::new(PortSpace::Tcp, 1), "127.0.0.1".parse().unwrap()).unwrap();
        let (mut reads, mut found) = (0, 0);
        // A listener begins to listen after half a second.
        for us in (0..1_000_000).step_by(100) {
            let list = || {
                reads += 1;
                if us < 500_000 { vec![] } else { vec![wanted[1]] }
            };
            found += u32::from(lookup.find_in(&wanted, begin + Duration::from_micros(us), list).is_some());
        }
        assert_eq!((reads, found), (500 / 5 + 500 / 20, 5_000));
    }
}
