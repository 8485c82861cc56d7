// SPDX-License-Identifier: BSD-3-Clause
//! Whose object it is. Every object of verbs begins with the address of its context.

use rdma_sys::{
    ibv_ah, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_dm, ibv_event_type, ibv_mr, ibv_pd,
    ibv_qp, ibv_srq,
};

/// An object of verbs whose first field is the address of its context.
pub(crate) trait OfContext {}

macro_rules! of_context {
    ($($object:ident),*) => { $(
        impl OfContext for $object {}
        const _: () = assert!(std::mem::offset_of!($object, context) == 0);
    )* };
}

of_context!(ibv_ah, ibv_comp_channel, ibv_cq, ibv_dm, ibv_mr, ibv_pd, ibv_qp, ibv_srq);

/// Whether an object belongs to `soft0`; not if it is NULL.
///
/// # Safety
///
/// `object` must be NULL or an object that has not been destroyed.
pub(crate) unsafe fn ours<T: OfContext>(object: *const T) -> bool {
    // SAFETY: `object` is not NULL, so it is a valid object, which begins with the address of its context.
    !object.is_null() && softverbs::owns(unsafe { object.cast::<*const ibv_context>().read() })
}

/// Whether the object that an asynchronous event is about belongs to `soft0`. Events of ports and devices are
/// not ours: there are none.
///
/// # Safety
///
/// `event` must point to an event that ibv_get_async_event(3) has returned, whose object has not been
/// destroyed.
pub(crate) unsafe fn ours_in(event: *const ibv_async_event) -> bool {
    use ibv_event_type::*;
    // SAFETY: `event` points to an event, whose type says which member of the union is in use.
    let event = unsafe { event.read() };
    let about_object = matches!(
        event.event_type,
        IBV_EVENT_CQ_ERR
            | IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED
            | IBV_EVENT_SRQ_ERR
            | IBV_EVENT_SRQ_LIMIT_REACHED
    );
    // SAFETY: the members for queue pairs, completion queues and shared receive queues are addresses of
    // objects, all at the same place; the object has not been destroyed.
    about_object && unsafe { ours(event.element.srq) }
}
