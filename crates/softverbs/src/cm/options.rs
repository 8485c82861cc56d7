// SPDX-License-Identifier: BSD-3-Clause
//! The options of an identifier that apply to its sockets (rdma_set_option(3)).
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::net::sockopt;

/// What the program has set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The type of service, or traffic class.
    pub tos: Option<u8>,
    /// A wildcard IPv6 address does not stand for those of IPv4.
    pub only_ipv6: Option<bool>,
    /// What ibv_query_qp(3) returns as `timeout`; 0 if it is not set.
    pub ack_timeout: u8,
    /// Other identifiers that permit it may have the same address, as long as none listens.
    pub reuse: bool,
}

impl Options {
    /// Applies them to a socket that is not bound. A family ignores those of the other one.
    pub(crate) fn apply(self, socket: &OwnedFd) {
        self.apply_tos(socket);
        if let Some(only) = self.only_ipv6 {
            let _ = sockopt::set_ipv6_v6only(socket, only);
        }
    }

    /// Applies the one that can change at any time. A connection inherits it from its listener.
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
    fn a_socket_gets_what_is_set() {
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
