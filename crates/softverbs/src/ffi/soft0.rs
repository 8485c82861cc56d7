// SPDX-License-Identifier: BSD-3-Clause
//! The context of the device `soft0` with the functions of verbs in its slots. What those functions need of
//! the context is in [`super::context`].

use rdma_sys::{ibv_context, ibv_device};
use std::ptr::addr_of;

use super::context::get_or_make;
use super::{ops, verbs};

/// The context of the software device, one per process. It takes some memory, no descriptor and no thread.
///
/// Source: the `ibv_context` of ibv_open_device(3).
pub fn context() -> *mut ibv_context {
    get_or_make(|context| {
        context.query_device_ex = Some(verbs::query_device_slot);
        context.query_port = Some(verbs::query_port_slot);
        context.create_qp_ex = Some(verbs::create_qp_slot);
        context.create_cq_ex = Some(verbs::create_cq_slot);
        context.advise_mr = Some(verbs::advise_mr_slot);
        context.context.ops = ops::table();
    })
}

/// The software device.
pub fn device() -> *mut ibv_device {
    // SAFETY: the context is never freed, and its device never changes.
    unsafe { addr_of!((*context()).device).read() }
}

#[cfg(test)]
mod tests {
    use rdma_sys::ibv_transport_type;

    use super::*;
    use crate::ffi::context::{EXTENDED, owns};

    #[test]
    fn a_context_is_known_by_its_address() {
        let soft = context();
        assert!(owns(soft));
        assert_eq!(soft, context());
        assert!(!owns(std::ptr::null()));
        assert!(!owns(0x10 as *const ibv_context), "never dereferenced");
    }

    #[test]
    fn the_context_says_what_it_is() {
        let soft = context();
        // SAFETY: the device and the context are never freed, and nothing writes to them.
        unsafe {
            let device = (*soft).device;
            assert_eq!((*device).transport_type, ibv_transport_type::IBV_TRANSPORT_IWARP);
            assert_eq!((*soft).abi_compat, EXTENDED);
            assert!((*soft).ops.post_send.is_some());
        }
    }
}
