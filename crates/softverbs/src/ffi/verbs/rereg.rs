// SPDX-License-Identifier: BSD-3-Clause
//! Re-registration of memory regions.

use libc::{c_int, c_void};
use rdma_sys::{ibv_mr, ibv_pd};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::Ordering;

use super::mr::{MrObject, is_possible, is_there};
use super::pd::PdObject;
use crate::memory::Change;
use crate::sys::{Errno, set_errno};
use transport::access::ZERO_BASED;

/// What [`ibv_rereg_mr`] changes: location and length (`enum ibv_rereg_mr_flags`).
pub const IBV_REREG_MR_CHANGE_TRANSLATION: c_int = 1;
/// What [`ibv_rereg_mr`] changes: the protection domain.
pub const IBV_REREG_MR_CHANGE_PD: c_int = 1 << 1;
/// What [`ibv_rereg_mr`] changes: the access flags.
pub const IBV_REREG_MR_CHANGE_ACCESS: c_int = 1 << 2;

/// Result of [`ibv_rereg_mr`]: the arguments are wrong, the region is as before (`enum
/// ibv_rereg_mr_err_code`).
pub const IBV_REREG_MR_ERR_INPUT: c_int = -1;
/// Result of `ibv_rereg_mr` with a device: the new memory cannot be kept from a child, the region is as
/// before. Never that of [`ibv_rereg_mr`], which says why.
pub const IBV_REREG_MR_ERR_DONT_FORK_NEW: c_int = -2;
/// Result of `ibv_rereg_mr` with a device: the region is changed, the old memory is still kept from a child.
/// Never that of [`ibv_rereg_mr`].
pub const IBV_REREG_MR_ERR_DO_FORK_OLD: c_int = -3;
/// Result of [`ibv_rereg_mr`]: the command failed, the region must not be used.
pub const IBV_REREG_MR_ERR_CMD: c_int = -4;
/// Result of `ibv_rereg_mr` with a device: as -4, and the new memory is still kept from a child. Never that
/// of [`ibv_rereg_mr`].
pub const IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW: c_int = -5;

/// Changes a region and keeps its keys and the object: with IBV_REREG_MR_CHANGE_TRANSLATION its memory, then
/// `addr` and `length` of the object, too; with IBV_REREG_MR_CHANGE_PD its protection domain, then `pd` of
/// the object, too; with IBV_REREG_MR_CHANGE_ACCESS its access flags. What is not changed is not looked at,
/// but `access`, which must be 0 then.
///
/// The change is one step: an access is permitted by the region as it was, or by the region as it becomes,
/// and none is denied that both permit. When the call returns 0, every access to the old memory is over, and
/// so is every one that the new region does not permit.
///
/// After a change of the translation accesses give the addresses of the new memory, even if the region had an
/// iova of its own, or with IBV_ACCESS_ZERO_BASED offsets; if the access flags alone change, they do as
/// before unless this flag changes.
///
/// Returns 0, or with errno set:
///
/// - IBV_REREG_MR_ERR_INPUT (-1), the region is as before. EINVAL: `flags` is 0 or has other bits; `addr` is
///   NULL or `length` 0 with a change of the translation; `pd` is NULL or of another device with a change of
///   the protection domain; `access` without a change of the access flags; the flags, or the flags and the
///   range, are what [`super::ibv_reg_mr`] refuses. EBUSY: another thread re-registers the region, or a
///   memory window is bound to it.
/// - IBV_REREG_MR_ERR_CMD (-4), the region must not be used: all accesses are denied, the object is unchanged
///   and is to be deregistered. EFAULT: the memory is not mapped, or not as the access flags ask for (see
///   [`super::ibv_reg_mr`]); ENOMEM: all STags are in use; EIO: the system provides no random bytes. EBUSY: a
///   peer process of this host was stopped while it copied to or from the region, and has not gone on within
///   5 s; neither the old nor the new memory may be reused until ibv_dereg_mr(3) has returned 0. EINVAL: an
///   earlier call has ended like this.
///
/// The codes -2, -3 and -5 do not occur, also after ibv_fork_init(3). They are about memory that is kept from
/// a child (MADV_DONTFORK), since a device goes on with the pages that it was given when a write of the
/// process after fork(2) gets a copy of the page. Here the kernel moves the bytes of a region by the
/// addresses of the process, so parent and region always have the same page, no memory need be kept from a
/// child, and a child that reads its copy is not killed. It is what ibv_is_fork_initialized(3) calls
/// IBV_FORK_UNNEEDED, a state in which libibverbs itself does not mark memory. (`libsoftverbs.so` marks it
/// nevertheless after ibv_fork_init, and returns these codes, so that a program finds what it would find with
/// a device.)
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
    // SAFETY: as required of the caller.
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

    /// What can be seen without looking at an object.
    fn is_possible(&self) -> bool {
        let all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        self.flags != 0
            && self.flags & !all == 0
            && !(self.changes(IBV_REREG_MR_CHANGE_TRANSLATION) && (self.addr.is_null() || self.length == 0))
            && !(self.changes(IBV_REREG_MR_CHANGE_PD) && self.pd.is_null())
            && (self.changes(IBV_REREG_MR_CHANGE_ACCESS) || self.access == 0)
    }
}

