// SPDX-License-Identifier: BSD-3-Clause
//! The data path: the five inline calls of `verbs.h`, through the operations of the object's context.
//!
//! They are the same for all providers. A context without the operation, which no provider creates, yields
//! EOPNOTSUPP.

use std::ffi::c_int;

use libc::EOPNOTSUPP;
use rdma_sys::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};

/// `ibv_post_send`: 0 or a positive errno.
///
/// # Safety
/// `qp` must be a live queue pair, `wr` a request whose fields that its opcode reads are set, `bad_wr`
/// writable.
#[inline(always)]
pub(crate) unsafe fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller guarantees a live `qp`, whose context is live, a valid `wr` and a writable `bad_wr`.
    unsafe {
        match (*(*qp).context).ops.post_send {
            Some(post_send) => post_send(qp, wr, bad_wr),
            None => EOPNOTSUPP,
        }
    }
}

/// `ibv_post_send` for [`super::Provider::post_at_once`]: drivers generate a work completion for each
/// signalled request. Some return -1 for a failure.
///
/// # Safety
/// As for [`post_send`].
pub(crate) unsafe fn post_and_complete_later(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<bool, c_int> {
    // SAFETY: the caller guarantees the requirements.
    match unsafe { post_send(qp, wr, bad_wr) } {
        0 => Ok(false),
        ret => Err(ret),
    }
}

/// `ibv_post_recv`: 0 or a positive errno.
///
/// # Safety
/// `qp` must be a live queue pair, `wr` a complete request, `bad_wr` writable.
#[inline(always)]
pub(crate) unsafe fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees a live `qp`, whose context is live, a valid `wr` and a writable `bad_wr`.
    unsafe {
        match (*(*qp).context).ops.post_recv {
            Some(post_recv) => post_recv(qp, wr, bad_wr),
            None => EOPNOTSUPP,
        }
    }
}

/// `ibv_post_srq_recv`: 0 or a positive errno.
///
/// # Safety
/// `srq` must be a live shared receive queue, `wr` a complete request, `bad_wr` writable.
#[inline(always)]
pub(crate) unsafe fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees a live `srq`, whose context is live, a valid `wr` and a writable
    // `bad_wr`.
    unsafe {
        match (*(*srq).context).ops.post_srq_recv {
            Some(post_srq_recv) => post_srq_recv(srq, wr, bad_wr),
            None => EOPNOTSUPP,
        }
    }
}

/// `ibv_poll_cq`: the number of completions, or negative.
///
/// # Safety
/// `cq` must be a live completion queue and `wc` have room for `num_entries` completions.
#[inline(always)]
pub(crate) unsafe fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller guarantees a live `cq`, whose context is live, and room for `num_entries`
    // completions at `wc`.
    unsafe {
        match (*(*cq).context).ops.poll_cq {
            Some(poll_cq) => poll_cq(cq, num_entries, wc),
            None => -EOPNOTSUPP,
        }
    }
}

/// `ibv_req_notify_cq`: 0 or a positive errno.
///
/// # Safety
/// `cq` must be a live completion queue.
#[inline(always)]
pub(crate) unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller guarantees a live `cq`, whose context is live.
    unsafe {
        match (*(*cq).context).ops.req_notify_cq {
            Some(req_notify_cq) => req_notify_cq(cq, solicited_only),
            None => EOPNOTSUPP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn refuse(_: *mut ibv_qp, _: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
        -1
    }

    /// siw returns -1 if the connection has ended.
    #[test]
    fn a_driver_never_completes_a_request_at_once() {
        // SAFETY: all zero is a valid value of each of these, and the operation uses none of its arguments.
        let posted = unsafe {
            let mut context: rdma_sys::ibv_context = std::mem::zeroed();
            context.ops.post_send = Some(refuse);
            let mut qp: ibv_qp = std::mem::zeroed();
            qp.context = &raw mut context;
            post_and_complete_later(&raw mut qp, std::ptr::null_mut(), std::ptr::null_mut())
        };
        assert_eq!(posted, Err(-1));
    }
}
