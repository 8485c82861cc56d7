// SPDX-License-Identifier: BSD-3-Clause
//! The endpoints of the process, by queue pair number.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::Endpoint;
use super::drops::Reason;
use super::socket::Family;
use crate::lock;

struct Entry {
    local: IpAddr,
    peer: IpAddr,
    endpoint: Weak<dyn Endpoint>,
}

#[derive(Default)]
pub(super) struct Table {
    /// By queue pair number.
    entries: Mutex<HashMap<u32, Entry>>,
    /// The number of entries of each [`Family`], read without the lock.
    counts: [AtomicU32; 2],
}

impl Table {
    pub(super) fn add(&self, num: u32, local: IpAddr, peer: IpAddr, endpoint: Weak<dyn Endpoint>) {
        // Dropping the replaced entry only frees memory: its reference to the endpoint is weak.
        let mut entries = lock(&self.entries);
        let old = entries.insert(num, Entry { local, peer, endpoint });
        self.count(local).fetch_add(1, Ordering::Relaxed);
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

    fn count(&self, local: IpAddr) -> &AtomicU32 {
        &self.counts[Family::of(local) as usize]
    }

    /// The caller holds the lock of the entries.
    fn forget(&self, old: Option<&Entry>) {
        if let Some(old) = old {
            self.count(old.local).fetch_sub(1, Ordering::Relaxed);
        }
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
    pub(super) fn receiver(
        &self,
        num: u32,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Arc<dyn Endpoint>, Reason> {
        let table = lock(&self.entries);
        let entry = table.get(&num).ok_or(Reason::UnknownQp)?;
        if (entry.peer, entry.local) != (source, destination) {
            return Err(Reason::WrongAddress);
        }
        entry.endpoint.upgrade().ok_or(Reason::UnknownQp)
    }

    pub(super) fn find(&self, num: u32) -> Option<Arc<dyn Endpoint>> {
        lock(&self.entries).get(&num)?.endpoint.upgrade()
    }
}
