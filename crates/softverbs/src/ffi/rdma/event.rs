// SPDX-License-Identifier: BSD-3-Clause
//! Events as C structures.

use libc::c_int;
use rdma_sys::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use std::ptr::{addr_of, null_mut};

use super::finish;
use super::id::new_requested_id;
use crate::cancel::Whole;
use crate::cm::event::Event;
use crate::cm::id;
use crate::ffi::object::Object;
use crate::limits::MAX_PRIVATE_DATA_IN;

use super::channel::borrowed_queue;

/// The C structure of an event, and the private data that it points to.
type EventObject = Object<rdma_cm_event, Vec<u8>>;

/// Gets the next event of a channel. A connect request has a new identifier. EINVAL for NULL; EAGAIN or EINTR, as a read of the descriptor
/// fails.
///
/// # Safety
///
/// As for rdma_get_cm_event(3).
pub unsafe fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    // SAFETY: `channel` was returned by rdma_create_event_channel and has not been destroyed (rdma_get_cm_event(3)).
    let Some(queue) = (unsafe { borrowed_queue(channel) }) else { return finish(Err(libc::EINVAL)) };
    let _whole = Whole::new();
    let mut taken = match queue.take() {
        Ok(taken) => taken,
        Err(e) => return finish(Err(e)),
    };
    let queue = queue.clone();
    let about = taken.id as *mut rdma_cm_id;
    let c = match taken.request.take().filter(|_| id::is_connect_request(&taken)) {
        // SAFETY: `about` is the listening identifier, which has not been destroyed: rdma_destroy_id withdraws the events of an
        // identifier.
        Some(request) => unsafe {
            let context = addr_of!((*about).context).read();
            let new = new_requested_id(channel, queue, context, request.fetch());
            event_to_c(taken, new, about)
        },
        None => event_to_c(taken, about, null_mut()),
    };
    // SAFETY: `event` points to a pointer for the result (rdma_get_cm_event(3)).
    unsafe { event.write(c) };
    0
}

/// Acknowledges an event and frees it with its private data.
///
/// # Safety
///
/// As for rdma_ack_cm_event(3).
pub unsafe fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `event` was returned by rdma_get_cm_event and is acknowledged only once (rdma_ack_cm_event(3)).
    unsafe { EventObject::free(event) };
    0
}

/// Creates the C structure of an event with these values of `id` and `listen_id`.
fn event_to_c(event: Event, id: *mut rdma_cm_id, listen_id: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let mut private_data = event.private_data;
    // The length of private data has 8 bits in rdma_cm.
    private_data.truncate(MAX_PRIVATE_DATA_IN);
    // SAFETY: all-zero is a valid rdma_cm_event.
    let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
    c.id = id;
    c.listen_id = listen_id;
    c.event = event.kind;
    c.status = event.status;
    let len = private_data.len() as u8;
    c.param.conn = rdma_conn_param {
        private_data: if len == 0 { std::ptr::null() } else { private_data.as_ptr().cast() },
        private_data_len: len,
        responder_resources: event.responder_resources,
        initiator_depth: event.initiator_depth,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    };
    EventObject::create(c, private_data)
}
