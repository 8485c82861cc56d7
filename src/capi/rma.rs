// SPDX-License-Identifier: BSD-3-Clause
//! Remote memory access.

use std::ffi::{c_char, c_int, c_void};

use super::convert::{given, not_null, status};
use rpma_core::abi::arg::FlushTypeArg;
use rpma_core::conn::Conn;
use rpma_core::mr::{MrLocal, MrRemote};
use rpma_core::post::{self, At};

/// Posts an RDMA read from remote memory to local memory.
///
/// If dst and src are NULL and both offsets and len are 0, the read transfers no data.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the local memory region, registered with RPMA_MR_USAGE_READ_DST, or NULL
/// * dst_offset - in: the offset in the destination memory region, in bytes
/// * src - in: the remote memory region, registered with RPMA_MR_USAGE_READ_SRC, or NULL
/// * src_offset - in: the offset in the source memory region, in bytes
/// * len - in: the length in bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome, including
/// an access outside either memory region or without RPMA_MR_USAGE_READ_SRC. An access that the size or usage
/// of the remote memory region forbids is also logged when it is posted, at level WARNING.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or dst or src is NULL while the other one is
///   not NULL or an offset or len is not 0
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
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
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live memory region; `src` is NULL or a
    // live remote memory region.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let dst = At { mr: dst.as_ref(), offset: dst_offset };
        let src = At { mr: src.as_ref(), offset: src_offset };
        post::read(conn, dst, src, len, flags, op_context)
    })
}

/// Posts an RDMA write from local memory to remote memory.
///
/// If dst and src are NULL and both offsets and len are 0, the write transfers no data. The remote peer is
/// not notified.
///
/// The soft provider may hold back a write of at most 4096 bytes that follows at least 16 others in close
/// succession, to send it together with the next one. It is sent by the next call that posts, that polls an
/// empty completion queue or that waits on the connection; otherwise a thread of the library sends it within
/// 0.8 milliseconds. That thread needs a CPU: while all CPUs are busy, the write is delayed until the
/// scheduler runs the thread (delays of around 100 ms have been observed). A program that exits without
/// calling rpma_conn_disconnect may lose writes that were held back; rpma_conn_disconnect sends them first.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST, or NULL
/// * dst_offset - in: the offset in the destination memory region, in bytes
/// * src - in: the local memory region, registered with RPMA_MR_USAGE_WRITE_SRC, or NULL; the data must not
///   change until the operation has completed
/// * src_offset - in: the offset in the source memory region, in bytes
/// * len - in: the length in bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome, including
/// an access outside the local memory region. An access that the remote memory region does not permit ends
/// the connection. On an InfiniBand or RoCE device its completion has the status IBV_WC_REM_ACCESS_ERR; over
/// iWARP, which the soft provider uses, a write is not acknowledged, so its completion may be successful. An
/// access that the size or usage of the remote memory region forbids is also logged when it is posted, at
/// level WARNING.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or dst or src is NULL while the other one is
///   not NULL or an offset or len is not 0
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
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
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live remote memory region; `src` is
    // NULL or a live memory region.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let dst = At { mr: dst.as_ref(), offset: dst_offset };
        let src = At { mr: src.as_ref(), offset: src_offset };
        post::write(conn, dst, src, len, flags, None, op_context)
    })
}

/// Posts an RDMA write from local memory to remote memory with immediate data, which notifies the remote
/// peer.
///
/// The write consumes one receive work request of the remote peer, whose completion has the opcode
/// IBV_WC_RECV_RDMA_WITH_IMM and carries the immediate data. If dst and src are NULL and both offsets and len
/// are 0, only the immediate data are sent.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST, or NULL
/// * dst_offset - in: the offset in the destination memory region, in bytes
/// * src - in: the local memory region, registered with RPMA_MR_USAGE_WRITE_SRC, or NULL; the data must not
///   change until the operation has completed
/// * src_offset - in: the offset in the source memory region, in bytes
/// * len - in: the length in bytes, at most UINT32_MAX
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * imm - in: the immediate data in host byte order; the remote work completion holds them in network byte
///   order
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome, including
/// an access outside the local memory region. An access that the remote memory region does not permit ends
/// the connection. On an InfiniBand or RoCE device its completion has the status IBV_WC_REM_ACCESS_ERR; over
/// iWARP, which the soft provider uses, a write is not acknowledged, so its completion may be successful. An
/// access that the size or usage of the remote memory region forbids is also logged when it is posted, at
/// level WARNING.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL, flags is 0, len is too large, or dst or src is NULL while the other one is
///   not NULL or an offset or len is not 0
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
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
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live remote memory region; `src` is
    // NULL or a live memory region.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let dst = At { mr: dst.as_ref(), offset: dst_offset };
        let src = At { mr: src.as_ref(), offset: src_offset };
        post::write(conn, dst, src, len, flags, Some(imm), op_context)
    })
}

