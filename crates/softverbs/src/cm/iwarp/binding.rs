// SPDX-License-Identifier: BSD-3-Clause
//! Local addresses of identifiers over TCP.
//!
//! Between processes the TCP sockets enforce the rules of [`Ports`]. A socket that is only bound has no
//! SO_REUSEADDR, so no other socket can bind to its address, nor to that of a listening socket. Connections
//! left by an earlier instance of a program, established or in TIME_WAIT, have SO_REUSEADDR
//! ([`permit_rebind`]), so a socket that has it as well can bind to their address. Therefore bind(2) is first
//! tried without SO_REUSEADDR, then with it, and the option is cleared immediately afterwards.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::sockopt;

use crate::cm::addr;
use crate::cm::ports::{Binding, Ports};
use crate::cm::protocol::Refused;

static PORTS: Ports = Ports::new();

/// Binds `socket` to `wanted`, or to a free port if the port is 0. `reuse`: the identifier has
/// RDMA_OPTION_ID_REUSEADDR.
///
/// EADDRNOTAVAIL: not an address of this host, or the port is in use and one of the two addresses is a
/// wildcard (if another process has the port: `wanted` is). EADDRINUSE: address and port are in use. EACCES
/// and other errors of bind(2).
pub(super) fn claim(socket: &OwnedFd, wanted: &SocketAddr, reuse: bool) -> Result<Binding, Refused> {
    let one_family = match wanted {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(_) => sockopt::ipv6_v6only(socket) == Ok(true),
    };
    PORTS.bind(wanted, reuse, one_family, || {
        bind(socket, wanted)?;
        set_reuse(socket, reuse);
        Ok(addr::local(socket)?)
    })
}

/// Sets SO_REUSEADDR on a bound socket. Also called before a socket listens or connects, so that the
/// connections that it leaves behind do not prevent the next bind(2).
pub(super) fn permit_rebind(socket: &OwnedFd) {
    set_reuse(socket, true);
}

fn set_reuse(socket: &OwnedFd, on: bool) {
    let _ = sockopt::set_socket_reuseaddr(socket, on);
}

/// Binds a socket, even if connections of a closed listener still have its address.
fn bind(socket: &OwnedFd, wanted: &SocketAddr) -> Result<(), Refused> {
    set_reuse(socket, false);
    match addr::bind(socket, wanted) {
        // Do not retry for port 0: with SO_REUSEADDR the kernel might choose a port that is in use.
        Err(libc::EADDRINUSE) if wanted.port() != 0 => {}
        result => return result.map_err(Refused::Errno),
    }
    set_reuse(socket, true);
    match addr::bind(socket, wanted) {
        Err(libc::EADDRINUSE) if wanted.ip().is_unspecified() => Err(Refused::Wildcard),
        result => result.map_err(Refused::Errno),
    }
}
