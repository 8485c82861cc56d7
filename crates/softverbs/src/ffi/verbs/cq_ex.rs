// SPDX-License-Identifier: BSD-3-Clause
//! Extended completion queues (ibv_create_cq_ex(3)): the program polls one completion at a time and reads its
//! fields with functions.
//!
//! `ibv_start_poll` takes a completion and enters the [`Section`](super::section::Section) of the queue, in
//! which it stays until `ibv_end_poll`. The functions in between read it there. If `ibv_start_poll` fails,
//! the section has been left.

use libc::c_int;
use rdma_sys::{
    IBV_WC_STANDARD_FLAGS, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_cq_init_attr_mask,
    ibv_create_cq_attr_flags as Flags, ibv_create_cq_wc_flags as WcFlags, ibv_poll_cq_attr, ibv_wc_opcode,
    ibv_wc_status,
};
use std::mem::offset_of;
use std::ptr::{addr_of_mut, null_mut};

use super::cq::{CqObject, CqOwn, Current, create, ibv_destroy_cq};
use super::null_with;
use crate::clock;
use crate::ffi::completion::{imm_of, sl_of, src_qp_of, wc_flags_of};
use crate::ffi::unsupported;

// An ibv_cq_ex begins with the fields of an ibv_cq.
const _: () = assert!(
    offset_of!(ibv_cq, cqe) == offset_of!(ibv_cq_ex, cqe)
        && offset_of!(ibv_cq, async_events_completed) == offset_of!(ibv_cq_ex, async_events_completed)
);

/// The times when completions were added: by the clock of the device, and by the wall clock.
const TIMES: u64 = WcFlags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0 as u64
    | WcFlags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0 as u64;
/// The standard fields: length, immediate data, queue pair numbers, and fields of other transports, which are
/// 0; and times.
const FIELDS: u64 = IBV_WC_STANDARD_FLAGS as u64 | TIMES;

/// The slot of the extended context that the inline function `ibv_create_cq_ex` of `verbs.h` calls. Returns
/// the queue, which ibv_destroy_cq(3) destroys, or NULL and errno. EOPNOTSUPP: more than the standard fields
/// and times are requested, a parent domain, or unknown flags. EINVAL, ENOMEM: see
/// [`super::ibv_create_cq`].
///
/// # Safety
///
/// As for ibv_create_cq_ex(3).
pub(crate) unsafe extern "C" fn create_cq_slot(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    const MASK_FLAGS: u32 = ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
    const SINGLE_THREADED: u32 = Flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0;
    const IGNORE_OVERRUN: u32 = Flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
    // SAFETY: ibv_create_cq_ex(3) requires that `attr` points to an ibv_cq_init_attr_ex; it holds only
    // integers and addresses, and is copied.
    let given = unsafe { attr.read() };
    let flags = if given.comp_mask & MASK_FLAGS != 0 { given.flags } else { 0 };
    if given.wc_flags & !FIELDS != 0 {
        return null_with(unsupported("a completion field beyond the standard ones"));
    }
    if given.comp_mask & !MASK_FLAGS != 0 || flags & !(SINGLE_THREADED | IGNORE_OVERRUN) != 0 {
        return null_with(unsupported("a completion queue with these extensions"));
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
        cq.read_completion_ts = Some(read_completion_ts);
        cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    };
    // SAFETY: ibv_create_cq_ex(3) requires that `channel` is NULL, or was returned by ibv_create_comp_channel
    // and has not been destroyed.
    let cq = unsafe { create(context, given.cqe, given.cq_context, given.channel, given.comp_vector, fill) };
    let cq = match cq {
        Ok(cq) if !cq.is_null() => cq,
        Ok(_) => return null_mut(),
        Err(e) => return null_with(e),
    };
    // SAFETY: `create` has just returned it, and no other thread has it yet.
    let queue = unsafe { &CqObject::own(cq).queue };
    if flags & IGNORE_OVERRUN != 0 {
        queue.ignore_overruns();
    }
    if given.wc_flags & TIMES != 0 {
        if let Err(e) = queue.record_times() {
            // SAFETY: as above; it is not used afterwards.
            unsafe { ibv_destroy_cq(cq) };
            return null_with(e);
        }
    }
    cq.cast()
}

