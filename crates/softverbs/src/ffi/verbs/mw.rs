// SPDX-License-Identifier: BSD-3-Clause
//! Memory windows: allocating, binding, invalidating and deallocating them.
//!
//! The inline functions of `verbs.h` call these functions through `ibv_context.ops`; windows of type 2 are
//! bound by work requests. A bind takes effect in the order of the send queue. Each bind of a window of type
//! 1 draws the lowest 8 bits of its rkey anew.

use libc::{c_int, c_uint};
use rdma_sys::{
    ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp, ibv_send_wr, ibv_wr_opcode,
};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::mr::MrObject;
use super::pd::PdObject;
use super::{QpObject, null_with};
use crate::ffi::context::owns;
use crate::ffi::object::Object;
use crate::ffi::send_flags::{SEND_FENCE, SEND_SIGNALED};
use crate::memory;
use crate::sys::Errno;
use transport::access::{LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, ZERO_BASED};
use transport::wr::{Local, Op, SendWr};

/// The data behind the C structure of a memory window.
pub(crate) struct MwOwn {
    pd: *mut ibv_pd,
    kind: ibv_mw_type::Type,
    /// The STag that the window has after all binds posted so far.
    stag: AtomicU32,
}

pub(crate) type MwObject = Object<ibv_mw, MwOwn>;

/// The access flags that a window can have.
const ACCESS: c_uint = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | ZERO_BASED;

/// Allocates an unbound memory window, which the caller deallocates with ibv_dealloc_mw(3). NULL and errno:
/// EINVAL (not a window type), ENOMEM (all windows are in use, or out of memory), EIO (the system provides no
/// random bytes).
///
/// # Safety
///
/// As for ibv_alloc_mw(3).
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    if kind != ibv_mw_type::IBV_MW_TYPE_1 && kind != ibv_mw_type::IBV_MW_TYPE_2 {
        return null_with(libc::EINVAL);
    }
    // SAFETY: ibv_alloc_mw(3) requires that `pd` was returned by ibv_alloc_pd and has not been deallocated.
    let own = unsafe { PdObject::own(pd) };
    let stag = match memory::alloc_window(own.number, kind == ibv_mw_type::IBV_MW_TYPE_2) {
        Ok(stag) => stag,
        Err(e) => return null_with(e),
    };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: ibv_alloc_mw(3) requires that `pd` has not been deallocated; its `context` never changes.
    let context = unsafe { addr_of!((*pd).context).read() };
    let mw = ibv_mw { context, pd, rkey: stag, handle: stag >> 8, type_: kind };
    MwObject::create(mw, MwOwn { pd, kind, stag: AtomicU32::new(stag) })
}

/// Invalidates and deallocates a memory window. After it has returned, no access through the window is in
/// progress or possible. Returns 0.
///
/// # Safety
///
/// As for ibv_dealloc_mw(3).
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: ibv_dealloc_mw(3) requires that `mw` was returned by ibv_alloc_mw and is not used afterwards.
    // The window is counted in `users` of its protection domain, which therefore cannot be deallocated before
    // `users` is decremented here.
    unsafe {
        let own = MwObject::own(mw);
        memory::free_window(own.stag.load(Ordering::Relaxed));
        PdObject::own(own.pd).users.fetch_sub(1, Ordering::AcqRel);
        MwObject::free(mw);
    }
    0
}

/// The request that binds a window and makes `rkey` its STag. EINVAL: an unknown access flag, or no region
/// for a range. EPERM: the region belongs to another device or protection domain.
///
/// # Safety
///
/// `info.mr` must be NULL or a memory region that has not been deregistered.
unsafe fn request(own: &MwOwn, info: &ibv_mw_bind_info, rkey: u32) -> Result<SendWr, Errno> {
    if info.mw_access_flags & !(ACCESS | LOCAL_WRITE) != 0
        || (info.mr.is_null() && (info.addr != 0 || info.length != 0))
    {
        return Err(libc::EINVAL);
    }
    let mut region = 0;
    if !info.mr.is_null() {
        let mr: *mut ibv_mr = info.mr;
        // SAFETY: `mr` is not NULL, so the caller guarantees that it is a region of some device that has not
        // been deregistered; its `context` never changes.
        if !owns(unsafe { addr_of!((*mr).context).read() }) {
            return Err(libc::EPERM);
        }
        // SAFETY: `mr` has the context of softverbs (checked above), and the caller guarantees that it has
        // not been deregistered.
        let mr = unsafe { MrObject::own(mr) };
        if mr.pd.load(Ordering::Acquire) != own.pd {
            return Err(libc::EPERM);
        }
        region = mr.stag;
    }
    Ok(SendWr {
        wr_id: 0,
        op: Op::BindMw,
        signaled: false,
        fence: false,
        solicited: false,
        imm: [0; 4],
        local: Local::Window { region, access: info.mw_access_flags & ACCESS, len: info.length },
        len: 0,
        remote_addr: info.addr,
        rkey,
        to: None,
    })
}

