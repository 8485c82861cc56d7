// SPDX-License-Identifier: BSD-3-Clause
//! Re-registration of memory regions: ibv_rereg_mr(3).
//!
//! The region and its keys stay; its memory, protection domain and access flags may change. The change is one
//! step for every access: [`Change`] replaces the entry of the memory table, then waits for the accesses that
//! the old one has permitted.

use libc::{c_int, c_void};
use rdma_sys::{IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_INPUT, ibv_mr, ibv_pd, ibv_rereg_mr_flags};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::Ordering;

use super::mr::{MrObject, examine, is_valid};
use super::pd::PdObject;
use crate::memory::{Change, Changed};
use crate::sys::{Errno, set_errno};
use transport::access::ZERO_BASED;

const TRANSLATION: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as c_int;
const PD: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0 as c_int;
const ACCESS: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as c_int;
const FLAGS: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_FLAGS_SUPPORTED.0 as c_int;

/// Changes a memory region in place; the object and its keys stay. IBV_REREG_MR_CHANGE_TRANSLATION changes
/// its memory to `length` bytes at `addr`, IBV_REREG_MR_CHANGE_PD its protection domain to `pd`, and
/// IBV_REREG_MR_CHANGE_ACCESS its access flags to `access`. The fields `addr`, `length` and `pd` of the
/// object are updated. An argument that does not change anything is ignored, except `access`, which must then
/// be 0.
///
/// The change is one step: each access is checked against either the old or the new region, and none is
/// denied that both permit. When the call has returned 0, every access to the old memory is complete, and so
/// is every access that the new region does not permit.
///
/// After a change of the translation, accesses use the addresses of the new memory, even if the region had an
/// iova, or offsets with IBV_ACCESS_ZERO_BASED. If only the access flags change, accesses use the same
/// addresses as before, unless IBV_ACCESS_ZERO_BASED changes.
///
/// Returns 0, or one of these with errno set:
///
/// - IBV_REREG_MR_ERR_INPUT (-1): the region is unchanged. EINVAL: `flags` is 0 or has unknown bits; the
///   translation changes and `addr` is NULL or `length` is 0; the protection domain changes and `pd` is NULL
///   or belongs to another device; `access` is not 0 although the access flags do not change; or
///   [`super::ibv_reg_mr`] rejects the resulting flags and range. EBUSY: another thread re-registers the
///   region, or a memory window is bound to it.
/// - IBV_REREG_MR_ERR_CMD (-4): the region is invalid and all accesses are denied; the object is unchanged
///   and can only be deregistered. EFAULT: the memory is not mapped with the protection that the access flags
///   require (see [`super::ibv_reg_mr`]). ENOMEM: all STags are in use, or out of memory. EIO: the system
///   provides no random bytes. EBUSY: a peer process on this host is stopped in the middle of a direct copy
///   to or from the region and has not continued within 5 s; neither the old nor the new memory may be reused
///   until ibv_dereg_mr(3) has returned 0. EINVAL: an earlier call has left the region in this state.
///
/// The codes -2, -3 and -5 are never returned, not even after ibv_fork_init(3). They report failures of
/// madvise(2) with MADV_DONTFORK and MADV_DOFORK, which an adapter needs because it keeps accessing the
/// original pages when a write after fork(2) gives the process a copy. Here the bytes of a region are
/// accessed by addresses of the process, or in a shared mapping, so process and region always share the same
/// page. That is the state that ibv_is_fork_initialized(3) calls IBV_FORK_UNNEEDED, in which libibverbs does
/// not call madvise(2) either. (`libsoftverbs.so` calls it nevertheless after ibv_fork_init, and returns
/// these codes, so that a program behaves as on an adapter.)
///
/// # Safety
///
/// As for ibv_rereg_mr(3); for the memory and the access flags as for [`super::ibv_reg_mr`].
pub unsafe fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let wanted = Wanted { flags, pd, addr, length, access: access as u32 };
    // SAFETY: the requirements of the callee are those of this function, which the caller meets.
    match unsafe { rereg(mr, wanted) } {
        Ok(()) => 0,
        Err((code, errno)) => {
            set_errno(errno);
            code
        }
    }
}

/// The arguments of [`ibv_rereg_mr`].
struct Wanted {
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
}

impl Wanted {
    fn changes(&self, what: c_int) -> bool {
        self.flags & what != 0
    }

