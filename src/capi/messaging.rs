// SPDX-License-Identifier: BSD-3-Clause
//! Messages.

use std::ffi::{c_int, c_void};

use super::convert::{given, status};
use rpma::conn::Conn;
use rpma::mr::MrLocal;
use rpma::post::{self, At};
use rpma::srq::Srq;

/// Starts sending a message.
///
/// It uses up one receive of the remote peer, which must have room for it. With the region NULL and offset and length 0
/// the message is empty.
///
/// # Parameters
/// * conn - in: the connection
/// * src - in: the region of the message, registered with RPMA_MR_USAGE_SEND, or NULL; its bytes must not change until
///   the operation has completed
/// * offset - in: where in the region, in bytes
/// * len - in: how many bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0 if the operation was started, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or src is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_send(
    conn: *mut Conn,
    src: *const MrLocal,
    offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        post::send(conn, At { mr: src.as_ref(), offset }, len, flags, None, op_context)
    })
}

/// Starts sending a message with immediate data.
///
/// As rpma_send; the completion of the remote receive has the immediate data and IBV_WC_WITH_IMM in wc_flags.
///
/// # Parameters
/// * conn - in: the connection
/// * src - in: the region of the message, registered with RPMA_MR_USAGE_SEND, or NULL; its bytes must not change until
///   the operation has completed
/// * offset - in: where in the region, in bytes
/// * len - in: how many bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * imm - in: the immediate data in host byte order; the remote work completion has them in network byte order
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0 if the operation was started, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or src is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
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
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        post::send(conn, At { mr: src.as_ref(), offset }, len, flags, Some(imm), op_context)
    })
}

/// Posts a receive on a connection.
///
/// Receives are used up in the order in which they are posted. With the region NULL and offset and length 0 there is
/// room for an empty message only.
///
/// # Parameters
/// * conn - in: the connection; one with a shared receive queue takes receives through rpma_srq_recv
/// * dst - in: the region for the message, registered with RPMA_MR_USAGE_RECV, or NULL
/// * offset - in: where in the region, in bytes
/// * len - in: the room in bytes, at most UINT32_MAX
/// * op_context - in: comes back as wr_id of the completion, which every receive has
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, len is too large, or dst is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the receive queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_recv(
    conn: *mut Conn,
    dst: *mut MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { post::recv(given(conn)?, At { mr: dst.as_ref(), offset }, len, op_context) })
}

/// Posts a receive on a shared receive queue.
///
/// The message that it will hold may come from any of the connections that use the queue. With the region NULL and
/// offset and length 0 there is room for an empty message only.
///
/// # Parameters
/// * srq - in: the shared receive queue
/// * dst - in: the region for the message, registered with RPMA_MR_USAGE_RECV, or NULL
/// * offset - in: where in the region, in bytes
/// * len - in: the room in bytes, at most UINT32_MAX
/// * op_context - in: comes back as wr_id of the completion, which every receive has
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - srq is NULL, len is too large, or dst is NULL and offset or len is not 0
/// * RPMA_E_PROVIDER - the queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_recv(
    srq: *mut Srq,
    dst: *mut MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { post::srq_recv(given(srq)?, At { mr: dst.as_ref(), offset }, len, op_context) })
}
