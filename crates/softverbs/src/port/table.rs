// SPDX-License-Identifier: BSD-3-Clause
//! The endpoints of the process, by queue pair number.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::Endpoint;
use super::drops::Reason;
use super::socket::Family;
use crate::lock;

struct Entry {
    /// The local address and that of the peer, unless it receives from all hosts.
    addresses: Option<(IpAddr, IpAddr)>,
    endpoint: Weak<dyn Endpoint>,
    /// Its packets arrive through shared memory.
    is_shared: bool,
}

/// The receiver of a packet.
pub(super) struct Found {
    pub endpoint: Arc<dyn Endpoint>,
    /// It has no peer: the packet needs its IP header.
    pub needs_header: bool,
}

/// A hash of a queue pair number. This process draws the numbers, 16 random bits each, so no peer can choose
/// numbers that collide; and one is looked up for each batch of packets.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The table uses the upper bits, too.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[derive(Default)]
pub(super) struct Table {
    /// By queue pair number.
    entries: Mutex<HashMap<u32, Entry, BuildHasherDefault<NumberHasher>>>,
    /// The number of entries that receive from each [`Family`], read without the lock.
    counts: [AtomicU32; 2],
    /// The number of entries whose packets arrive at the port, read without the lock.
    at_port: AtomicU32,
}

impl Table {
    pub(super) fn add(&self, num: u32, addresses: Option<(IpAddr, IpAddr)>, endpoint: Weak<dyn Endpoint>) {
        // Dropping the replaced entry only frees memory: its reference to the endpoint is weak.
        let mut entries = lock(&self.entries);
        let entry = Entry { addresses, endpoint, is_shared: false };
        self.at_port.fetch_add(1, Ordering::Relaxed);
        self.counts_of(&entry).for_each(|count| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let old = entries.insert(num, entry);
        self.forget(old.as_ref());
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    pub(super) fn remove(&self, num: u32) {
        let mut entries = lock(&self.entries);
        let old = entries.remove(&num);
        self.forget(old.as_ref());
    }

    fn counts_of(&self, entry: &Entry) -> impl Iterator<Item = &AtomicU32> {
        let only = entry.addresses.map(|(local, _)| Family::of(local));
        let families = Family::ALL.into_iter().filter(move |family| only.is_none_or(|only| only == *family));
        families.map(|family| &self.counts[family as usize])
    }

    /// The caller holds the lock of the entries.
    fn forget(&self, old: Option<&Entry>) {
        for count in old.into_iter().flat_map(|old| self.counts_of(old)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if old.is_some_and(|old| !old.is_shared) {
            self.at_port.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the packets of `num` arrive through shared memory.
    pub(super) fn set_shared(&self, num: u32, shared: bool) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&num).filter(|entry| entry.is_shared != shared) else { return };
        entry.is_shared = shared;
        match shared {
            true => self.at_port.fetch_sub(1, Ordering::Relaxed),
            false => self.at_port.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Whether packets of any entry arrive at the port.
    pub(super) fn has_any_at_port(&self) -> bool {
        self.at_port.load(Ordering::Relaxed) > 0
    }

    /// The common family of all entries, if there is one.
    pub(super) fn only_family(&self) -> Option<Family> {
        let [v4, v6] = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed) > 0);
        match (v4, v6) {
            (true, false) => Some(Family::V4),
            (false, true) => Some(Family::V6),
            _ => None,
        }
    }

    /// The endpoint for packets to `num` with these addresses.
    pub(super) fn receiver(&self, num: u32, source: IpAddr, destination: IpAddr) -> Result<Found, Reason> {
        let table = lock(&self.entries);
        let entry = table.get(&num).ok_or(Reason::UnknownQp)?;
        if entry.addresses.is_some_and(|addresses| addresses != (destination, source)) {
            return Err(Reason::WrongAddress);
        }
        let endpoint = entry.endpoint.upgrade().ok_or(Reason::UnknownQp)?;
        Ok(Found { endpoint, needs_header: entry.addresses.is_none() })
    }

    pub(super) fn find(&self, num: u32) -> Option<Arc<dyn Endpoint>> {
        lock(&self.entries).get(&num)?.endpoint.upgrade()
    }
}