    /// Checks the arguments without accessing an object.
    fn is_valid(&self) -> bool {
        self.flags != 0
            && self.flags & !FLAGS == 0
            && !(self.changes(TRANSLATION) && (self.addr.is_null() || self.length == 0))
            && !(self.changes(PD) && self.pd.is_null())
            && (self.changes(ACCESS) || self.access == 0)
    }
}

/// Changes a region; see [`ibv_rereg_mr`]. The error is its result and the errno.
///
/// # Safety
///
/// As for [`ibv_rereg_mr`].
unsafe fn rereg(mr: *mut ibv_mr, wanted: Wanted) -> Result<(), (c_int, Errno)> {
    let input = |errno| (IBV_REREG_MR_ERR_INPUT, errno);
    let command = |errno| (IBV_REREG_MR_ERR_CMD, errno);
    if !wanted.is_valid() {
        return Err(input(libc::EINVAL));
    }
    // SAFETY: ibv_rereg_mr(3) requires that `mr` was returned by a function that registers memory and has not
    // been deregistered.
    let own = unsafe { MrObject::own(mr) };
    let mut change = Change::begin(own.stag).map_err(|e| match e {
        libc::EBUSY => input(e),
        e => command(e),
    })?;
    let (mut region, mut iova) = change.region();
    let was_zero_based = region.access & ZERO_BASED != 0;
    if wanted.changes(PD) {
        // SAFETY: ibv_rereg_mr(3) requires that `pd`, which is not NULL (checked above), has not been
        // deallocated, and that `mr` has not been deregistered. Both have a field `context` that never
        // changes, whichever device they belong to.
        let is_ours = unsafe { addr_of!((*wanted.pd).context).read() == addr_of!((*mr).context).read() };
        if !is_ours {
            return Err(input(libc::EINVAL));
        }
        // SAFETY: `pd` has not been deallocated, and it belongs to softverbs: it has the context of `mr`
        // (checked above).
        region.pd = unsafe { PdObject::own(wanted.pd) }.number;
    }
    if wanted.changes(ACCESS) {
        region.access = wanted.access;
    }
    if wanted.changes(TRANSLATION) {
        (region.addr, region.len) = (wanted.addr as u64, wanted.length as u64);
    }
    let zero_based = region.access & ZERO_BASED != 0;
    if wanted.changes(TRANSLATION) || zero_based != was_zero_based {
        iova = if zero_based { 0 } else { region.addr };
    }
    if !is_valid(region.addr, region.len, iova, region.access) {
        return Err(input(libc::EINVAL));
    }
    let changed = match wanted.changes(TRANSLATION | ACCESS) {
        false => Changed::Nothing,
        true => match examine(region.addr, region.len, region.access) {
            Ok(backing) => Changed::Memory(backing),
            Err(e) => {
                change.withdraw();
                return Err(command(e));
            }
        },
    };
    if wanted.changes(PD) {
        // SAFETY: `pd` belongs to softverbs (checked above), and ibv_rereg_mr(3) requires that it has not
        // been deallocated. It is counted before the change, so that it cannot be deallocated in between.
        unsafe { PdObject::own(wanted.pd) }.users.fetch_add(1, Ordering::AcqRel);
    }
    if let Err(e) = change.replace(region, iova, changed) {
        change.withdraw();
        if wanted.changes(PD) {
            // SAFETY: `pd` has not been deallocated: the region is still counted in its `users`.
            unsafe { PdObject::own(wanted.pd) }.users.fetch_sub(1, Ordering::AcqRel);
        }
        return Err(command(e));
    }
    // SAFETY: `mr` has not been deregistered, and programs only read these fields; no other thread
    // re-registers the region before `change` is dropped. The region is counted in `users` of the old
    // protection domain, which therefore has not been deallocated.
    unsafe {
        if wanted.changes(PD) {
            let old = own.pd.swap(wanted.pd, Ordering::AcqRel);
            PdObject::own(old).users.fetch_sub(1, Ordering::AcqRel);
            addr_of_mut!((*mr).pd).write(wanted.pd);
        }
        if wanted.changes(TRANSLATION) {
            addr_of_mut!((*mr).addr).write(wanted.addr);
            own.registration.resized(addr_of_mut!((*mr).length).read(), wanted.length);
            addr_of_mut!((*mr).length).write(wanted.length);
        }
    }
    drop(change);
    Ok(())
}

#[cfg(test)]
mod tests;
