// SPDX-License-Identifier: BSD-3-Clause
//! Extended queue pairs: work requests that are built call by call, from `ibv_wr_start` to `ibv_wr_complete`
//! (ibv_wr_post(3)).
//!
//! The calls have no result. The first error is kept, and the last call returns it; then none of the requests
//! is posted.

use libc::{c_int, c_void};
use rdma_sys::ibv_qp_create_send_ops_flags as Flags;
use rdma_sys::{
    ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_send_wr,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_1 as Rdma, ibv_send_wr__bindgen_ty_2__bindgen_ty_2 as Atomic,
    ibv_send_wr__bindgen_ty_4__bindgen_ty_1 as Bind, ibv_sge, ibv_wr_opcode,
};
use std::ptr::{addr_of, null_mut};

use super::qp_object::QpObject;
use super::wr_builder::{Builder, Built, Requests};
use crate::ffi::send_flags::SEND_INLINE;
use crate::ffi::work_request::read_send_wr;
use crate::sys::Errno;
use arrayvec::ArrayVec;

/// Makes a call of each operation, and puts those that a queue pair is created for into its structure. A row
/// is the flag of the operation, the field of its call, its opcode with the arguments of the call, and what
/// these set in the work request.
macro_rules! operations {
    ($($flag:ident $call:ident $opcode:ident($($arg:ident: $ty:ty),*) |$wr:ident| $set:expr;)*) => {
        /// The operations that a queue pair can be created for: flags of `enum ibv_qp_create_send_ops_flags`.
        pub(super) const OPERATIONS: u64 = $(Flags::$flag.0 as u64)|*;

        fn fill_operations(qp: &mut ibv_qp_ex, operations: u64) {
            $(
                unsafe extern "C" fn $call(qp: *mut ibv_qp_ex, $($arg: $ty),*) {
                    // SAFETY: the program calls this between ibv_wr_start and ibv_wr_complete, with arguments
                    // as in ibv_wr_post(3): what `info` of a bind points to is copied here.
                    unsafe { begin(qp, ibv_wr_opcode::$opcode, |$wr| $set) }
                }
                qp.$call = if operations & Flags::$flag.0 as u64 != 0 { Some($call) } else { None };
            )*
        }
    };
}

operations! {
    IBV_QP_EX_WITH_RDMA_WRITE wr_rdma_write IBV_WR_RDMA_WRITE(rkey: u32, remote_addr: u64)
        |wr| wr.wr.rdma = Rdma { remote_addr, rkey };
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM wr_rdma_write_imm
        IBV_WR_RDMA_WRITE_WITH_IMM(rkey: u32, remote_addr: u64, imm: u32)
        |wr| {
            wr.wr.rdma = Rdma { remote_addr, rkey };
            wr.__bindgen_anon_1.imm_data = imm;
        };
    IBV_QP_EX_WITH_RDMA_READ wr_rdma_read IBV_WR_RDMA_READ(rkey: u32, remote_addr: u64)
        |wr| wr.wr.rdma = Rdma { remote_addr, rkey };
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP wr_atomic_cmp_swp
        IBV_WR_ATOMIC_CMP_AND_SWP(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64)
        |wr| wr.wr.atomic = Atomic { remote_addr, compare_add, swap, rkey };
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD wr_atomic_fetch_add
        IBV_WR_ATOMIC_FETCH_AND_ADD(rkey: u32, remote_addr: u64, compare_add: u64)
        |wr| wr.wr.atomic = Atomic { remote_addr, compare_add, swap: 0, rkey };
    IBV_QP_EX_WITH_SEND wr_send IBV_WR_SEND() |_wr| ();
    IBV_QP_EX_WITH_SEND_WITH_IMM wr_send_imm IBV_WR_SEND_WITH_IMM(imm: u32)
        |wr| wr.__bindgen_anon_1.imm_data = imm;
    IBV_QP_EX_WITH_SEND_WITH_INV wr_send_inv IBV_WR_SEND_WITH_INV(rkey: u32)
        |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey;
    IBV_QP_EX_WITH_LOCAL_INV wr_local_inv IBV_WR_LOCAL_INV(rkey: u32)
        |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey;
    IBV_QP_EX_WITH_BIND_MW wr_bind_mw IBV_WR_BIND_MW(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info)
        |wr| wr.__bindgen_anon_2.bind_mw = Bind { mw, rkey, bind_info: info.read() };
}

/// Puts the calls into the structure: those of the operations that the queue pair is created for, and those
/// that all have in common.
pub(super) fn fill(qp: &mut ibv_qp_ex, operations: u64) {
    fill_operations(qp, operations);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

/// Returns the extended form of a queue pair, or NULL if it was created without operations.
///
/// # Safety
///
/// As for ibv_qp_to_qp_ex(3).
pub unsafe fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: `qp` was returned by a function that creates queue pairs and has not been destroyed
    // (ibv_qp_to_qp_ex(3)).
    match unsafe { QpObject::own(qp) }.builder {
        Some(_) => qp.cast(),
        None => null_mut(),
    }
}

/// The section of a queue pair.
///
/// # Safety
///
/// `qp` must be a queue pair that [`ibv_qp_to_qp_ex`] has returned and that has not been destroyed.
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> &'a Builder {
    // SAFETY: `qp` is a queue pair of softverbs with a builder that has not been destroyed.
    let own = unsafe { QpObject::own(qp.cast()) };
    match &own.builder {
        Some(builder) => builder,
        None => unreachable!("the calls are in the structure only if there is a builder"),
    }
}

