// SPDX-License-Identifier: BSD-3-Clause
//! Memory windows. Programs reach these functions through `ibv_context.ops`, as inline functions of
//! `verbs.h`, and windows of type 2 through work requests.

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

pub(crate) struct MwOwn {
    pd: *mut ibv_pd,
    kind: ibv_mw_type::Type,
    /// The STag after the binds that were posted so far.
    stag: AtomicU32,
}

pub(crate) type MwObject = Object<ibv_mw, MwOwn>;

/// The access flags that a window may have.
const ACCESS: c_uint = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | ZERO_BASED;

/// Allocates a memory window, which is not bound. EINVAL: there is no such type. ENOMEM: all windows are in
/// use, or memory is short. EIO: the system provides no random bytes.
///
/// # Safety
///
/// As for ibv_alloc_mw(3).
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    if kind != ibv_mw_type::IBV_MW_TYPE_1 && kind != ibv_mw_type::IBV_MW_TYPE_2 {
        return null_with(libc::EINVAL);
    }
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_alloc_mw(3)).
    let own = unsafe { PdObject::own(pd) };
    let stag = match memory::alloc_window(own.number, kind == ibv_mw_type::IBV_MW_TYPE_2) {
        Ok(stag) => stag,
        Err(e) => return null_with(e),
    };
    own.users.fetch_add(1, Ordering::AcqRel);
    // SAFETY: `pd` has not been deallocated, and its `context` never changes.
    let context = unsafe { addr_of!((*pd).context).read() };
    let mw = ibv_mw { context, pd, rkey: stag, handle: stag >> 8, type_: kind };
    MwObject::create(mw, MwOwn { pd, kind, stag: AtomicU32::new(stag) })
}

/// Unbinds and deallocates a memory window. When it has returned, nothing is accessed through it.
///
/// # Safety
///
/// As for ibv_dealloc_mw(3).
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: `mw` was returned by ibv_alloc_mw and is not used afterwards (ibv_dealloc_mw(3)). Its
    // protection domain cannot be deallocated before `users` is decremented.
    unsafe {
        let own = MwObject::own(mw);
        memory::free_window(own.stag.load(Ordering::Relaxed));
        PdObject::own(own.pd).users.fetch_sub(1, Ordering::AcqRel);
        MwObject::free(mw);
    }
    0
}

/// The request to bind a window, whose STag is `rkey` then.
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
        // SAFETY: `mr` is not NULL, so it is the region of some device that has not been deregistered, and
        // its `context` never changes.
        if !owns(unsafe { addr_of!((*mr).context).read() }) {
            return Err(libc::EPERM);
        }
        // SAFETY: `mr` is a region of softverbs that has not been deregistered.
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
    })
}

