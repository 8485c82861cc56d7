// SPDX-License-Identifier: BSD-3-Clause
//! Events as C structures.

use libc::c_int;
use rdma_sys::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use std::ptr::{addr_of, null_mut};

use super::finish;
use super::handle::new_requested_id;
use crate::cancel::Whole;
use crate::cm::event::Event;
use crate::cm::id::{self, Channel};
use crate::ffi::object::Object;
use crate::limits::MAX_PRIVATE_DATA_IN;
use crate::sys::Errno;

use super::channel::{borrowed_queue, is_hidden};

/// The C structure of an event, the private data that it points to, and its reason.
type EventObject = Object<rdma_cm_event, (Vec<u8>, Option<String>)>;

/// Why the connection attempt failed that this event reports; `None`: it reports no failure, or the reason is
/// not known.
///
/// # Safety
///
/// `event` must be one of [`rdma_get_cm_event`] that has not been acknowledged.
pub unsafe fn event_reason<'a>(event: *mut rdma_cm_event) -> Option<&'a str> {
    // SAFETY: the caller guarantees an event that has not been acknowledged, so the object is alive.
    let (_, reason) = unsafe { EventObject::own(event) };
    reason.as_deref()
}

/// Gets the next event of a channel. A connect request has a new identifier, which is synchronous if the
/// listening one is. EINVAL for NULL, and then takes no event; EAGAIN or EINTR, as a read of the descriptor
/// fails.
///
/// # Safety
///
/// As for rdma_get_cm_event(3).
pub unsafe fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `channel` is NULL, or was returned by rdma_create_event_channel and has not been destroyed
    // (rdma_get_cm_event(3)).
    let taken = unsafe { take_event(channel) };
    // SAFETY: `event` is not NULL, so it points to a pointer for the result (rdma_get_cm_event(3)).
    finish(taken.map(|c| unsafe { event.write(c) }))
}

/// As [`rdma_get_cm_event`]; the thread may be cancelled while it waits.
///
/// # Safety
///
/// `channel` must be NULL, or a channel of softverbs that has not been destroyed.
pub(super) unsafe fn take_event(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: `channel` is NULL or has not been destroyed.
    let queue = unsafe { borrowed_queue(channel) }.ok_or(libc::EINVAL)?;
    let _whole = Whole::new();
    let taken = queue.take()?;
    // SAFETY: `channel` has not been destroyed, and the event comes from its queue.
    Ok(unsafe { present(channel, queue, taken) })
}

/// The next event of a channel that is not NULL, if there is one; does not wait.
///
/// # Safety
///
/// As for [`take_event`].
pub(super) unsafe fn try_take_event(channel: *mut rdma_event_channel) -> Option<*mut rdma_cm_event> {
    // SAFETY: `channel` is NULL or has not been destroyed.
    let queue = unsafe { borrowed_queue(channel) }?;
    let taken = queue.try_take()?;
    // SAFETY: `channel` has not been destroyed, and the event comes from its queue.
    Some(unsafe { present(channel, queue, taken) })
}

/// The C structure of an event from the queue of a channel.
///
/// # Safety
///
/// `channel` must not have been destroyed, and `taken` come from its queue.
unsafe fn present(channel: *mut rdma_event_channel, queue: &Channel, mut taken: Event) -> *mut rdma_cm_event {
    let about = taken.id as *mut rdma_cm_id;
    match taken.request.take().filter(|_| id::is_connect_request(&taken)) {
        // SAFETY: `about` is the listening identifier, which has not been destroyed: rdma_destroy_id
        // withdraws the events of an identifier. `channel` has not been destroyed.
        Some(request) => unsafe {
            let context = addr_of!((*about).context).read();
            let on = (!is_hidden(channel)).then(|| (channel, queue.clone()));
            event_to_c(taken, new_requested_id(on, context, request.fetch()), about)
        },
        None => event_to_c(taken, about, null_mut()),
    }
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
pub(super) fn event_to_c(
    event: Event,
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
) -> *mut rdma_cm_event {
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
    EventObject::create(c, (private_data, event.reason))
}
