// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions: registering, deregistering and prefetching them.
//!
//! A region is an entry of the memory table, found by its STag, which is both lkey and rkey. Memory is
//! neither pinned nor copied: an access to a page that is not mapped, or lacks the needed protection, fails
//! at that moment, unless the library has mapped it as well ([`Backing`]). Deregistration waits for accesses
//! in progress.

use libc::{c_int, c_void};
use rdma_sys::{ib_uverbs_access_flags, ib_uverbs_advise_mr_advice as advices, ib_uverbs_advise_mr_flag};
use rdma_sys::{ibv_access_flags, ibv_mr, ibv_pd, ibv_sge};
use std::ptr::addr_of;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::null_with;
use super::pd::PdObject;
use crate::ffi::object::Object;
use crate::instrument::{self, Registration};
use crate::memory::{self, Backing, Region};
use crate::sys::{self, Errno};
use transport::access::{Access, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_WRITE, ZERO_BASED};

/// The data behind the C structure of a memory region.
pub(crate) struct MrOwn {
    /// Changed by ibv_rereg_mr(3).
    pub(super) pd: AtomicPtr<ibv_pd>,
    pub(super) stag: u32,
    pub(super) registration: Registration,
}

/// Librpma registers a region for itself, not for the program: hides it from the instruments, and accesses
/// its memory with loads and stores. Repeated calls have no effect.
///
/// # Safety
///
/// `mr` must be a live region of softverbs. Until it is deregistered, its memory must stay mapped with the
/// protection that its access flags need, and no reference to the memory may exist.
pub unsafe fn own_memory(mr: *mut ibv_mr) {
    // SAFETY: the caller guarantees that `mr` is a live region of softverbs.
    let own = unsafe {
        let own = MrObject::own(mr);
        own.registration.ends(addr_of!((*mr).length).read());
        own
    };
    memory::stays_mapped(own.stag);
}

pub(crate) type MrObject = Object<ibv_mr, MrOwn>;

/// All access flags of verbs except the optional ones.
pub(super) const ACCESS_KNOWN: u32 = 0x3ff;
/// Access flags that a provider may ignore.
pub(super) const ACCESS_OPTIONAL: u32 = ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0;

/// Access flag: the range need not be mapped at registration.
const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
/// Access flag: all pages of the region are huge.
const HUGETLB: u32 = ibv_access_flags::IBV_ACCESS_HUGETLB.0;

/// Access flags that an implicit ODP region cannot have: IBV_ACCESS_ZERO_BASED is meaningless for it,
/// IBV_ACCESS_HUGETLB requires pages of one size, and a flush to persistence writes back the whole region.
const NOT_IMPLICIT: u32 = ZERO_BASED | HUGETLB | FLUSH_PERSISTENT;

/// Access flags that permit writing to a region.
const WRITTEN: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC;

/// Whether a region can have these properties; [`ibv_reg_mr`] and [`ibv_reg_mr_iova`] list what is invalid.
pub(super) fn is_valid(start: u64, len: u64, iova: u64, access: u32) -> bool {
    let zero_based = access & ZERO_BASED != 0;
    let implicit = start == 0 && len == u64::MAX;
    len != 0
        && start.checked_add(len).is_some()
        && iova.checked_add(len).is_some()
        && (!zero_based || iova == 0 || iova == start)
        && (!implicit || access & (ON_DEMAND | NOT_IMPLICIT) == ON_DEMAND)
        && access & !(ACCESS_KNOWN | ACCESS_OPTIONAL) == 0
        && (access & (REMOTE_WRITE | REMOTE_ATOMIC) == 0 || access & LOCAL_WRITE != 0)
}

/// The backing, if there is one, of a range. EFAULT: it is not mapped with the protection that the access
/// flags require, which is not examined with IBV_ACCESS_ON_DEMAND.
pub(super) fn examine(start: u64, len: u64, access: u32) -> Result<Option<Backing>, Errno> {
    match access & ON_DEMAND {
        0 => memory::examine(start, len, access, access & WRITTEN != 0),
        _ => Ok(None),
    }
}

