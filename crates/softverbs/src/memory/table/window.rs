// SPDX-License-Identifier: BSD-3-Clause
//! Memory windows: separate keys for a part of a region, bound and unbound while the region stays registered.
//!
//! A window has a slot in a separate table, with a description like that of a region, against which accesses
//! are checked. They need not consult the region, as it can be neither deregistered nor re-registered while a
//! window is bound to it. An access looks in this table only if no region has its STag, so it costs nothing
//! without windows.
//!
//! The STag of a window has 24 bits that are drawn like those of a region and stay the same, and an 8-bit key
//! that changes with each bind; for windows of type 2 the program chooses it (ibv_wr_bind_mw(3)). No region
//! and no other window has the same 24 bits.
//!
//! [`bind_window`], [`invalidate`] and [`free_window`] wait for accesses through the window that are in
//! progress, so the caller must hold no grant.

use std::sync::atomic::{Ordering, fence};

use super::{Grant, MOVING, Region, SEALED, Slot, TABLE, VALID, WINDOWS, WITHDRAWN, random};
use crate::lock::wait_until;
use crate::sys::Errno;
use transport::access::{
    Access, Accessor, Bind, Denied, FLUSH_PERSISTENT, LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ,
    REMOTE_WRITE, ZERO_BASED,
};

/// In [`Slot::state`]: the slot has a window, bound or not.
const ALLOCATED: u64 = WITHDRAWN;
/// In [`Slot::access`]: the window is of type 2. Access flags are other bits.
const TYPE_2: u32 = 1 << 30;
const REMOTE: u32 = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

/// Exclusive access to a window: no other thread can bind, invalidate or free it.
struct Window {
    level: usize,
    slot: &'static Slot,
}

impl Drop for Window {
    fn drop(&mut self) {
        self.slot.state.fetch_and(!MOVING, Ordering::Release);
    }
}

impl Window {
    /// Locks the window with an STag, whatever its current key is.
    fn find(stag: u32) -> Option<Self> {
        let (level, slot) = WINDOWS.holder(stag)?;
        // The thread that holds it waits at most for accesses, which never block.
        wait_until(|| slot.state.fetch_or(MOVING, Ordering::AcqRel) & MOVING == 0);
        let this = Self { level, slot };
        let is_it = WINDOWS.holder_on(level, stag).is_some() && this.has(ALLOCATED);
        is_it.then_some(this)
    }

    fn has(&self, state: u64) -> bool {
        self.slot.state.load(Ordering::Relaxed) & state != 0
    }

    fn is_of_type_2(&self) -> bool {
        self.slot.access.load(Ordering::Relaxed) & TYPE_2 != 0
    }

