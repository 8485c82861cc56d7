// SPDX-License-Identifier: BSD-3-Clause
//! Extended completion queues, which show one completion after the other (ibv_create_cq_ex(3)).

use libc::c_int;
use rdma_sys::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc_opcode, ibv_wc_status,
};
use std::mem::offset_of;
use std::ptr::{addr_of_mut, null_mut};

use super::cq::{CqObject, CqOwn, create};
use super::null_with;
use crate::ffi::completion::{imm_of, wc_flags_of};
use crate::ffi::unsupported;
use transport::wr::Completion;

// An ibv_cq is the beginning of an ibv_cq_ex.
const _: () = assert!(
    offset_of!(ibv_cq, cqe) == offset_of!(ibv_cq_ex, cqe)
        && offset_of!(ibv_cq, async_events_completed) == offset_of!(ibv_cq_ex, async_events_completed)
);

/// The standard fields of `enum ibv_create_cq_wc_flags`: length, immediate data, the numbers of queue pairs,
/// and what only other transports have, which is 0.
const FIELDS: u64 = 0x7f;

/// The function in the extended context that the inline `ibv_create_cq_ex` of `verbs.h` calls. EOPNOTSUPP:
/// completions are to show more than the standard fields (time stamps, for example), or the queue is to have
/// a parent domain. EINVAL, ENOMEM as for ibv_create_cq(3).
///
/// # Safety
///
/// As for ibv_create_cq_ex(3).
pub(crate) unsafe extern "C" fn create_cq_slot(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    const MASK_FLAGS: u32 = 1;
    const SINGLE_THREADED: u32 = 1;
    const IGNORE_OVERRUN: u32 = 2;
    // SAFETY: `attr` points to an ibv_cq_init_attr_ex (ibv_create_cq_ex(3)), which holds only integers and
    // addresses; it is copied.
    let given = unsafe { attr.read() };
    let flags = if given.comp_mask & MASK_FLAGS != 0 { given.flags } else { 0 };
    if given.wc_flags & !FIELDS != 0 {
        return null_with(unsupported("completions have no such field"));
    }
    if given.comp_mask & !MASK_FLAGS != 0 || flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 {
        return null_with(unsupported("a completion queue cannot be created with these extensions"));
    }
    let fill = |cq: &mut ibv_cq_ex| {
        cq.start_poll = Some(start_poll);
        cq.next_poll = Some(next_poll);
        cq.end_poll = Some(end_poll);
        cq.read_opcode = Some(read_opcode);
        cq.read_vendor_err = Some(read_vendor_err);
        cq.read_byte_len = Some(read_byte_len);
        cq.read_imm_data = Some(read_imm_data);
        cq.read_qp_num = Some(read_qp_num);
        cq.read_src_qp = Some(read_src_qp);
        cq.read_wc_flags = Some(read_wc_flags);
        cq.read_slid = Some(read_slid);
        cq.read_sl = Some(read_sl);
        cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    };
    // SAFETY: `channel` is NULL, or was returned by ibv_create_comp_channel and has not been destroyed
    // (ibv_create_cq_ex(3)).
    let cq = unsafe { create(context, given.cqe, given.cq_context, given.channel, given.comp_vector, fill) };
    if let Ok(cq) = cq {
        if flags & IGNORE_OVERRUN != 0 && !cq.is_null() {
            // SAFETY: `cq` is not NULL, and was just created.
            unsafe { CqObject::own(cq) }.queue.ignore_overruns();
        }
    }
    cq.map_or_else(null_with, |cq| if cq.is_null() { null_mut() } else { cq.cast() })
}

/// The data of a queue.
///
/// # Safety
///
/// `cq` must be an extended completion queue of softverbs that has not been destroyed.
unsafe fn own<'a>(cq: *mut ibv_cq_ex) -> &'a CqOwn {
    // SAFETY: `cq` has not been destroyed, and begins with an ibv_cq.
    unsafe { CqObject::own(cq.cast()) }
}

/// The completion that is shown.
///
/// # Safety
///
/// As for [`own`], between a successful ibv_start_poll and ibv_end_poll in the same thread.
unsafe fn shown<'a>(cq: *mut ibv_cq_ex) -> &'a mut Completion {
    // SAFETY: this thread has entered with `ibv_start_poll`, and none of the calls keeps a result of this
    // function.
    unsafe { own(cq).shown.value() }
}

/// Shows the next completion; ENOENT if there is none.
///
/// # Safety
///
/// As for [`shown`].
unsafe fn show(cq: *mut ibv_cq_ex) -> c_int {
    let mut found = None;
    // SAFETY: `cq` has not been destroyed.
    unsafe { own(cq) }.queue.poll(1, |_, completion| found = Some(*completion));
    let Some(completion) = found else { return libc::ENOENT };
    // SAFETY: this thread has entered. The program reads these two fields only between the calls of this
    // thread.
    unsafe {
        addr_of_mut!((*cq).wr_id).write(completion.wr_id);
        addr_of_mut!((*cq).status).write(completion.status as ibv_wc_status::Type);
        *shown(cq) = completion;
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: `attr` points to an ibv_poll_cq_attr (ibv_start_poll(3)), whose first field says which others
    // there are.
    if unsafe { addr_of_mut!((*attr).comp_mask).read() } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: `cq` has not been destroyed (ibv_start_poll(3)), and this thread enters before it looks at the
    // value.
    unsafe {
        own(cq).shown.enter();
        let found = show(cq);
        if found != 0 {
            own(cq).shown.leave();
        }
        found
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: `cq` has not been destroyed, and this thread has called ibv_start_poll with success
    // (ibv_next_poll(3)).
    unsafe { show(cq) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: `cq` has not been destroyed, and this thread has called ibv_start_poll with success
    // (ibv_end_poll(3)).
    unsafe { own(cq) }.shown.leave();
}

/// Functions that read a field of the completion that is shown.
macro_rules! readers {
    ($($name:ident -> $return:ty, |$completion:ident| $value:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $return {
            // SAFETY: `cq` has not been destroyed, and this thread has called ibv_start_poll with success
            // (ibv_wc_read_byte_len(3)).
            let $completion: &Completion = unsafe { shown(cq) };
            $value
        }
    )* };
}

readers! {
    read_opcode -> ibv_wc_opcode::Type, |completion| completion.opcode;
    read_vendor_err -> u32, |_completion| 0;
    read_byte_len -> u32, |completion| completion.byte_len;
    read_imm_data -> u32, |completion| imm_of(completion);
    read_qp_num -> u32, |completion| completion.qp_num;
    read_src_qp -> u32, |_completion| 0;
    read_wc_flags -> u32, |completion| wc_flags_of(completion);
    read_slid -> u32, |_completion| 0;
    read_sl -> u8, |_completion| 0;
    read_dlid_path_bits -> u8, |_completion| 0;
}