/// Registers `length` bytes at `addr` with the access flags of `enum ibv_access_flags`, and returns the
/// region, which the caller deregisters with [`ibv_dereg_mr`]. Memory is neither pinned nor copied, and stays
/// the caller's; that of a sealed and allocated memfd is mapped once more, until the region is deregistered
/// (librpma_providers(7), Memory). `lkey` and `rkey` are the same STag. Work requests and remote peers refer
/// to a byte by its address, with IBV_ACCESS_ZERO_BASED by its offset from the beginning of the region.
///
/// With IBV_ACCESS_ON_DEMAND the range need not be mapped yet. An access to memory that is not mapped, or
/// lacks the needed protection, fails at that moment, as for any region. `addr` 0 and `length` SIZE_MAX with
/// this flag register the whole address space (an implicit ODP region), including memory that is mapped
/// later.
///
/// NULL and errno. EINVAL: the length is 0, the range exceeds the address space, an access flag is unknown,
/// or remote write or atomic access is requested without local write access; for the whole address space,
/// IBV_ACCESS_ON_DEMAND is missing, or IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB or
/// IBV_ACCESS_FLUSH_PERSISTENT is set. EFAULT: part of the range is not mapped, not readable, or, with an
/// access flag that permits writing, not writable (not checked with IBV_ACCESS_ON_DEMAND). ENOMEM: all STags
/// are in use, or out of memory. EIO: the system provides no random bytes.
///
/// # Safety
///
/// As for ibv_reg_mr(3): until the region is deregistered, work requests of this process and of remote peers
/// access the mapped parts of the range, as far as the access flags permit.
pub unsafe fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: the requirements of ibv_reg_mr(3), which the caller meets, are those of the callee.
    unsafe { ibv_reg_mr_iova(pd, addr, length, addr as u64, access) }
}

/// As [`ibv_reg_mr`], but work requests and remote peers use `iova` as the address of the first byte; 0 has
/// the effect of IBV_ACCESS_ZERO_BASED. The field `addr` of the region is the address of the memory. Unlike
/// an adapter, softverbs does not require `addr` and `iova` to have a common alignment.
///
/// Further causes of EINVAL: `iova + length` exceeds 64 bits; IBV_ACCESS_ZERO_BASED with an `iova` that is
/// neither 0 nor `addr`; the whole address space with an `iova` other than 0.
///
/// # Safety
///
/// As for ibv_reg_mr_iova(3); see [`ibv_reg_mr`].
pub unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    let (start, len, access) = (addr as u64, length as u64, access as u32);
    if !is_valid(start, len, iova, access) {
        return null_with(libc::EINVAL);
    }
    let backing = match examine(start, len, access) {
        Ok(backing) => backing,
        Err(e) => return null_with(e),
    };
    // SAFETY: ibv_reg_mr(3) requires that `pd` was returned by ibv_alloc_pd and has not been deallocated.
    let own = unsafe { PdObject::own(pd) };
    let region = Region { addr: start, len, access, pd: own.number };
    let stag = match memory::register_at(region, if access & ZERO_BASED != 0 { 0 } else { iova }, backing) {
        Ok(stag) => stag,
        Err(e) => return null_with(e),
    };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: ibv_reg_mr(3) requires that `pd` has not been deallocated; its `context` never changes.
    let context = unsafe { addr_of!((*pd).context).read() };
    let mr = ibv_mr { context, pd, addr, length, handle: stag >> 8, lkey: stag, rkey: stag };
    MrObject::create(mr, MrOwn { pd: AtomicPtr::new(pd), stag, registration: Registration::new(length) })
}

/// As [`ibv_reg_mr_iova`]. The inline functions of `verbs.h` call it if the access flags may contain optional
/// ones, which are ignored.
///
/// # Safety
///
/// As for ibv_reg_mr_iova(3); see [`ibv_reg_mr`].
pub unsafe fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: libc::c_uint,
) -> *mut ibv_mr {
    // SAFETY: the requirements of this function are those of ibv_reg_mr_iova(3), which the caller meets.
    unsafe { ibv_reg_mr_iova(pd, addr, length, iova, access as c_int) }
}

