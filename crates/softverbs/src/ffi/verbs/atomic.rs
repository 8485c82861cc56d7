// SPDX-License-Identifier: BSD-3-Clause
//! Work requests with atomic operations: compare-and-swap and fetch-and-add on a remote 8-byte word.

use rdma_sys::{ibv_send_wr, ibv_wr_opcode};
use std::ptr::addr_of;

use crate::ffi::send_flags::{SEND_FENCE, SEND_SIGNALED, SEND_SOLICITED};
use crate::sys::Errno;
use transport::wr::{Local, Op, SendWr, WORD};

/// Reads a work request with IBV_WR_ATOMIC_CMP_AND_SWP or IBV_WR_ATOMIC_FETCH_AND_ADD. EINVAL: the request
/// does not have exactly one scatter/gather entry of exactly 8 bytes, or the queue pair permits no entry.
///
/// Errors in the completion, after which the connection ends: IBV_WC_REM_INV_REQ_ERR if the remote word is
/// not aligned to 8 bytes, or if the target does not support atomic operations, an extension of iWARP (RFC
/// 7306); IBV_WC_REM_ACCESS_ERR if the key is invalid, the word is out of bounds or not mapped, or the region
/// or window lacks IBV_ACCESS_REMOTE_ATOMIC; IBV_WC_LOC_PROT_ERR if the entry is not writable;
/// IBV_WC_LOC_QP_OP_ERR if the connection permits no outstanding reads (`initiator_depth` 0). IBV_SEND_INLINE
/// is ignored, as for RDMA Read, except in adapter mode, where it is EINVAL.
///
/// # Safety
///
/// `wr` must point to a work request as described in ibv_post_send(3).
#[cold]
pub(crate) unsafe fn read_atomic_wr(
    wr: *const ibv_send_wr,
    op: Op,
    signal_all: bool,
    max_sge: u32,
) -> Result<SendWr, Errno> {
    // SAFETY: by the contract of this function `wr` points to a work request. Every opcode uses these fields,
    // and atomic operations the member `atomic` of the union, so the program has set them; they are copied
    // one by one.
    let (wr_id, flags, list, count, atomic) = unsafe {
        (
            addr_of!((*wr).wr_id).read(),
            addr_of!((*wr).send_flags).read(),
            addr_of!((*wr).sg_list).read(),
            addr_of!((*wr).num_sge).read(),
            addr_of!((*wr).wr.atomic).read(),
        )
    };
    if count != 1 || max_sge == 0 || list.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: ibv_post_send(3) requires that `sg_list` points to `num_sge` entries, which is one (checked
    // above).
    let sge = unsafe { list.read() };
    if sge.length as usize != WORD {
        return Err(libc::EINVAL);
    }
    Ok(SendWr {
        wr_id,
        op,
        signaled: signal_all || flags & SEND_SIGNALED != 0,
        fence: flags & SEND_FENCE != 0,
        solicited: flags & SEND_SOLICITED != 0,
        imm: [0; 4],
        local: Local::Atomic {
            addr: sge.addr,
            lkey: sge.lkey,
            compare_add: atomic.compare_add,
            swap: atomic.swap,
        },
        len: WORD as u32,
        remote_addr: atomic.remote_addr,
        rkey: atomic.rkey,
        to: None,
    })
}

/// The operation of an opcode if that is an atomic one, else `None`.
pub(crate) fn atomic_of(opcode: ibv_wr_opcode::Type) -> Option<Op> {
    match opcode {
        ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => Some(Op::CompareSwap),
        ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => Some(Op::FetchAdd),
        _ => None,
    }
}
