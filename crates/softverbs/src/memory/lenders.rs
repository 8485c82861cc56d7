// SPDX-License-Identifier: BSD-3-Clause
//! Connections that lend keys to their peers: processes of this host, which then access the memory without a
//! table lookup. A key is revoked at each of them before its region is deregistered, and the copies that are
//! under way are waited for.
//!
//! A connection that ends while its peer still holds a key cannot wait, as others are served by the same
//! thread. It stays here until the peer has let go or its process has ended, so that a deregistration finds
//! the copy that may still be under way.
//!
//! A slot of the table knows whether its key was ever lent, so keys that were not cost nothing here.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::lock;
use crate::process::PerProcess;
use crate::sys::Errno;

/// A connection that has lent keys.
pub(crate) trait Lender: Send + Sync {
    /// Revokes a key if it is lent, and waits for a copy of the peer with it until the given time. False if
    /// the peer may still be copying.
    fn take_back(&self, stag: u32, until: Instant) -> bool;

    /// Of a connection that has ended: whether the peer cannot be copying any more.
    fn is_released(&self) -> bool;
}

enum Place {
    Free,
    Open(Weak<dyn Lender>),
    /// The connection has ended, and its peer held a key.
    Held(Arc<dyn Lender>),
}

impl Place {
    fn is(&self, lender: &Arc<impl Lender + 'static>) -> bool {
        matches!(self, Self::Open(weak) if std::ptr::addr_eq(weak.as_ptr(), Arc::as_ptr(lender)))
    }

    fn is_held(&self, lender: &Arc<impl Lender + 'static>) -> bool {
        matches!(self, Self::Held(held) if std::ptr::addr_eq(Arc::as_ptr(held), Arc::as_ptr(lender)))
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        match self {
            Self::Free => None,
            Self::Open(weak) => weak.upgrade(),
            Self::Held(lender) => Some(lender.clone()),
        }
    }
}

/// A place keeps its number as long as it is taken, so that who goes through them misses none. A child after
/// fork(2) has lent nothing.
static LENDERS: PerProcess<Vec<Place>> = PerProcess::new();

/// Takes out the connections whose peers have let go since; the caller drops them after it has released the
/// lock.
fn released(places: &mut [Place]) -> Vec<Place> {
    let is_released = |place: &&mut Place| matches!(place, Place::Held(lender) if lender.is_released());
    places.iter_mut().filter(is_released).map(|place| std::mem::replace(place, Place::Free)).collect()
}

/// Adds a connection, before it lends its first key. ENOMEM.
pub(crate) fn add_lender(lender: &Arc<impl Lender + 'static>) -> Result<(), Errno> {
    let open = Place::Open(Arc::downgrade(&(lender.clone() as Arc<dyn Lender>)));
    let mut lenders = lock(LENDERS.get());
    let places = lenders.get_or_insert_default();
    let released = released(places);
    if let Some(free) = places.iter_mut().find(|place| matches!(place, Place::Free)) {
        *free = open;
    } else {
        places.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        places.push(open);
    }
    drop(lenders);
    drop(released);
    Ok(())
}

/// Removes a connection that has ended and lends nothing any more. False if it stays because its peer still
/// holds a key: call this again later.
pub(crate) fn remove_lender(lender: &Arc<impl Lender + 'static>) -> bool {
    let mut lenders = lock(LENDERS.get());
    let Some(places) = lenders.as_mut() else { return true };
    let mut released = released(places);
    if let Some(place) = places.iter_mut().find(|place| place.is(lender)) {
        let next = if lender.is_released() { Place::Free } else { Place::Held(lender.clone()) };
        released.push(std::mem::replace(place, next));
    }
    let is_held = places.iter().any(|place| place.is_held(lender));
    drop(lenders);
    drop(released);
    !is_held
}

/// Revokes a key wherever it is lent, and waits for copies with it until the given time. EBUSY: one may still
/// be under way. The table does not permit accesses with the key, and no grant is left, so nobody lends it
/// meanwhile.
#[cold]
pub(super) fn take_back(stag: u32, until: Instant) -> Result<(), Errno> {
    let mut result = Ok(());
    // Not under the lock: who waits for a peer must not stop others.
    for at in 0.. {
        let lender = {
            let lenders = lock(LENDERS.get());
            let Some(place) = lenders.as_ref().and_then(|places| places.get(at)) else { break };
            place.lender()
        };
        // All of them, also after one that is busy: nobody is to begin another copy.
        if lender.is_some_and(|lender| !lender.take_back(stag, until)) {
            result = Err(libc::EBUSY);
        }
    }
    result
}

#[cfg(test)]
pub(super) mod tests;
