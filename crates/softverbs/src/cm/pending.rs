// SPDX-License-Identifier: BSD-3-Clause
//! Limits on pending connections: those whose MPA Request is incomplete, or not yet fetched by the
//! application. Each holds a descriptor, and the application needs most of those.
//!
//! A process, a listener and a remote address have a limit each ([`Limits`]). A *stalled* connection, one
//! without a complete request, makes room for a new one: the oldest of the address that has most of them is
//! closed. If all requests are complete, a listener stops accepting until the application has fetched some,
//! and connections wait in the kernel's backlog. One address must not block all others, so beyond its own
//! limit its connections are refused.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, Weak};

use crate::config;
use crate::lock;
use crate::process::PerProcess;
use crate::sys;

/// A remote host as far as limits are concerned: an IPv4 address, or the first half of an IPv6 address, since
/// the other half is for its owner to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host(IpAddr);

impl Host {
    pub(super) fn of(addr: IpAddr) -> Self {
        Self(match addr.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }
}

/// A pending connection that may have to make room.
pub(super) trait Pending: Send + Sync {
    /// Closes the connection if its MPA Request is not complete. Returns whether it did.
    fn dismiss(&self) -> bool;
}

/// A listener that stops accepting while there is no room.
pub(super) trait Waiting: Send + Sync {
    /// There may be room again.
    fn go_on(&self);
}

/// The numbers of pending connections that are allowed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    process: usize,
    listener: usize,
    address: usize,
}

impl Limits {
    /// The settings, as far as the descriptors of the process permit.
    pub(super) fn now() -> Self {
        let config = config::get();
        let settings = Self {
            process: config.max_pending,
            listener: config.max_pending_listener,
            address: config.max_pending_address,
        };
        let most = sys::max_descriptors();
        // The lowest number that is free says how many are in use, or fewer if there are gaps.
        let left = sys::lowest_descriptor().map_or(0, |lowest| most.saturating_sub(lowest));
        settings.within(most, left)
    }

    /// Less than these: a quarter of the descriptors that the process may have, half of those that it has
    /// left.
    fn within(self, most: usize, left: usize) -> Self {
        let process = self.process.min(most / 4).min(left / 2).max(1);
        // A listener whose program fetches nothing leaves room for the others.
        Self { process, listener: self.listener.min(process.div_ceil(2)), ..self }
    }
}

#[derive(Default)]
struct Counts {
    next: u64,
    total: usize,
    listeners: HashMap<u64, usize>,
    hosts: HashMap<Host, usize>,
    /// The stalled connections of a host at a listener, oldest first.
    stalled: HashMap<(u64, Host), BTreeMap<u64, Weak<dyn Pending>>>,
    /// Listeners that accept no more for now.
    paused: Vec<Weak<dyn Waiting>>,
}

/// The pending connections of this process.
#[derive(Default)]
pub(super) struct Guests {
    counts: Mutex<Counts>,
}

static GUESTS: PerProcess<Arc<Guests>> = PerProcess::new();

fn subtract<K: std::hash::Hash + Eq + Copy>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

impl Counts {
    fn at(&self, listener: u64) -> usize {
        self.listeners.get(&listener).copied().unwrap_or(0)
    }

    /// Takes the oldest stalled connection of the host that has the most of them, among those that `of`
    /// selects.
    fn take_stalled(&mut self, of: impl Fn(u64, Host) -> bool) -> Option<Weak<dyn Pending>> {
        let (&key, _) =
            self.stalled.iter().filter(|((l, h), _)| of(*l, *h)).max_by_key(|(_, ones)| ones.len())?;
        let ones = self.stalled.get_mut(&key)?;
        let oldest = ones.pop_first().map(|(_, one)| one);
        if ones.is_empty() {
            self.stalled.remove(&key);
        }
        oldest
    }

    fn unstall(&mut self, listener: u64, host: Host, number: u64) {
        if let Some(ones) = self.stalled.get_mut(&(listener, host)) {
            ones.remove(&number);
            if ones.is_empty() {
                self.stalled.remove(&(listener, host));
            }
        }
    }
}

