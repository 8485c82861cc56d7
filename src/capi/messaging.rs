// SPDX-License-Identifier: BSD-3-Clause
//! Messaging.

use std::ffi::{c_int, c_void};

use super::convert::{given, status};
use rpma_core::conn::Conn;
use rpma_core::mr::MrLocal;
use rpma_core::post::{self, At};
use rpma_core::srq::Srq;

/// Posts a send work request.
///
/// The message consumes one receive work request of the remote peer, whose buffer must be large enough. If
/// src is NULL and offset and len are 0, the message is empty.
///
/// # Parameters
/// * conn - in: the connection
/// * src - in: the local memory region that holds the message, registered with RPMA_MR_USAGE_SEND, or NULL;
///   the data must not change until the operation has completed
/// * offset - in: the offset of the message buffer in the memory region, in bytes
/// * len - in: the length in bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or src is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_send(
    conn: *mut Conn,
    src: *const MrLocal,
    offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `src` is NULL or a live memory region.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        post::send(conn, At { mr: src.as_ref(), offset }, len, flags, None, op_context)
    })
}

/// Posts a send work request with immediate data.
///
/// Same as rpma_send, but the completion of the remote receive carries the immediate data and has
/// IBV_WC_WITH_IMM set in wc_flags.
///
/// # Parameters
/// * conn - in: the connection
/// * src - in: the local memory region that holds the message, registered with RPMA_MR_USAGE_SEND, or NULL;
///   the data must not change until the operation has completed
/// * offset - in: the offset of the message buffer in the memory region, in bytes
/// * len - in: the length in bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * imm - in: the immediate data in host byte order; the remote work completion holds them in network byte
///   order
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or src is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_send_with_imm(
    conn: *mut Conn,
    src: *const MrLocal,
    offset: usize,
    len: usize,
    flags: c_int,
    imm: u32,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `src` is NULL or a live memory region.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        post::send(conn, At { mr: src.as_ref(), offset }, len, flags, Some(imm), op_context)
    })
}

/// Posts a receive work request to the receive queue of a connection.
///
/// Receives are consumed in the order in which they are posted. If dst is NULL and offset and len are 0, the
/// receive can hold only an empty message.
///
/// # Parameters
/// * conn - in: the connection; if it uses a shared receive queue, receives are posted with rpma_srq_recv
///   instead
/// * dst - in: the local memory region for the message, registered with RPMA_MR_USAGE_RECV, or NULL
/// * offset - in: the offset of the message buffer in the memory region, in bytes
/// * len - in: the length of the receive buffer in bytes, at most UINT32_MAX
/// * op_context - in: returned as the wr_id of the completion, which every receive generates
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, len is too large, or dst is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the receive work request could not be posted, for example because the receive queue is
///   full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_recv(
    conn: *mut Conn,
    dst: *mut MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live memory region.
    status(|| unsafe { post::recv(given(conn, "conn")?, At { mr: dst.as_ref(), offset }, len, op_context) })
}

/// Posts a receive work request to a shared receive queue.
///
/// The receive is consumed by a message from any of the connections that use the shared receive queue. If dst
/// is NULL and offset and len are 0, the receive can hold only an empty message.
///
/// # Parameters
/// * srq - in: the shared receive queue
/// * dst - in: the local memory region for the message, registered with RPMA_MR_USAGE_RECV, or NULL
/// * offset - in: the offset of the message buffer in the memory region, in bytes
/// * len - in: the length of the receive buffer in bytes, at most UINT32_MAX
/// * op_context - in: returned as the wr_id of the completion, which every receive generates
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - srq is NULL, len is too large, or dst is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the receive work request could not be posted, for example because the shared receive
///   queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_recv(
    srq: *mut Srq,
    dst: *mut MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: `srq` is NULL or a live shared receive queue; `dst` is NULL or a live memory region.
    status(|| unsafe { post::srq_recv(given(srq, "srq")?, At { mr: dst.as_ref(), offset }, len, op_context) })
}
