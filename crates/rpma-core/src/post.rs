// SPDX-License-Identifier: BSD-3-Clause
//! Posting work requests: reads, writes, flushes, messages. No lock, no allocation, no formatting unless
//! posting fails.
//!
//! A work request is not cleared first: only the fields that a provider reads for its opcode and flags are
//! set. The devices check offsets and lengths against the memory regions; a length that a work request cannot
//! express is rejected here.

mod at_once;
mod receive;

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rdma_sys::{ibv_qp, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode};

use super::conn::{AtomicWrite, Conn};
use super::denied::Denied;
use super::flush::SIZE as FLUSH_SIZE;
use super::mr::{MrLocal, MrRemote, RemoteAccess};
use super::native::NativeFlush;
use crate::abi::arg::FlushTypeArg;
use crate::abi::*;
use crate::error::{self, Error};
use crate::failure::Fail;
use crate::not_posted::{self, Posted};
use crate::provider::native::{FlushKind, NativeQp};
use crate::provider::{hot, metered};
use rpma_metrics::Kind;

pub use at_once::{atomic_write_at_once, flush_at_once, read_at_once, write_at_once};
pub use receive::{recv, req_recv, srq_recv};

/// The result of posting.
pub type Result<T> = std::result::Result<T, Fail>;

/// The bit of `RPMA_F_COMPLETION_ALWAYS` that requests a completion also on success.
const COMPLETION_ON_SUCCESS: c_int = RPMA_F_COMPLETION_ALWAYS & !RPMA_F_COMPLETION_ON_ERROR;

const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;
const SIGNALED: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
const INLINE: u32 = ibv_send_flags::IBV_SEND_INLINE.0;

/// The length of an atomic write.
const ATOMIC_SIZE: u32 = RPMA_ATOMIC_WRITE_ALIGNMENT as u32;

/// The send flags for completion flags, which must not be 0.
#[inline(always)]
fn send_flags(flags: c_int) -> Result<u32> {
    if flags == 0 {
        return Err(Fail::Invalid("flags is 0"));
    }
    Ok(if flags & COMPLETION_ON_SUCCESS != 0 { SIGNALED } else { 0 })
}

/// Converts a length to that of a work request.
#[inline(always)]
fn request_len(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Fail::Invalid("len is more than UINT32_MAX"))
}

/// The scatter/gather element of a message; None for an empty one.
#[inline(always)]
fn message(mr: Option<&MrLocal>, offset: usize, len: usize) -> Result<Option<ibv_sge>> {
    match mr {
        Some(mr) => Ok(Some(mr.range(offset, request_len(len)?))),
        None if offset | len == 0 => Ok(None),
        None => Err(Fail::Invalid("the memory region is NULL, but offset and len are not both 0")),
    }
}

/// The remote address and key of a one-sided operation.
#[derive(Clone, Copy)]
struct Remote {
    addr: u64,
    rkey: u32,
}

/// How a work request is posted.
trait Post {
    /// Same as `ibv_post_send`.
    ///
    /// # Safety
    /// As for [`hot::post_send`].
    unsafe fn post(&self, qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int;

    /// Whether the request must be posted out of line, because the remote memory region does not permit this
    /// access.
    fn denies(&self, mr: &MrRemote, access: RemoteAccess, offset: usize, len: u64) -> bool;
}

/// A request without remote access, or for an access that the remote memory region permits.
struct Permitted;

impl Post for Permitted {
    #[inline(always)]
    unsafe fn post(&self, qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
        // SAFETY: the caller guarantees the requirements of `hot::post_send`: a live queue pair, a request
        // whose fields that its opcode reads are set, and a writable `bad_wr`.
        unsafe { hot::post_send(qp, wr, bad_wr) }
    }

