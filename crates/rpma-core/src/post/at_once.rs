// SPDX-License-Identifier: BSD-3-Clause
//! Requests that the provider may execute while they are posted; then no work completion is generated.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use rdma_sys::{ibv_qp, ibv_send_wr};

use super::{At, Permitted, Post, READ, Result, WRITE, atomic_write_by, checked_flush_by, one_sided_by};
use crate::abi::RPMA_F_COMPLETION_ALWAYS;
use crate::abi::arg::FlushTypeArg;
use crate::conn::Conn;
use crate::mr::{MrLocal, MrRemote, RemoteAccess};

const FLAGS: c_int = RPMA_F_COMPLETION_ALWAYS;

/// A request for an access that the remote memory region permits.
struct AtOnce<'a> {
    conn: &'a Conn,
    is_complete: Cell<bool>,
}

impl Post for AtOnce<'_> {
    #[inline(always)]
    unsafe fn post(&self, qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
        // SAFETY: the caller guarantees the requirements of `hot::post_send`, which are those of this call.
        match unsafe { (self.conn.api().post_at_once)(qp, wr, bad_wr) } {
            Ok(is_complete) => {
                self.is_complete.set(is_complete);
                0
            }
            Err(ret) => ret,
        }
    }

    #[inline(always)]
    fn denies(&self, mr: &MrRemote, access: RemoteAccess, offset: usize, len: u64) -> bool {
        Permitted.denies(mr, access, offset, len)
    }
}

/// Posts a request; whether the provider has executed it.
#[inline(always)]
fn at_once(conn: &Conn, post: impl FnOnce(&AtOnce<'_>) -> Result<()>) -> Result<bool> {
    let how = AtOnce { conn, is_complete: Cell::new(false) };
    post(&how)?;
    Ok(how.is_complete.get())
}

/// As [`super::read`], always signalled. True: the call has executed it, and no work completion is generated.
#[inline(always)]
pub fn read_at_once(
    conn: &Conn,
    dst: At<'_, MrLocal>,
    src: At<'_, MrRemote>,
    len: usize,
    op_context: *const c_void,
) -> Result<bool> {
    at_once(conn, |how| one_sided_by(how, conn, &READ, dst, src, len, FLAGS, None, op_context))
}

/// As [`super::write`] without immediate data; the result is that of [`read_at_once`].
#[inline(always)]
pub fn write_at_once(
    conn: &Conn,
    dst: At<'_, MrRemote>,
    src: At<'_, MrLocal>,
    len: usize,
    op_context: *const c_void,
) -> Result<bool> {
    at_once(conn, |how| one_sided_by(how, conn, &WRITE, src, dst, len, FLAGS, None, op_context))
}

/// As [`super::atomic_write`]; the result is that of [`read_at_once`].
///
/// # Safety
/// `src` must be readable for 8 bytes.
#[inline(always)]
pub unsafe fn atomic_write_at_once(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    src: *const u8,
    op_context: *const c_void,
) -> Result<bool> {
    // SAFETY: the caller guarantees that `src` is readable for 8 bytes.
    at_once(conn, |how| unsafe { atomic_write_by(how, conn, dst, dst_offset, src, FLAGS, op_context) })
}

/// As [`super::flush`]; the result is that of [`read_at_once`].
#[inline(always)]
pub fn flush_at_once(
    conn: &Conn,
    dst: &MrRemote,
    dst_offset: usize,
    len: usize,
    kind: FlushTypeArg,
    op_context: *const c_void,
) -> Result<bool> {
    at_once(conn, |how| checked_flush_by(how, conn, dst, dst_offset, len, kind, FLAGS, op_context))
}
