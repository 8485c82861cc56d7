// SPDX-License-Identifier: BSD-3-Clause
//! The inline functions of `rdma_verbs.h`, for the objects of an identifier.

use libc::c_int;
use rdma_sys::*;
use softverbs::verbs;
use std::ptr::null_mut;

/// `rdma_reg_msgs`.
pub(crate) fn reg_msgs(id: *mut rdma_cm_id, memory: &mut [u8]) -> *mut ibv_mr {
    // SAFETY: the identifier is not destroyed yet, and the memory outlives the region in every test.
    let mr = unsafe { verbs::ibv_reg_mr((*id).pd, memory.as_mut_ptr().cast(), memory.len(), 1) };
    assert!(!mr.is_null());
    mr
}

/// `rdma_post_recv`: returns the result of post_recv.
pub(crate) fn post_recv(id: *mut rdma_cm_id, wr_id: u64, mr: *mut ibv_mr) -> c_int {
    // SAFETY: the identifier, its queues and the region live; the request and its entry are valid for the
    // call.
    unsafe {
        let mut sge = ibv_sge { addr: (*mr).addr as u64, length: (*mr).length as u32, lkey: (*mr).lkey };
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), num_sge: 1, sg_list: &mut sge };
        let mut bad = null_mut();
        let ops = &(*(*id).verbs).ops;
        if (*id).srq.is_null() {
            ops.post_recv.unwrap()((*id).qp, &mut wr, &mut bad)
        } else {
            ops.post_srq_recv.unwrap()((*id).srq, &mut wr, &mut bad)
        }
    }
}

/// `rdma_post_send`, signalled: returns the result of post_send.
pub(crate) fn post_send(id: *mut rdma_cm_id, wr_id: u64, mr: *mut ibv_mr, length: usize) -> c_int {
    // SAFETY: the identifier, its queues and the region exist; the request and its entry are valid for the
    // call.
    unsafe {
        let mut sge = ibv_sge { addr: (*mr).addr as u64, length: length as u32, lkey: (*mr).lkey };
        let mut wr: ibv_send_wr = std::mem::zeroed();
        wr.wr_id = wr_id;
        wr.sg_list = &mut sge;
        wr.num_sge = 1;
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
        wr.send_flags = super::SIGNALED;
        let mut bad = null_mut();
        (*(*id).verbs).ops.post_send.unwrap()((*id).qp, &mut wr, &mut bad)
    }
}

/// Waits as `rdma_get_send_comp` does: wr_id, status and length of the next completion. A minute without one
/// is a failure.
fn get_comp(id: *mut rdma_cm_id, cq: *mut ibv_cq, channel: *mut ibv_comp_channel) -> (u64, u32, u32) {
    // SAFETY: the queue and its channel belong to the identifier, which lives.
    unsafe {
        let ops = &(*(*id).verbs).ops;
        let mut wc: ibv_wc = std::mem::zeroed();
        let mut armed = false;
        loop {
            match ops.poll_cq.unwrap()(cq, 1, &mut wc) {
                1 => return (wc.wr_id, wc.status, wc.byte_len),
                n => assert_eq!(n, 0),
            }
            if !armed {
                assert_eq!(ops.req_notify_cq.unwrap()(cq, 0), 0);
                armed = true;
                continue;
            }
            let mut fd = libc::pollfd { fd: (*channel).fd, events: libc::POLLIN, revents: 0 };
            // ibv_get_cq_event moves the bytes while it waits; poll(2) only adds the time limit.
            assert_eq!(libc::poll(&mut fd, 1, 60_000), 1, "no completion");
            let (mut from, mut context) = (null_mut(), null_mut());
            assert_eq!(verbs::ibv_get_cq_event(channel, &mut from, &mut context), 0);
            assert!(from == cq && context == id.cast());
            verbs::ibv_ack_cq_events(cq, 1);
            armed = false;
        }
    }
}

/// `rdma_get_send_comp`.
pub(crate) fn get_send_comp(id: *mut rdma_cm_id) -> (u64, u32, u32) {
    // SAFETY: the identifier is not destroyed yet.
    unsafe { get_comp(id, (*id).send_cq, (*id).send_cq_channel) }
}

/// `rdma_get_recv_comp`.
pub(crate) fn get_recv_comp(id: *mut rdma_cm_id) -> (u64, u32, u32) {
    // SAFETY: the identifier is not destroyed yet.
    unsafe { get_comp(id, (*id).recv_cq, (*id).recv_cq_channel) }
}

/// Attributes without queues, which rdma_cm then creates.
pub(crate) fn bare_attributes(depth: u32) -> ibv_qp_init_attr {
    // SAFETY: all-zero attributes are valid.
    let mut attr: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    attr.cap = ibv_qp_cap {
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 16,
    };
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    attr
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// Asserts that a function of rdma_cm failed with this errno.
#[track_caller]
pub(crate) fn fails(ret: c_int, errno_expected: c_int) {
    assert_eq!((ret, errno()), (-1, errno_expected));
}
