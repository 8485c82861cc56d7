// SPDX-License-Identifier: BSD-3-Clause
//! Local addresses of identifiers, and the conflicts between them.
//!
//! Within a process a table applies the rules of the kernel's rdma_cm: an address and port belong to one
//! identifier, and a wildcard address conflicts with every other address on the same port, unless both
//! identifiers have RDMA_OPTION_ID_REUSEADDR and neither listens. Unlike in the kernel, a loopback address is
//! not treated as a wildcard.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use super::protocol::Refused;
use crate::lock;
use crate::process::PerProcess;

/// The address that an identifier is bound to.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    addr: SocketAddr,
    /// RDMA_OPTION_ID_REUSEADDR; cleared when the identifier listens.
    reuse: bool,
    /// It accepts no connections of the other address family: IPv4, or IPv6 with RDMA_OPTION_ID_AFONLY.
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

/// The ports of a port space that identifiers of this process have.
pub(super) struct Ports(PerProcess<Table>);

fn check(table: &Table, entry: &Entry, listens: bool) -> Result<(), Refused> {
    let mut others = table.get(&entry.addr.port()).into_iter().flatten();
    others.try_for_each(|other| entry.check(other, listens))
}

/// The local address of an identifier; dropping it releases the address.
pub(super) struct Binding {
    ports: &'static Ports,
    number: u64,
    addr: SocketAddr,
}

impl Ports {
    pub(super) const fn new() -> Self {
        Self(PerProcess::new())
    }

    /// Has `bind` claim `wanted`, unless another identifier of this process has it; it returns the address
    /// with the actual port. `reuse`: the identifier has RDMA_OPTION_ID_REUSEADDR.
    ///
    /// [`Refused::Wildcard`] or EADDRINUSE: another identifier has the port. Errors of `bind`.
    pub(super) fn bind(
        &'static self,
        wanted: &SocketAddr,
        reuse: bool,
        one_family: bool,
        bind: impl FnOnce() -> Result<SocketAddr, Refused>,
    ) -> Result<Binding, Refused> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut entry = Entry { number, addr: *wanted, reuse, one_family };
        let mut guard = lock(self.0.get());
        let table = guard.get_or_insert_default();
        if wanted.port() != 0 {
            check(table, &entry, false)?;
        }
        entry.addr = bind()?;
        if wanted.port() == 0 {
            // The kernel may have chosen a port that still belongs to an identifier whose connection has
            // ended.
            check(table, &entry, false)?;
        }
        table.entry(entry.addr.port()).or_default().push(entry);
        Ok(Binding { ports: self, number, addr: entry.addr })
    }
}

impl Binding {
    /// The address with the actual port.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the entry of this binding. `None` in a child after fork(2): the table is empty there.
    fn change<T>(&self, change: impl FnOnce(&Table, &mut Entry) -> T) -> Option<T> {
        let mut guard = lock(self.ports.0.get());
        let table = guard.as_mut()?;
        let mut entry = *table.get(&self.addr.port())?.iter().find(|entry| entry.number == self.number)?;
        let result = change(table, &mut entry);
        let entries = table.get_mut(&self.addr.port())?;
        *entries.iter_mut().find(|entry| entry.number == self.number)? = entry;
        Some(result)
    }

    /// Sets RDMA_OPTION_ID_REUSEADDR of the identifier.
    pub(super) fn permit_reuse(&self) {
        self.change(|_, entry| entry.reuse = true);
    }

    /// Claims the address for a listener, which shares it with no other identifier, even with
    /// RDMA_OPTION_ID_REUSEADDR. EADDRNOTAVAIL, EADDRINUSE: another identifier shares it (see
    /// [`Ports::bind`]).
    pub(super) fn claim(&self) -> Result<(), Refused> {
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
        let mut guard = lock(self.ports.0.get());
        let Some(table) = guard.as_mut() else { return };
        let Some(entries) = table.get_mut(&self.addr.port()) else { return };
        entries.retain(|entry| entry.number != self.number);
        if entries.is_empty() {
            table.remove(&self.addr.port());
        }
    }
}