    /// Unbinds the window if it is bound, and waits for accesses in progress.
    fn unbind(&self) {
        if !self.has(VALID) {
            return;
        }
        self.slot.invalidate();
        // The region is still registered: this window is bound to it.
        if let Some((_, region)) = TABLE.region(self.slot.uses.load(Ordering::Relaxed)) {
            region.uses.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Finds the region for a bind by protection domain `pd`, and prevents its deregistration and
/// re-registration.
fn hold(bind: &Bind, pd: u32) -> Result<&'static Slot, Denied> {
    let slot = TABLE.find(bind.region).ok_or(Denied::Stag)?;
    let before = slot.state.fetch_add(1, Ordering::Acquire);
    let _grant = Grant { slot, addr: 0 };
    if before & VALID == 0 || slot.stag.load(Ordering::Relaxed) != bind.region {
        return Err(Denied::Stag);
    }
    if slot.pd.load(Ordering::Relaxed) != pd {
        return Err(Denied::Pd);
    }
    let writes = bind.access & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    let needed = MW_BIND | if writes { LOCAL_WRITE } else { 0 };
    if slot.access.load(Ordering::Relaxed) & needed != needed {
        return Err(Denied::Rights);
    }
    let end = bind.addr.checked_add(bind.len).ok_or(Denied::Wrap)?;
    let start = slot.iova.load(Ordering::Relaxed);
    if bind.addr < start || end > start + slot.len.load(Ordering::Relaxed) {
        return Err(Denied::Bounds);
    }
    let one_more = |uses| if uses == SEALED { None } else { Some(uses + 1) };
    slot.uses.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).map_err(|_| Denied::Stag)?;
    Ok(slot)
}

/// Allocates a window in a protection domain, of type 2 or 1, and returns its STag. It is not bound. ENOMEM
/// if all STags are in use or memory for the table is short, EIO if the system provides no random bytes.
pub(crate) fn alloc_window(pd: u32, type_2: bool) -> Result<u32, Errno> {
    let (_, slot, stag) = WINDOWS.take()?;
    slot.pd.store(pd, Ordering::Relaxed);
    slot.access.store(if type_2 { TYPE_2 } else { 0 }, Ordering::Relaxed);
    slot.state.fetch_or(ALLOCATED, Ordering::Release);
    Ok(stag)
}

/// Unbinds a window and frees it. The STag is that of [`alloc_window`] or of any bind.
pub(crate) fn free_window(stag: u32) {
    let Some(window) = Window::find(stag) else { return };
    window.unbind();
    let (level, slot) = (window.level, window.slot);
    std::mem::forget(window);
    slot.state.fetch_and(!(ALLOCATED | MOVING), Ordering::Relaxed);
    WINDOWS.give_back(level, slot);
}

/// Binds a window on behalf of a queue pair. A window of type 1 may already be bound; all queue pairs of the
/// protection domain may access through it. A window of type 2 must not be bound; only this queue pair may
/// access through it.
///
/// If the bind is denied, the window is unchanged. Stag: no such window or region exists, the region is being
/// re-registered, or a window of type 2 is already bound. Pd: the window or the region is of another
/// protection domain. Rights: the region lacks IBV_ACCESS_MW_BIND, or the window permits writes and the
/// region lacks local write access. Wrap, Bounds: the range is not within the region, or it is empty for type
/// 2.
pub(crate) fn bind_window(bind: Bind, by: Accessor) -> Result<(), Denied> {
    let window = Window::find(bind.rkey).ok_or(Denied::Stag)?;
    let slot = window.slot;
    if slot.pd.load(Ordering::Relaxed) != by.pd {
        return Err(Denied::Pd);
    }
    let type_2 = window.is_of_type_2();
    if type_2 && window.has(VALID) {
        return Err(Denied::Stag);
    }
    if bind.len == 0 {
        if type_2 {
            return Err(Denied::Bounds);
        }
        window.unbind();
        slot.stag.store(bind.rkey, Ordering::Relaxed);
        return Ok(());
    }
    let region = hold(&bind, by.pd)?;
    window.unbind();
    let inherited = region.access.load(Ordering::Relaxed) & FLUSH_PERSISTENT | region.lost();
    let accessed = bind.addr.wrapping_add(region.delta.load(Ordering::Relaxed));
    let shift = region.shift.load(Ordering::Relaxed);
    let described = Region {
        addr: accessed.wrapping_sub(shift),
        len: bind.len,
        access: bind.access & REMOTE | inherited | if type_2 { TYPE_2 } else { 0 },
        pd: by.pd,
    };
    slot.describe(
        described,
        if bind.access & ZERO_BASED != 0 { 0 } else { bind.addr },
        (shift != 0).then_some(accessed),
    );
    slot.other.store(by.qp, Ordering::Relaxed);
    slot.uses.store(bind.region, Ordering::Relaxed);
    slot.stag.store(bind.rkey, Ordering::Relaxed);
    slot.state.fetch_or(VALID, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    // If writes were lost since the region was read, its mark is set by now, or [`super::lose_writes`] will
    // see the window.
    slot.access.fetch_or(region.lost(), Ordering::Relaxed);
    Ok(())
}

/// Invalidates a window of type 2, for a queue pair or for its peer: unbinds it and waits for accesses in
/// progress.
///
/// If this is denied, the window is unchanged. Stag: no window of type 2 is bound under this STag. Pd:
/// another queue pair bound it, or it is of another protection domain.
pub(crate) fn invalidate(stag: u32, qp_num: u32, pd: u32) -> Result<(), Denied> {
    let window = Window::find(stag).ok_or(Denied::Stag)?;
    let slot = window.slot;
    let is_bound = window.has(VALID) && slot.stag.load(Ordering::Relaxed) == stag;
    if !is_bound || !window.is_of_type_2() {
        return Err(Denied::Stag);
    }
    if slot.pd.load(Ordering::Relaxed) != pd || slot.other.load(Ordering::Relaxed) != qp_num {
        return Err(Denied::Pd);
    }
    window.unbind();
    Ok(())
}

/// The STag of a window with another, random key, which does not follow from the previous one. EIO if the
/// system provides no random bytes.
pub(crate) fn another_key(stag: u32) -> Result<u32, Errno> {
    let [drawn, _] = random()?;
    let key = if drawn as u8 == stag as u8 { !(drawn as u8) } else { drawn as u8 };
    Ok(stag & !0xff | u32::from(key))
}

/// Checks and grants an access with an STag that no region has.
#[cold]
pub(super) fn acquire(access: Access, by: Accessor) -> Result<Grant, Denied> {
    let slot = WINDOWS.find(access.stag).ok_or(Denied::Stag)?;
    let before = slot.state.fetch_add(1, Ordering::Acquire);
    let grant = Grant { slot, addr: 0 };
    // The key of a window is an rkey only.
    let remote = access.rights & REMOTE != 0;
    if before & VALID == 0 || slot.stag.load(Ordering::Relaxed) != access.stag || !remote {
        return Err(Denied::Stag);
    }
    let of_qp = slot.access.load(Ordering::Relaxed) & TYPE_2 != 0;
    if of_qp && slot.other.load(Ordering::Relaxed) != by.qp {
        return Err(Denied::Pd);
    }
    grant.check(access, by.pd)
}

#[cfg(test)]
mod tests;
