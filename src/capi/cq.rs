// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues.

use std::ffi::c_int;

use rdma_sys::ibv_wc;

use super::convert::{given, out, status};
use rpma::cq::Cq;
use rpma::error::Error;

/// Tells the descriptor of a completion queue's channel, readable when a completion event waits.
///
/// It may be polled and made non-blocking; it belongs to the queue, or to the connection if its queues share a channel.
///
/// # Parameters
/// * cq - in: the queue
/// * fd - out: the file descriptor
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_fd(cq: *const Cq, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cq = given(cq)?;
        out(fd)?.set(cq.fd());
        Ok(())
    })
}

/// Waits for completions.
///
/// Waits, unless the descriptor of rpma_cq_get_fd has been made non-blocking, and arms the queue again. Completions are
/// then taken with rpma_cq_get_wc until it returns RPMA_E_NO_COMPLETION; that can be at once, because a completion may
/// have been taken before its event was.
///
/// # Parameters
/// * cq - in: the queue
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cq is NULL
/// * RPMA_E_SHARED_CHANNEL - the queue shares its channel; see rpma_conn_wait
/// * RPMA_E_NO_COMPLETION - no event can be taken, for example because the descriptor is non-blocking and none waits
/// * RPMA_E_PROVIDER - the queue cannot be armed again
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_wait(cq: *mut Cq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { given(cq) }?.wait())
}

/// Takes completions off a queue. Never waits.
///
/// # Parameters
/// * cq - in: the queue
/// * num_entries - in: how many to take at most, at least 1
/// * wc - out: room for that many work completions. Of a failed one only wr_id, status, qp_num and vendor_err are
///   defined. wr_id is the operation's op_context. A flush has the opcode IBV_WC_RDMA_READ.
/// * num_entries_got - out: how many were taken; may be NULL if num_entries is 1
///
/// # Return value
/// 0, or a negative error code with num_entries_got left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - cq or wc is NULL, num_entries is less than 1, or num_entries_got is NULL and num_entries is more than
///   1
/// * RPMA_E_NO_COMPLETION - the queue is empty
/// * RPMA_E_PROVIDER - the provider refuses
/// * RPMA_E_UNKNOWN - the provider gave more than asked for
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_wc(
    cq: *mut Cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
    num_entries_got: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cq = given(cq)?;
        if num_entries < 1 || wc.is_null() || (num_entries > 1 && num_entries_got.is_null()) {
            return Err(Error::Inval);
        }
        let got = cq.poll(num_entries, wc)?;
        if let Ok(num_entries_got) = out(num_entries_got) {
            num_entries_got.set(got);
        }
        Ok(())
    })
}