/// The data of a completion queue.
///
/// # Safety
///
/// `cq` must be an extended completion queue of softverbs that has not been destroyed.
unsafe fn own<'a>(cq: *mut ibv_cq_ex) -> &'a CqOwn {
    // SAFETY: the caller guarantees that `cq` has not been destroyed; it is the address of the object of its
    // ibv_cq, whose fields it begins with.
    unsafe { CqObject::own(cq.cast()) }
}

/// The current completion.
///
/// # Safety
///
/// As for [`own`], between a successful ibv_start_poll and ibv_end_poll in the same thread.
unsafe fn current<'a>(cq: *mut ibv_cq_ex) -> &'a mut Current {
    // SAFETY: the caller guarantees that this thread is inside the section since `ibv_start_poll`; each call
    // uses one result of this function and drops it before it returns.
    unsafe { own(cq).current.value() }
}

/// Takes the next completion as the current one and stores `wr_id` and `status` in the C structure. ENOENT:
/// there is none.
///
/// # Safety
///
/// As for [`current`].
unsafe fn take_next(cq: *mut ibv_cq_ex) -> c_int {
    let mut found = None;
    // SAFETY: the caller guarantees that `cq` has not been destroyed.
    unsafe { own(cq) }.queue.poll(1, |_, completion, time| found = Some((*completion, time)));
    let Some((completion, time)) = found else { return libc::ENOENT };
    // SAFETY: the caller guarantees that this thread is inside the section. Programs read these two fields
    // between ibv_start_poll and ibv_end_poll only, on the thread that is inside.
    unsafe {
        addr_of_mut!((*cq).wr_id).write(completion.wr_id);
        addr_of_mut!((*cq).status).write(completion.status as ibv_wc_status::Type);
        *current(cq) = Current { completion, time };
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: ibv_start_poll(3) requires that `attr` points to an ibv_poll_cq_attr, which begins with
    // `comp_mask`.
    if unsafe { addr_of_mut!((*attr).comp_mask).read() } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: ibv_start_poll(3) requires that `cq` has not been destroyed. This thread enters the section
    // before it accesses the value, and leaves only if there is no current completion.
    unsafe {
        own(cq).current.enter();
        let found = take_next(cq);
        if found != 0 {
            own(cq).current.leave();
        }
        found
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: ibv_next_poll(3) requires that `cq` has not been destroyed and that ibv_start_poll has
    // succeeded on this thread, which is therefore inside the section.
    unsafe { take_next(cq) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: ibv_end_poll(3) requires that `cq` has not been destroyed and that ibv_start_poll has succeeded
    // on this thread, which is therefore inside the section.
    unsafe { own(cq) }.current.leave();
}

/// Defines functions that read a field of the current completion.
macro_rules! readers {
    ($($name:ident -> $return:ty, |$current:pat_param| $value:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $return {
            // SAFETY: the manual page of ibv_create_cq_ex(3) requires that `cq` has not been destroyed and
            // that ibv_start_poll has succeeded on this thread, which is therefore inside the section.
            let $current: &Current = unsafe { current(cq) };
            $value
        }
    )* };
}

readers! {
    read_opcode -> ibv_wc_opcode::Type, |Current { completion, .. }| completion.opcode;
    read_vendor_err -> u32, |_| 0;
    read_byte_len -> u32, |Current { completion, .. }| completion.byte_len;
    read_imm_data -> u32, |Current { completion, .. }| imm_of(completion);
    read_qp_num -> u32, |Current { completion, .. }| completion.qp_num;
    read_src_qp -> u32, |Current { completion, .. }| src_qp_of(completion);
    read_wc_flags -> u32, |Current { completion, .. }| wc_flags_of(completion);
    read_slid -> u32, |_| 0;
    read_sl -> u8, |Current { completion, .. }| sl_of(completion);
    read_dlid_path_bits -> u8, |_| 0;
    read_completion_ts -> u64, |Current { time, .. }| *time;
    read_completion_wallclock_ns -> u64, |Current { time, .. }| clock::wall_at(*time);
}
