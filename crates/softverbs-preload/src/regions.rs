// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions of `soft0` with fork support as after ibv_fork_init(3).
//!
//! After that call the real library marks the memory of regions with MADV_DONTFORK, because an adapter keeps
//! accessing the original pages when a write after fork(2) gives the process a copy. The software device does
//! not need this. But a program that works here should also work on an adapter, and ibv_rereg_mr(3) has
//! results for it. So the ranges are marked with ibv_dontfork_range and ibv_dofork_range of the real library.
//! These count overlapping ranges, and do nothing before ibv_fork_init, or if the kernel copies such pages at
//! fork(2). On-demand regions are not marked, as on an adapter.

use libc::{c_int, c_uint, c_void};
use rdma_sys::{
    IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW, IBV_REREG_MR_ERR_DO_FORK_OLD,
    IBV_REREG_MR_ERR_DONT_FORK_NEW, ibv_access_flags, ibv_mr, ibv_pd, ibv_rereg_mr_flags,
};
use softverbs::verbs as soft;
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Access flag: the range need not be mapped at registration.
const ON_DEMAND: c_int = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0 as c_int;
const ACCESS: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as c_int;
const TRANSLATION: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as c_int;

/// A range that is marked with MADV_DONTFORK for a region.
#[derive(Clone, Copy)]
struct Marked {
    addr: *mut c_void,
    length: usize,
}

// SAFETY: the address is only passed to madvise(2) and never dereferenced, so it may be used on any thread.
unsafe impl Send for Marked {}

/// The marked ranges, by the address of the region's object.
static MARKED: Mutex<BTreeMap<usize, Marked>> = Mutex::new(BTreeMap::new());

fn marked() -> MutexGuard<'static, BTreeMap<usize, Marked>> {
    MARKED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Marked {
    /// Marks a range. `None` with errno set: the call failed.
    fn new(addr: *mut c_void, length: usize) -> Option<Self> {
        // An empty range, or one that exceeds the address space, is rejected by the registration.
        let exists = length != 0 && (addr as usize).checked_add(length).is_some();
        if exists
            && real!("IBVERBS_1.1" ibv_dontfork_range(addr => *mut c_void, length => usize) -> c_int) != 0
        {
            return None;
        }
        Some(Self { addr, length: if exists { length } else { 0 } })
    }

    /// Ends the mark of the range and preserves errno. False: the call failed.
    fn end(self) -> bool {
        let Self { addr, length } = self;
        // SAFETY: __errno_location has no requirements; it returns the address of the calling thread's errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: `errno` is the address of the calling thread's errno, which is valid as long as the thread
        // runs.
        let before = unsafe { errno.read() };
        let ended = length == 0
            || real!("IBVERBS_1.1" ibv_dofork_range(addr => *mut c_void, length => usize) -> c_int) == 0;
        // SAFETY: `errno` is the address of the calling thread's errno, which is valid as long as the thread
        // runs.
        unsafe { errno.write(before) };
        ended
    }
}

/// Registers a region with `register`, and marks its range unless it is an on-demand region. The mark ends if
/// the registration fails.
fn register_with_mark(
    addr: *mut c_void,
    length: usize,
    access: c_int,
    register: impl FnOnce() -> *mut ibv_mr,
) -> *mut ibv_mr {
    if access & ON_DEMAND != 0 {
        return register();
    }
    let Some(range) = Marked::new(addr, length) else { return null_mut() };
    let mr = register();
    if mr.is_null() {
        range.end();
    } else {
        marked().insert(mr as usize, range);
    }
    mr
}

/// `soft::ibv_reg_mr` with fork support. Further errors: those of madvise(2).
///
/// # Safety
///
/// As for ibv_reg_mr(3).
pub(crate) unsafe fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the requirements of the callee are those of ibv_reg_mr(3), which the caller meets.
    register_with_mark(addr, length, access, || unsafe { soft::ibv_reg_mr(pd, addr, length, access) })
}

/// `soft::ibv_reg_mr_iova` with fork support. Further errors: those of madvise(2).
///
/// # Safety
///
/// As for ibv_reg_mr_iova(3).
pub(crate) unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the requirements of the callee are those of ibv_reg_mr_iova(3), which the caller meets.
    register_with_mark(addr, length, access, || unsafe {
        soft::ibv_reg_mr_iova(pd, addr, length, iova, access)
    })
}

/// `soft::ibv_reg_mr_iova2` with fork support. Further errors: those of madvise(2).
///
/// # Safety
///
/// As for ibv_reg_mr_iova(3).
pub(crate) unsafe fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the requirements of the callee are those of ibv_reg_mr_iova(3), which the caller meets.
    register_with_mark(addr, length, access as c_int, || unsafe {
        soft::ibv_reg_mr_iova2(pd, addr, length, iova, access)
    })
}

/// `soft::ibv_dereg_mr` with fork support.
///
/// # Safety
///
/// As for ibv_dereg_mr(3).
pub(crate) unsafe fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // Before the object is freed, because another thread may immediately get a region at the same address.
    let range = marked().remove(&(mr as usize));
    // SAFETY: the requirements of the callee are those of ibv_dereg_mr(3), which the caller meets.
    let code = unsafe { soft::ibv_dereg_mr(mr) };
    match range {
        Some(range) if code == 0 => {
            range.end();
        }
        Some(range) => {
            marked().insert(mr as usize, range);
        }
        None => {}
    }
    code
}

/// `soft::ibv_rereg_mr` with fork support, hence with all results of `enum ibv_rereg_mr_err_code`.
///
/// # Safety
///
/// As for ibv_rereg_mr(3).
pub(crate) unsafe fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let old = marked().get(&(mr as usize)).copied();
    let is_wanted = if flags & ACCESS != 0 { access & ON_DEMAND == 0 } else { old.is_some() };
    let moves = flags & TRANSLATION != 0 && !addr.is_null();
    let new = match (moves && is_wanted).then(|| Marked::new(addr, length)) {
        Some(None) => return IBV_REREG_MR_ERR_DONT_FORK_NEW,
        Some(new) => new,
        None => None,
    };
    // SAFETY: the requirements of the callee are those of ibv_rereg_mr(3), which the caller meets.
    let code = unsafe { soft::ibv_rereg_mr(mr, flags, pd, addr, length, access) };
    if code != 0 {
        let ended = new.is_none_or(Marked::end);
        return if code == IBV_REREG_MR_ERR_CMD && !ended {
            IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW
        } else {
            code
        };
    }
    if !moves {
        return 0;
    }
    match new {
        Some(new) => marked().insert(mr as usize, new),
        None => marked().remove(&(mr as usize)),
    };
    if old.is_none_or(Marked::end) { 0 } else { IBV_REREG_MR_ERR_DO_FORK_OLD }
}
