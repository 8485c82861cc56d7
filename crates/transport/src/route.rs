// SPDX-License-Identifier: BSD-3-Clause
//! The route of packets.

use std::net::{IpAddr, SocketAddr};

/// The route of the packets of a queue pair to its peer, or of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The local address.
    pub local: IpAddr,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The interface of link-local addresses, otherwise 0.
    pub scope: u32,
    /// The traffic class.
    pub traffic_class: u8,
    /// The hop limit; 0 is the default of the system.
    pub hop_limit: u8,
}

impl Route {
    /// The address of the peer, with this port.
    pub fn peer_address(&self, port: u16) -> SocketAddr {
        address_in(self.peer, port, self.scope)
    }
}

/// An address; over IPv6 its interface has the index `scope`, 0 is any.
pub fn address_in(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    let mut address = SocketAddr::new(ip, port);
    if let SocketAddr::V6(address) = &mut address {
        address.set_scope_id(scope);
    }
    address
}
