// SPDX-License-Identifier: BSD-3-Clause
//! The attributes of a queue pair that the program modifies itself.

use libc::c_int;
use rdma_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, rdma_cm_id};
use std::ptr::addr_of;

use super::finish;
use super::handle::IdObject;
use transport::access::{REMOTE_READ, REMOTE_WRITE};

const STATE: c_int = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
const ACCESS_FLAGS: c_int = ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0 as c_int;
const PORT: c_int = ibv_qp_attr_mask::IBV_QP_PORT.0 as c_int;

/// Stores the attributes, and which of them, that ibv_modify_qp(3) needs for a queue pair that the program
/// has created itself and wants to bring to the state in `qp_state`.
///
/// IBV_QP_ACCESS_FLAGS (remote writes and reads) and IBV_QP_PORT always; IBV_QP_STATE only for IBV_QPS_INIT
/// before the connection is requested or accepted. The other transitions are made by rdma_connect and
/// rdma_accept: with iWARP a queue pair has no state in which it could receive before it has its TCP
/// connection. EINVAL: another state than INIT, RTR and RTS, or the identifier has no device yet.
///
/// # Safety
///
/// As for rdma_init_qp_attr(3).
pub unsafe fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    use ibv_qp_state::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    if id.is_null() || qp_attr.is_null() || qp_attr_mask.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed, and `qp_state` has the state
    // that the program wants (rdma_init_qp_attr(3)).
    let (cm, bound, wanted) = unsafe {
        let bound = !addr_of!((*id).verbs).read().is_null();
        (&IdObject::own(id).cm, bound, addr_of!((*qp_attr).qp_state).read())
    };
    if !bound || !matches!(wanted, IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS) {
        return finish(Err(libc::EINVAL));
    }
    let begun = cm.has_begun() || cm.is_listening();
    // SAFETY: all-zero is a valid ibv_qp_attr.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = wanted;
    attr.qp_access_flags = REMOTE_WRITE | REMOTE_READ;
    attr.port_num = 1;
    let state = if wanted == IBV_QPS_INIT && !begun { STATE } else { 0 };
    // SAFETY: both are valid for writes (rdma_init_qp_attr(3)).
    unsafe {
        qp_attr.write(attr);
        qp_attr_mask.write(state | ACCESS_FLAGS | PORT);
    }
    0
}