/// # Safety
///
/// As for [`ibv_rereg_mr`].
unsafe fn rereg(mr: *mut ibv_mr, wanted: Wanted) -> Result<(), (c_int, Errno)> {
    let input = |errno| (IBV_REREG_MR_ERR_INPUT, errno);
    let command = |errno| (IBV_REREG_MR_ERR_CMD, errno);
    if !wanted.is_possible() {
        return Err(input(libc::EINVAL));
    }
    // SAFETY: `mr` was returned by ibv_reg_mr and has not been deregistered (ibv_rereg_mr(3)).
    let own = unsafe { MrObject::own(mr) };
    let mut change = Change::begin(own.stag).map_err(|e| match e {
        libc::EBUSY => input(e),
        e => command(e),
    })?;
    let (mut region, mut iova) = change.region();
    let was_zero_based = region.access & ZERO_BASED != 0;
    if wanted.changes(IBV_REREG_MR_CHANGE_PD) {
        // SAFETY: `pd` is not NULL, so it is a protection domain that has not been deallocated, and `mr` is a
        // region (ibv_rereg_mr(3)). Their `context` never changes; another device's has another one, and is
        // not looked at further.
        let is_ours = unsafe { addr_of!((*wanted.pd).context).read() == addr_of!((*mr).context).read() };
        if !is_ours {
            return Err(input(libc::EINVAL));
        }
        // SAFETY: as above; it is of this device.
        region.pd = unsafe { PdObject::own(wanted.pd) }.number;
    }
    if wanted.changes(IBV_REREG_MR_CHANGE_ACCESS) {
        region.access = wanted.access;
    }
    if wanted.changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (region.addr, region.len) = (wanted.addr as u64, wanted.length as u64);
    }
    let zero_based = region.access & ZERO_BASED != 0;
    if wanted.changes(IBV_REREG_MR_CHANGE_TRANSLATION) || zero_based != was_zero_based {
        iova = if zero_based { 0 } else { region.addr };
    }
    if !is_possible(region.addr, region.len, iova, region.access) {
        return Err(input(libc::EINVAL));
    }
    let looks_at_memory = wanted.changes(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS);
    if looks_at_memory && !is_there(region.addr, region.len, region.access) {
        change.withdraw();
        return Err(command(libc::EFAULT));
    }
    if wanted.changes(IBV_REREG_MR_CHANGE_PD) {
        // SAFETY: as above. Counted before it has the region, so that it is not deallocated too early.
        unsafe { PdObject::own(wanted.pd) }.users.fetch_add(1, Ordering::AcqRel);
    }
    if let Err(e) = change.replace(region, iova) {
        change.withdraw();
        if wanted.changes(IBV_REREG_MR_CHANGE_PD) {
            // SAFETY: as above.
            unsafe { PdObject::own(wanted.pd) }.users.fetch_sub(1, Ordering::AcqRel);
        }
        return Err(command(e));
    }
    // SAFETY: `mr` is a region, whose fields are written one by one; no other thread re-registers it before
    // `change` is dropped. The region was counted as a user of the old protection domain, which therefore has
    // not been deallocated.
    unsafe {
        if wanted.changes(IBV_REREG_MR_CHANGE_PD) {
            let old = own.pd.swap(wanted.pd, Ordering::AcqRel);
            PdObject::own(old).users.fetch_sub(1, Ordering::AcqRel);
            addr_of_mut!((*mr).pd).write(wanted.pd);
        }
        if wanted.changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
            addr_of_mut!((*mr).addr).write(wanted.addr);
            let process = rpma_metrics::counting().filter(|_| own.is_counted.load(Ordering::Relaxed));
            if let Some(process) = process {
                process.counters.deregistered(addr_of_mut!((*mr).length).read());
                process.counters.registered(wanted.length);
            }
            addr_of_mut!((*mr).length).write(wanted.length);
        }
    }
    drop(change);
    Ok(())
}

#[cfg(test)]
mod tests;
