// SPDX-License-Identifier: BSD-3-Clause
//! Listeners, and their pending requests: requests whose event the program has not fetched. A request that
//! its peer withdraws remains pending, since its event does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use super::terms::{Bound, CommId, Limits, ListenerId};
use crate::roce::wire::cm::{ServiceId, Transport};

struct Listener {
    service: ServiceId,
    transport: Transport,
    bound: Bound,
    backlog: usize,
    pending: usize,
}

/// The listeners of a process.
pub(super) struct Listeners {
    limits: Limits,
    next: u64,
    listeners: BTreeMap<ListenerId, Listener>,
    services: BTreeMap<u64, Vec<ListenerId>>,
    pending: BTreeMap<CommId, (ListenerId, IpAddr)>,
    hosts: BTreeMap<IpAddr, usize>,
}

impl Listeners {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 0,
            listeners: BTreeMap::new(),
            services: BTreeMap::new(),
            pending: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        service: ServiceId,
        transport: Transport,
        bound: Bound,
        backlog: usize,
    ) -> ListenerId {
        self.next += 1;
        let id = ListenerId(self.next);
        self.listeners.insert(id, Listener { service, transport, bound, backlog, pending: 0 });
        self.services.entry(service.0).or_default().push(id);
        id
    }

    /// Removes a listener. Returns its pending requests.
    pub(super) fn remove(&mut self, id: ListenerId) -> Vec<CommId> {
        if let Some(listener) = self.listeners.remove(&id) {
            if let Some(ids) = self.services.get_mut(&listener.service.0) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.services.remove(&listener.service.0);
                }
            }
        }
        self.pending.iter().filter(|(_, (of, _))| *of == id).map(|(request, _)| *request).collect()
    }

    /// The listener for a request to a service of a local address.
    pub(super) fn find(&self, service: ServiceId, address: IpAddr) -> Option<ListenerId> {
        let ids = self.services.get(&service.0)?;
        let of = |id: &ListenerId| self.listeners.get(id).map(|listener| listener.bound);
        let included = ids.iter().copied().filter(|id| of(id).is_some_and(|bound| bound.includes(address)));
        included.max_by_key(|id| of(id).map(Bound::rank))
    }

    /// The transport service of the queue pairs that a listener accepts.
    pub(super) fn transport(&self, id: ListenerId) -> Option<Transport> {
        self.listeners.get(&id).map(|listener| listener.transport)
    }

    /// Whether there is room for another request of this host.
    pub(super) fn has_room(&self, id: ListenerId, remote: IpAddr) -> bool {
        self.pending.len() < self.limits.process
            && self.hosts.get(&host(remote)).copied().unwrap_or(0) < self.limits.address
            && self.listeners.get(&id).is_some_and(|listener| listener.pending < listener.backlog)
    }

    /// A request is being reported.
    pub(super) fn add_pending(&mut self, request: CommId, id: ListenerId, remote: IpAddr) {
        let host = host(remote);
        if self.pending.insert(request, (id, host)).is_none() {
            *self.hosts.entry(host).or_default() += 1;
            if let Some(listener) = self.listeners.get_mut(&id) {
                listener.pending += 1;
            }
        }
    }

    /// The program has fetched or discarded the event of a request.
    pub(super) fn remove_pending(&mut self, request: CommId) {
        let Some((id, host)) = self.pending.remove(&request) else { return };
        if let Some(listener) = self.listeners.get_mut(&id) {
            listener.pending = listener.pending.saturating_sub(1);
        }
        if let Some(count) = self.hosts.get_mut(&host) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn has_pending(&self) -> bool {
        let listeners = self.listeners.values().any(|listener| listener.pending > 0);
        listeners || !self.pending.is_empty() || !self.hosts.is_empty()
    }
}

/// A host for the purpose of limits: an IPv4 address, or the upper 64 bits of an IPv6 address, since a host
/// chooses the lower 64.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}
