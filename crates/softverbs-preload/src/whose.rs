// SPDX-License-Identifier: BSD-3-Clause
//! Whose object it is. Every object of verbs begins with the address of its context.

use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_mr, ibv_pd, ibv_qp, ibv_srq};

/// An object of verbs whose first field is the address of its context.
pub(crate) trait OfContext {}

macro_rules! of_context {
    ($($object:ident),*) => { $(
        impl OfContext for $object {}
        const _: () = assert!(std::mem::offset_of!($object, context) == 0);
    )* };
}

of_context!(ibv_comp_channel, ibv_cq, ibv_mr, ibv_pd, ibv_qp, ibv_srq);

/// Whether an object belongs to `soft0`; not if it is NULL.
///
/// # Safety
///
/// `object` must be NULL or an object that has not been destroyed.
pub(crate) unsafe fn ours<T: OfContext>(object: *const T) -> bool {
    // SAFETY: `object` is not NULL, so it is a valid object, which begins with the address of its context.
    !object.is_null() && softverbs::owns(unsafe { object.cast::<*const ibv_context>().read() })
}