/// Deregisters a memory region. After it has returned 0, neither work requests nor remote peers access the
/// range.
///
/// EBUSY: a memory window is bound to the region, or another thread re-registers it, and nothing has changed;
/// or a peer process on this host is stopped in the middle of a direct copy to or from the region and has not
/// continued within 5 s. In the latter case the peer may still complete this one copy, so the memory must not
/// be reused until another call has returned 0. All other accesses are denied.
///
/// # Safety
///
/// As for ibv_dereg_mr(3).
pub unsafe fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: ibv_dereg_mr(3) requires that `mr` was returned by a function that registers memory and, if
    // this call succeeds, is not used afterwards. The region is counted in `users` of its protection domain,
    // which therefore cannot be deallocated before `users` is decremented here.
    unsafe {
        let own = MrObject::own(mr);
        instrument::deregisters(own.stag);
        if let Err(e) = memory::try_deregister(own.stag) {
            return e;
        }
        PdObject::own(own.pd.load(Ordering::Acquire)).users.fetch_sub(1, Ordering::AcqRel);
        own.registration.ends(addr_of!((*mr).length).read());
        MrObject::free(mr);
    }
    0
}

/// Prefetches ranges of registered memory. `advice` 0 and 1 (IBV_ADVISE_MR_ADVICE_PREFETCH, _PREFETCH_WRITE)
/// fault the pages in for reading or writing; 2 (_PREFETCH_NO_FAULT) only advises the kernel. With or without
/// IBV_ADVISE_MR_FLAG_FLUSH the call is synchronous.
///
/// Returns 0 or an errno value. EINVAL: unknown advice or flags, no entries, or an entry that is not within a
/// memory region of this protection domain. EFAULT: the memory is not mapped, or not writable with advice 1.
///
/// # Safety
///
/// As for ibv_advise_mr(3).
pub unsafe fn ibv_advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    use advices::*;
    const FLAG_FLUSH: u32 = ib_uverbs_advise_mr_flag::IB_UVERBS_ADVISE_MR_FLAG_FLUSH.0;
    if advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
        || flags & !FLAG_FLUSH != 0
        || num_sge == 0
        || sg_list.is_null()
    {
        return libc::EINVAL;
    }
    // SAFETY: ibv_advise_mr(3) requires that `pd` was returned by ibv_alloc_pd and has not been deallocated.
    let pd = unsafe { PdObject::own(pd) }.number;
    for i in 0..num_sge as usize {
        // SAFETY: ibv_advise_mr(3) requires that `sg_list` points to `num_sge` entries, and `i` is below
        // `num_sge`.
        let sge = unsafe { sg_list.add(i).read() };
        let len = u64::from(sge.length);
        let for_write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
        let rights = if for_write { LOCAL_WRITE } else { 0 };
        let access = Access { stag: sge.lkey, addr: sge.addr, len: sge.length as usize, rights };
        let Ok(grant) = memory::acquire(access, pd) else { return libc::EINVAL };
        if len == 0 {
            continue;
        }
        let done = match advice {
            IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => sys::will_need(grant.addr(), len),
            _ => sys::populate(grant.addr(), len, for_write),
        };
        match done {
            Ok(()) => {}
            // The kernel or the mapping does not support it. That is not an error, since this is only advice.
            Err(libc::EINVAL) => {}
            Err(_) => return libc::EFAULT,
        }
    }
    0
}

/// The slot of the extended context that the inline function `ibv_advise_mr` of `verbs.h` calls; see
/// [`ibv_advise_mr`].
///
/// # Safety
///
/// As for ibv_advise_mr(3).
pub(crate) unsafe extern "C" fn advise_mr_slot(
    pd: *mut ibv_pd,
    advice: rdma_sys::ib_uverbs_advise_mr_advice::Type,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sges: u32,
) -> c_int {
    // SAFETY: the caller meets the requirements of ibv_advise_mr(3), which are those of the callee.
    unsafe { ibv_advise_mr(pd, advice, flags, sg_list, num_sges) }
}

#[cfg(test)]
mod tests;
