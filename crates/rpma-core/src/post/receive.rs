// SPDX-License-Identifier: BSD-3-Clause
//! Posting receives.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rdma_sys::{ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};

use super::{At, Result, message, request_len};
use crate::conn::Conn;
use crate::conn_req::ConnReq;
use crate::error::Error;
use crate::mr::MrLocal;
use crate::not_posted::{self, Posted};
use crate::provider::hot;
use crate::srq::Srq;

/// Builds a receive work request and posts it with `post`. `qp` is NULL for a shared receive queue.
#[inline(always)]
fn post_recv_with(
    call: &'static str,
    qp: *mut ibv_qp,
    range: Option<ibv_sge>,
    op_context: *const c_void,
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
) -> Result<()> {
    let Some(range) = range else {
        let posted = post_recv_empty(call, qp, op_context, post);
        return if posted { Ok(()) } else { Err(Error::Provider.into()) };
    };
    let mut sge = MaybeUninit::<ibv_sge>::uninit();
    post_recv_ranges(call, qp, (ptr::from_mut(sge.write(range)), 1), op_context, post)
}

/// Posts a receive without a range; see [`super::post_empty`].
#[cold]
#[inline(never)]
fn post_recv_empty(
    call: &'static str,
    qp: *mut ibv_qp,
    op_context: *const c_void,
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
) -> bool {
    post_recv_ranges(call, qp, (ptr::null_mut(), 0), op_context, post).is_ok()
}

/// Posts a receive with these ranges.
#[inline(always)]
fn post_recv_ranges(
    call: &'static str,
    qp: *mut ibv_qp,
    (sg_list, num_sge): (*mut ibv_sge, c_int),
    op_context: *const c_void,
    post: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
) -> Result<()> {
    let wr = ibv_recv_wr { wr_id: op_context as u64, next: ptr::null_mut(), sg_list, num_sge };
    let mut request = Posted { wr: MaybeUninit::new(wr), qp };
    let request = &raw mut request;
    let mut bad_wr = MaybeUninit::<*mut ibv_recv_wr>::uninit();
    let ret = post(request.cast(), bad_wr.as_mut_ptr());
    // SAFETY: the request and its range are still alive, and the queue pair is NULL or alive.
    if ret == 0 { Ok(()) } else { Err(unsafe { not_posted::receive(call, ret, request) }.into()) }
}

#[inline(always)]
fn post_recv(qp: *mut ibv_qp, range: Option<ibv_sge>, op_context: *const c_void) -> Result<()> {
    post_recv_with("ibv_post_recv", qp, range, op_context, |wr, bad_wr| {
        // SAFETY: the connection or request that the caller borrows keeps `qp` alive; `wr` and `bad_wr` are
        // valid during the call.
        unsafe { hot::post_recv(qp, wr, bad_wr) }
    })
}

#[inline(always)]
fn post_srq_recv(srq: *mut ibv_srq, range: Option<ibv_sge>, op_context: *const c_void) -> Result<()> {
    post_recv_with("ibv_post_srq_recv", ptr::null_mut(), range, op_context, |wr, bad_wr| {
        // SAFETY: the shared receive queue that the caller borrows keeps `srq` alive; `wr` and `bad_wr` are
        // valid during the call.
        unsafe { hot::post_srq_recv(srq, wr, bad_wr) }
    })
}

/// Posts a receive on a connection.
#[inline(always)]
pub fn recv(conn: &Conn, dst: At<'_, MrLocal>, len: usize, op_context: *const c_void) -> Result<()> {
    let range = message(dst.mr, dst.offset, len)?;
    post_recv(conn.queue_pair(), range, op_context)
}

/// Posts a receive on a connection request, so that it is in place before the connection is established.
pub fn req_recv(
    req: &ConnReq,
    dst: &MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> Result<()> {
    post_recv(req.queue_pair(), Some(dst.range(offset, request_len(len)?)), op_context)
}

/// Posts a receive on a shared receive queue.
#[inline(always)]
pub fn srq_recv(srq: &Srq, dst: At<'_, MrLocal>, len: usize, op_context: *const c_void) -> Result<()> {
    let range = message(dst.mr, dst.offset, len)?;
    post_srq_recv(srq.as_ptr(), range, op_context)
}
