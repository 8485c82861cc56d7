// SPDX-License-Identifier: BSD-3-Clause
//! Local addresses of identifiers, and the conflicts between them.
//!
//! Within a process a table applies the rules of the kernel's rdma_cm: an address and port belong to one
//! identifier, and a wildcard address conflicts with every other address on the same port, unless both
//! identifiers have RDMA_OPTION_ID_REUSEADDR and neither listens. Unlike in the kernel, a loopback address is
//! not treated as a wildcard.
//!
//! Between processes the TCP sockets enforce the rules. A socket that is only bound has no SO_REUSEADDR, so
//! no other socket can bind to its address, nor to that of a listening socket. Connections left by an earlier
//! instance of a program, established or in TIME_WAIT, have SO_REUSEADDR ([`permit_rebind`]), so a socket
//! that has it as well can bind to their address. Therefore bind(2) is first tried without SO_REUSEADDR, then
//! with it, and the option is cleared immediately afterwards.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt;

use crate::cm::addr;
use crate::cm::protocol::Refused;
use crate::lock;
use crate::process::PerProcess;

/// The address that an identifier is bound to.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    addr: SocketAddr,
    /// RDMA_OPTION_ID_REUSEADDR; cleared when the identifier listens.
    reuse: bool,
    /// The socket accepts no connections of the other address family: IPv4, or IPv6 with IPV6_V6ONLY.
    one_family: bool,
}

impl Entry {
    /// [`Refused::Wildcard`] or EADDRINUSE if the two conflict. `listens`: this identifier is about to
    /// listen.
    fn check(&self, other: &Self, listens: bool) -> Result<(), Refused> {
        let shared = self.reuse && other.reuse && !listens;
        let apart = self.one_family && other.one_family && self.addr.is_ipv4() != other.addr.is_ipv4();
        if shared || apart || self.number == other.number {
            Ok(())
        } else if self.addr.ip().is_unspecified() || other.addr.ip().is_unspecified() {
            Err(Refused::Wildcard)
        } else if self.place() == other.place() {
            Err(libc::EADDRINUSE.into())
        } else {
            Ok(())
        }
    }

    /// The address without the port, and the interface index of a link-local address.
    fn place(&self) -> (IpAddr, u32) {
        let scope = match self.addr {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        };
        (self.addr.ip(), scope)
    }
}

/// The entries by port.
type Table = HashMap<u16, Vec<Entry>>;

static TABLE: PerProcess<Table> = PerProcess::new();

fn check(table: &Table, entry: &Entry, listens: bool) -> Result<(), Refused> {
    let mut others = table.get(&entry.addr.port()).into_iter().flatten();
    others.try_for_each(|other| entry.check(other, listens))
}

/// The local address of an identifier; dropping it releases the address.
#[derive(Debug)]
pub(crate) struct Binding {
    number: u64,
    addr: SocketAddr,
}

impl Binding {
    /// Binds `socket` to `wanted`, or to a free port if the port is 0. `reuse`: the identifier has
    /// RDMA_OPTION_ID_REUSEADDR.
    ///
    /// EADDRNOTAVAIL: not an address of this host, or the port is in use and one of the two addresses is a
    /// wildcard (if another process has the port: `wanted` is). EADDRINUSE: address and port are in use.
    /// EACCES and other errors of bind(2).
    pub(crate) fn new(socket: &OwnedFd, wanted: &SocketAddr, reuse: bool) -> Result<Self, Refused> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let one_family = match wanted {
            SocketAddr::V4(_) => true,
            SocketAddr::V6(_) => sockopt::ipv6_v6only(socket) == Ok(true),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut entry = Entry { number, addr: *wanted, reuse, one_family };
        let mut guard = lock(TABLE.get());
        let table = guard.get_or_insert_default();
        if wanted.port() != 0 {
            check(table, &entry, false)?;
        }
        bind(socket, wanted)?;
        set_reuse(socket, reuse);
        entry.addr = addr::local(socket)?;
        if wanted.port() == 0 {
            // The kernel may have chosen a port that still belongs to an identifier whose connection has
            // ended.
            check(table, &entry, false)?;
        }
        table.entry(entry.addr.port()).or_default().push(entry);
        Ok(Self { number, addr: entry.addr })
    }

    /// The address with the actual port.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the entry of this binding. `None` in a child after fork(2): the table is empty there.
    fn change<T>(&self, change: impl FnOnce(&Table, &mut Entry) -> T) -> Option<T> {
        let mut guard = lock(TABLE.get());
        let table = guard.as_mut()?;
        let mut entry = *table.get(&self.addr.port())?.iter().find(|entry| entry.number == self.number)?;
        let result = change(table, &mut entry);
        let entries = table.get_mut(&self.addr.port())?;
        *entries.iter_mut().find(|entry| entry.number == self.number)? = entry;
        Some(result)
    }

    /// Sets RDMA_OPTION_ID_REUSEADDR of the identifier.
    pub(crate) fn permit_reuse(&self) {
        self.change(|_, entry| entry.reuse = true);
    }

    /// Claims the address for a listener, which shares it with no other identifier, even with
    /// RDMA_OPTION_ID_REUSEADDR. EADDRNOTAVAIL, EADDRINUSE: another identifier shares it (see [`Self::new`]).
    pub(crate) fn claim(&self) -> Result<(), Refused> {
        let claimed = self.change(|table, entry| {
            check(table, entry, true)?;
            entry.reuse = false;
            Ok(())
        });
        claimed.unwrap_or(Ok(()))
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        let mut guard = lock(TABLE.get());
        let Some(table) = guard.as_mut() else { return };
        let Some(entries) = table.get_mut(&self.addr.port()) else { return };
        entries.retain(|entry| entry.number != self.number);
        if entries.is_empty() {
            table.remove(&self.addr.port());
        }
    }
}

/// Sets SO_REUSEADDR on a bound socket. Also called before a socket listens or connects, so that the
/// connections that it leaves behind do not prevent the next bind(2).
pub(crate) fn permit_rebind(socket: &OwnedFd) {
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
