// SPDX-License-Identifier: BSD-3-Clause
//! The data path: the five functions that programs call through `ibv_context.ops` (post_send, post_recv,
//! post_srq_recv, poll_cq, req_notify_cq).
//!
//! Each reads the C structures, calls one function of a queue and stores the result. Errors are positive
//! errno values, as in verbs.

use libc::c_int;
use rdma_sys::{ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};
use std::ptr::addr_of;

use super::completion::write_wc;
use super::verbs::{self, CqObject, QpObject, SrqObject};
use super::work_request::{read_send_wr, take_entries};
use crate::srq::Full;
use crate::sys::Errno;
use transport::wr::{Entries, RecvWr};

/// ibv_post_send(3): posts a list of send requests until one fails. Returns 0 or a positive errno value, with
/// `bad_wr` set to the failed request: EINVAL (invalid request, or the queue pair has no connection yet),
/// ENOMEM (the send queue is full).
///
/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs.
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs, and ibv_post_send(3) that it is
    // not destroyed during the call.
    let qp = &unsafe { QpObject::own(qp) }.qp;
    let result = (|| {
        let mut posting = qp.posting();
        while !wr.is_null() {
            // SAFETY: `wr` is not NULL, so it points to a work request of the list (ibv_post_send(3)), whose
            // `next` is the next one or NULL.
            wr = unsafe {
                let next = addr_of!((*wr).next).read();
                read_send_wr(wr, qp, |request| posting.post(request, next.is_null()))?;
                next
            };
        }
        Ok(())
    })();
    // SAFETY: `bad_wr` points to a pointer for the result, as the manual page of the verb requires.
    report(result, || unsafe { bad_wr.write(wr) })
}

/// Posts a request for an access that the caller knows to be denied by the remote memory region. In adapter
/// mode it completes with IBV_WC_REM_ACCESS_ERR, as on an adapter, without being sent; otherwise this is
/// ibv_post_send(3). Returns 0 or a positive errno value, with `bad_wr` set to `wr`: EINVAL (invalid request,
/// or no connection yet), ENOMEM (the send queue is full).
///
/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs and a list of one request.
pub unsafe fn post_denied(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs, and ibv_post_send(3) that it is
    // not destroyed during the call.
    let qp = &unsafe { QpObject::own(qp) }.qp;
    // SAFETY: `wr` points to a work request (ibv_post_send(3)).
    let result = unsafe { read_send_wr(wr, qp, |request| qp.posting().post_denied(request)) };
    // SAFETY: `bad_wr` points to a pointer for the result, as the manual page of the verb requires.
    report(result, || unsafe { bad_wr.write(wr) })
}

/// Posts one signalled request that may be executed by this call: then the result is true, and no work
/// completion is generated. Otherwise this is ibv_post_send(3). Fails with a positive errno value, and
/// `bad_wr` set to `wr`: EINVAL (invalid request, or no connection yet), ENOMEM (the send queue is full).
///
/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs and a list of one request.
pub unsafe fn post_at_once(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> Result<bool, c_int> {
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs, and ibv_post_send(3) that it is
    // not destroyed during the call.
    let qp = &unsafe { QpObject::own(qp) }.qp;
    // SAFETY: `wr` points to a work request (ibv_post_send(3)).
    let result = unsafe { read_send_wr(wr, qp, |request| qp.posting().post_at_once(request)) };
    // SAFETY: `bad_wr` points to a pointer for the result, as the manual page of the verb requires.
    result.inspect_err(|_| unsafe { bad_wr.write(wr) })
}

/// Sets the local address, `target`, of the reads by which librpma flushes on a queue pair, so that its
/// instruments know these reads as flushes.
///
/// # Safety
///
/// `qp` must be a queue pair of softverbs that has not been destroyed.
pub unsafe fn flushes_by(qp: *mut ibv_qp, target: u64) {
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs that has not been destroyed.
    unsafe { QpObject::own(qp) }.qp.instruments.flushes_by(target);
}

/// Posts a list of receives with `post` until one fails, and returns 0 or its errno with `bad_wr` set.
/// EINVAL: a receive has more than `max_sge` entries, or is longer than a message can be.
///
/// # Safety
///
/// `wr` and `bad_wr` must be as for ibv_post_recv(3).
unsafe fn post_receives(
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    max_sge: u32,
    mut post: impl FnMut(RecvWr) -> Result<(), Errno>,
) -> c_int {
    let result = (|| {
        while !wr.is_null() {
            // SAFETY: `wr` is not NULL, so it points to a work request of the list that the caller
            // guarantees; its four fields are always used and therefore initialised.
            let (wr_id, list, count, next) = unsafe {
                (
                    addr_of!((*wr).wr_id).read(),
                    addr_of!((*wr).sg_list).read(),
                    addr_of!((*wr).num_sge).read(),
                    addr_of!((*wr).next).read(),
                )
            };
            let mut entries = Entries::new();
            // SAFETY: `sg_list` points to `num_sge` entries, as ibv_post_recv(3) requires.
            let len = unsafe { take_entries(list, count, max_sge, &mut entries) }?;
            post(RecvWr::new(wr_id, &entries, len)?)?;
            wr = next;
        }
        Ok(())
    })();
    // SAFETY: `bad_wr` points to a pointer for the result, as the manual page of the verb requires.
    report(result, || unsafe { bad_wr.write(wr) })
}

fn report(result: Result<(), Errno>, bad: impl FnOnce()) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            bad();
            e
        }
    }
}