/// Posts a request to bind a window of type 1, or to unbind it: with `length` 0, in which case `mr` may be
/// NULL. The rkey of the window after that is stored in it. The request takes effect behind those that were
/// posted before, and before those that are posted later. Its completion (IBV_WC_BIND_MW) has the status
/// IBV_WC_MW_BIND_ERR, the window is as before and the connection ends, if the range is not within the
/// region, the region has no IBV_ACCESS_MW_BIND, the window is written and the region has no local write
/// access, or window, region and queue pair are not of one protection domain.
///
/// EINVAL: the window is not of type 1, an access flag is not one of IBV_ACCESS_REMOTE_WRITE, _REMOTE_READ,
/// _REMOTE_ATOMIC, _ZERO_BASED and _LOCAL_WRITE (which has no effect, since a window has no local key), `mr`
/// is NULL for a range, or the queue pair is not connected or is another device's. EPERM: window and region
/// are not of one protection domain. ENOMEM: the send queue is full. EIO: the system provides no random
/// bytes.
///
/// # Safety
///
/// As for ibv_bind_mw(3).
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: `qp` is the queue pair of some device that has not been destroyed (ibv_bind_mw(3)), and its
    // `context` never changes.
    if !owns(unsafe { addr_of!((*qp).context).read() }) {
        return libc::EINVAL;
    }
    // SAFETY: `qp` and `mw` are of softverbs and have not been destroyed, and `bind` points to an ibv_mw_bind
    // (ibv_bind_mw(3)), which is copied.
    let (qp, own, bind) = unsafe { (&QpObject::own(qp).qp, MwObject::own(mw), bind.read()) };
    if own.kind != ibv_mw_type::IBV_MW_TYPE_1 {
        return libc::EINVAL;
    }
    let posted = (|| {
        let rkey = memory::another_key(own.stag.load(Ordering::Relaxed))?;
        // SAFETY: `mr` is NULL or a region that has not been deregistered (ibv_bind_mw(3)).
        let mut wr = unsafe { request(own, &bind.bind_info, rkey) }?;
        wr.wr_id = bind.wr_id;
        wr.signaled = qp.signal_all || bind.send_flags & SEND_SIGNALED != 0;
        wr.fence = bind.send_flags & SEND_FENCE != 0;
        qp.posting()?.post(wr)?;
        Ok(rkey)
    })();
    match posted {
        Ok(rkey) => {
            own.stag.store(rkey, Ordering::Relaxed);
            // SAFETY: `mw` has not been deallocated; a field is written.
            unsafe { addr_of_mut!((*mw).rkey).write(rkey) };
            0
        }
        Err(e) => e,
    }
}

/// Reads a work request with IBV_WR_BIND_MW or IBV_WR_LOCAL_INV, which concern windows of type 2. EINVAL: it
/// has another opcode; there is no window or region, the window is another device's or not of type 2, the new
/// rkey is not the window's but for the lowest 8 bits, or an access flag is not one that [`bind_mw`] takes.
/// EPERM: window and region are not of one protection domain.
///
/// # Safety
///
/// `wr` must point to a work request as described in ibv_post_send(3).
#[cold]
pub(crate) unsafe fn read_window_wr(wr: *const ibv_send_wr, signal_all: bool) -> Result<SendWr, Errno> {
    // SAFETY: `wr` points to a work request, of which every opcode uses these fields; they are copied one by
    // one.
    let (wr_id, opcode, flags) = unsafe {
        (addr_of!((*wr).wr_id).read(), addr_of!((*wr).opcode).read(), addr_of!((*wr).send_flags).read())
    };
    let mut request = match opcode {
        ibv_wr_opcode::IBV_WR_BIND_MW => {
            // SAFETY: this opcode uses the member `bind_mw` of the union.
            let bind = unsafe { addr_of!((*wr).__bindgen_anon_2.bind_mw).read() };
            if bind.mw.is_null() || bind.bind_info.mr.is_null() {
                return Err(libc::EINVAL);
            }
            // SAFETY: `mw` is not NULL, so it is the window of some device that has not been deallocated, and
            // its `context` never changes.
            if !owns(unsafe { addr_of!((*bind.mw).context).read() }) {
                return Err(libc::EINVAL);
            }
            // SAFETY: `mw` is a window of softverbs that has not been deallocated.
            let own = unsafe { MwObject::own(bind.mw) };
            let is_its = bind.rkey >> 8 == own.stag.load(Ordering::Relaxed) >> 8;
            if own.kind != ibv_mw_type::IBV_MW_TYPE_2 || !is_its {
                return Err(libc::EINVAL);
            }
            // SAFETY: `mr` is a region that has not been deregistered.
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
            // SAFETY: this opcode uses the member `invalidate_rkey` of the union.
            rkey: unsafe { addr_of!((*wr).__bindgen_anon_1.invalidate_rkey).read() },
        },
        _ => return Err(libc::EINVAL),
    };
    request.wr_id = wr_id;
    request.signaled = signal_all || flags & SEND_SIGNALED != 0;
    request.fence = flags & SEND_FENCE != 0;
    Ok(request)
}
