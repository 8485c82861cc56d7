// SPDX-License-Identifier: BSD-3-Clause
//! Extended queue pairs: work requests built call by call, from `ibv_wr_start` to `ibv_wr_complete`
//! (ibv_wr_post(3)).
//!
//! The calls in between return nothing. The first error is kept, `ibv_wr_complete` returns it, and then none
//! of the requests is posted. The thread is inside the [`Section`](super::section::Section) of the queue pair
//! from the first call to the last.

use libc::{c_int, c_void};
use rdma_sys::ibv_qp_create_send_ops_flags as Flags;
use rdma_sys::{
    ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_send_wr,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_1 as Rdma, ibv_send_wr__bindgen_ty_2__bindgen_ty_2 as Atomic,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_3 as Ud, ibv_send_wr__bindgen_ty_4__bindgen_ty_1 as Bind, ibv_sge,
    ibv_wr_opcode,
};
use std::ptr::{addr_of, null_mut};

use super::extended_op::ExtendedOp;
use super::qp_object::{QpEx, QpObject};
use super::wr_builder::{Builder, Built, Requests};
use crate::ffi::send_flags::SEND_INLINE;
use crate::ffi::work_request::read_send_wr;
use crate::qp::Kind;
use crate::sys::Errno;
use arrayvec::ArrayVec;
use transport::wr::WORD;