/// What has been built so far.
///
/// # Safety
///
/// As for [`builder`], between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort` in the same thread.
unsafe fn requests<'a>(qp: *mut ibv_qp_ex) -> &'a mut Requests {
    // SAFETY: this thread has entered with `ibv_wr_start`, and none of the calls keeps a result of this
    // function.
    unsafe { builder(qp).value() }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: `qp` has not been destroyed (ibv_wr_start(3)); having entered, this thread may use the value.
    unsafe {
        builder(qp).enter();
        let requests = requests(qp);
        requests.built.clear();
        requests.error = None;
    }
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: `qp` has not been destroyed, and this thread has called ibv_wr_start (ibv_wr_abort(3)).
    unsafe { builder(qp) }.leave();
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: `qp` has not been destroyed, and this thread has called ibv_wr_start (ibv_wr_complete(3)).
    let (own, requests) = unsafe { (QpObject::own(qp.cast()), requests(qp)) };
    let result = match requests.error {
        Some(error) => Err(error),
        // SAFETY: the requests were built from what the calls of this section were given.
        None => unsafe { post(&own.qp, &mut requests.built) },
    };
    // SAFETY: as above; the value is not used any more.
    unsafe { builder(qp) }.leave();
    result.err().unwrap_or(0)
}

/// Posts all requests or, if one of them cannot be posted, none.
///
/// # Safety
///
/// The addresses in the requests must be as ibv_wr_post(3) says.
unsafe fn post(qp: &crate::qp::Qp, built: &mut [Built]) -> Result<(), Errno> {
    let mut posting = qp.posting()?;
    let mut ready = Vec::new();
    ready.try_reserve_exact(built.len()).map_err(|_| libc::ENOMEM)?;
    for Built { wr, entries, inline } in built {
        let mut data = ibv_sge { addr: inline.as_ptr() as u64, length: inline.len() as u32, lkey: 0 };
        wr.sg_list = if wr.send_flags & SEND_INLINE != 0 { &raw mut data } else { entries.as_mut_ptr() };
        wr.num_sge = if wr.send_flags & SEND_INLINE != 0 { 1 } else { entries.len() as c_int };
        // SAFETY: `wr` is a work request with as many entries as it says, which live until it has been read.
        ready.push(unsafe { read_send_wr(wr, qp) }?);
    }
    posting.post_all(ready)
}

/// Begins a work request with the wr_id and the flags that the program has set in the structure.
///
/// # Safety
///
/// As for [`requests`].
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: ibv_wr_opcode::Type, change: impl FnOnce(&mut ibv_send_wr)) {
    // SAFETY: all-zero is a valid ibv_send_wr.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    // SAFETY: `qp` has not been destroyed. The program writes these fields before the call, in this thread.
    unsafe {
        wr.wr_id = addr_of!((*qp).wr_id).read();
        wr.send_flags = addr_of!((*qp).wr_flags).read() & !SEND_INLINE;
    }
    wr.opcode = opcode;
    change(&mut wr);
    // SAFETY: this thread has called ibv_wr_start.
    let requests = unsafe { requests(qp) };
    if requests.built.try_reserve(1).is_err() {
        requests.error = requests.error.or(Some(libc::ENOMEM));
        return;
    }
    requests.built.push(Built { wr, entries: ArrayVec::new(), inline: ArrayVec::new() });
}

/// Sets the data of the last work request.
///
/// # Safety
///
/// As for [`requests`].
unsafe fn set(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Built) -> Result<(), Errno>) {
    // SAFETY: this thread has called ibv_wr_start.
    let requests = unsafe { requests(qp) };
    let changed = requests.built.last_mut().ok_or(libc::EINVAL).and_then(change);
    requests.error = requests.error.or(changed.err());
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program calls this between ibv_wr_start and ibv_wr_complete (ibv_wr_post(3)).
    unsafe {
        set(qp, |built| {
            built.wr.send_flags &= !SEND_INLINE;
            built.entries.clear();
            built.entries.push(ibv_sge { addr, length, lkey });
            Ok(())
        });
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the program calls this between ibv_wr_start and ibv_wr_complete (ibv_wr_post(3)).
    unsafe {
        set(qp, |built| {
            built.wr.send_flags &= !SEND_INLINE;
            built.entries.clear();
            for i in 0..count {
                // SAFETY: `list` points to `count` entries (ibv_wr_set_sge_list(3)).
                built.entries.try_push(list.add(i).read()).map_err(|_| libc::EINVAL)?;
            }
            Ok(())
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let list = ibv_data_buf { addr, length };
    // SAFETY: `list` is one buffer, and the program calls this between ibv_wr_start and ibv_wr_complete
    // (ibv_wr_post(3)).
    unsafe { set_inline_data_list(qp, 1, &list) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: the program calls this between ibv_wr_start and ibv_wr_complete (ibv_wr_post(3)).
    unsafe {
        set(qp, |built| {
            built.wr.send_flags |= SEND_INLINE;
            built.inline.clear();
            for i in 0..count {
                // SAFETY: `list` points to `count` buffers (ibv_wr_set_inline_data_list(3)).
                let ibv_data_buf { addr, length } = list.add(i).read();
                if length > built.inline.remaining_capacity() {
                    return Err(libc::EINVAL);
                }
                let filled = built.inline.len();
                // SAFETY: the buffer is `length` readable bytes (ibv_wr_set_inline_data_list(3)), for which
                // there is room behind what is filled.
                std::ptr::copy_nonoverlapping(
                    addr.cast::<u8>(),
                    built.inline.as_mut_ptr().add(filled),
                    length,
                );
                built.inline.set_len(filled + length);
            }
            Ok(())
        });
    }
}
