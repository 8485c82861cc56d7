// SPDX-License-Identifier: BSD-3-Clause
//! Regions that are re-registered: what their STag stands for changes while connections use it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Grant, LENT, MOVING, Region, SEALED, Slot, TABLE, VALID, WITHDRAWN, WRITES_LOST};
use crate::limits::REVOKE_WAIT;
use crate::sys::Errno;
use transport::access::{Access, Denied};

/// The right to change a region, of which there is one at a time. The region stays as it is unless one of the
/// methods is called.
pub(crate) struct Change {
    stag: u32,
    slot: &'static Slot,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.slot.state.fetch_and(!MOVING, Ordering::Release);
        self.slot.uses.store(0, Ordering::Release);
    }
}

impl Change {
    /// EBUSY: a change of the region is under way, or a window is bound to it. EINVAL: the region has been
    /// withdrawn, or there is none.
    pub(crate) fn begin(stag: u32) -> Result<Self, Errno> {
        let (_, slot) = TABLE.region(stag).ok_or(libc::EINVAL)?;
        let seal = slot.uses.compare_exchange(0, SEALED, Ordering::AcqRel, Ordering::Relaxed);
        seal.map_err(|_| libc::EBUSY)?;
        slot.state.fetch_or(MOVING, Ordering::AcqRel);
        let this = Self { stag, slot };
        if slot.state.load(Ordering::Relaxed) & VALID == 0 { Err(libc::EINVAL) } else { Ok(this) }
    }

    /// The region as it is, and its iova.
    pub(crate) fn region(&self) -> (Region, u64) {
        let (addr, len) = self.slot.memory();
        let access = self.slot.access.load(Ordering::Relaxed) & !(WRITES_LOST | LENT);
        let pd = self.slot.pd.load(Ordering::Relaxed);
        (Region { addr, len, access, pd }, self.slot.iova.load(Ordering::Relaxed))
    }

    /// Replaces the region under its STag. An access is permitted by the old region or by the new one; when
    /// this returns, those that the old one has permitted are over, and none has been denied because of the
    /// change. Unless it is of other memory the region remembers writes that got lost.
    ///
    /// ENOMEM, EIO as for [`super::register_at`]: the region is as before. EBUSY: a peer process that copies
    /// to or from the old one has not let go within [`REVOKE_WAIT`]; the region can only be
    /// [withdrawn](Change::withdraw).
    pub(crate) fn replace(&mut self, region: Region, iova: u64) -> Result<(), Errno> {
        let slot = self.slot;
        let kept = if slot.memory() == (region.addr, region.len) { WRITES_LOST } else { 0 };
        let (level, second, second_stag) = TABLE.take()?;
        second.describe(region, iova);
        second.access.fetch_or(slot.lost() & kept, Ordering::Relaxed);
        second.other.store(self.stag, Ordering::Relaxed);
        second.uses.store(SEALED, Ordering::Relaxed);
        second.state.fetch_or(VALID, Ordering::Release);
        slot.other.store(second_stag, Ordering::Release);
        slot.invalidate();
        if let Err(e) = slot.revoke(self.stag, REVOKE_WAIT) {
            slot.state.fetch_or(WITHDRAWN, Ordering::Relaxed);
            second.invalidate();
            TABLE.give_back(level, second);
            return Err(e);
        }
        // Who finds the slot invalid reads its `stag` and its `other` alone.
        let lost = second.lost() | slot.lost() & kept;
        slot.describe(Region { access: region.access | lost, ..region }, iova);
        slot.state.fetch_or(VALID, Ordering::Release);
        // Only now, so that the region is always in one of the two.
        second.invalidate();
        // Keys that were exported meanwhile are of the new one.
        let exported = second.access.load(Ordering::Relaxed) & LENT;
        slot.access.fetch_or(second.lost() | exported, Ordering::Relaxed);
        TABLE.give_back(level, second);
        Ok(())
    }

    /// Denies every access to the region from now on, and waits for those in progress, except that of a peer
    /// process which copies by itself: the deregistration waits for that. The STag remains in use until then.
    pub(crate) fn withdraw(self) {
        self.slot.state.fetch_or(WITHDRAWN, Ordering::Relaxed);
        self.slot.invalidate();
        // Also those of a new description that was given up.
        let _ = self.slot.revoke(self.stag, Duration::ZERO);
    }
}

/// Permits an access to a region that is being re-registered. `found` counts as a grant in the slot of its
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
        // It is over: the first slot is valid again, unless something new has begun.
        state = slot.state.load(Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests;
