// SPDX-License-Identifier: BSD-3-Clause
//! Connections that have exported keys to their peers, processes of this host, which then access the memory
//! without a table lookup. Deregistration revokes the key at each of them and waits for copies in progress.
//!
//! A connection that ends while its peer uses a key cannot wait, as its thread serves others. It stays here
//! until the copy is complete or the peer's process has ended, so that a deregistration can wait for the
//! copy.
//!
//! A slot of the table records whether its key was ever exported, so other keys cost nothing here.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::lock;
use crate::process::PerProcess;
use crate::sys::Errno;

/// A connection that has exported keys.
pub(crate) trait Exporter: Send + Sync {
    /// Revokes a key if it is exported, and waits for a copy of the peer with it until the given time. False
    /// if the peer may still be copying.
    fn revoke(&self, stag: u32, until: Instant) -> bool;

    /// Whether no copy of the peer can be in progress any more. Called after the connection has ended.
    fn is_released(&self) -> bool;
}

enum Place {
    Free,
    Open(Weak<dyn Exporter>),
    /// The connection has ended, and its peer held a key.
    Held(Arc<dyn Exporter>),
}

impl Place {
    fn is(&self, exporter: &Arc<impl Exporter + 'static>) -> bool {
        matches!(self, Self::Open(weak) if std::ptr::addr_eq(weak.as_ptr(), Arc::as_ptr(exporter)))
    }

    fn is_held(&self, exporter: &Arc<impl Exporter + 'static>) -> bool {
        matches!(self, Self::Held(held) if std::ptr::addr_eq(Arc::as_ptr(held), Arc::as_ptr(exporter)))
    }

    fn exporter(&self) -> Option<Arc<dyn Exporter>> {
        match self {
            Self::Free => None,
            Self::Open(weak) => weak.upgrade(),
            Self::Held(exporter) => Some(exporter.clone()),
        }
    }
}

/// An entry keeps its index while it is in use, so an iteration misses none. After fork(2) the child starts
/// with an empty list.
static EXPORTERS: PerProcess<Vec<Place>> = PerProcess::new();

/// Removes connections that have been released; the caller drops them after it has released the lock.
fn released(places: &mut [Place]) -> Vec<Place> {
    let is_released = |place: &&mut Place| matches!(place, Place::Held(exporter) if exporter.is_released());
    places.iter_mut().filter(is_released).map(|place| std::mem::replace(place, Place::Free)).collect()
}

/// Adds a connection. Must be called before it exports its first key. ENOMEM.
pub(crate) fn add_exporter(exporter: &Arc<impl Exporter + 'static>) -> Result<(), Errno> {
    let open = Place::Open(Arc::downgrade(&(exporter.clone() as Arc<dyn Exporter>)));
    let mut exporters = lock(EXPORTERS.get());
    let places = exporters.get_or_insert_default();
    let released = released(places);
    if let Some(free) = places.iter_mut().find(|place| matches!(place, Place::Free)) {
        *free = open;
    } else {
        places.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        places.push(open);
    }
    drop(exporters);
    drop(released);
    Ok(())
}

/// Removes a connection that has ended and exports no more keys. False if it stays because its peer still
/// uses a key: call this again later.
pub(crate) fn remove_exporter(exporter: &Arc<impl Exporter + 'static>) -> bool {
    let mut exporters = lock(EXPORTERS.get());
    let Some(places) = exporters.as_mut() else { return true };
    let mut released = released(places);
    if let Some(place) = places.iter_mut().find(|place| place.is(exporter)) {
        let next = if exporter.is_released() { Place::Free } else { Place::Held(exporter.clone()) };
        released.push(std::mem::replace(place, next));
    }
    let is_held = places.iter().any(|place| place.is_held(exporter));
    drop(exporters);
    drop(released);
    !is_held
}

/// Revokes a key wherever it is exported, and waits until the given time for copies that use it. EBUSY: a
/// copy may still be in progress. The table must already deny the key and have no grant for it, so that no
/// connection can export it meanwhile.
#[cold]
pub(super) fn revoke(stag: u32, until: Instant) -> Result<(), Errno> {
    let mut result = Ok(());
    // Not under the lock: waiting for a peer must not block others.
    for at in 0.. {
        let exporter = {
            let exporters = lock(EXPORTERS.get());
            let Some(place) = exporters.as_ref().and_then(|places| places.get(at)) else { break };
            place.exporter()
        };
        // Revoke it at all of them, also after one that is busy: no other copy may begin.
        if exporter.is_some_and(|exporter| !exporter.revoke(stag, until)) {
            result = Err(libc::EBUSY);
        }
    }
    result
}

#[cfg(test)]
pub(super) mod tests;
