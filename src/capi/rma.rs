// SPDX-License-Identifier: BSD-3-Clause
//! Remote memory access.

use std::ffi::{c_char, c_int, c_void};

use super::convert::{given, status};
use rpma::abi::arg::FlushTypeArg;
use rpma::conn::Conn;
use rpma::error::Error;
use rpma::mr::{MrLocal, MrRemote};
use rpma::post::{self, At};

/// Starts reading remote memory into local memory.
///
/// With both regions NULL and offsets and length 0 it is a read of no bytes.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the local region, registered with RPMA_MR_USAGE_READ_DST, or NULL
/// * dst_offset - in: where to, in bytes from the start of the region
/// * src - in: the remote region, registered with RPMA_MR_USAGE_READ_SRC, or NULL
/// * src_offset - in: where from, in bytes
/// * len - in: how many bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0 if the operation was started, or a negative error code. How it ends, its completion tells; a range outside of
/// either region, too.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or one region is NULL and anything else is not NULL or 0
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_read(
    conn: *mut Conn,
    dst: *mut MrLocal,
    dst_offset: usize,
    src: *const MrRemote,
    src_offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let dst = At { mr: dst.as_ref(), offset: dst_offset };
        let src = At { mr: src.as_ref(), offset: src_offset };
        post::read(conn, dst, src, len, flags, op_context)
    })
}

/// Starts writing local memory to remote memory.
///
/// With both regions NULL and offsets and length 0 it is a write of no bytes. The remote peer is not told.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST, or NULL
/// * dst_offset - in: where to, in bytes from the start of the region
/// * src - in: the local region, registered with RPMA_MR_USAGE_WRITE_SRC, or NULL; its bytes must not change until the
///   operation has completed
/// * src_offset - in: where from, in bytes
/// * len - in: how many bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0 if the operation was started, or a negative error code. How it ends, its completion tells; a range outside of
/// either region, too.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or one region is NULL and anything else is not NULL or 0
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_write(
    conn: *mut Conn,
    dst: *mut MrRemote,
    dst_offset: usize,
    src: *const MrLocal,
    src_offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let dst = At { mr: dst.as_ref(), offset: dst_offset };
        let src = At { mr: src.as_ref(), offset: src_offset };
        post::write(conn, dst, src, len, flags, None, op_context)
    })
}

/// Starts writing local memory to remote memory, and tells the remote peer with immediate data.
///
/// The write uses up one receive of the remote peer, whose completion has the opcode IBV_WC_RECV_RDMA_WITH_IMM and the
/// immediate data. With both regions NULL and offsets and length 0 only the immediate data are sent.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST, or NULL
/// * dst_offset - in: where to, in bytes from the start of the region
/// * src - in: the local region, registered with RPMA_MR_USAGE_WRITE_SRC, or NULL; its bytes must not change until the
///   operation has completed
/// * src_offset - in: where from, in bytes
/// * len - in: how many bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * imm - in: the immediate data in host byte order; the remote work completion has them in network byte order
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0 if the operation was started, or a negative error code. How it ends, its completion tells; a range outside of
/// either region, too.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or one region is NULL and anything else is not NULL or 0
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_write_with_imm(
    conn: *mut Conn,
    dst: *mut MrRemote,
    dst_offset: usize,
    src: *const MrLocal,
    src_offset: usize,
    len: usize,
    flags: c_int,
    imm: u32,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let dst = At { mr: dst.as_ref(), offset: dst_offset };
        let src = At { mr: src.as_ref(), offset: src_offset };
        post::write(conn, dst, src, len, flags, Some(imm), op_context)
    })
}

/// Writes 8 bytes of plain memory to remote memory in one piece, after everything that was posted before.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote region, registered with RPMA_MR_USAGE_WRITE_DST
/// * dst_offset - in: where to, in bytes from the start of the region; a multiple of RPMA_ATOMIC_WRITE_ALIGNMENT. The
///   remote address must be aligned too.
/// * src - in: the 8 bytes; copied, no registration needed
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: comes back as wr_id of the completion, whose opcode is IBV_WC_RDMA_WRITE, or IBV_WC_ATOMIC_WRITE
///   where native atomic write was asked for (see librpma_providers(7))
///
/// # Return value
/// 0 if the operation was started, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn, dst or src is NULL, flags is 0, or dst_offset is not aligned
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// cbindgen:ptrs-as-arrays=[[src;8]]
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[allow(rustdoc::broken_intra_doc_links, reason = "brackets of cbindgen's annotation")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_atomic_write(
    conn: *mut Conn,
    dst: *mut MrRemote,
    dst_offset: usize,
    src: *const c_char,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let dst = given(dst)?;
        if src.is_null() {
            return Err(Error::Inval);
        }
        post::atomic_write(conn, dst, dst_offset, src.cast(), flags, op_context)
    })
}

/// Flushes what was written to remote memory.
///
/// When the flush has completed, everything that was written over this connection before it, to anywhere in the region,
/// has reached what type says. It is carried out as a read of 8 bytes at dst_offset and completes with the opcode
/// IBV_WC_RDMA_READ. What persistence means at which target is in librpma(7). Where native flush was asked for (see
/// librpma_providers(7)) it is about the given range only, and its opcode is IBV_WC_FLUSH.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote region, registered for this type of flush
/// * dst_offset - in: the start of the range in bytes; at least 8 bytes of the region must follow
/// * len - in: the length of the range in bytes; not used by a flush that is carried out as a read
/// * type - in: RPMA_FLUSH_TYPE_PERSISTENT or RPMA_FLUSH_TYPE_VISIBILITY; the region is not checked for other values
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0 if the operation was started, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn or dst is NULL, or flags is 0; or the flush is native and len more than 32 bits
/// * RPMA_E_NOSUPP - the region is not registered for this type of flush; or the type is RPMA_FLUSH_TYPE_PERSISTENT and
///   the remote peer has not declared direct write to persistent memory (see rpma_conn_apply_remote_peer_cfg)
/// * RPMA_E_PROVIDER - the send queue does not take it, for example because it is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_flush(
    conn: *mut Conn,
    dst: *mut MrRemote,
    dst_offset: usize,
    len: usize,
    r#type: FlushTypeArg,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { post::flush(given(conn)?, given(dst)?, dst_offset, len, r#type, flags, op_context) })
}
