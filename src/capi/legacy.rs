// SPDX-License-Identifier: BSD-3-Clause
//! Functions of releases before 1.0, kept for existing programs.

use std::ffi::{c_int, c_void};

use super::convert::{given, not_null, out, status};
use rpma_core::abi::{rpma_completion, rpma_completion_0_9};
use rpma_core::completion;
use rpma_core::conn::Conn;
use rpma_core::cq::Cq;
use rpma_core::mr::{MrLocal, MrRemote};
use rpma_core::post;

/// Gets the file descriptor of the main completion queue's completion channel. New programs should use
/// rpma_conn_get_cq and rpma_cq_get_fd.
///
/// # Parameters
/// * conn - in: the connection
/// * fd - out: the file descriptor; the connection owns it
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
pub unsafe extern "C" fn rpma_conn_get_completion_fd(conn: *const Conn, fd: *mut c_int) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `fd` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        out(fd, "fd")?.set(conn.cq().fd());
        Ok(())
    })
}

/// Waits for a completion event of the main completion queue. New programs should use rpma_conn_get_cq and
/// rpma_cq_wait.
///
/// # Parameters
/// * conn - in: the connection
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL
/// * RPMA_E_SHARED_CHANNEL - the connection's completion queues share their completion channel; see
///   rpma_conn_wait
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
pub unsafe extern "C" fn rpma_conn_completion_wait(conn: *mut Conn) -> c_int {
    // SAFETY: `conn` is NULL or a live connection.
    status(|| Ok(unsafe { given(conn, "conn") }?.cq().wait()?))
}

/// Gets one completion from the main completion queue. New programs should use rpma_conn_get_cq and
/// rpma_cq_get_wc.
///
/// Never blocks. Receives are not reported here if they have a separate completion queue. A program built
/// against release 0.9 gets the completion structure of that release, which ends before flags.
///
/// # Parameters
/// * conn - in: the connection
/// * cmpl - out: the completion; for a failed operation only op_context and op_status are set
///
/// # Return value
/// 0 on success, including the completion of a failed operation, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NO_COMPLETION - the completion queue is empty
/// * RPMA_E_NOSUPP - the completion has an unknown opcode; only op_context and op_status are set
/// * RPMA_E_PROVIDER - the provider call failed
/// * RPMA_E_UNKNOWN - the provider returned more work completions than requested
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_completion_get(conn: *mut Conn, cmpl: *mut rpma_completion) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `cmpl` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        not_null(cmpl, "cmpl")?;
        Ok(completion::get(conn.cq(), cmpl)?)
    })
}

/// rpma_conn_completion_get for programs built against release 0.9: exported under the same name at version
/// LIBRPMA_1.0 (see `include/librpma.ld`), with a completion structure of 24 bytes.
///
/// The operation and the length are also set for a failed operation if the provider reports them, and there
/// is no operation RPMA_OP_RECV_RDMA_WITH_IMM: such a completion yields RPMA_E_NOSUPP.
///
/// cbindgen:ignore
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_completion_get_0_9(
    conn: *mut Conn,
    cmpl: *mut rpma_completion_0_9,
) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `cmpl` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        not_null(cmpl, "cmpl")?;
        Ok(completion::get_0_9(conn.cq(), cmpl)?)
    })
}

/// Gets one completion from a completion queue. New programs should use rpma_cq_get_wc.
///
/// Never blocks.
///
/// # Parameters
/// * cq - in: the completion queue
/// * cmpl - out: the completion; for a failed operation only op_context and op_status are set
///
/// # Return value
/// 0 on success, including the completion of a failed operation, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NO_COMPLETION - the completion queue is empty
/// * RPMA_E_NOSUPP - the completion has an unknown opcode; only op_context and op_status are set
/// * RPMA_E_PROVIDER - the provider call failed
/// * RPMA_E_UNKNOWN - the provider returned more work completions than requested
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_cq_get_completion(cq: *mut Cq, cmpl: *mut rpma_completion) -> c_int {
    // SAFETY: `cq` is NULL or a live completion queue; `cmpl` is NULL or writable.
    status(|| unsafe {
        let cq = given(cq, "cq")?;
        not_null(cmpl, "cmpl")?;
        Ok(completion::get(cq, cmpl)?)
    })
}

/// Posts an atomic write of 8 bytes from a local memory region to remote memory, executed after all
/// previously posted operations. New programs should use rpma_atomic_write.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST
/// * dst_offset - in: the offset in the remote memory region, in bytes; a multiple of
///   RPMA_ATOMIC_WRITE_ALIGNMENT. The resulting remote address must be aligned as well.
/// * src - in: the local memory region, registered with RPMA_MR_USAGE_WRITE_SRC
/// * src_offset - in: the offset in the source memory region, in bytes
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: returned as the op_context or wr_id of the completion
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn, dst or src is NULL, flags is 0, or dst_offset is not aligned
/// * RPMA_E_PROVIDER - the work request could not be posted
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
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
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live remote memory region; `src` is
    // NULL or a live memory region.
    status(|| unsafe {
        post::write_atomic(
            given(conn, "conn")?,
            given(dst, "dst")?,
            dst_offset,
            given(src, "src")?,
            src_offset,
            flags,
            op_context,
        )
    })
}