impl Guests {
    /// Those of this process: a child after fork(2) has none.
    pub(super) fn get() -> Arc<Self> {
        lock(GUESTS.get()).get_or_insert_default().clone()
    }

    /// Whether a listener may accept one more. If not, it is called when there is room again.
    pub(super) fn has_room(
        &self,
        token: u64,
        listener: &Arc<impl Waiting + 'static>,
        limits: Limits,
    ) -> bool {
        let mut counts = lock(&self.counts);
        let here = counts.at(token) < limits.listener || counts.stalled.keys().any(|(l, _)| *l == token);
        let room = here && (counts.total < limits.process || !counts.stalled.is_empty());
        if !room
            && !counts.paused.iter().any(|paused| std::ptr::addr_eq(paused.as_ptr(), Arc::as_ptr(listener)))
        {
            counts.paused.push(Arc::downgrade(listener) as _);
        }
        room
    }

    /// Counts a connection that has been accepted. `None`: its address is at its limit. Stalled connections
    /// are closed for it while a limit is reached.
    pub(super) fn admit(
        self: &Arc<Self>,
        listener: u64,
        host: Host,
        limits: Limits,
    ) -> Option<(Place, usize)> {
        let mut dismissed = 0;
        loop {
            let victim = {
                let mut counts = lock(&self.counts);
                let at_address = counts.hosts.get(&host).copied().unwrap_or(0);
                let victim = if at_address >= limits.address {
                    Some(counts.take_stalled(|_, h| h == host)?)
                } else if counts.at(listener) >= limits.listener {
                    counts.take_stalled(|l, _| l == listener)
                } else if counts.total >= limits.process {
                    counts.take_stalled(|_, _| true)
                } else {
                    None
                };
                let Some(victim) = victim else {
                    counts.next += 1;
                    let number = counts.next;
                    counts.total += 1;
                    *counts.listeners.entry(listener).or_default() += 1;
                    *counts.hosts.entry(host).or_default() += 1;
                    drop(counts);
                    return Some((Place { pending: self.clone(), listener, host, number }, dismissed));
                };
                victim
            };
            // Not under the lock, which its place needs.
            if let Some(pending) = victim.upgrade() {
                dismissed += usize::from(pending.dismiss());
            }
        }
    }

    /// Closes one stalled connection, if there is any, because there are no descriptors.
    pub(super) fn dismiss_one(&self) -> bool {
        let victim = lock(&self.counts).take_stalled(|_, _| true);
        victim.and_then(|victim| victim.upgrade()).is_some_and(|pending| pending.dismiss())
    }

    /// Closes the stalled connections of a listener.
    pub(super) fn dismiss_all(&self, listener: u64) {
        loop {
            let victim = lock(&self.counts).take_stalled(|l, _| l == listener);
            let Some(victim) = victim else { return };
            if let Some(pending) = victim.upgrade() {
                pending.dismiss();
            }
        }
    }
}

/// The count of a pending connection; dropping it counts down.
pub(super) struct Place {
    pending: Arc<Guests>,
    listener: u64,
    host: Host,
    number: u64,
}

impl Place {
    /// The connection waits for the rest of its MPA Request.
    pub(super) fn stalls(&self, pending: Weak<dyn Pending>) {
        let mut counts = lock(&self.pending.counts);
        counts.stalled.entry((self.listener, self.host)).or_default().insert(self.number, pending);
    }

    /// The MPA Request of the connection is complete.
    pub(super) fn stalls_no_more(&self) {
        lock(&self.pending.counts).unstall(self.listener, self.host, self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let paused = {
            let mut counts = lock(&self.pending.counts);
            counts.unstall(self.listener, self.host, self.number);
            counts.total -= 1;
            subtract(&mut counts.listeners, self.listener);
            subtract(&mut counts.hosts, self.host);
            std::mem::take(&mut counts.paused)
        };
        for listener in paused.iter().filter_map(Weak::upgrade) {
            listener.go_on();
        }
    }
}

#[cfg(test)]
mod tests;
