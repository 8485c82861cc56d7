// SPDX-License-Identifier: BSD-3-Clause
//! The complete context of the device `soft0`: that of [`super::context`] with the types of the transport and
//! the functions of verbs in its slots.
//!
//! It is a file by itself because it names the functions of verbs, which in turn only need to know whether an
//! object belongs to the context.

use rdma_sys::{ibv_context, ibv_device};
use std::ptr::addr_of;

use super::context::get_or_make;
use super::{ops, verbs};

/// The context of the software device, as returned by ibv_open_device(3). There is one per process; it is
/// created by the first call, never fails, and stays valid until the process ends. It needs memory, but no
/// descriptor and no thread.
pub fn context() -> *mut ibv_context {
    get_or_make(|device, context| {
        (device.transport_type, device.node_type) = verbs::transport().types();
        context.query_device_ex = Some(verbs::query_device_slot);
        context.query_rt_values = Some(verbs::query_rt_values_slot);
        context.query_port = Some(verbs::query_port_slot);
        context.create_qp_ex = Some(verbs::create_qp_slot);
        context.create_cq_ex = Some(verbs::create_cq_slot);
        context.advise_mr = Some(verbs::advise_mr_slot);
        context.open_xrcd = Some(verbs::open_xrcd_slot);
        context.context.ops = ops::table();
    })
}

/// The software device `soft0`, valid until the process ends.
pub fn device() -> *mut ibv_device {
    // SAFETY: the context is never freed, and its field `device` is not written after it was created.
    unsafe { addr_of!((*context()).device).read() }
}

#[cfg(test)]
mod tests {
    use rdma_sys::ibv_transport_type;

    use super::*;
    use crate::ffi::context::{EXTENDED, owns};

    #[test]
    fn a_context_is_recognised_by_its_address() {
        let soft = context();
        assert!(owns(soft));
        assert_eq!(soft, context());
        assert!(!owns(std::ptr::null()));
        assert!(!owns(0x10 as *const ibv_context), "never dereferenced");
    }

    #[test]
    fn the_context_describes_an_extended_iwarp_device() {
        let context = context();
        // SAFETY: the device and the context are never freed, and no test writes to these fields.
        unsafe {
            let device = (*context).device;
            assert_eq!((*device).transport_type, ibv_transport_type::IBV_TRANSPORT_IWARP);
            assert_eq!((*context).abi_compat, EXTENDED);
            assert!((*context).ops.post_send.is_some());
        }
    }
}
