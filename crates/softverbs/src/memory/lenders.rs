// SPDX-License-Identifier: BSD-3-Clause
//! Connections that lend keys to their peers: processes of this host, which then access the memory without asking the table. What the table
//! forbids, they must be told, and what they are doing waited for.
//!
//! A slot of the table knows whether its key was ever lent, so keys that were not cost nothing here.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use crate::lock;
use crate::process::PerProcess;

/// A connection that has lent keys.
pub(crate) trait Lender: Send + Sync {
    /// Takes a key back if it is lent, and returns when the peer does not use it any more.
    fn take_back(&self, stag: u32);
}

/// A place keeps its number as long as it is taken, so that who goes through them misses none. A child after fork(2) has lent nothing.
static LENDERS: PerProcess<Vec<Option<Weak<dyn Lender>>>> = PerProcess::new();

/// Adds a connection, before it lends its first key. ENOMEM.
pub(crate) fn add_lender(lender: &Arc<impl Lender + 'static>) -> Result<(), crate::sys::Errno> {
    let as_weak: Weak<dyn Lender> = Arc::downgrade(&(lender.clone() as Arc<dyn Lender>));
    let mut lenders = lock(LENDERS.get());
    let lenders = lenders.get_or_insert_default();
    if let Some(free) = lenders.iter_mut().find(|place| place.is_none()) {
        *free = Some(as_weak);
        return Ok(());
    }
    lenders.try_reserve(1).map_err(|_| libc::ENOMEM)?;
    lenders.push(Some(as_weak));
    Ok(())
}

/// Removes a connection that will lend nothing any more, and whose peer uses no key.
pub(crate) fn remove_lender(lender: &Arc<impl Lender + 'static>) {
    let mut lenders = lock(LENDERS.get());
    let places = lenders.iter_mut().flatten();
    let is_it = |place: &&mut Option<Weak<dyn Lender>>| {
        place.as_ref().is_some_and(|weak| std::ptr::addr_eq(weak.as_ptr(), Arc::as_ptr(lender)))
    };
    if let Some(place) = places.into_iter().find(is_it) {
        *place = None;
    }
}

/// Takes a key back wherever it is lent. Nobody lends it any more, since the table does not permit accesses with it, and no grant is left.
#[cold]
pub(super) fn take_back(stag: u32) {
    // Not under the lock: who waits for a peer that was stopped must not stop others.
    for at in 0.. {
        let lender = {
            let lenders = lock(LENDERS.get());
            let Some(place) = lenders.as_ref().and_then(|lenders| lenders.get(at)) else { return };
            place.as_ref().and_then(Weak::upgrade)
        };
        if let Some(lender) = lender {
            lender.take_back(stag);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
