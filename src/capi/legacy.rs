// SPDX-License-Identifier: BSD-3-Clause
//! Functions that releases before 1.0 had and programs still use.

use std::ffi::{c_int, c_void};

use super::convert::{given, out, status};
use rpma::abi::{rpma_completion, rpma_completion_0_9};
use rpma::completion;
use rpma::conn::Conn;
use rpma::cq::Cq;
use rpma::error::Error;
use rpma::mr::{MrLocal, MrRemote};
use rpma::post;

/// Tells the descriptor of the main completion queue's channel. New programs use rpma_conn_get_cq and rpma_cq_get_fd.
///
/// # Parameters
/// * conn - in: the connection
/// * fd - out: the file descriptor; it belongs to the connection
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
pub unsafe extern "C" fn rpma_conn_get_completion_fd(conn: *const Conn, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        out(fd)?.set(conn.cq().fd());
        Ok(())
    })
}

/// Waits for completions of the main completion queue. New programs use rpma_conn_get_cq and rpma_cq_wait.
///
/// # Parameters
/// * conn - in: the connection
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL
/// * RPMA_E_SHARED_CHANNEL - the connection's queues share their channel; see rpma_conn_wait
/// * RPMA_E_NO_COMPLETION - no event can be taken, for example because the descriptor is non-blocking and none waits
/// * RPMA_E_PROVIDER - the queue cannot be armed again
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_completion_wait(conn: *mut Conn) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { given(conn) }?.cq().wait())
}

/// Takes one completion off the main completion queue. New programs use rpma_conn_get_cq and rpma_cq_get_wc.
///
/// Never waits. Receives are not seen if they have a completion queue of their own. A program that was built for
/// release 0.9 gets the completion of that release, which ends before flags.
///
/// # Parameters
/// * conn - in: the connection
/// * cmpl - out: the completion; of a failed operation only op_context and op_status are set
///
/// # Return value
/// 0, also if the operation that completed has failed, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NO_COMPLETION - the queue is empty
/// * RPMA_E_NOSUPP - a completion of an unknown kind was taken; only op_context and op_status are set
/// * RPMA_E_PROVIDER - the provider refuses
/// * RPMA_E_UNKNOWN - the provider gave more than asked for
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_completion_get(conn: *mut Conn, cmpl: *mut rpma_completion) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        if cmpl.is_null() {
            return Err(Error::Inval);
        }
        completion::get(conn.cq(), cmpl)
    })
}

/// rpma_conn_completion_get as programs built for 0.9 know it: exported under the same name at LIBRPMA_1.0
/// (see `include/librpma.ld`), for an object of 24 bytes.
///
/// Operation and length are also set for a failed operation if the provider tells them, and there is no operation
/// RPMA_OP_RECV_RDMA_WITH_IMM: its completion is RPMA_E_NOSUPP.
///
/// cbindgen:ignore
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_completion_get_0_9(
    conn: *mut Conn,
    cmpl: *mut rpma_completion_0_9,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        if cmpl.is_null() {
            return Err(Error::Inval);
        }
        completion::get_0_9(conn.cq(), cmpl)
    })
}

/// Takes one completion off a queue. New programs use rpma_cq_get_wc.
///
/// Never waits.
///
/// # Parameters
/// * cq - in: the queue
/// * cmpl - out: the completion; of a failed operation only op_context and op_status are set
///
/// # Return value
/// 0, also if the operation that completed has failed, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NO_COMPLETION - the queue is empty
/// * RPMA_E_NOSUPP - a completion of an unknown kind was taken; only op_context and op_status are set
/// * RPMA_E_PROVIDER - the provider refuses
/// * RPMA_E_UNKNOWN - the provider gave more than asked for
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_completion(cq: *mut Cq, cmpl: *mut rpma_completion) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cq = given(cq)?;
        if cmpl.is_null() {
            return Err(Error::Inval);
        }
        completion::get(cq, cmpl)
    })
}

/// Writes 8 bytes of a local region to remote memory in one piece, after everything that was posted before. New programs
/// use rpma_atomic_write.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST
/// * dst_offset - in: where to, in bytes from the start of the region; a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT. The
///   remote address must be aligned too.
/// * src - in: the local region, registered with RPMA_MR_USAGE_WRITE_SRC
/// * src_offset - in: where from, in bytes
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: comes back as op_context or wr_id of the completion
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn, dst or src is NULL, flags is 0, or dst_offset is not aligned
/// * RPMA_E_PROVIDER - the send queue does not take it
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_write_atomic(
    conn: *mut Conn,
    dst: *mut MrRemote,
    dst_offset: usize,
    src: *const MrLocal,
    src_offset: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        post::write_atomic(given(conn)?, given(dst)?, dst_offset, given(src)?, src_offset, flags, op_context)
    })
}