    #[inline(always)]
    fn denies(&self, mr: &MrRemote, access: RemoteAccess, offset: usize, len: u64) -> bool {
        !mr.permits(access, offset, len)
    }
}

impl Post for (Denied<'_>, &Conn) {
    unsafe fn post(&self, qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
        let (denied, conn) = self;
        // SAFETY: the caller guarantees the requirements of both calls, which are those of `hot::post_send`;
        // so the fields that are read here are set.
        unsafe {
            if denied.len == 0 {
                // Without bytes it accesses nothing, whatever the address is.
                return hot::post_send(qp, wr, bad_wr);
            }
            let wr_id = (&raw const (*wr).wr_id).read();
            let ret = (conn.api().post_denied)(qp, wr, bad_wr);
            if ret == 0 {
                denied.warn(conn, wr_id);
            }
            ret
        }
    }

    fn denies(&self, _: &MrRemote, _: RemoteAccess, _: usize, _: u64) -> bool {
        false
    }
}

/// Posts one send work request. `remote` must be given for one-sided opcodes, `imm` for those with immediate
/// data.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the fields of the work request")]
fn post_send_by(
    how: &impl Post,
    qp: *mut ibv_qp,
    opcode: ibv_wr_opcode::Type,
    flags: u32,
    range: ibv_sge,
    remote: Option<Remote>,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Result<()> {
    let mut sge = MaybeUninit::<ibv_sge>::uninit();
    let ranges = (ptr::from_mut(sge.write(range)), 1);
    post_send_ranges(how, qp, opcode, flags, ranges, remote, imm, op_context)
}

/// Posts a request without a local range, with completion flags that were checked. Returns whether the
/// provider has accepted it. Out of line, because the other requests would need a jump around it; and not a
/// `Result`, which the compiler would compare again when the others are posted.
#[cold]
#[inline(never)]
fn post_empty(
    how: &impl Post,
    qp: *mut ibv_qp,
    opcode: ibv_wr_opcode::Type,
    flags: c_int,
    remote: Option<Remote>,
    imm: Option<u32>,
    op_context: *const c_void,
) -> bool {
    let post =
        |flags| post_send_ranges(how, qp, opcode, flags, (ptr::null_mut(), 0), remote, imm, op_context);
    send_flags(flags).and_then(post).is_ok()
}

/// Same with these local ranges.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the fields of the work request")]
fn post_send_ranges(
    how: &impl Post,
    qp: *mut ibv_qp,
    opcode: ibv_wr_opcode::Type,
    flags: u32,
    (sg_list, num_sge): (*mut ibv_sge, c_int),
    remote: Option<Remote>,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Result<()> {
    let mut request = MaybeUninit::<Posted<ibv_send_wr>>::uninit();
    let mut bad_wr = MaybeUninit::<*mut ibv_send_wr>::uninit();
    let request = request.as_mut_ptr();
    // SAFETY: every write is to a field of the local request, through its address. The queue pair is alive as
    // long as its connection or request, which the caller has. The provider reads only fields that belong to
    // the opcode, all of which are set, and keeps no pointer to the request or the range.
    let ret = unsafe {
        (&raw mut (*request).qp).write(qp);
        let p = (&raw mut (*request).wr).cast::<ibv_send_wr>();
        (&raw mut (*p).wr_id).write(op_context as u64);
        (&raw mut (*p).next).write(ptr::null_mut());
        (&raw mut (*p).sg_list).write(sg_list);
        (&raw mut (*p).num_sge).write(num_sge);
        (&raw mut (*p).opcode).write(opcode);
        (&raw mut (*p).send_flags).write(flags);
        if let Some(imm) = imm {
            (&raw mut (*p).__bindgen_anon_1.imm_data).write(imm.to_be());
        }
        if let Some(remote) = remote {
            (&raw mut (*p).wr.rdma.remote_addr).write(remote.addr);
            (&raw mut (*p).wr.rdma.rkey).write(remote.rkey);
        }
        how.post(qp, p, bad_wr.as_mut_ptr())
    };
    // SAFETY: the request and its range are still alive, with every field set that belongs to the opcode, and
    // the queue pair is alive.
    if ret == 0 { Ok(()) } else { Err(unsafe { not_posted::send(ret, request, remote.is_some()) }.into()) }
}

/// The memory region of an operation and the offset in it.
pub struct At<'a, M> {
    pub mr: Option<&'a M>,
    pub offset: usize,
}

/// A one-sided operation.
struct OneSided {
    /// The function that posts it.
    call: &'static str,
    opcode: ibv_wr_opcode::Type,
    access: RemoteAccess,
}

static READ: OneSided =
    OneSided { call: "rpma_read", opcode: ibv_wr_opcode::IBV_WR_RDMA_READ, access: RemoteAccess::Read };
static WRITE: OneSided =
    OneSided { call: "rpma_write", opcode: ibv_wr_opcode::IBV_WR_RDMA_WRITE, access: RemoteAccess::Write };
static WRITE_WITH_IMM: OneSided = OneSided {
    call: "rpma_write_with_imm",
    opcode: ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
    access: RemoteAccess::Write,
};

/// Posts a read or write between a local range and a remote address, or one that transfers no data.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of the C functions")]
fn one_sided(
    conn: &Conn,
    operation: &'static OneSided,
    local: At<'_, MrLocal>,
    remote: At<'_, MrRemote>,
    len: usize,
    flags: c_int,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Result<()> {
    one_sided_by(&Permitted, conn, operation, local, remote, len, flags, imm, op_context)
}

/// Same as `one_sided` for an access that the remote memory region does not permit.
#[cold]
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of the C functions")]
fn one_sided_denied(
    conn: &Conn,
    operation: &'static OneSided,
    local: At<'_, MrLocal>,
    remote: At<'_, MrRemote>,
    len: usize,
    flags: c_int,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Error {
    let OneSided { call, access, .. } = *operation;
    let Some(mr) = remote.mr else { unreachable!("seen by one_sided_by") };
    let denied = Denied { call, mr, access, offset: remote.offset, len: len as u64 };
    let posted = one_sided_by(&(denied, conn), conn, operation, local, remote, len, flags, imm, op_context);
    posted.err().map_or(Error::None, Error::from)
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of the C functions")]
fn one_sided_by(
    how: &impl Post,
    conn: &Conn,
    operation: &'static OneSided,
    local: At<'_, MrLocal>,
    remote: At<'_, MrRemote>,
    len: usize,
    flags: c_int,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Result<()> {
    // In this order the compiler needs the fewest registers.
    let request_len = request_len(len)?;
    let given_flags = flags;
    let flags = send_flags(flags)?;
    let (range, remote) = match (local.mr, remote.mr) {
        // Checked while the arguments are still in their registers, so that a permitted access saves none of
        // them for the cold call.
        (Some(_), Some(remote_mr)) if how.denies(remote_mr, operation.access, remote.offset, len as u64) => {
            return Err(
                one_sided_denied(conn, operation, local, remote, len, given_flags, imm, op_context).into()
            );
        }
        (Some(local_mr), Some(remote_mr)) => (
            local_mr.range(local.offset, request_len),
            Remote { addr: remote_mr.addr(remote.offset), rkey: remote_mr.rkey() },
        ),
        (None, None) if local.offset | remote.offset | len == 0 => {
            let remote = Some(Remote { addr: 0, rkey: 0 });
            let (qp, opcode) = (conn.queue_pair(), operation.opcode);
            let posted = post_empty(how, qp, opcode, given_flags, remote, imm, op_context);
            return if posted { Ok(()) } else { Err(Error::Provider.into()) };
        }
        (None, None) => {
            return Err(Fail::Invalid("dst and src are NULL, but the offsets and len are not all 0"));
        }
        (None, _) => return Err(Fail::Invalid("the local memory region is NULL, but not the remote one")),
        (_, None) => return Err(Fail::Invalid("the remote memory region is NULL, but not the local one")),
    };
    let (qp, opcode) = (conn.queue_pair(), operation.opcode);
    post_send_by(how, qp, opcode, flags, range, Some(remote), imm, op_context)
}

/// Posts a read of remote memory.
#[inline(always)]
pub fn read(
    conn: &Conn,
    dst: At<'_, MrLocal>,
    src: At<'_, MrRemote>,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    one_sided(conn, &READ, dst, src, len, flags, None, op_context)
}

/// Posts a write to remote memory, with immediate data if given.
#[inline(always)]
pub fn write(
    conn: &Conn,
    dst: At<'_, MrRemote>,
    src: At<'_, MrLocal>,
    len: usize,
    flags: c_int,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Result<()> {
    let operation = if imm.is_some() { &WRITE_WITH_IMM } else { &WRITE };
    one_sided(conn, operation, src, dst, len, flags, imm, op_context)
}

/// The remote target of an atomic write, checked for alignment.
#[inline(always)]
fn atomic_target(dst: &MrRemote, offset: usize) -> Result<Remote> {
    if offset % RPMA_ATOMIC_WRITE_ALIGNMENT as usize != 0 {
        return Err(Fail::Invalid("dst_offset is not a multiple of 8"));
    }
    Ok(Remote { addr: dst.addr(offset), rkey: dst.rkey() })
}

/// Whether the remote region permits an atomic write there.
#[inline(always)]
fn permits_atomic(dst: &MrRemote, offset: usize) -> bool {
    dst.permits(RemoteAccess::Write, offset, ATOMIC_SIZE.into())
}

/// An atomic write that is not permitted.
fn denied_atomic<'a>(call: &'static str, mr: &'a MrRemote, offset: usize) -> Denied<'a> {
    Denied { call, mr, access: RemoteAccess::Write, offset, len: ATOMIC_SIZE.into() }
}

/// Posts an atomic write of 8 bytes of unregistered memory, executed after all previously posted operations.
///
/// # Safety
/// `src` must be readable for 8 bytes.
#[inline(always)]
pub unsafe fn atomic_write(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    src: *const u8,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    // SAFETY: the caller guarantees that `src` is readable for 8 bytes.
    unsafe { atomic_write_by(&Permitted, conn, dst, dst_offset, src, flags, op_context) }
}

/// # Safety
/// `src` must be readable for 8 bytes.
#[inline(always)]
unsafe fn atomic_write_by(
    how: &impl Post,
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    src: *const u8,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    let flags = send_flags(flags)? | FENCE;
    let remote = atomic_target(dst, dst_offset)?;
    if let (AtomicWrite::Inline, true) = (conn.atomic_write(), permits_atomic(dst, dst_offset)) {
        post_write(how, conn, flags | INLINE, inline(src), remote, op_context)?;
    } else {
        // SAFETY: the caller guarantees that `src` is readable for 8 bytes.
        unsafe { atomic_write_otherwise(conn, dst, dst_offset, src, flags, op_context) }?;
    }
    Ok(())
}

/// The range of inline data. The provider copies it before the post returns, and needs no key for it.
#[inline(always)]
fn inline(src: *const u8) -> ibv_sge {
    ibv_sge { addr: src as u64, length: ATOMIC_SIZE, lkey: 0 }
}

/// Posts an atomic write on a connection whose queue pair has native atomic write or lacks inline data, or
/// one that the remote region does not permit. Takes the arguments of `atomic_write` in the same registers,
/// after its checks.
///
/// # Safety
/// `src` must be readable for 8 bytes.
#[inline(never)]
unsafe fn atomic_write_otherwise(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    src: *const u8,
    flags: u32,
    op_context: *const c_void,
) -> error::Result<()> {
    let remote = atomic_target(dst, dst_offset)?;
    let denied = denied_atomic("rpma_atomic_write", dst, dst_offset);
    if let AtomicWrite::Inline = conn.atomic_write() {
        return Ok(post_write(&(denied, conn), conn, flags | INLINE, inline(src), remote, op_context)?);
    }
    if !permits_atomic(dst, dst_offset) {
        denied.warn(conn, op_context as u64);
    }
    match conn.atomic_write() {
        // SAFETY: the caller guarantees that `src` is readable for 8 bytes, and the connection keeps its
        // queue pair alive.
        AtomicWrite::Native(qp) => unsafe { native_atomic_write(conn, *qp, remote, src, flags, op_context) },
        // SAFETY: the caller guarantees that `src` is readable for 8 bytes.
        AtomicWrite::Bounce(bounce) => unsafe {
            bounce.post(src, |range| Ok(post_write(&Permitted, conn, flags, range, remote, op_context)?))
        },
        AtomicWrite::Inline => unreachable!("posted above"),
    }
}

#[inline(always)]
fn post_write(
    how: &impl Post,
    conn: &Conn,
    flags: u32,
    range: ibv_sge,
    remote: Remote,
    op_context: *const c_void,
) -> Result<()> {
    let (qp, opcode) = (conn.queue_pair(), WRITE.opcode);
    post_send_by(how, qp, opcode, flags, range, Some(remote), None, op_context)
}

/// Posts a native atomic write. It is fenced like other atomic writes, because a flush by a read may precede
/// it.
///
/// # Safety
/// `src` must be readable for 8 bytes, and the queue pair must be alive and support the operation.
unsafe fn native_atomic_write(
    conn: &Conn,
    qp: NativeQp,
    remote: Remote,
    src: *const u8,
    flags: u32,
    op_context: *const c_void,
) -> error::Result<()> {
    // SAFETY: the caller guarantees a live queue pair with atomic write, which is the connection's, and 8
    // readable bytes at `src`.
    let ret = unsafe {
        metered::native(conn.counted(), Kind::AtomicWrite, flags, || {
            qp.atomic_write(op_context as u64, flags, remote.rkey, remote.addr, src)
        })
    };
    match ret {
        0 => Ok(()),
        ret => Err(not_posted::native("ibv_wr_atomic_write", conn, ret, op_context as u64)),
    }
}

/// Posts an atomic write of 8 bytes of a local memory region, executed after all previously posted
/// operations.
#[inline(always)]
pub fn write_atomic(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    src: &MrLocal,
    src_offset: usize,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    let flags = send_flags(flags)? | FENCE;
    let remote = atomic_target(dst, dst_offset)?;
    let range = src.range(src_offset, ATOMIC_SIZE);
    if permits_atomic(dst, dst_offset) {
        return post_write(&Permitted, conn, flags, range, remote, op_context);
    }
    let denied = denied_atomic("rpma_write_atomic", dst, dst_offset);
    post_write(&(denied, conn), conn, flags, range, remote, op_context)
}

/// Whether the remote region permits a flush of this range, and the read that may implement it.
#[inline(always)]
fn permits_flush(dst: &MrRemote, offset: usize, len: usize) -> bool {
    let permits = |len| dst.permits(RemoteAccess::Flush, offset, len);
    permits(len as u64) && permits(FLUSH_SIZE.into())
}

/// Posts a flush of the data previously written to remote memory.
#[inline(always)]
pub fn flush(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    len: usize,
    kind: FlushTypeArg,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    checked_flush_by(&Permitted, conn, dst, dst_offset, len, kind, flags, op_context)
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of the C function")]
fn checked_flush_by(
    how: &impl Post,
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    len: usize,
    kind: FlushTypeArg,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    // Checked first, while the arguments are still in their registers.
    if !permits_flush(dst, dst_offset, len) {
        return Err(flush_denied(conn, dst, dst_offset, len, kind, flags, op_context).into());
    }
    flush_by(how, conn, dst, dst_offset, len, kind, flags, op_context)
}

/// Same as `flush` for a range that is not entirely in the remote memory region.
#[cold]
#[inline(never)]
fn flush_denied(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    len: usize,
    kind: FlushTypeArg,
    flags: c_int,
    op_context: *const c_void,
) -> Error {
    let denied = denied_flush(dst, dst_offset, (len as u64).max(FLUSH_SIZE.into()));
    flush_by(&(denied, conn), conn, dst, dst_offset, len, kind, flags, op_context)
        .err()
        .map_or(Error::None, Error::from)
}

/// A flush of a range that is not in the remote region.
fn denied_flush(mr: &MrRemote, offset: usize, len: u64) -> Denied<'_> {
    Denied { call: "rpma_flush", mr, access: RemoteAccess::Flush, offset, len }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of the C function")]
fn flush_by(
    how: &impl Post,
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    len: usize,
    kind: FlushTypeArg,
    flags: c_int,
    op_context: *const c_void,
) -> Result<()> {
    const PERSISTENT: FlushTypeArg = rpma_flush_type::RPMA_FLUSH_TYPE_PERSISTENT as FlushTypeArg;
    const VISIBILITY: FlushTypeArg = rpma_flush_type::RPMA_FLUSH_TYPE_VISIBILITY as FlushTypeArg;
    let flags = send_flags(flags)?;
    let allowed = dst.flush_type();
    match kind {
        PERSISTENT if !conn.direct_write_to_pmem() => {
            return Err(refuse_flush(FlushRefusal::NoDirectWrite).into());
        }
        PERSISTENT if allowed & RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT == 0 => {
            return Err(refuse_flush(FlushRefusal::NotPersistent).into());
        }
        VISIBILITY if allowed & RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY == 0 => {
            return Err(refuse_flush(FlushRefusal::NotVisible).into());
        }
        _ => {}
    }
    let remote = Remote { addr: dst.addr(dst_offset), rkey: dst.rkey() };
    if let Some(native) = conn.native_flush() {
        let kind = match kind {
            PERSISTENT if native.persistent => Some(FlushKind::Persistent),
            VISIBILITY if native.visibility => Some(FlushKind::Visibility),
            _ => None,
        };
        if let Some(kind) = kind {
            let request_len = request_len(len)?;
            if !dst.permits(RemoteAccess::Flush, dst_offset, len as u64) {
                denied_flush(dst, dst_offset, len as u64).warn(conn, op_context as u64);
            }
            // SAFETY: the connection keeps its queue pair alive, and `native` exists only for a queue pair
            // with native flush.
            let posted = unsafe { native_flush(conn, remote, request_len, kind, flags, op_context as u64) };
            return if posted { Ok(()) } else { Err(Error::Provider.into()) };
        }
    }
    // A read implements a flush of any length. No provider uses the immediate data of a read, so they carry
    // the flush type for the counters.
    let range = conn.flush().target();
    let opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
    let kind = Some(u32::from_be(kind));
    post_send_by(how, conn.queue_pair(), opcode, flags, range, Some(remote), kind, op_context)
}

/// Posts a native flush. Returns whether the provider has accepted it; see [`post_empty`].
///
/// # Safety
/// The queue pair must be alive and support the operation.
#[inline(never)]
unsafe fn native_flush(
    conn: &Conn,
    remote: Remote,
    len: u32,
    kind: FlushKind,
    flags: u32,
    wr_id: u64,
) -> bool {
    let Some(NativeFlush { qp, .. }) = conn.native_flush() else { unreachable!("seen by flush") };
    let counted_as = match kind {
        FlushKind::Visibility => Kind::FlushVisibility,
        FlushKind::Persistent => Kind::FlushPersistent,
    };
    // SAFETY: the caller guarantees a live queue pair with native flush, which is the connection's.
    let ret = unsafe {
        metered::native(conn.counted(), counted_as, flags, || {
            qp.flush(wr_id, flags, remote.rkey, remote.addr, len, kind)
        })
    };
    if ret != 0 {
        not_posted::native("ibv_wr_flush", conn, ret, wr_id);
    }
    ret == 0
}

/// Why a flush is not supported.
enum FlushRefusal {
    NoDirectWrite,
    NotPersistent,
    NotVisible,
}

#[cold]
#[inline(never)]
fn refuse_flush(why: FlushRefusal) -> Error {
    match why {
        FlushRefusal::NoDirectWrite => log_error!(
            "flush to persistence not supported: the remote peer has not declared direct write to persistent memory"
        ),
        FlushRefusal::NotPersistent => {
            log_error!(
                "flush to persistence not supported: the remote memory region is not registered for it"
            )
        }
        FlushRefusal::NotVisible => {
            log_error!("flush to visibility not supported: the remote memory region is not registered for it")
        }
    }
    Error::NoSupp
}

/// Posts a send, with immediate data if given.
#[inline(always)]
pub fn send(
    conn: &Conn,
    src: At<'_, MrLocal>,
    len: usize,
    flags: c_int,
    imm: Option<u32>,
    op_context: *const c_void,
) -> Result<()> {
    let given_flags = flags;
    let flags = send_flags(flags)?;
    let opcode = match imm {
        Some(_) => ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
        None => ibv_wr_opcode::IBV_WR_SEND,
    };
    let Some(range) = message(src.mr, src.offset, len)? else {
        let posted = post_empty(&Permitted, conn.queue_pair(), opcode, given_flags, None, imm, op_context);
        return if posted { Ok(()) } else { Err(Error::Provider.into()) };
    };
    post_send_by(&Permitted, conn.queue_pair(), opcode, flags, range, None, imm, op_context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_flags() {
        assert_eq!(send_flags(0), Err(Fail::Invalid("flags is 0")));
        assert_eq!(send_flags(RPMA_F_COMPLETION_ON_ERROR), Ok(0));
        assert_eq!(send_flags(RPMA_F_COMPLETION_ALWAYS), Ok(2));
        assert_eq!(send_flags(2), Ok(2));
        assert_eq!(send_flags(4), Ok(0));
        assert_eq!(send_flags(-1), Ok(2));
    }

    #[test]
    fn lengths() {
        assert_eq!(request_len(0), Ok(0));
        assert_eq!(request_len(u32::MAX as usize), Ok(u32::MAX));
        assert_eq!(request_len(u32::MAX as usize + 1), Err(Fail::Invalid("len is more than UINT32_MAX")));
    }
}
