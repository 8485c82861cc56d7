// SPDX-License-Identifier: BSD-3-Clause
//! Local addresses of identifiers, and which of them exclude each other.
//!
//! Within a process a table decides, with the rules of the kernel's rdma_cm: an address and port belong to
//! one identifier, and a wildcard address excludes every other address of the port, unless both identifiers
//! have RDMA_OPTION_ID_REUSEADDR and neither listens. Loopback addresses are ordinary ones here; the kernel
//! treats them as wildcards.
//!
//! Between processes the TCP sockets decide. A socket that is only bound has no SO_REUSEADDR, so no other
//! socket can be bound to its address; nor can one be once it listens. The connections that an earlier
//! instance of a program has left, established or in TIME_WAIT, have SO_REUSEADDR set ([`permit_rebind`]),
//! and do not exclude a socket that is bound with it. So a socket is bound with it if that fails without it,
//! and loses it at once.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt;

use super::addr;
use crate::lock;
use crate::process::PerProcess;
use crate::sys::Errno;

/// Why an identifier cannot have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Errno(Errno),
    /// EADDRNOTAVAIL: the port is in use, and a wildcard address excludes all others.
    Wildcard,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Refused {
    /// The error number; logs the reason where the text for the number is about something else. Not under a
    /// lock.
    pub(crate) fn errno(self, wanted: &SocketAddr) -> Errno {
        match self {
            Self::Errno(errno) => errno,
            Self::Wildcard => {
                log::warn!(
                    "cannot bind to {wanted}: the port is in use, and a wildcard address excludes all others"
                );
                libc::EADDRNOTAVAIL
            }
        }
    }
}

/// An address that an identifier is bound to.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    addr: SocketAddr,
    /// RDMA_OPTION_ID_REUSEADDR, until the identifier listens.
    reuse: bool,
    /// It takes no connections of the other address family.
    one_family: bool,
}

impl Entry {
    /// [`Refused::Wildcard`] or EADDRINUSE if the two exclude each other; `listens`: this one is about to
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

    /// The address without the port; of a link-local one the interface is a part.
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

/// An identifier has a local address, until this is dropped.
#[derive(Debug)]
pub(crate) struct Binding {
    number: u64,
    addr: SocketAddr,
}

impl Binding {
    /// Binds a socket, to a free port if `wanted` has none. `reuse`: the identifier has
    /// RDMA_OPTION_ID_REUSEADDR.
    ///
    /// EADDRNOTAVAIL: it is not an address of this host, or the port is in use and either address is a
    /// wildcard (between processes: this one). EADDRINUSE: address and port are in use. EACCES and other
    /// errors of bind(2).
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
            // The kernel may have chosen a port that an identifier still has whose connection has ended.
            check(table, &entry, false)?;
        }
        table.entry(entry.addr.port()).or_default().push(entry);
        Ok(Self { number, addr: entry.addr })
    }

    /// The address, with the port.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the entry, unless it was made by the parent of this process.
    fn change<T>(&self, change: impl FnOnce(&Table, &mut Entry) -> T) -> Option<T> {
        let mut guard = lock(TABLE.get());
        let table = guard.as_mut()?;
        let mut entry = *table.get(&self.addr.port())?.iter().find(|entry| entry.number == self.number)?;
        let result = change(table, &mut entry);
        let entries = table.get_mut(&self.addr.port())?;
        *entries.iter_mut().find(|entry| entry.number == self.number)? = entry;
        Some(result)
    }

    /// Gives the identifier RDMA_OPTION_ID_REUSEADDR.
    pub(crate) fn permit_reuse(&self) {
        self.change(|_, entry| entry.reuse = true);
    }

    /// The identifier is about to listen, and then has the address alone, whatever RDMA_OPTION_ID_REUSEADDR
    /// says. Errors as for [`Self::new`].
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

/// Sets SO_REUSEADDR of a bound socket. Also if it is about to listen or to connect: the connections that it
/// leaves behind then do not exclude the next socket.
pub(crate) fn permit_rebind(socket: &OwnedFd) {
    set_reuse(socket, true);
}

fn set_reuse(socket: &OwnedFd, on: bool) {
    let _ = sockopt::set_socket_reuseaddr(socket, on);
}

/// Binds a socket, beside connections of a listener that has been closed.
fn bind(socket: &OwnedFd, wanted: &SocketAddr) -> Result<(), Refused> {
    set_reuse(socket, false);
    match addr::bind(socket, wanted) {
        // With SO_REUSEADDR the kernel might choose a port that is in use.
        Err(libc::EADDRINUSE) if wanted.port() != 0 => {}
        result => return result.map_err(Refused::Errno),
    }
    set_reuse(socket, true);
    match addr::bind(socket, wanted) {
        Err(libc::EADDRINUSE) if wanted.ip().is_unspecified() => Err(Refused::Wildcard),
        result => result.map_err(Refused::Errno),
    }
}
