// SPDX-License-Identifier: BSD-3-Clause
//! Limits on pending connections: those whose MPA Request is incomplete or not yet fetched by the program.
//! Each holds a descriptor, and the program needs most of those.
//!
//! There is a limit for the process, one for each listener and one for each remote host ([`Limits`]). A
//! connection is *stalled* while its MPA Request is incomplete. At a limit, a stalled connection is evicted
//! for a new one: the oldest of the host that has the most of them. If there is no stalled connection, the
//! listener pauses until the program fetches requests, and connections wait in the kernel's backlog. A host
//! at its own limit must not block the others, so its new connections are refused instead.
//!
//! A connection with a complete request is never evicted. The counts are behind one lock, with which no other
//! code is called: evicting a connection drops its [`Admission`], which takes the lock.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, Weak};

use crate::config;
use crate::lock;
use crate::process::PerProcess;
use crate::sys;

/// A remote host for the purpose of limits: an IPv4 address, or the upper 64 bits of an IPv6 address, since a
/// host can choose the lower 64 freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RemoteHost(IpAddr);

impl RemoteHost {
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

/// A pending connection that can be evicted.
pub(super) trait Pending: Send + Sync {
    /// Closes the connection if its MPA Request is incomplete. Returns whether it did.
    fn evict(&self) -> bool;
}

/// A listener that pauses while there is no room.
pub(super) trait Paused: Send + Sync {
    /// Resumes accepting: there may be room again.
    fn resume(&self);
}

/// The numbers of pending connections currently permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    process: usize,
    listener: usize,
    address: usize,
}

impl Limits {
    /// The configured limits, reduced to what the descriptor limit of the process permits.
    pub(super) fn now() -> Self {
        let config = config::get();
        let settings = Self {
            process: config.max_pending,
            listener: config.max_pending_listener,
            address: config.max_pending_address,
        };
        let most = sys::max_descriptors();
        // The lowest free descriptor is an estimate of the number in use; it is too low if there are gaps.
        let left = sys::lowest_descriptor().map_or(0, |lowest| most.saturating_sub(lowest));
        settings.within(most, left)
    }

    /// Reduced to a quarter of the `most` descriptors that the process may have, and half of the `left` still
    /// available; at least 1.
    fn within(self, most: usize, left: usize) -> Self {
        let process = self.process.min(most / 4).min(left / 2).max(1);
        // A listener whose requests are not fetched leaves room for the other listeners.
        Self { process, listener: self.listener.min(process.div_ceil(2)), ..self }
    }
}

#[derive(Default)]
struct Counts {
    next: u64,
    total: usize,
    listeners: HashMap<u64, usize>,
    hosts: HashMap<RemoteHost, usize>,
    /// The stalled connections of each host at each listener, oldest first.
    stalled: HashMap<(u64, RemoteHost), BTreeMap<u64, Weak<dyn Pending>>>,
    /// Listeners that have paused.
    paused: Vec<Weak<dyn Paused>>,
}

/// The pending connections of this process.
#[derive(Default)]
pub(super) struct Admissions {
    counts: Mutex<Counts>,
}

static ADMISSIONS: PerProcess<Arc<Admissions>> = PerProcess::new();

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

    /// Takes the oldest stalled connection of the host that has the most of them, among the listeners and
    /// hosts selected by `of`.
    fn take_stalled(&mut self, of: impl Fn(u64, RemoteHost) -> bool) -> Option<Weak<dyn Pending>> {
        let (&key, _) = self
            .stalled
            .iter()
            .filter(|((l, h), _)| of(*l, *h))
            .max_by_key(|(_, connections)| connections.len())?;
        let connections = self.stalled.get_mut(&key)?;
        let oldest = connections.pop_first().map(|(_, one)| one);
        if connections.is_empty() {
            self.stalled.remove(&key);
        }
        oldest
    }

    fn unstall(&mut self, listener: u64, host: RemoteHost, number: u64) {
        if let Some(connections) = self.stalled.get_mut(&(listener, host)) {
            connections.remove(&number);
            if connections.is_empty() {
                self.stalled.remove(&(listener, host));
            }
        }
    }
}

impl Admissions {
    /// The instance of this process. A child starts with an empty one after fork(2).
    pub(super) fn get() -> Arc<Self> {
        lock(ADMISSIONS.get()).get_or_insert_default().clone()
    }

    /// Whether a listener may accept another connection. If not, it is resumed when a pending connection goes
    /// away.
    pub(super) fn has_room(&self, token: u64, listener: &Arc<impl Paused + 'static>, limits: Limits) -> bool {
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

    /// Counts an accepted connection. While a limit is reached, stalled connections are evicted for it;
    /// returns how many were. `None`: the host is at its limit and has no stalled connection.
    pub(super) fn admit(
        self: &Arc<Self>,
        listener: u64,
        host: RemoteHost,
        limits: Limits,
    ) -> Option<(Admission, usize)> {
        let mut evicted = 0;
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
                    return Some((Admission { pending: self.clone(), listener, host, number }, evicted));
                };
                victim
            };
            // Without the lock: dropping its admission takes it.
            if let Some(pending) = victim.upgrade() {
                evicted += usize::from(pending.evict());
            }
        }
    }

    /// Evicts one stalled connection to free its descriptor. False if there is none.
    pub(super) fn evict_one(&self) -> bool {
        let victim = lock(&self.counts).take_stalled(|_, _| true);
        victim.and_then(|victim| victim.upgrade()).is_some_and(|pending| pending.evict())
    }

    /// Closes all stalled connections of a listener.
    pub(super) fn close_stalled(&self, listener: u64) {
        loop {
            let victim = lock(&self.counts).take_stalled(|l, _| l == listener);
            let Some(victim) = victim else { return };
            if let Some(pending) = victim.upgrade() {
                pending.evict();
            }
        }
    }
}

/// The admission of one pending connection; dropping it releases its share of the limits.
pub(super) struct Admission {
    pending: Arc<Admissions>,
    listener: u64,
    host: RemoteHost,
    number: u64,
}

impl Admission {
    /// Marks the connection as stalled: its MPA Request is incomplete, so it may be evicted.
    pub(super) fn set_stalled(&self, pending: Weak<dyn Pending>) {
        let mut counts = lock(&self.pending.counts);
        counts.stalled.entry((self.listener, self.host)).or_default().insert(self.number, pending);
    }

    /// Marks the MPA Request as complete: the connection can no longer be evicted.
    pub(super) fn set_complete(&self) {
        lock(&self.pending.counts).unstall(self.listener, self.host, self.number);
    }
}

impl Drop for Admission {
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
            listener.resume();
        }
    }
}

#[cfg(test)]
mod tests;
