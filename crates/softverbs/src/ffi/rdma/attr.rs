// SPDX-License-Identifier: BSD-3-Clause
//! rdma_init_qp_attr(3): the attributes for a queue pair whose states the program changes itself.

use libc::c_int;
use rdma_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, rdma_cm_id};
use std::ptr::addr_of;

use super::finish;
use super::handle::IdObject;
use crate::ffi::verbs;
use transport::access::{REMOTE_READ, REMOTE_WRITE};
use transport::roce::wire::cm::UDP_QKEY;

const STATE: c_int = ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
const ACCESS_FLAGS: c_int = ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0 as c_int;
const PORT: c_int = ibv_qp_attr_mask::IBV_QP_PORT.0 as c_int;

/// Stores the attributes and the attribute mask with which the program calls ibv_modify_qp(3) to move a queue
/// pair that it has created itself to the state in `qp_attr->qp_state`.
///
/// The mask always has IBV_QP_ACCESS_FLAGS (remote writes and reads) and IBV_QP_PORT. It has IBV_QP_STATE
/// only for IBV_QPS_INIT, before the connection is requested or accepted. rdma_connect and rdma_accept make
/// the other transitions: over iWARP a queue pair cannot receive before it has a TCP connection.
///
/// For datagrams (RDMA_PS_UDP) the attributes are those of IBV_QPS_INIT, whatever the state: the Q_Key is
/// RDMA_UDP_QKEY.
///
/// Returns 0, or -1 and errno EINVAL: a NULL pointer, a state other than INIT, RTR and RTS, or an identifier
/// that has no device yet.
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
    // SAFETY: none is NULL (checked above), and rdma_init_qp_attr(3) requires that `id` is an identifier of
    // softverbs that has not been destroyed, and that `qp_state` is set.
    let (cm, bound, wanted) = unsafe {
        let bound = !addr_of!((*id).verbs).read().is_null();
        (&IdObject::own(id).cm, bound, addr_of!((*qp_attr).qp_state).read())
    };
    if !bound || !matches!(wanted, IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS) {
        return finish(Err(libc::EINVAL));
    }
    if cm.is_for_datagrams() {
        let (mut attr, mask) = verbs::init_for_datagrams(UDP_QKEY);
        attr.qp_state = wanted;
        // SAFETY: rdma_init_qp_attr(3) requires that both pointers are valid for writes.
        unsafe {
            qp_attr.write(attr);
            qp_attr_mask.write(mask as c_int);
        }
        return 0;
    }
    if !cm.needs_queue_pair() {
        let attributes = match (wanted, cm.terms()) {
            (IBV_QPS_INIT, _) => Ok(verbs::init_of_cm()),
            (IBV_QPS_RTR, Some(terms)) => verbs::receive_of_cm(cm.kind(), &terms),
            (_, Some(terms)) => Ok(verbs::send_of_cm(cm.kind(), &terms)),
            (_, None) => Err(libc::EINVAL),
        };
        // SAFETY: rdma_init_qp_attr(3) requires that both pointers are valid for writes.
        return finish(attributes.map(|(attr, mask)| unsafe {
            qp_attr.write(attr);
            qp_attr_mask.write(mask as c_int);
        }));
    }
    let is_used = cm.has_begun() || cm.is_listening();
    // SAFETY: all-zero is a valid ibv_qp_attr: it holds only integers and nullable pointers.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = wanted;
    attr.qp_access_flags = REMOTE_WRITE | REMOTE_READ;
    attr.port_num = 1;
    let state = if wanted == IBV_QPS_INIT && !is_used { STATE } else { 0 };
    // SAFETY: rdma_init_qp_attr(3) requires that both pointers are valid for writes.
    unsafe {
        qp_attr.write(attr);
        qp_attr_mask.write(state | ACCESS_FLAGS | PORT);
    }
    0
}