/// Posts a request that binds a window of type 1, or with `length` 0 invalidates it; `mr` may be NULL then.
/// The new rkey is stored in the window. The request takes effect after the requests posted before it and
/// before those posted after it. Its completion (IBV_WC_BIND_MW) has the status IBV_WC_MW_BIND_ERR, the
/// window stays as it was and the connection ends, if the range exceeds the region, the region lacks
/// IBV_ACCESS_MW_BIND, the window permits writes and the region has no local write access, or window, region
/// and queue pair belong to different protection domains.
///
/// Returns 0 or an errno value. EINVAL: the window is not of type 1, an access flag is none of
/// IBV_ACCESS_REMOTE_WRITE, _REMOTE_READ, _REMOTE_ATOMIC, _ZERO_BASED and _LOCAL_WRITE (which has no effect,
/// since a window has no local key), `mr` is NULL although `length` is not 0, or the queue pair has no
/// connection yet or belongs to another device. EPERM: window and region belong to different protection
/// domains or devices. ENOMEM: the send queue is full. EIO: the system provides no random bytes.
///
/// # Safety
///
/// As for ibv_bind_mw(3).
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: ibv_bind_mw(3) requires that `qp` is a queue pair of some device that has not been destroyed;
    // its `context` never changes.
    if !owns(unsafe { addr_of!((*qp).context).read() }) {
        return libc::EINVAL;
    }
    // SAFETY: `qp` belongs to softverbs (checked above), and `mw` does since the caller has reached this
    // function through its context. ibv_bind_mw(3) requires that neither has been destroyed and that `bind`
    // points to an ibv_mw_bind, which is copied.
    let (qp, own, bind) = unsafe { (&QpObject::own(qp).qp, MwObject::own(mw), bind.read()) };
    if own.kind != ibv_mw_type::IBV_MW_TYPE_1 {
        return libc::EINVAL;
    }
    let posted = (|| {
        let rkey = memory::another_key(own.stag.load(Ordering::Relaxed))?;
        // SAFETY: ibv_bind_mw(3) requires that `mr` is NULL or a region that has not been deregistered.
        let mut wr = unsafe { request(own, &bind.bind_info, rkey) }?;
        wr.wr_id = bind.wr_id;
        wr.signaled = qp.signal_all || bind.send_flags & SEND_SIGNALED != 0;
        wr.fence = bind.send_flags & SEND_FENCE != 0;
        qp.posting().post(wr, true)?;
        Ok(rkey)
    })();
    match posted {
        Ok(rkey) => {
            own.stag.store(rkey, Ordering::Relaxed);
            // SAFETY: ibv_bind_mw(3) requires that `mw` is not deallocated during the call, and that no other
            // thread binds it at the same time; programs only read the field `rkey`.
            unsafe { addr_of_mut!((*mw).rkey).write(rkey) };
            0
        }
        Err(e) => e,
    }
}

/// Reads a work request with IBV_WR_BIND_MW or IBV_WR_LOCAL_INV, the operations on windows of type 2. EINVAL:
/// another opcode, no window or no region, a window of another device or of type 1, a new rkey that differs
/// from the window's in more than the lowest 8 bits, or an access flag that [`bind_mw`] does not accept.
/// EPERM: window and region belong to different protection domains or devices.
///
/// # Safety
///
/// `wr` must point to a work request as described in ibv_post_send(3).
#[cold]
pub(crate) unsafe fn read_window_wr(wr: *const ibv_send_wr, signal_all: bool) -> Result<SendWr, Errno> {
    // SAFETY: by the contract of this function `wr` points to a work request. Every opcode uses these fields,
    // so the program has set them; they are copied one by one.
    let (wr_id, opcode, flags) = unsafe {
        (addr_of!((*wr).wr_id).read(), addr_of!((*wr).opcode).read(), addr_of!((*wr).send_flags).read())
    };
    let mut request = match opcode {
        ibv_wr_opcode::IBV_WR_BIND_MW => {
            // SAFETY: IBV_WR_BIND_MW uses the member `bind_mw` of the union, so the program has set it.
            let bind = unsafe { addr_of!((*wr).__bindgen_anon_2.bind_mw).read() };
            if bind.mw.is_null() || bind.bind_info.mr.is_null() {
                return Err(libc::EINVAL);
            }
            // SAFETY: `mw` is not NULL, so ibv_post_send(3) requires that it is a window of some device that
            // has not been deallocated; its `context` never changes.
            if !owns(unsafe { addr_of!((*bind.mw).context).read() }) {
                return Err(libc::EINVAL);
            }
            // SAFETY: `mw` has the context of softverbs (checked above), and ibv_post_send(3) requires that
            // it has not been deallocated.
            let own = unsafe { MwObject::own(bind.mw) };
            let is_same_window = bind.rkey >> 8 == own.stag.load(Ordering::Relaxed) >> 8;
            if own.kind != ibv_mw_type::IBV_MW_TYPE_2 || !is_same_window {
                return Err(libc::EINVAL);
            }
            // SAFETY: ibv_post_send(3) requires that `mr` is a region that has not been deregistered.
            unsafe { request(own, &bind.bind_info, bind.rkey) }?
        }
        ibv_wr_opcode::IBV_WR_LOCAL_INV => SendWr {
            wr_id: 0,
            op: Op::LocalInv,
            signaled: false,
            fence: false,
            solicited: false,
            imm: [0; 4],
            local: Local::Memory { addr: 0, lkey: 0 },
            len: 0,
            remote_addr: 0,
            // SAFETY: IBV_WR_LOCAL_INV uses the member `invalidate_rkey` of the union, so the program has set
            // it.
            rkey: unsafe { addr_of!((*wr).__bindgen_anon_1.invalidate_rkey).read() },
            to: None,
        },
        _ => return Err(libc::EINVAL),
    };
    request.wr_id = wr_id;
    request.signaled = signal_all || flags & SEND_SIGNALED != 0;
    request.fence = flags & SEND_FENCE != 0;
    Ok(request)
}
