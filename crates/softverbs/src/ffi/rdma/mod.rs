// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm: event channels, communication identifiers and connections.
//!
//! Names, signatures and error conventions are those of the manual pages of librdmacm (`rdma_connect(3)` and
//! so on): 0, or -1 and errno, unless the manual page says otherwise. Each identifier and channel belongs to
//! the program, which destroys it with the matching function. An identifier created without an event channel
//! is synchronous: its calls wait for their outcome. Unlike with librdmacm, an identifier with unacknowledged
//! events can be destroyed.
//!
//! A function documented with "EINVAL" for NULL checks its pointers; the others require valid ones. The
//! functions are thread-safe, but an identifier must not be destroyed, nor be given its queue pair or shared
//! receive queue, while another thread uses it.

mod addrinfo;
mod attr;
mod channel;
mod connect;
mod devices;
mod ece;
mod ep;
mod event;
mod exit;
mod handle;
mod id;
mod multicast;
mod option;
mod param;
mod pd;
mod port;
mod qp;
mod queues;
mod route;
mod srq;
mod sync;

pub use addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub use attr::rdma_init_qp_attr;
pub use channel::{rdma_create_event_channel, rdma_destroy_event_channel};
pub use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_listen, rdma_notify, rdma_reject,
    rdma_reject_ece,
};
pub use devices::{rdma_free_devices, rdma_get_devices};
pub use ece::{rdma_get_remote_ece, rdma_set_local_ece};
pub use ep::{rdma_create_ep, rdma_destroy_ep, rdma_get_request};
pub use event::{event_reason, rdma_ack_cm_event, rdma_get_cm_event};
pub use id::{
    rdma_bind_addr, rdma_create_id, rdma_destroy_id, rdma_migrate_id, rdma_resolve_addr, rdma_resolve_route,
};
pub use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub use option::rdma_set_option;
pub use port::{rdma_get_dst_port, rdma_get_src_port};
pub use qp::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp};
pub use srq::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};

use libc::c_int;

use crate::sys::{Errno, set_errno};

/// 0, or -1 with errno set.
fn finish(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}
