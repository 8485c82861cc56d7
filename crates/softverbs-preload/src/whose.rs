// SPDX-License-Identifier: BSD-3-Clause
//! The owner of a verbs object: softverbs, or the real library. Every object begins with the address of its
//! context, which is compared with that of `soft0`.

use rdma_sys::{
    ibv_ah, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_dm, ibv_event_type, ibv_mr, ibv_pd,
    ibv_qp, ibv_srq,
};

/// A verbs object whose first field is the address of its context.
pub(crate) trait OfContext {}

macro_rules! of_context {
    ($($object:ident),*) => { $(
        impl OfContext for $object {}
        const _: () = assert!(std::mem::offset_of!($object, context) == 0);
    )* };
}

of_context!(ibv_ah, ibv_comp_channel, ibv_cq, ibv_dm, ibv_mr, ibv_pd, ibv_qp, ibv_srq);

/// Whether an object belongs to `soft0`. False for NULL.
///
/// # Safety
///
/// `object` must be NULL or a verbs object of any device that has not been destroyed.
pub(crate) unsafe fn ours<T: OfContext>(object: *const T) -> bool {
    // SAFETY: `object` is not NULL, so the caller guarantees an object that has not been destroyed; it begins
    // with the address of its context (asserted for each type above).
    !object.is_null() && softverbs::owns(unsafe { object.cast::<*const ibv_context>().read() })
}

/// Whether the object of an asynchronous event belongs to `soft0`. False for events of ports and devices,
/// which softverbs does not have.
///
/// # Safety
///
/// `event` must point to an event that ibv_get_async_event(3) has returned, whose object has not been
/// destroyed.
pub(crate) unsafe fn ours_in(event: *const ibv_async_event) -> bool {
    use ibv_event_type::*;
    // SAFETY: the caller guarantees that `event` points to an event; it holds only integers and addresses,
    // and is copied.
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
    // SAFETY: events of this type have the address of a queue pair, completion queue or shared receive queue
    // in the union, whose members share one place; the caller guarantees that the object has not been
    // destroyed.
    about_object && unsafe { ours(event.element.srq) }
}
