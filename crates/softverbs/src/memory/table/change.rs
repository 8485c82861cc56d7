// SPDX-License-Identifier: BSD-3-Clause
//! Re-registration: replaces the region of an STag while connections use it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::backing::{self, Backing};
use super::{
    EXPORTED, Grant, LOST_MEANWHILE, MOVING, Region, SEALED, Slot, TABLE, VALID, WITHDRAWN, WRITES_LOST,
};
use crate::limits::REVOKE_WAIT;
use crate::sys::Errno;
use transport::access::{Access, Denied};

/// The memory of a region that is replaced.
pub(crate) enum Changed {
    /// As before: the same, with the same backing.
    Nothing,
    /// Other memory, or other rights to it.
    Memory(Option<Backing>),
}

/// The exclusive right to change a region. The region stays as it is unless one of the methods is called.
pub(crate) struct Change {
    stag: u32,
    slot: &'static Slot,
}

impl Drop for Change {
    fn drop(&mut self) {
        let before = self.slot.state.fetch_and(!(MOVING | LOST_MEANWHILE), Ordering::AcqRel);
        if before & LOST_MEANWHILE != 0 {
            self.slot.access.fetch_or(WRITES_LOST, Ordering::Relaxed);
        }
        self.slot.uses.store(0, Ordering::Release);
    }
}

impl Change {
    /// EBUSY: another change of the region is in progress, or a window is bound to it. EINVAL: the region has
    /// been withdrawn, or no region has this STag.
    pub(crate) fn begin(stag: u32) -> Result<Self, Errno> {
        let (_, slot) = TABLE.region(stag).ok_or(libc::EINVAL)?;
        let seal = slot.uses.compare_exchange(0, SEALED, Ordering::AcqRel, Ordering::Relaxed);
        seal.map_err(|_| libc::EBUSY)?;
        slot.state.fetch_or(MOVING, Ordering::AcqRel);
        let this = Self { stag, slot };
        if slot.state.load(Ordering::Relaxed) & VALID == 0 { Err(libc::EINVAL) } else { Ok(this) }
    }

    /// The current region and its iova.
    pub(crate) fn region(&self) -> (Region, u64) {
        let (addr, len) = self.slot.memory();
        let access = self.slot.access.load(Ordering::Relaxed) & !(WRITES_LOST | EXPORTED);
        let pd = self.slot.pd.load(Ordering::Relaxed);
        (Region { addr, len, access, pd }, self.slot.iova.load(Ordering::Relaxed))
    }

    /// Replaces the region under its STag. During the call an access is checked against the old region or the
    /// new one, and none is denied because of the change. When this returns, accesses that the old region
    /// permitted are complete. The mark of lost writes stays unless the region gets other memory.
    ///
    /// ENOMEM, EIO as for [`super::register_at`]: the region is unchanged. EBUSY: a direct copy of a peer
    /// process to or from the old region has not ended within [`REVOKE_WAIT`]; the region can only be
    /// [withdrawn](Change::withdraw).
    pub(crate) fn replace(&mut self, region: Region, iova: u64, changed: Changed) -> Result<(), Errno> {
        let slot = self.slot;
        let kept = if slot.memory() == (region.addr, region.len) { WRITES_LOST } else { 0 };
        let (level, second, second_stag) = TABLE.take()?;
        // Unmapped when the accesses to the old region are complete.
        let mut old = None;
        let backed = match changed {
            Changed::Nothing => slot.backed(),
            Changed::Memory(backing) => {
                old = slot.take_backing(self.stag);
                backing.and_then(|backing| backing::keep(self.stag, backing))
            }
        };
        second.describe(region, iova, backed);
        second.access.fetch_or(slot.lost() & kept, Ordering::Relaxed);
        second.other.store(self.stag, Ordering::Relaxed);
        second.uses.store(SEALED, Ordering::Relaxed);
        second.state.fetch_or(VALID, Ordering::Release);
        slot.other.store(second_stag, Ordering::Release);
        slot.invalidate();
        second.access.fetch_or(slot.lost() & kept, Ordering::Relaxed);
        if let Err(e) = slot.revoke(self.stag, REVOKE_WAIT) {
            slot.state.fetch_or(WITHDRAWN, Ordering::Relaxed);
            second.invalidate();
            TABLE.give_back(level, second);
            if let Some(old) = old {
                // A peer may still be copying to or from there.
                backing::keep(self.stag, old);
            }
            return Err(e);
        }
        // A thread that finds the slot invalid reads only its `stag` and `other`.
        let lost = second.lost() | slot.lost() & kept;
        slot.describe(Region { access: region.access | lost, ..region }, iova, backed);
        slot.state.fetch_or(VALID, Ordering::Release);
        // Only now, so that one of the two slots is always valid.
        second.invalidate();
        // Keys exported meanwhile are those of the new region.
        let exported = second.access.load(Ordering::Relaxed) & EXPORTED;
        slot.access.fetch_or(second.lost() | exported, Ordering::Relaxed);
        TABLE.give_back(level, second);
        Ok(())
    }

    /// Denies every access to the region from now on, and waits for those in progress, except direct copies
    /// of peer processes: the deregistration waits for these. The STag remains in use until then.
    pub(crate) fn withdraw(self) {
        self.slot.state.fetch_or(WITHDRAWN, Ordering::Relaxed);
        self.slot.invalidate();
        // Also keys exported from the new description of a replacement that failed.
        let _ = self.slot.revoke(self.stag, Duration::ZERO);
    }
}

/// Checks and grants an access to a region that is being re-registered. `found` is a grant in the slot of its
/// STag, whose state was `state`.
#[cold]
pub(super) fn acquire_moving(found: Grant, mut state: u64, access: Access, pd: u32) -> Result<Grant, Denied> {
    let slot = found.slot;
    loop {
        if slot.stag.load(Ordering::Relaxed) != access.stag {
            return Err(Denied::Stag);
        }
        if state & VALID != 0 {
            return found.check(access, pd);
        }
        if state & MOVING == 0 || state & WITHDRAWN != 0 {
            return Err(Denied::Stag);
        }
        let other = slot.other.load(Ordering::Acquire);
        if let Some(second) = TABLE.find(other) {
            let before = second.state.fetch_add(1, Ordering::Acquire);
            let grant = Grant { slot: second, addr: 0 };
            let is_it = second.stag.load(Ordering::Relaxed) == other
                && second.other.load(Ordering::Relaxed) == access.stag;
            if before & VALID != 0 && is_it {
                return grant.check(access, pd);
            }
        }
        // The change is complete: the first slot is valid again, unless another change has begun.
        state = slot.state.load(Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests;
