// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions of `soft0`, and what ibv_fork_init(3) asks for.
//!
//! After that call the real library keeps the memory of regions from children (MADV_DONTFORK), because a
//! device goes on with pages that the parent may lose to a child. The software device has no such need. But a
//! program that passes here is to pass on a device, and ibv_rereg_mr(3) has results for it, so it is done in
//! the same way, by the functions of the real library: they count what regions have in common, and do nothing
//! before ibv_fork_init, or where the kernel copies such pages at the fork. On-demand regions are left alone,
//! as devices do.

use libc::{c_int, c_uint, c_void};
use rdma_sys::{ibv_mr, ibv_pd};
use softverbs::verbs::{
    self as soft, IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_CMD,
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW, IBV_REREG_MR_ERR_DO_FORK_OLD, IBV_REREG_MR_ERR_DONT_FORK_NEW,
};
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Access flag: the region need not be mapped when it is registered.
const ON_DEMAND: c_int = 1 << 6;

/// A range that a region keeps from children.
#[derive(Clone, Copy)]
struct Kept {
    addr: *mut c_void,
    length: usize,
}

// SAFETY: the address is a number here; nothing is accessed through it.
unsafe impl Send for Kept {}

/// By the address of the region's object.
static KEPT: Mutex<BTreeMap<usize, Kept>> = Mutex::new(BTreeMap::new());

fn kept() -> MutexGuard<'static, BTreeMap<usize, Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Keeps a range from children; `None` with errno set if that fails.
    fn new(addr: *mut c_void, length: usize) -> Option<Self> {
        // A range that does not exist is refused when it is registered.
        let exists = length != 0 && (addr as usize).checked_add(length).is_some();
        if exists
            && real!("IBVERBS_1.1" ibv_dontfork_range(addr => *mut c_void, length => usize) -> c_int) != 0
        {
            return None;
        }
        Some(Self { addr, length: if exists { length } else { 0 } })
    }

    /// Gives it back, and leaves errno as it is; false if that fails.
    fn end(self) -> bool {
        let Self { addr, length } = self;
        // SAFETY: the address of errno of this thread is valid.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { errno.read() };
        let ended = length == 0
            || real!("IBVERBS_1.1" ibv_dofork_range(addr => *mut c_void, length => usize) -> c_int) == 0;
        // SAFETY: as above.
        unsafe { errno.write(before) };
        ended
    }
}

/// Registers with `register`.
fn keeping(
    addr: *mut c_void,
    length: usize,
    access: c_int,
    register: impl FnOnce() -> *mut ibv_mr,
) -> *mut ibv_mr {
    if access & ON_DEMAND != 0 {
        return register();
    }
    let Some(range) = Kept::new(addr, length) else { return null_mut() };
    let mr = register();
    if mr.is_null() {
        range.end();
    } else {
        kept().insert(mr as usize, range);
    }
    mr
}

/// # Safety
///
/// As for ibv_reg_mr(3).
pub(crate) unsafe fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: as required of the caller.
    keeping(addr, length, access, || unsafe { soft::ibv_reg_mr(pd, addr, length, access) })
}

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
    // SAFETY: as required of the caller.
    keeping(addr, length, access, || unsafe { soft::ibv_reg_mr_iova(pd, addr, length, iova, access) })
}

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
    // SAFETY: as required of the caller.
    keeping(addr, length, access as c_int, || unsafe {
        soft::ibv_reg_mr_iova2(pd, addr, length, iova, access)
    })
}

/// # Safety
///
/// As for ibv_dereg_mr(3).
pub(crate) unsafe fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // Before the object is freed: its address may be that of the next one at once.
    let range = kept().remove(&(mr as usize));
    // SAFETY: as required of the caller.
    let code = unsafe { soft::ibv_dereg_mr(mr) };
    match range {
        Some(range) if code == 0 => {
            range.end();
        }
        Some(range) => {
            kept().insert(mr as usize, range);
        }
        None => {}
    }
    code
}

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
    let old = kept().get(&(mr as usize)).copied();
    let asked = if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 { access & ON_DEMAND == 0 } else { old.is_some() };
    let moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 && !addr.is_null();
    let new = match (moves && asked).then(|| Kept::new(addr, length)) {
        Some(None) => return IBV_REREG_MR_ERR_DONT_FORK_NEW,
        Some(new) => new,
        None => None,
    };
    // SAFETY: as required of the caller.
    let code = unsafe { soft::ibv_rereg_mr(mr, flags, pd, addr, length, access) };
    if code != 0 {
        let ended = new.is_none_or(Kept::end);
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
        Some(new) => kept().insert(mr as usize, new),
        None => kept().remove(&(mr as usize)),
    };
    if old.is_none_or(Kept::end) { 0 } else { IBV_REREG_MR_ERR_DO_FORK_OLD }
}
