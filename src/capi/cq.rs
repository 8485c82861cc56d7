// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use rdma_sys::ibv_wc;

use super::convert::{given, not_null, out, status};
use rpma_core::cq::Cq;
use rpma_core::failure::Fail;

/// Gets the file descriptor of a completion queue's completion channel, which becomes readable when a
/// completion event is pending.
///
/// The application may poll it and set it to non-blocking mode. The completion queue owns it, or the
/// connection if its completion queues share the channel.
///
/// # Parameters
/// * cq - in: the completion queue
/// * fd - out: the file descriptor
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_fd(cq: *const Cq, fd: *mut c_int) -> c_int {
    // SAFETY: `cq` is NULL or a live completion queue; `fd` is NULL or writable.
    status(|| unsafe {
        let cq = given(cq, "cq")?;
        out(fd, "fd")?.set(cq.fd());
        Ok(())
    })
}

/// Waits for a completion event.
///
/// Blocks until an event is available, unless the file descriptor of the completion channel (see
/// rpma_cq_get_fd) is in non-blocking mode, and rearms the completion queue. The completions are then
/// collected with rpma_cq_get_wc until it returns RPMA_E_NO_COMPLETION. The first call may already return it:
/// a completion may be collected before its event is read.
///
/// # Parameters
/// * cq - in: the completion queue
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cq is NULL
/// * RPMA_E_SHARED_CHANNEL - the completion queue shares its completion channel; see rpma_conn_wait
/// * RPMA_E_NO_COMPLETION - no completion event could be read, for example because the file descriptor is in
///   non-blocking mode and no event is pending
/// * RPMA_E_PROVIDER - the completion queue could not be rearmed
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_wait(cq: *mut Cq) -> c_int {
    // SAFETY: `cq` is NULL or a live completion queue.
    status(|| Ok(unsafe { given(cq, "cq") }?.wait()?))
}

/// Polls a completion queue for work completions. Never blocks.
///
/// # Parameters
/// * cq - in: the completion queue
/// * num_entries - in: the maximum number of work completions to return, at least 1
/// * wc - out: an array of at least num_entries work completions. For a failed operation only wr_id, status,
///   qp_num and vendor_err are defined. wr_id is the op_context of the operation. A flush has the opcode
///   IBV_WC_RDMA_READ.
/// * num_entries_got - out: the number of work completions returned; may be NULL if num_entries is 1
///
/// # Return value
/// 0 on success, or a negative error code; on failure num_entries_got is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - cq or wc is NULL, num_entries is less than 1, or num_entries_got is NULL and num_entries
///   is more than 1
/// * RPMA_E_NO_COMPLETION - the completion queue is empty
/// * RPMA_E_PROVIDER - the provider call failed
/// * RPMA_E_UNKNOWN - the provider returned more work completions than requested
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_wc(
    cq: *mut Cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
    num_entries_got: *mut c_int,
) -> c_int {
    // SAFETY: `cq` is NULL or a live completion queue; `wc` is NULL or writable for `num_entries` work
    // completions; `num_entries_got` is NULL or writable.
    status(|| unsafe {
        let cq = given(cq, "cq")?;
        let mut one = MaybeUninit::uninit();
        // It may be omitted only if it can only be 1.
        let got = match num_entries_got.is_null() && num_entries == 1 {
            true => one.as_mut_ptr(),
            false => num_entries_got,
        };
        let got = out(got, "num_entries_got")?;
        if num_entries < 1 {
            return Err(Fail::Invalid("num_entries is less than 1"));
        }
        not_null(wc, "wc")?;
        got.set(cq.poll(num_entries, wc)?);
        Ok(())
    })
}