/// Posts an atomic write of 8 bytes to remote memory, executed after all previously posted operations.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote memory region, registered with RPMA_MR_USAGE_WRITE_DST
/// * dst_offset - in: the offset in the remote memory region, in bytes; a multiple of
///   RPMA_ATOMIC_WRITE_ALIGNMENT. The resulting remote address must be aligned as well.
/// * src - in: the 8 bytes to write; they are copied by the call and need not be registered
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: returned as the wr_id of the completion, whose opcode is IBV_WC_RDMA_WRITE, or
///   IBV_WC_ATOMIC_WRITE if native atomic write is enabled (see librpma_providers(7))
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome. An access
/// that the remote memory region does not permit ends the connection. On an InfiniBand or RoCE device its
/// completion has the status IBV_WC_REM_ACCESS_ERR; over iWARP, which the soft provider uses, a write is not
/// acknowledged, so its completion may be successful. An access that the size or usage of the remote memory
/// region forbids is also logged when it is posted, at level WARNING.
///
/// # Errors
/// * RPMA_E_INVAL - conn, dst or src is NULL, flags is 0, or dst_offset is not aligned
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// cbindgen:ptrs-as-arrays=[[src;8]]
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
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
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live remote memory region; `src` is
    // NULL or readable for 8 bytes.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let dst = given(dst, "dst")?;
        not_null(src, "src")?;
        post::atomic_write(conn, dst, dst_offset, src.cast(), flags, op_context)
    })
}

/// Posts a flush of data written to remote memory.
///
/// When the flush has completed, all data previously written over this connection to any part of the memory
/// region have reached the domain selected by type. The flush is executed as a read of 8 bytes at dst_offset
/// and completes with the opcode IBV_WC_RDMA_READ. librpma(7) describes what persistence means for each kind
/// of target. If native flush is enabled (see librpma_providers(7)), the flush covers only the given range
/// and its opcode is IBV_WC_FLUSH.
///
/// # Parameters
/// * conn - in: the connection
/// * dst - in: the remote memory region, registered for this type of flush
/// * dst_offset - in: the start of the range, in bytes; at least 8 bytes of the memory region must follow
/// * len - in: the length of the range in bytes; ignored if the flush is executed as a read
/// * type - in: RPMA_FLUSH_TYPE_PERSISTENT or RPMA_FLUSH_TYPE_VISIBILITY; for other values the usage of the
///   memory region is not checked
/// * flags - in: RPMA_F_COMPLETION_ON_ERROR or RPMA_F_COMPLETION_ALWAYS
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 if the work request was posted, or a negative error code. The completion reports the outcome, including
/// a range that is not in the remote memory region: a flush reads 8 bytes at dst_offset. Such a range is also
/// logged when it is posted, at level WARNING.
///
/// # Errors
/// * RPMA_E_INVAL - conn or dst is NULL, flags is 0, or the flush is native and len does not fit in 32 bits
/// * RPMA_E_NOSUPP - the memory region is not registered for this type of flush, or the type is
///   RPMA_FLUSH_TYPE_PERSISTENT and the remote peer has not declared direct write to persistent memory (see
///   rpma_conn_apply_remote_peer_cfg)
/// * RPMA_E_PROVIDER - the work request could not be posted, for example because the send queue is full
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
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
    // SAFETY: `conn` is NULL or a live connection; `dst` is NULL or a live remote memory region.
    status(|| unsafe {
        post::flush(given(conn, "conn")?, given(dst, "dst")?, dst_offset, len, r#type, flags, op_context)
    })
}
