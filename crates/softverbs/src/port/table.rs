// SPDX-License-Identifier: BSD-3-Clause
//! The endpoints of the process, by queue pair number.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use super::Endpoint;
use super::drops::Reason;
use crate::lock;

struct Entry {
    local: IpAddr,
    peer: IpAddr,
    endpoint: Weak<dyn Endpoint>,
}

/// Queue pair number to endpoint.
#[derive(Default)]
pub(super) struct Table(Mutex<HashMap<u32, Entry>>);

impl Table {
    pub(super) fn add(&self, num: u32, local: IpAddr, peer: IpAddr, endpoint: Weak<dyn Endpoint>) {
        // An entry replaced here frees memory only: an endpoint is not dropped with its weak reference.
        lock(&self.0).insert(num, Entry { local, peer, endpoint });
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(super) fn remove(&self, num: u32) {
        lock(&self.0).remove(&num);
    }

    /// The endpoint of a packet for `num` with these addresses.
    pub(super) fn receiver(
        &self,
        num: u32,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Arc<dyn Endpoint>, Reason> {
        let table = lock(&self.0);
        let entry = table.get(&num).ok_or(Reason::UnknownQp)?;
        if (entry.peer, entry.local) != (source, destination) {
            return Err(Reason::WrongAddress);
        }
        entry.endpoint.upgrade().ok_or(Reason::UnknownQp)
    }

    pub(super) fn find(&self, num: u32) -> Option<Arc<dyn Endpoint>> {
        lock(&self.0).get(&num)?.endpoint.upgrade()
    }
}