/// Defines the function of each send operation, and [`fill_operations`], which stores those that a queue pair
/// is created with in its structure. A row has the flag of the operation, the field of its function, its
/// opcode with the arguments of the function, and what they set in the work request.
macro_rules! operations {
    ($($flag:ident $call:ident $opcode:ident($($arg:ident: $ty:ty),*) |$wr:ident| $set:expr;)*) => {
        /// The supported send operations: flags of `enum ibv_qp_create_send_ops_flags`.
        pub(super) const OPERATIONS: u64 = $(Flags::$flag.0 as u64)|*;

        fn fill_operations(qp: &mut ibv_qp_ex, operations: u64) {
            $(
                unsafe extern "C" fn $call(qp: *mut ibv_qp_ex, $($arg: $ty),*) {
                    // SAFETY: ibv_wr_post(3) requires that the program calls this between ibv_wr_start and
                    // ibv_wr_complete, so this thread is inside the section, and that `info` of a bind points
                    // to an ibv_mw_bind_info, which is copied.
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

/// The send operations of a queue pair of type UD.
pub(super) const UD_OPERATIONS: u64 =
    (Flags::IBV_QP_EX_WITH_SEND.0 | Flags::IBV_QP_EX_WITH_SEND_WITH_IMM.0) as u64;
/// Those of a queue pair of type UC.
pub(super) const UC_OPERATIONS: u64 = UD_OPERATIONS
    | (Flags::IBV_QP_EX_WITH_RDMA_WRITE.0
        | Flags::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
        | Flags::IBV_QP_EX_WITH_BIND_MW.0
        | Flags::IBV_QP_EX_WITH_LOCAL_INV.0) as u64;

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: ibv_wr_post(3) requires that the program calls this between ibv_wr_start and ibv_wr_complete,
    // so this thread is inside the section.
    unsafe {
        set(qp, |built| {
            built.wr.wr.ud = Ud { ah, remote_qpn, remote_qkey };
            Ok(())
        });
    }
}

/// The send operations that only a RoCE device has.
pub(super) const ROCE_OPERATIONS: u64 = WITH_ATOMIC_WRITE | WITH_FLUSH;
const WITH_ATOMIC_WRITE: u64 = Flags::IBV_QP_EX_WITH_ATOMIC_WRITE.0 as u64;
/// IBV_QP_EX_WITH_FLUSH and IBV_WR_FLUSH, which rdma-core 44 does not define.
const WITH_FLUSH: u64 = 1 << 11;
const WR_FLUSH: ibv_wr_opcode::Type = 14;

fn fill_roce(qp: &mut QpEx, operations: u64) {
    if operations & WITH_ATOMIC_WRITE != 0 {
        qp.qp.wr_atomic_write = Some(atomic_write);
    }
    if operations & WITH_FLUSH != 0 {
        qp.set_flush(flush);
    }
}

unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    placement: u8,
    selectivity: u8,
) {
    // SAFETY: ibv_wr_post(3) requires that the program calls this between ibv_wr_start and ibv_wr_complete,
    // so this thread is inside the section.
    unsafe {
        match ExtendedOp::flush(len, placement, selectivity) {
            Ok(flush) => begin_with(qp, WR_FLUSH, Some(flush), |wr| {
                wr.wr.rdma = Rdma { remote_addr, rkey };
            }),
            Err(error) => {
                let requests = requests(qp);
                requests.error = requests.error.or(Some(error));
            }
        }
    }
}

unsafe extern "C" fn atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, value: *const c_void) {
    // SAFETY: ibv_wr_post(3) requires that `value` points to 8 readable bytes, which are copied, and that the
    // program calls this between ibv_wr_start and ibv_wr_complete, so this thread is inside the section.
    unsafe {
        let word = value.cast::<[u8; WORD]>().read_unaligned();
        begin_with(qp, ibv_wr_opcode::IBV_WR_ATOMIC_WRITE, Some(ExtendedOp::AtomicWrite(word)), |wr| {
            wr.wr.rdma = Rdma { remote_addr, rkey };
        });
    }
}

/// Stores the functions of an extended queue pair in its structure: those of the requested send operations,
/// and those that all have in common.
pub(super) fn fill(extended: &mut QpEx, operations: u64, kind: Kind) {
    fill_roce(extended, operations);
    let qp = &mut extended.qp;
    if kind == Kind::Ud {
        qp.wr_set_ud_addr = Some(set_ud_addr);
    }
    fill_operations(qp, operations);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

/// Returns the extended form of a queue pair, which is the same object, or NULL if it was created without
/// send operations.
///
/// # Safety
///
/// As for ibv_qp_to_qp_ex(3).
pub unsafe fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: ibv_qp_to_qp_ex(3) requires that `qp` was returned by a function that creates queue pairs and
    // has not been destroyed.
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
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs that has not been destroyed; it
    // begins with the ibv_qp of its object.
    let own = unsafe { QpObject::own(qp.cast()) };
    match &own.builder {
        Some(builder) => builder,
        None => unreachable!("the functions are in the structure only if there is a builder"),
    }
}

/// The requests built so far.
///
/// # Safety
///
/// As for [`builder`], between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort` in the same thread.
unsafe fn requests<'a>(qp: *mut ibv_qp_ex) -> &'a mut Requests {
    // SAFETY: the caller guarantees that this thread is inside the section since `ibv_wr_start`; each call
    // uses one result of this function and drops it before it returns or leaves.
    unsafe { builder(qp).value() }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: ibv_wr_start(3) requires that `qp` has not been destroyed. This thread enters the section
    // before it accesses the requests.
    unsafe {
        builder(qp).enter();
        let requests = requests(qp);
        requests.built.clear();
        requests.error = None;
    }
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: ibv_wr_abort(3) requires that `qp` has not been destroyed and that this thread has called
    // ibv_wr_start, so it is inside the section.
    unsafe { builder(qp) }.leave();
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: ibv_wr_complete(3) requires that `qp` has not been destroyed and that this thread has called
    // ibv_wr_start, so it is inside the section.
    let (own, requests) = unsafe { (QpObject::own(qp.cast()), requests(qp)) };
    let result = match requests.error {
        Some(error) => Err(error),
        // SAFETY: the addresses in the requests are arguments of the calls of this section, which
        // ibv_wr_post(3) requires to be valid until ibv_wr_complete returns.
        None => unsafe { post(&own.qp, &mut requests.built) },
    };
    // SAFETY: `qp` has not been destroyed during the call, and `requests` is not used after this thread has
    // left.
    unsafe { builder(qp) }.leave();
    result.err().unwrap_or(0)
}

/// Posts all requests or, if one of them cannot be posted, none. EINVAL: a request is invalid (see
/// [`read_send_wr`]), or there is no connection yet. ENOMEM: the send queue does not have room for all.
///
/// # Safety
///
/// The addresses in the requests must be valid as ibv_wr_post(3) requires.
unsafe fn post(qp: &crate::qp::Qp, built: &mut [Built]) -> Result<(), Errno> {
    let mut ready = Vec::new();
    ready.try_reserve_exact(built.len()).map_err(|_| libc::ENOMEM)?;
    for Built { wr, entries, inline, extended } in built {
        if let Some(extended) = extended {
            ready.push(extended.request(wr, qp.signal_all)?);
            continue;
        }
        let mut data = ibv_sge { addr: inline.as_ptr() as u64, length: inline.len() as u32, lkey: 0 };
        wr.sg_list = if wr.send_flags & SEND_INLINE != 0 { &raw mut data } else { entries.as_mut_ptr() };
        wr.num_sge = if wr.send_flags & SEND_INLINE != 0 { 1 } else { entries.len() as c_int };
        // SAFETY: `sg_list` and `num_sge` of `wr` were just set to `data` or to `entries`, both of which
        // outlive the call; the caller guarantees the other addresses.
        ready.push(unsafe { read_send_wr(wr, qp, Ok) }?);
    }
    qp.posting().post_all(ready)
}

/// Begins a work request with the `wr_id` and the flags that the program has stored in the structure.
///
/// # Safety
///
/// As for [`requests`].
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: ibv_wr_opcode::Type, change: impl FnOnce(&mut ibv_send_wr)) {
    // SAFETY: the conditions are those of the callee.
    unsafe { begin_with(qp, opcode, None, change) };
}

/// As [`begin`], also for requests that ibv_post_send(3) does not have.
///
/// # Safety
///
/// As for [`requests`].
unsafe fn begin_with(
    qp: *mut ibv_qp_ex,
    opcode: ibv_wr_opcode::Type,
    extended: Option<ExtendedOp>,
    change: impl FnOnce(&mut ibv_send_wr),
) {
    // SAFETY: all-zero is a valid ibv_send_wr: it holds only integers and nullable pointers.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    // SAFETY: the caller guarantees that `qp` has not been destroyed. The program writes these fields on this
    // thread, before the call.
    unsafe {
        wr.wr_id = addr_of!((*qp).wr_id).read();
        wr.send_flags = addr_of!((*qp).wr_flags).read() & !SEND_INLINE;
    }
    wr.opcode = opcode;
    change(&mut wr);
    // SAFETY: the caller guarantees that this thread is inside the section.
    let requests = unsafe { requests(qp) };
    if requests.built.try_reserve(1).is_err() {
        requests.error = requests.error.or(Some(libc::ENOMEM));
        return;
    }
    requests.built.push(Built { wr, entries: ArrayVec::new(), inline: ArrayVec::new(), extended });
}

/// Changes the last work request; an error of `change` becomes the error of the section. EINVAL: there is no
/// request.
///
/// # Safety
///
/// As for [`requests`].
unsafe fn set(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Built) -> Result<(), Errno>) {
    // SAFETY: the caller guarantees that this thread is inside the section.
    let requests = unsafe { requests(qp) };
    let changed = requests.built.last_mut().ok_or(libc::EINVAL).and_then(change);
    requests.error = requests.error.or(changed.err());
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: ibv_wr_post(3) requires that the program calls this between ibv_wr_start and ibv_wr_complete,
    // so this thread is inside the section.
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
    // SAFETY: ibv_wr_post(3) requires that the program calls this between ibv_wr_start and ibv_wr_complete,
    // so this thread is inside the section.
    unsafe {
        set(qp, |built| {
            built.wr.send_flags &= !SEND_INLINE;
            built.entries.clear();
            for i in 0..count {
                // SAFETY: ibv_wr_post(3) requires that `list` points to `count` entries, and `i` is below
                // `count`.
                built.entries.try_push(list.add(i).read()).map_err(|_| libc::EINVAL)?;
            }
            Ok(())
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let list = ibv_data_buf { addr, length };
    // SAFETY: `list` is one buffer, valid as ibv_wr_post(3) requires. The program calls this between
    // ibv_wr_start and ibv_wr_complete, as the callee requires.
    unsafe { set_inline_data_list(qp, 1, &list) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: ibv_wr_post(3) requires that the program calls this between ibv_wr_start and ibv_wr_complete,
    // so this thread is inside the section.
    unsafe {
        set(qp, |built| {
            built.wr.send_flags |= SEND_INLINE;
            built.inline.clear();
            for i in 0..count {
                // SAFETY: ibv_wr_post(3) requires that `list` points to `count` buffers, and `i` is below
                // `count`.
                let ibv_data_buf { addr, length } = list.add(i).read();
                if length > built.inline.remaining_capacity() {
                    return Err(libc::EINVAL);
                }
                let filled = built.inline.len();
                // SAFETY: ibv_wr_post(3) requires that the buffer has `length` readable bytes. `built.inline`
                // has room for them behind the `filled` bytes (checked above), and the copy initialises what
                // `set_len` includes.
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
