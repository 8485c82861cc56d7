// SPDX-License-Identifier: BSD-3-Clause
//! Verbs: the device, protection domains, memory regions and windows, completion channels and queues, shared
//! receive queues, queue pairs.
//!
//! Names, signatures and error conventions are those of the manual pages of libibverbs (`ibv_alloc_pd(3)` and
//! so on): a function that creates an object returns NULL and sets errno on failure; the others return 0 or a
//! positive errno value, unless their manual page says otherwise. Each object belongs to the program, which
//! destroys it with the matching function; destroying an object that others use fails with EBUSY. All
//! functions are thread-safe, but as with any provider a program must not destroy an object while another
//! thread uses it.
//!
//! No function checks an object argument for NULL or for having been destroyed, like those of libibverbs.

mod absent;
mod ah;
mod atomic;
mod channel;
mod cq;
mod cq_ex;
mod device;
mod events;
mod extended_op;
mod gid;
mod interfaces;
mod iwarp;
mod mr;
mod multicast;
mod mw;
mod open;
mod pd;
mod qp;
mod qp_ex;
mod qp_object;
mod qp_state;
mod rereg;
mod roce;
mod section;
mod srq;
#[cfg(test)]
mod testing;
mod transport;
mod wr_builder;

pub use absent::*;
pub use ah::*;
pub(crate) use atomic::{atomic_of, read_atomic_wr};
pub use channel::{ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event};
pub(crate) use cq::CqObject;
pub use cq::{ending, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub(crate) use cq_ex::create_cq_slot;
pub use device::{
    ibv_get_device_guid, ibv_get_device_index, ibv_get_device_name, ibv_get_pkey_index, ibv_query_device,
    ibv_query_device_ex, ibv_query_pkey, ibv_query_port,
};
pub(crate) use device::{query_device_slot, query_port_slot, query_rt_values_slot};
pub use events::{ibv_ack_async_event, ibv_get_async_event};
pub use gid::{_ibv_query_gid_ex, _ibv_query_gid_table, GidEntry, ibv_query_gid, ibv_query_gid_type};
pub(crate) use mr::advise_mr_slot;
pub use mr::{ibv_advise_mr, ibv_dereg_mr, ibv_reg_mr, ibv_reg_mr_iova, ibv_reg_mr_iova2, own_memory};
pub(crate) use multicast::require_multicast;
pub use multicast::{ibv_attach_mcast, ibv_detach_mcast};
pub(crate) use mw::{alloc_mw, bind_mw, dealloc_mw, read_window_wr};
pub use open::{ibv_close_device, ibv_open_device, with_async_events};
pub use pd::{ibv_alloc_pd, ibv_dealloc_pd};
pub(crate) use qp::{are_of, create_qp, create_qp_slot, destroy_qp, enter_init, extended};
pub use qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};
pub use qp_ex::ibv_qp_to_qp_ex;
pub(crate) use qp_object::QpObject;
pub use rereg::ibv_rereg_mr;
pub(crate) use roce::{
    datagram_path, destination, init_for_datagrams, init_of_cm, receive_of_cm, send_of_cm,
};
pub(crate) use srq::SrqObject;
pub use srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};

use std::ptr::null_mut;

use crate::sys::{Errno, set_errno};
use crate::{choice, config};

/// The number of the only port.
const PORT: u8 = 1;
/// The only partition key: the default partition, with full membership.
const PKEY: u16 = 0xffff;

/// The transport of the device (SOFTVERBS_TRANSPORT).
pub(crate) fn transport() -> &'static dyn transport::Transport {
    match choice::transport() {
        config::Transport::Iwarp => &iwarp::Iwarp,
        config::Transport::Roce => &roce::Roce,
    }
}

/// Sets errno and returns NULL.
fn null_with<T>(e: Errno) -> *mut T {
    set_errno(e);
    null_mut()
}

/// The pointer, or NULL with errno set.
fn or_null<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(null_with)
}
