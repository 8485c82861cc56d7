// SPDX-License-Identifier: BSD-3-Clause
//! The options of an identifier (rdma_set_option(3)) and how they apply to its sockets.
//!
//! They are stored in the identifier and applied when it creates a socket. The type of service can also be
//! changed later.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::net::sockopt;

/// The options set by the program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// IPv4 type of service and IPv6 traffic class.
    pub tos: Option<u8>,
    /// IPV6_V6ONLY: the IPv6 wildcard address does not accept IPv4 connections.
    pub only_ipv6: Option<bool>,
    /// The `timeout` attribute that ibv_query_qp(3) returns, as an exponent (4.096 us * 2^timeout); 0 if not
    /// set.
    pub ack_timeout: u8,
    /// RDMA_OPTION_ID_REUSEADDR: identifiers that all have it may share an address while none of them
    /// listens.
    pub reuse: bool,
}

impl Options {
    /// Applies the options to a socket that is not bound. The kernel rejects the options of the other address
    /// family, which is ignored.
    pub(crate) fn apply(self, socket: &OwnedFd) {
        self.apply_tos(socket);
        if let Some(only) = self.only_ipv6 {
            let _ = sockopt::set_ipv6_v6only(socket, only);
        }
    }

    /// Applies the type of service, which can be changed at any time. A connection inherits it from its
    /// listener.
    pub(crate) fn apply_tos(self, socket: &OwnedFd) {
        if let Some(tos) = self.tos {
            let _ = sockopt::set_ip_tos(socket, tos);
            let _ = sockopt::set_ipv6_tclass(socket, tos.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::AddressFamily;

    use super::*;
    use crate::sys;

    #[test]
    fn options_that_are_set_are_applied_to_a_socket() {
        let options = Options { tos: Some(0x20), only_ipv6: Some(true), ..Options::default() };
        let v4 = sys::tcp_socket(AddressFamily::INET).unwrap();
        options.apply(&v4);
        assert_eq!(sockopt::ip_tos(&v4), Ok(0x20));
        let v6 = sys::tcp_socket(AddressFamily::INET6).unwrap();
        Options::default().apply(&v6);
        let before = sockopt::ipv6_tclass(&v6);
        assert_ne!(before, Ok(0x20), "nothing was set");
        options.apply(&v6);
        assert_eq!(sockopt::ipv6_tclass(&v6), Ok(0x20));
        assert_eq!(sockopt::ipv6_v6only(&v6), Ok(true));
        Options { only_ipv6: Some(false), ..options }.apply(&v6);
        assert_eq!(sockopt::ipv6_v6only(&v6), Ok(false));
    }
}