/// ibv_post_recv(3): posts a list of receives until one fails. Returns 0 or a positive errno value, with
/// `bad_wr` set to the failed receive: EINVAL (invalid receive, the queue pair has an SRQ or is in the state
/// RESET), ENOMEM (the receive queue is full).
///
/// # Safety
///
/// As for ibv_post_recv(3), for a queue pair of softverbs.
unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees that `qp` is a queue pair of softverbs, and ibv_post_recv(3) that it is
    // not destroyed during the call.
    let qp = &unsafe { QpObject::own(qp) }.qp;
    // SAFETY: as ibv_post_recv(3) requires, `wr` is a list of receives that ends with NULL, and `bad_wr`
    // points to a pointer. (A queue pair with an SRQ has no receive queue, and in the state RESET none
    // accepts work requests.)
    unsafe {
        post_receives(wr, bad_wr, qp.max_recv_sge, |wr| {
            if qp.srq.is_some() || qp.is_reset() { Err(libc::EINVAL) } else { qp.post_receive(wr) }
        })
    }
}

/// ibv_post_srq_recv(3): posts a list of receives until one fails. Returns 0 or a positive errno value, with
/// `bad_wr` set to the failed receive: EINVAL (invalid receive), ENOMEM (the queue is full).
///
/// # Safety
///
/// As for ibv_post_srq_recv(3), for a shared receive queue of softverbs.
unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees that `srq` is a shared receive queue of softverbs, and
    // ibv_post_srq_recv(3) that it is not destroyed during the call.
    let srq = unsafe { SrqObject::own(srq) };
    // SAFETY: as ibv_post_srq_recv(3) requires, `wr` is a list of receives that ends with NULL, and `bad_wr`
    // points to a pointer.
    unsafe { post_receives(wr, bad_wr, srq.max_sge, |wr| srq.post(wr).map_err(|Full| libc::ENOMEM)) }
}

/// ibv_poll_cq(3): takes up to `num_entries` completions and returns their number, or -EINVAL if
/// `num_entries` is negative.
///
/// # Safety
///
/// As for ibv_poll_cq(3), for a completion queue of softverbs.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(num_entries) else { return -libc::EINVAL };
    // SAFETY: the caller guarantees that `cq` is a completion queue of softverbs, and ibv_poll_cq(3) that it
    // is not destroyed during the call.
    let cq = unsafe { CqObject::own(cq) };
    // SAFETY: `wc` points to an array of `num_entries` work completions, as ibv_poll_cq(3) requires, and
    // `poll` only passes indices below `max`, which is `num_entries`.
    cq.queue.poll(max, |i, completion, _| unsafe { write_wc(wc.add(i), completion) }) as c_int
}

/// ibv_req_notify_cq(3): arms the queue for one event, for the next solicited or failed completion only if
/// `solicited_only` is not 0. Returns 0.
///
/// # Safety
///
/// As for ibv_req_notify_cq(3), for a completion queue of softverbs.
unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller guarantees that `cq` is a completion queue of softverbs, and ibv_req_notify_cq(3)
    // that it is not destroyed during the call.
    unsafe { CqObject::own(cq) }.queue.arm(solicited_only != 0);
    0
}

/// The operations table of the context. The inline functions of `verbs.h` do not use the slots that stay
/// empty.
pub(crate) fn table() -> ibv_context_ops {
    // SAFETY: all-zero is a valid ibv_context_ops: every slot is empty.
    let mut ops: ibv_context_ops = unsafe { std::mem::zeroed() };
    ops.alloc_mw = Some(verbs::alloc_mw);
    ops.bind_mw = Some(verbs::bind_mw);
    ops.dealloc_mw = Some(verbs::dealloc_mw);
    ops.poll_cq = Some(poll_cq);
    ops.post_recv = Some(post_recv);
    ops.post_send = Some(post_send);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.req_notify_cq = Some(req_notify_cq);
    ops
}
