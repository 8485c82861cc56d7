// SPDX-License-Identifier: BSD-3-Clause
//! The data path: the five functions that programs call through `ibv_context.ops`. Each reads the C
//! structures, calls one function of a queue and stores the results; errors are positive errno values, as in
//! verbs.

use libc::c_int;
use rdma_sys::{ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};
use std::ptr::addr_of;

use super::completion::write_wc;
use super::verbs::{self, CqObject, QpObject, SrqObject};
use super::work_request::{read_send_wr, take_entries};
use crate::srq::Full;
use crate::sys::Errno;
use transport::wr::{Entries, RecvWr};

/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs.
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: `qp` is a queue pair of softverbs that has not been destroyed (ibv_post_send(3)).
    let qp = &unsafe { QpObject::own(qp) }.qp;
    let result = (|| {
        let mut posting = qp.posting()?;
        while !wr.is_null() {
            // SAFETY: `wr` is not NULL, so it points to a work request of the list (ibv_post_send(3)).
            let request = unsafe { read_send_wr(wr, qp) }?;
            posting.post(request)?;
            // SAFETY: `wr` points to a work request, whose `next` is the next one or NULL.
            wr = unsafe { addr_of!((*wr).next).read() };
        }
        Ok(())
    })();
    // SAFETY: `bad_wr` points to a pointer for the result.
    report(result, || unsafe { bad_wr.write(wr) })
}

/// Posts a request for an access that the caller knows the remote memory does not permit. In strict mode it
/// fails as on an adapter, with IBV_WC_REM_ACCESS_ERR; otherwise this is ibv_post_send(3).
///
/// # Safety
///
/// As for ibv_post_send(3), for a queue pair of softverbs and a list of one request.
pub unsafe fn post_denied(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: `qp` is a queue pair of softverbs that has not been destroyed (ibv_post_send(3)).
    let qp = &unsafe { QpObject::own(qp) }.qp;
    let result = (|| {
        let mut posting = qp.posting()?;
        // SAFETY: `wr` points to a work request (ibv_post_send(3)).
        posting.post_denied(unsafe { read_send_wr(wr, qp) }?)
    })();
    // SAFETY: `bad_wr` points to a pointer for the result.
    report(result, || unsafe { bad_wr.write(wr) })
}

/// Where the reads go by which librpma flushes on a queue pair: metrics count them as flushes.
///
/// # Safety
///
/// `qp` must be a queue pair of softverbs that has not been destroyed.
pub unsafe fn flushes_by(qp: *mut ibv_qp, target: u64) {
    // SAFETY: as required of the caller.
    if let Some(instruments) = unsafe { QpObject::own(qp) }.qp.instruments() {
        instruments.flushes_by(target);
    }
}

/// Posts a list of receives of up to `max_sge` entries with `post`, up to the first failure.
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
            // SAFETY: `wr` is not NULL, so it points to a work request of the list.
            let (wr_id, list, count, next) = unsafe {
                (
                    addr_of!((*wr).wr_id).read(),
                    addr_of!((*wr).sg_list).read(),
                    addr_of!((*wr).num_sge).read(),
                    addr_of!((*wr).next).read(),
                )
            };
            let mut entries = Entries::new();
            // SAFETY: `sg_list` points to `num_sge` entries.
            let len = unsafe { take_entries(list, count, max_sge, &mut entries) }?;
            post(RecvWr::new(wr_id, &entries, len)?)?;
            wr = next;
        }
        Ok(())
    })();
    // SAFETY: `bad_wr` points to a pointer for the result.
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

/// # Safety
///
/// As for ibv_post_recv(3), for a queue pair of softverbs.
unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `qp` is a queue pair of softverbs that has not been destroyed (ibv_post_recv(3)).
    let qp = &unsafe { QpObject::own(qp) }.qp;
    // SAFETY: `wr` is a list of receives that ends with NULL, `bad_wr` points to a pointer
    // (ibv_post_recv(3)). A queue pair with a shared receive queue has no receive queue, and one in the state
    // RESET takes no work requests.
    unsafe {
        post_receives(wr, bad_wr, qp.max_recv_sge, |wr| {
            if qp.srq.is_some() || qp.is_reset() { Err(libc::EINVAL) } else { qp.post_receive(wr) }
        })
    }
}

/// # Safety
///
/// As for ibv_post_srq_recv(3), for a shared receive queue of softverbs.
unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: `srq` is a shared receive queue of softverbs that has not been destroyed
    // (ibv_post_srq_recv(3)).
    let srq = unsafe { SrqObject::own(srq) };
    // SAFETY: `wr` is a list of receives that ends with NULL, `bad_wr` points to a pointer
    // (ibv_post_srq_recv(3)).
    unsafe { post_receives(wr, bad_wr, srq.max_sge, |wr| srq.post(wr).map_err(|Full| libc::ENOMEM)) }
}

/// # Safety
///
/// As for ibv_poll_cq(3), for a completion queue of softverbs.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(num_entries) else { return -libc::EINVAL };
    // SAFETY: `cq` is a completion queue of softverbs that has not been destroyed (ibv_poll_cq(3)).
    let cq = unsafe { CqObject::own(cq) };
    // SAFETY: `wc` points to an array of `num_entries` work completions (ibv_poll_cq(3)), and `poll` passes
    // indices below `max`.
    cq.queue.poll(max, |i, completion| unsafe { write_wc(wc.add(i), completion) }) as c_int
}

/// # Safety
///
/// As for ibv_req_notify_cq(3), for a completion queue of softverbs.
unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: `cq` is a completion queue of softverbs that has not been destroyed (ibv_req_notify_cq(3)).
    unsafe { CqObject::own(cq) }.queue.arm(solicited_only != 0);
    0
}

/// The operations of the soft context. The slots that stay empty are not used by the inline functions of
/// `verbs.h`.
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
